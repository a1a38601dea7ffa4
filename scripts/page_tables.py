"""What a report's page shows, as plain values for its template: tables, texts, and the charts by name."""

import statistics

import page_charts as charts
from report_file import (build_of, card_of, ends, finite, is_prefill, is_quantised, label_of, labels_of, position_of,
                         ranked_comparison, rate_ends, timed)

ROWS_SHOWN = 250  # first rows of a parity table; later ones are shown only if they are not exact
RATIOS_BESIDE = 6  # a chart of more ratios has a row of the page to itself, below the other charts of its case
GOOD = ("PASS", "PASS_LIVE")


class Page:
    """Collects charts and the samples that they share while the runs are laid out."""

    def __init__(self):
        self.palette = charts.Palette()
        self.charts, self.data = [], {}
        self.has_ceiling = False

    def chart(self, title: str, note: str, spec: dict, wide: bool = False) -> dict:
        name = f"chart-{len(self.charts)}"
        self.charts.append({"id": name, "spec": spec})
        return {"id": name, "title": title, "note": note, "wide": wide}

    def add_engines(self, case: dict) -> None:
        """Gives each engine that is drawn its colour."""
        labels = labels_of(case)
        self.has_ceiling |= bool((case.get("ceiling") or {}).get("ms_per_tok"))
        for engine in timed(case):
            self.palette.add(labels[engine["name"]], engine["resolved_name"], engine["name"])

    def add_samples(self, rows: list) -> str:
        name = f"samples-{len(self.data)}"
        self.data[name] = charts.table(rows)
        return name


def kind_of(verdict: str) -> str:
    """The class of a verdict in the style sheet."""
    return "good" if verdict in GOOD else "open" if verdict in ("SKIPPED", "INCOMPLETE", "INTERRUPTED", "INCONCLUSIVE",
                                                                "NOT_JUDGED") else "bad"


def point(x: int, label: str, kind: str, value: float, interval: tuple, text: str) -> dict:
    low, high = interval if interval[0] is not None else (value, value)
    return {"engine": label, "kind": kind, "x": x, "value": finite(value), "low": low, "high": high, "text": text,
            "label": f"{label}: {text}"}


def measures(case: dict, x: int) -> dict:
    """Points of the three kinds of figures: rate, ms, share. The ceiling is a point of the first two."""
    found, labels = {"rate": [], "ms": [], "share": []}, labels_of(case)
    for engine in timed(case):
        label, ms = labels[engine["name"]], ends(engine["ms_per_tok"]["ci"])
        rate, mean = rate_ends(engine), engine["ms_per_tok"]["mean"]
        found["rate"].append(point(x, label, "engine", engine["tok_per_s"], rate,
                                   charts.with_interval(engine["tok_per_s"], *rate)))
        found["ms"].append(point(x, label, "engine", mean, ms, charts.with_interval(mean, *ms)))
        share = share_of(engine)
        if share:
            found["share"].append(point(x, label, "engine", *share, percent_text(*share)))
    ceiling = (case.get("ceiling") or {}).get("ms_per_tok")
    if ceiling:
        low, high = ends(ceiling["ci"])
        mean = ceiling["mean"]
        found["ms"].append(point(x, charts.CEILING, "ceiling", mean, (low, high), charts.with_interval(mean, low, high)))
        rate = (1000 / high, 1000 / low) if low is not None else (None, None)
        found["rate"].append(point(x, charts.CEILING, "ceiling", 1000 / mean, rate,
                                   charts.with_interval(1000 / mean, *rate)))
    return found


def share_of(engine: dict):
    """(per cent of the ceiling's rate, its interval); None where no ceiling was timed."""
    if engine.get("share") is None:
        return None
    return 100 * engine["share"], tuple(None if end is None else 100 * end for end in ends(engine.get("share_ci")))


