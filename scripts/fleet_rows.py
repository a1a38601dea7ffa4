"""The rows that one report gives to the store of a fleet: of its cases and engines, samples and parity checks."""

from report_file import ends, gpu_of


def rows_of(report: dict) -> dict:
    meta, verdict, gpu, cpu = report["meta"], report["verdict"], gpu_of(report), report["env"]["cpu"]
    rows = {"results": [], "samples": [], "checks": []}
    for case in report["cases"]:
        add_case(rows, case)
    return rows | {"report": {
        # Identifies the run, whatever the report's bytes: a second report of the same run was copied, or edited.
        "run": f"{meta['output']} {meta['started']} {meta['prompt_seed']}",
        "version": meta["version"], "build_id": meta["build_id"], "git_sha": meta["git_sha"],
        "started": meta["started"], "finished": meta["finished"], "verdict": verdict["status"],
        "exit_code": verdict["exit_code"], "interrupted": int(verdict["interrupted"]),
        "uuid": gpu.get("uuid", ""), "gpu": gpu.get("name", ""), "driver": gpu.get("driver", ""),
        "cpu": f"{cpu['name']}, {cpu['threads']} threads", "temperature_c": gpu.get("temperature_c"),
        "throttle": gpu.get("throttle_text", "")}}


def add_case(rows: dict, case: dict) -> None:
    axes, ceiling = case["axes"], case.get("ceiling") or {}
    ceiling_ms = (ceiling.get("ms_per_tok") or {}).get("mean")
    where = {"case_name": case["name"], "model": case["model"]["name"], "depth": axes["depth"], "n_gen": axes["n_gen"],
             "n_prompt": axes["n_prompt"]}
    for engine in case["engines"]:
        add_engine(rows, where, engine, {"ceiling_ms": ceiling_ms, "ceiling_gb_per_s": ceiling.get("gb_per_s")})
    for sample in ceiling.get("samples", []):
        rows["samples"].append({"case_name": case["name"], "engine": "ceiling"} | sample_row(sample))


def add_engine(rows: dict, where: dict, engine: dict, ceiling: dict) -> None:
    parity, card = engine["parity"] or {}, engine.get("card") or {}
    times = engine["ms_per_tok"] or {}
    low, high = ends(times.get("ci"))
    share_low, share_high = ends(engine.get("share_ci"))
    rows["results"].append(where | {
        "engine": engine["resolved_name"], "role": engine["role"], "timed": int(engine["timed"]),
        "verdict": engine["verdict"], "ms_per_tok": times.get("mean"), "ms_per_tok_low": low, "ms_per_tok_high": high,
        "tok_per_s": engine["tok_per_s"], "share": engine.get("share"), "share_low": share_low, "share_high": share_high,
        **ceiling, "sm_clock_mhz": card.get("sm_clock_mhz"), "dropped": card.get("dropped", 0),
        "throttle": ", ".join(engine["throttle_reasons"]), "parity": parity.get("verdict", ""),
        "reference_sha256": parity.get("reference_sha256", ""), "logits_sha256": parity.get("logits_sha256", "")})
    name = {"case_name": where["case_name"], "engine": engine["resolved_name"]}
    rows["samples"] += [name | sample_row(sample) for sample in engine["samples"] + engine["dropped_samples"]]
    rows["checks"] += [name | {"name": c["name"], "status": c["status"], "value": c["value"], "limit_value": c["limit"],
                               "detail": c["detail"]} for c in parity.get("checks", [])]


def sample_row(sample: dict) -> dict:
    card = sample["card"] or {}
    return {"process": sample["process"], "block": sample["block"], "tokens": sample["tokens"],
            "ms_per_tok": sample["times"]["host_ms"] / sample["tokens"], "valid": int(sample["valid"]),
            "dropped_for": sample["dropped_for"], "sm_clock_mhz": card.get("sm_clock_mhz"),
            "power_w": card.get("power_w"), "temperature_c": card.get("temperature_c"),
            "throttled": card.get("throttled", "")}