def percent_text(value: float, interval: tuple) -> str:
    return f"{value:.1f}" + (f" [{interval[0]:.1f}, {interval[1]:.1f}]" if interval[0] is not None else "") + " %"


def result_rows(case: dict, x: int, said: str = "") -> list:
    """Rows of the table: texts alone. said: what the page has told already, here and in what follows."""
    rows, labels = [], labels_of(case)
    for engine in case["engines"]:
        if not engine.get("timed", True) and engine["verdict"] in GOOD:  # a baseline that only judged parity
            continue
        row = {"x": f"{x:,}", "engine": labels[engine["name"]], "full": label_of(engine), "role": engine["role"],
               "verdict": engine["verdict"], "kind": kind_of(engine["verdict"]), "rate": "-", "ms": "-",
               "share": "-", "ttft": "-", "prefill": "-", "speedup": "baseline" if engine["role"] == "baseline" else "-",
               "parity": parity_text(engine), "why": withheld(engine, said), "quantised": is_quantised(engine),
               "caution": engine.get("observed", {}).get("caution", "")}
        if engine["ms_per_tok"] is not None:
            row |= {"rate": charts.with_interval(engine["tok_per_s"], *rate_ends(engine)),
                    "ms": charts.with_interval(engine["ms_per_tok"]["mean"], *ends(engine["ms_per_tok"]["ci"]))}
            if share := share_of(engine):
                row["share"] = percent_text(*share)
            for field in ("ttft", "prefill"):
                if engine.get(f"{field}_ms") is not None:
                    row[field] = charts.digits(engine[f"{field}_ms"])
        comparison = ranked_comparison(case, engine)
        if comparison and engine["ms_per_tok"] is not None:
            row["speedup"] = charts.with_interval(comparison["speedup"], *ends(comparison["ci"]), "x")
            row["speedup_verdict"] = comparison["verdict"]
        rows.append(row)
    return rows


def withheld(engine: dict, said: str) -> str:
    """Why an engine has no times; empty if it has some, or if that is said already."""
    if engine["ms_per_tok"] is not None or not engine.get("timed", True) and engine["verdict"] in GOOD:
        return ""
    told = list(dict.fromkeys(text for text in (*engine["reasons"], engine["times_withheld"]) if text))
    why = [text for text in told if text not in said and not any(text in other for other in told if other != text)]
    return "; ".join(why) if told else "no reason is given"


def parity_text(engine: dict) -> str:
    parity = engine["parity"]
    if not parity:
        return "not judged"
    return f"{parity['strict_matched']:,} of {parity['strict_steps']:,}" if parity["strict_steps"] else "none is sure"


def no_figure(parity: dict) -> str:
    """Why no logit errors of a failure are drawn; empty if they are, or if nothing failed."""
    localised = parity.get("localised", "")
    if parity.get("error_by_position") or not localised and kind_of(parity["verdict"]) != "bad":
        return ""
    return ("no single step shows this failure" if not parity.get("failed_step") else
            "the step was not repeated" if localised.startswith("not localised") else "this engine shows no logits")


def parity_of(case: dict, said: str) -> list:
    """What was judged of each engine, with the rows of its table that are shown."""
    found, labels = [], labels_of(case)
    for engine in case["engines"]:
        parity = engine["parity"]
        if not parity:
            continue
        rows = [row for i, row in enumerate(parity["rows"]) if i < ROWS_SHOWN or row["match"] != "EXACT"]
        checks = [{"name": c["name"], "status": c["status"].replace("_", " "), "detail": c["detail"],
                   "value": "" if c["value"] is None else number_text(c["value"]),
                   "limit": "" if c["limit"] is None else number_text(c["limit"])} for c in parity["checks"]]
        counts = f"{parity['exact']:,} exact, {parity['ties']:,} ties, {parity['drifts']:,} drifts, {parity['wrong']:,} wrong"
        found.append({"engine": labels[engine["name"]], "verdict": parity["verdict"], "kind": kind_of(parity["verdict"]),
                      "reason": "" if parity["reason"] in said else parity["reason"], "judged_in": parity.get("judged_in", ""), "counts": counts,
                      "strict": parity_text(engine), "localised": parity.get("localised", ""),
                      "bug": parity.get("diagnosis", {}).get("text", ""), "facts": parity.get("facts", []),
                      "no_figure": no_figure(parity),
                      "command": (parity.get("failed_step") or {}).get("command", ""),
                      "prompt": parity.get("text_prompt", ""), "text": parity.get("text", ""),
                      "checks": checks, "rows": rows, "all": len(parity["rows"])})
    return sorted(found, key=lambda judged: judged["kind"] != "bad")  # what failed first


def number_text(value: float) -> str:
    return f"{value:,.4g}" if abs(finite(value)) < 1e4 else f"{value:,.0f}"


def samples_of(case: dict) -> list:
    """Samples of all engines whose times are shown, dropped ones too, and of the ceiling."""
    rows, labels = [], labels_of(case)
    takers = [(labels[e["name"]], e["samples"] + e.get("dropped_samples", [])) for e in timed(case)]
    ceiling = case.get("ceiling") or {}
    if ceiling.get("ms_per_tok"):
        takers.append((charts.CEILING, ceiling["samples"]))
    for label, samples in takers:
        rates = [s["times"]["host_ms"] / s["tokens"] for s in samples if s["valid"] and not s.get("dropped_for")]
        if not rates:
            continue
        middle = statistics.median(rates)
        for s in samples:
            ms, card, times = s["times"]["host_ms"] / s["tokens"], s.get("card") or {}, s["times"]
            mhz = finite(card.get("sm_clock_mhz"))
            rows.append({"engine": label, "process": s.get("process", 0), "block": s["block"], "ms": finite(round(ms, 6)),
                         "off": round(100 * (ms / middle - 1), 4),
                         "clock": round(mhz / 1000, 4) if mhz else round(times.get("sm_ghz") or 0, 4) or None,
                         "power": finite(card.get("power_w")), "temperature": finite(card.get("temperature_c")),
                         "dropped": s.get("dropped_for") or ("" if s["valid"] else s["invalid_reason"])})
    return rows


def sample_charts(page: Page, case: dict) -> list:
    rows = samples_of(case)
    if not rows:
        return []
    name = page.add_samples(rows)
    made = [
        page.chart("Distribution of the samples", "A tick is a block's sample, the box the middle half of them. All "
                   "engines share one axis: each stands around its own median.",
                   charts.distribution(name, rows, page.palette)),
        page.chart("Samples in the order taken", "A drift or a step shows that the machine was not at rest. A cross is "
                   "a block that was dropped and run again.",
                   charts.series(name, rows, page.palette, "off", "% from its median")),
    ]
    for field, title, unit in (("clock", "SM clock during the samples", "GHz"), ("power", "Power during the samples", "W")):
        if any(row[field] is not None for row in rows):
            note = "The driver's reading; without one, the kernel's own measurement." if field == "clock" else \
                "Mean of the driver's readings during each sample."
            made.append(page.chart(title, note, charts.series(name, rows, page.palette, field, unit)))
    return made


def failures(case: dict) -> list:
    """(engine, title, note, chart) of what the report knows of the place where an engine's errors begin."""
    made, labels = [], labels_of(case)
    for engine in case["engines"]:
        parity, label = engine["parity"] or {}, labels[engine["name"]]
        step = parity.get("failed_step") or {}
        # Errors of a baseline without any cannot be drawn on a logarithmic axis.
        by_position, by_layer = ([e for e in errors or [] if e["baseline_error"]] for errors in (
            parity.get("error_by_position"), step.get("error_by_layer")))
        if by_position:
            made.append((label, f"Errors of {label} by position", f"Prompt {step.get('prompt', '')!r}; dotted: the step that is "
                         "repeated. Steps with logits that are not finite are left out.", charts.errors(
                             by_position, label, "position", "2-norm of the error of the logits", step.get("position"))))
        if by_layer:
            first = next((e["at"] for e in by_layer if e["error"] is None or e["error"] > e["limit"]), None)
            made.append((label, f"Errors of {label} by layer", f"Hidden states at position {step['position']}; dotted: the "
                         "first layer out of its band.", charts.errors(
                             by_layer, label, "layer", "error over size, squared", first)))
    return made


def ratio_rows(case: dict) -> list:
    labels, rows = labels_of(case), []
    for c in case["comparisons"]:
        pair = f"{labels.get(c['candidate'], c['candidate'])} over {labels.get(c['baseline'], c['baseline'])}"
        row = {"key": pair, "value": finite(c["speedup"]), "verdict": c["verdict"], "blocks": c["blocks"],
               "margin": c.get("margin", 0), "label": "", "text": "-", "low": None, "high": None,
               "remark": "; ".join(t for t in (c.get("label"), c.get("verdict_reason"), c.get("caveat"),
                                               c.get("speedup_reason")) if t)}
        if row["value"] is not None:
            low, high = ends(c["ci"])
            text = charts.with_interval(row["value"], low, high, "x")
            row |= {"low": row["value"] if low is None else low, "high": row["value"] if high is None else high,
                    "text": text, "label": f"{pair}: {text} {c['verdict']}"}
        rows.append(row)
    return rows


def case_view(page: Page, case: dict, x: int, single: bool, said: str) -> dict:
    """single: the group has no other case, so the group's bars show this case already."""
    made, points = [page.chart(*failure[1:]) for failure in failures(case)], measures(case, x)["ms"]
    if points and not single:
        points.sort(key=lambda p: -p["value"])
        unit = "ms per prompt id" if is_prefill(case) else "ms per token"
        made.append(page.chart("Ladder of the engines", "Every engine of this case, slowest first; the line on a bar is "
                               "its confidence interval.", charts.bars(points, page.palette, unit)))
    rows = ratio_rows(case)
    drawn = [{k: r[k] for k in ("key", "label", "value", "low", "high", "verdict", "text")} for r in rows
             if r["value"] is not None]
    if drawn:
        margin = max(r["margin"] for r in rows)
        outside = f"outside the shaded margin of {100 * margin:.3g} %" if margin else "on one side of 1"
        made.append(page.chart("Paired ratios", "Right of 1 the first of the pair is faster. FASTER and SLOWER need the "
                               f"whole interval {outside}.", charts.ratios(drawn, margin), len(drawn) > RATIOS_BESIDE))
    ceiling = case.get("ceiling") or {}
    return {"name": case["name"], "verdict": case["verdict"], "kind": kind_of(case["verdict"]),
            "reasons": [reason for reason in case["reasons"] if reason not in said], "interrupted": case.get("interrupted", False), "ratios": rows,
            "charts": sorted(made + sample_charts(page, case), key=lambda chart: chart["wide"]), "parity": parity_of(case, said),
            "text": case["generated_text"], "cost": cost_of(case.get("format_cost")),
            "facts": flat({"model": case["model"], "reference": case["reference"], "ids_sha256": case["ids_sha256"],
                           "memory": case.get("memory"), "ceiling": ceiling.get("engine"),
                           "engines": {label_of(e): engine_facts(e) for e in case["engines"]}})}


def cost_of(cost: dict | None) -> list:
    """What a format costs, as rows of a table."""
    if not cost:
        return []
    rows = [("compared with", cost["original"]), ("ids", f"{cost['steps']:,}"), ("KL a step, mean", f"{cost['kl']:.4g}"),
            ("KL a step, largest", f"{cost['largest_kl']:.4g}"), ("same largest logit", f"{cost['same_top']:.1%}")]
    for key, label in (("original_perplexity", "perplexity before"), ("perplexity", "perplexity")):
        value = cost[key]
        rows.append((label, cost[f"{key}_reason"] if value is None else f"{value:.4g} over {cost['text_steps']:,} ids of text"))
    return rows


def engine_facts(engine: dict) -> dict:
    facts = {name: engine.get(name) for name in ("role", "device", "settings", "launches", "receipts_checked",
                                                 "receipts_wrong", "throttle_reasons", "card_reason", "card")}
    trace = engine.get("launch_trace")
    return facts | ({"launch_trace": {k: v for k, v in trace.items() if not isinstance(v, list)}} if trace else {})


def flat(value, path: str = "") -> list:
    """Rows (path, text) of all leaves of a JSON value; nulls and empty texts are left out."""
    if isinstance(value, dict):
        return [row for key, inner in value.items() for row in flat(inner, f"{path}.{key}" if path else key)]
    if value is None or value == "" or value == []:
        return []
    if isinstance(value, list):
        return [(path, ", ".join(str(v) for v in value))]
    return [(path, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))]


def depth_chart(page: Page, kind: str, found: list, prefill: bool, rule=None, labelled: bool = False) -> tuple:
    """(title, chart) of one kind of measures() over the cases of a group: bars where they have one depth."""
    thing = "prompt id" if prefill else "token"
    title, unit = {"rate": (f"{thing}s per second".capitalize(), f"{thing}s per second"),
                   "ms": (f"Milliseconds per {thing}", f"ms per {thing}"),
                   "share": ("Share of the ceiling", "% of the ceiling's rate")}[kind]
    if len({p["x"] for p in found}) == 1:
        found.sort(key=lambda p: p["value"], reverse=kind == "ms")
        return title, charts.bars(found, page.palette, unit, rule)
    scale = {"domain": [0, max(105, *(p["high"] for p in found))], "type": "linear", "nice": False} \
        if kind == "share" else charts.value_scale(found)
    x = charts.depth_axis(sorted({p["x"] for p in found}),
                          "prompt ids" if prefill else "KV rows before the first timed token")
    return f"{title} against {'prompt length' if prefill else 'depth'}", charts.lines(
        found, page.palette, x, unit + (", log scale" if scale["type"] == "log" else ""), scale, rule, labelled)


HINTS = {"rate": "Higher is better.", "ms": "Lower is better.",
         "share": "100 % is an engine that only reads what a step must read, timed in the same blocks."}


def group_view(page: Page, cases: list, prefill: bool, said: str) -> dict:
    """What the page shows of cases that differ in depth alone, or in the length of a prefill alone."""
    at, points = [(position_of(case), case) for case in cases], {kind: [] for kind in HINTS}
    for x, case in at:
        for kind, found in measures(case, x).items():
            points[kind] += found
    made = []
    for kind, found in points.items():
        if found:
            title, spec = depth_chart(page, kind, found, prefill, 100 if kind == "share" else None)
            made.append(page.chart(title, HINTS[kind], spec))
    first, single = cases[0], len(at) == 1
    reasons = dict.fromkeys((c.get("ceiling") or {}).get("reason", "this report has none") for c in cases)
    no_share = "" if points["share"] or not points["ms"] else "; ".join(r for r in reasons if r) or "it was not timed"
    rows = sorted((row for x, case in at for row in result_rows(case, x, said)), key=lambda row: row["quantised"])
    tokens = first["axes"]["n_gen"]
    what = "prefill and the first token" if prefill else f"decode, {tokens:,} tokens a block" if tokens else "parity"
    return {"title": f"{first['model']['name']}: {what}", "axis": "prompt" if prefill else "depth", "prefill": prefill,
            "timed": prefill or tokens > 0, "rows": rows, "charts": made, "no_share": no_share, "has_share": bool(points["share"]),
            "cases": [case_view(page, case, x, single, said) for x, case in at]}


def bugs_of(report: dict) -> list:
    """The known bugs that explain failures: "engine on model: which bug"."""
    return [f"{labels_of(case)[e['name']]} on {case['model']['name']}: {diagnosis['text']}"
            for case in report["cases"] for e in case["engines"]
            if (diagnosis := (e["parity"] or {}).get("diagnosis", {})).get("names")]


def sentence_of(report: dict) -> str:
    """The first case in one sentence, for a message to others: what its quickest candidate, or else its first, came to."""
    case = next((c for c in report["cases"] if any(e["role"] == "candidate" for e in c["engines"])), None)
    if case is None:
        return ""
    candidates = [e for e in case["engines"] if e["role"] == "candidate"]
    engine = min((e for e in timed(case) if e["role"] == "candidate"), key=lambda e: e["ms_per_tok"]["mean"],
                 default=candidates[0])
    x, where = position_of(case), "a CPU" if card_of(report) == "cpu" else card_of(report)
    what = f"{case['model']['name']}, {f'a prompt of {x:,} ids' if is_prefill(case) else f'depth {x:,}'}, on {where}"
    name = labels_of(case)[engine["name"]]
    sure = ""
    if engine["parity"]:
        sure = f" ({parity_text(engine)} sure tokens)" if engine["parity"]["strict_steps"] else " (by its logits)"
    is_what = f"is right{sure}" if engine["verdict"] in GOOD else f"is {engine['verdict']}"
    if engine["ms_per_tok"] is None:
        told = "\n".join(report["verdict"]["reasons"])  # right below
        why = "".join(reason for reason in engine["reasons"][:1] if reason not in told)
        return f"{name} {is_what}: {what}{': ' if why else ''}{why}"
    unit = "ms a prompt id" if is_prefill(case) else "ms a token"
    times = f"{charts.with_interval(engine['ms_per_tok']['mean'], *ends(engine['ms_per_tok']['ci']))} {unit}"
    comparison = ranked_comparison(case, engine)
    speedup = (f", {charts.with_interval(comparison['speedup'], *ends(comparison['ci']), 'x')} the speed of "
               f"{labels_of(case)[comparison['baseline']]} ({comparison['verdict']})") if comparison else ""
    share = f", {percent_text(*found)} of the ceiling" if (found := share_of(engine)) else ""
    return f"{name} {is_what} and takes {times}{speedup}{share}: {what}."


def run_view(page: Page, report: dict, source: str, unverified: str = "") -> dict:
    """What the page shows of one report. unverified: why its figures are not to be trusted."""
    meta, verdict, groups = report["meta"], report["verdict"], {}
    said = "\n".join(verdict["reasons"])
    for case in report["cases"]:
        page.add_engines(case)
        groups.setdefault((case["model"]["name"], case["axes"]["n_gen"], is_prefill(case)), []).append(case)
    return {
        "source": source, "unverified": unverified, "sentence": sentence_of(report),
        "status": verdict["status"], "kind": kind_of(verdict["status"]),
        "exit_code": verdict["exit_code"], "reasons": verdict["reasons"], "interrupted": verdict["interrupted"],
        "device": card_of(report), "on_cpu": card_of(report) == "cpu", "bugs": bugs_of(report),
        "twin": any("host-twin" in (e["name"], e.get("resolved_name")) for case in report["cases"] for e in case["engines"]),
        "made_by": ", ".join(part for part in (build_of(report), str(meta.get("finished", ""))) if part),
        "command": " ".join(str(word) for word in meta.get("argv", [])), "warnings": meta.get("warnings", []),
        "groups": [group_view(page, cases, key[2], said) for key, cases in groups.items()],
        "environment": flat({"env": report["env"], "calibration": report["calibration"],
                             "meta": {k: v for k, v in meta.items() if k not in ("warnings", "options", "runs")}}),
    }
