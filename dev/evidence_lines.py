"""What the GPU check must show, line by line, from the files of one folder of evidence.

The folder is what dev/check_report.py collects: the reports of REPORTS, clock.json (the calibration of the clock on
that card), audit.json (`mkbench audit`), and what evidence_logs.py reads. A report's conclusions are taken as they
are, because a step of the GPU check has let `mkbench verify` recompute them from the samples.

Each line rests on source hashes (scripts/source_hash.py): a time or a share of the bandwidth on `speed` alone, parity
of the baseline on `judgement` alone, and every line that holds a kernel to a reference or a baseline on both.
"""

import json
import pathlib

import scripts_path  # noqa: F401
import report_file
from evidence_logs import BOTH, Lines, check_gpu_tests, check_log, check_sanitizer

# Least share of the read bandwidth that the same run measured: full-size model, TOKENS tokens from each depth.
CARDS = ("H200", "H100")
SHARE_BARS = {
    # depth: (H200, H100)
    0: (0.94, 0.95),
    32: (0.92, 0.94),
    64: (0.91, 0.92),
    128: (0.85, 0.88),
    256: (0.85, 0.88),
    512: (0.85, 0.88),
    960: (0.88, 0.90),
    1984: (0.91, 0.90),
    4032: (0.93, 0.93),
    8128: (0.95, 0.95),
    16320: (0.95, 0.95),
    32704: (0.95, 0.95),
}
MAX_SHARE = 1.03  # a larger share means that the ceiling was measured too low
TOKENS = 64
NOT_MEASURED = "not measured"
ENGINES = ("eager", "ring", "plain")
KERNELS = ("ring", "plain")
# Depths at which ring is compared with eager and plain; at the other depths ring runs alone.
COMPARED_DEPTHS = (0, 512, 4032)
# Depth -> largest time of plain in microseconds a token: well below the best public kernel for this model (970 at
# depth 0 and 4,109 at 1,900 on an H200).
PLAIN_BARS_US = {0: 900.0, 4032: 1400.0}
# Largest logit error of ring over plain's: the fixed-point sums of ring may cost this much.
MAX_R_RMS_RATIO = 1.10
MAX_FIRST_TOKEN_US = 30.0
PROMPTS = (512, 2048)
MAX_PREFILL_RATIO = 1.5
# Checks that take long, so that only `mkbench parity` runs them: bit-identical repeats, isolation of sequences, every
# cache length.
WHOLE_PARITY_CHECKS = ("repeats", "isolation", "sweep")
# Least count of decided strict steps of the full-size checkpoint that was trained on the machine itself.
MEMORISED_STEPS = 1500
# Engines of one run, by resolved name, each with the largest number of launches of an untimed decode (None: the
# engine makes many, at least MANY_LAUNCHES a token).
# graph and triton replay one CUDA graph a token, and copy ids before and after it.
STRANGERS = {"eager": None, "graph": 3 * 16, "ring": 1, "plain": 1, "naive-cuda@naive_cuda.so": None,
             "hf": None, "triton@triton_decoder.py": 3 * 16, "extension@extension_decoder.py": None}
MANY_LAUNCHES = 100
MAX_CROSSING_US = 100.0  # what an empty call to an engine in Python may cost
TABLE_DEPTHS = (0, 128, 512, 4096, 16384)
BLOCK_TOKENS = (1, 8, 64, 128)
LEAST_PROCESSES = 5  # processes of each engine that a figure of the README needs
MAX_SHARE_HALF_WIDTH = 0.01  # half the interval of a share, in the README's table
MAX_TELEMETRY_COST = 0.001  # relative slow-down of samples by telemetry
# An injected slow-down, and the power with which it must be seen.
LEAST_SLOW_DOWN, WANTED_POWER = 0.01, 0.9
LEAST_LIVE_RUNS = 10
# Every calibration of a card has a row for comparisons of this many processes.
POWER_PROCESSES = 30


def read(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def cases_of(report: dict, model: str) -> list[dict]:
    return [c for c in report["cases"] if c["model"]["name"] == model]


def engine_of(case: dict, name: str) -> dict:
    """The one engine with this role or resolved name; an empty one, which passes no check, if there is none."""
    found = [e for e in case["engines"] if name in (e["role"], e["resolved_name"])]
    return found[0] if len(found) == 1 else {}


def percent(share) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


# ---- one engine of one case ----

def check_parity(lines: Lines, case: dict, name: str, least_steps: int = 1) -> None:
    engine = engine_of(case, name)
    parity = engine.get("parity") or {}
    steps, matched, decided = (parity.get(k, 0) for k in ("strict_steps", "strict_matched", "decided_steps"))
    lines.add(f"{case['name']}: parity of {engine.get('resolved_name', name)} against the committed reference",
              engine.get("verdict") == "PASS" and parity.get("verdict") == "PASS"
              and len(parity.get("reference_sha256", "")) == 64 and matched == steps
              and steps >= least_steps and (least_steps == 1 or decided >= least_steps),
              f"{matched} of {steps}, {decided} decided, {engine.get('verdict')}",
              "judgement" if engine.get("role") == "baseline" else BOTH)


def check_receipts(lines: Lines, case: dict, name: str) -> None:
    engine = engine_of(case, name)
    timed = sum(s["tokens"] for s in engine.get("samples", []))
    checked, wrong = engine.get("receipts_checked", 0), engine.get("receipts_wrong", -1)
    held_to = case["reference"].get("timed_check")
    lines.add(f"{case['name']}: every timed token of {name} against the closed form",
              held_to == "closed form" and timed > 0 and checked == timed and wrong == 0,
              f"{checked} of {timed} checked by {held_to}, {wrong} wrong")


def check_ring_alone(lines: Lines, case: dict) -> None:
    """Checks the time of the first token (the device's timer starts after the launch itself), and the ablations."""
    ring = engine_of(case, "ring")
    first, steady = ring.get("first_token_ms"), ring.get("itl_p50_ms")
    lines.add(f"{case['name']}: first token of ring within {MAX_FIRST_TOKEN_US:.0f} us of the steady one",
              first and steady and 1000 * abs(first - steady) <= MAX_FIRST_TOKEN_US,
              f"{first} ms, steady {steady} ms", "speed")
    profile = ring.get("profile") or {}
    values = [profile.get(k) for k in ("full_us", "no_waits_us", "no_loads_us")]
    lines.add(f"{case['name']}: both ablations of ring",
              all(isinstance(v, float) and v > 0 for v in values) and profile["binds"] in ("memory", "chain", "both"),
              f"full, without waits, without loads: {values} us", "speed")


# ---- full size: ring at every depth ----

def decode_case(reports: dict, depth: int):
    """The one case of TOKENS tokens at a depth, or None."""
    report = reports.get("full" if depth in COMPARED_DEPTHS else "deep") or {"cases": []}
    found = [c for c in cases_of(report, "synthetic")
             if c["axes"]["n_prompt"] == 0 and c["axes"]["depth"] == depth and c["axes"]["n_gen"] == TOKENS]
    return found[0] if len(found) == 1 else None


def share_table(reports: dict) -> list[dict]:
    """The table of SHARE_BARS with what `full` and `deep` measured; the other card's column says "not measured"."""
    name, rows = str(gpu_of(reports.get("full") or {}).get("name")), []
    for depth, bars in SHARE_BARS.items():
        case = decode_case(reports, depth)
        share = engine_of(case, "ring").get("share") if case else None
        rows.append({"depth": depth, **{
            card: {"bar": bar, "share": NOT_MEASURED if share is None or card not in name else round(share, 4)}
            for card, bar in zip(CARDS, bars)}})
    return rows


def check_shares(lines: Lines, reports: dict) -> None:
    for row in share_table(reports):
        measured = [row[card] for card in CARDS if row[card]["share"] != NOT_MEASURED]
        lines.add(f"depth {row['depth']}: ring reaches its share of the ceiling",
                  len(measured) == 1 and measured[0]["bar"] <= measured[0]["share"] <= MAX_SHARE,
                  f"{percent(measured[0]['share'])} of at least {percent(measured[0]['bar'])}" if measured
                  else f"{NOT_MEASURED} on one of {', '.join(CARDS)}", "speed")


def check_depth(lines: Lines, case: dict) -> None:
    depth = case["axes"]["depth"]
    compared = depth in COMPARED_DEPTHS
    for name in ENGINES if compared else ("ring",):
        check_parity(lines, case, name)
        check_receipts(lines, case, name)
    check_ring_alone(lines, case)
    if depth in PLAIN_BARS_US:
        median = (engine_of(case, "plain").get("ms_per_tok") or {}).get("median")
        lines.add(f"{case['name']}: plain under {PLAIN_BARS_US[depth]:.0f} us a token",
                  median and 1000 * median < PLAIN_BARS_US[depth], f"{median} ms", "speed")
    speedups = [c for c in case["comparisons"] if (c["baseline"], c["candidate"]) == ("eager", "ring")]
    verdicts = [c["verdict"] for c in speedups if compared or c["speedup"] is not None]
    lines.add(f"{case['name']}: ring is {'faster than eager' if compared else 'alone, without a speed-up'}",
              verdicts == (["FASTER"] if compared else []), ", ".join(verdicts) or "not compared")


def check_full(lines: Lines, report: dict) -> None:
    for prompt in PROMPTS:
        case = next((c for c in cases_of(report, "synthetic") if c["axes"]["n_prompt"] == prompt), {"engines": []})
        ring, eager = engine_of(case, "ring"), engine_of(case, "eager")
        times = [e.get("host_ms") if e.get("verdict") == "PASS" else None for e in (ring, eager)]
        closed = case.get("reference", {}).get("timed_check") == "closed form"
        lines.add(f"pp{prompt}: prefill of ring at most {MAX_PREFILL_RATIO} x eager's",
                  closed and ring.get("receipts_checked", 0) > 0 and ring.get("receipts_wrong") == 0
                  and all(times) and times[0] <= MAX_PREFILL_RATIO * times[1],
                  f"{times} ms, {ring.get('receipts_wrong')} receipts wrong")
    r_rms = {name: [e["parity"]["r_rms"] for c in cases_of(report, "synthetic") for e in c["engines"]
                    if e["resolved_name"] == name and not e["parity"]["judged_in"]] for name in KERNELS}
    positive = all(values and all(v > 0 for v in values) for values in r_rms.values())  # false for a NaN
    lines.add(f"R_rms of ring at most {MAX_R_RMS_RATIO:.2f} x plain's",
              positive and max(r_rms["ring"]) <= MAX_R_RMS_RATIO * min(r_rms["plain"]), r_rms)


# ---- the other reports ----

def check_tiny(lines: Lines, report: dict) -> None:
    for model in ("tiny", "tiny-untied"):
        cases = cases_of(report, model)
        lines.add(f"cases of {model}", bool(cases), len(cases))
        for case in cases:
            for role in ("baseline", "candidate"):
                check_parity(lines, case, role)


def check_whole_parity(lines: Lines, report: dict) -> None:
    """Checks that in `mkbench parity` on the analytic checkpoint no check failed and the long ones ran."""
    case, = cases_of(report, "synthetic")
    for name in KERNELS:
        check_parity(lines, case, name)
        status = {c["name"]: c["status"] for c in engine_of(case, name)["parity"]["checks"]}
        bad = [c for c, s in status.items() if s == "failed"]
        bad += [f"{c}: did not run" for c in WHOLE_PARITY_CHECKS if status.get(c) not in ("passed", "failed")]
        lines.add(f"gate alone: all checks of {name}", not bad, ", ".join(bad) or f"{len(status)} checks")


def check_memorised(lines: Lines, report: dict) -> None:
    """Checks parity on the checkpoint that the GPU check has trained, by its own HF reference."""
    case, = report["cases"]
    for name in KERNELS:
        check_parity(lines, case, name, MEMORISED_STEPS)


def check_strangers(lines: Lines, report: dict) -> None:
    """Checks that the engines of STRANGERS, ours and others, were judged and timed in one run."""
    case, = cases_of(report, "synthetic")
    for name, most in STRANGERS.items():
        check_parity(lines, case, name)
        check_receipts(lines, case, name)
        engine = engine_of(case, name)
        ci = (engine.get("ms_per_tok") or {}).get("ci")
        lines.add(f"strangers: ms/tok of {name}, with an interval", ci, ci)
        trace = engine.get("launch_trace") or {"problem": "none"}
        launches, tokens = trace.get("kernels", 0) + trace.get("graph_launches", 0), trace.get("tokens", 0)
        lines.add(f"strangers: launches of {name}",
                  not trace["problem"] and tokens > 0
                  and (launches >= MANY_LAUNCHES * tokens if most is None else 0 < launches <= most),
                  trace["problem"] or f"{launches} for {tokens} tokens")
    crossing = engine_of(case, "hf")["process"]["crossing_us"]
    lines.add(f"strangers: a call to an engine in Python crosses in {MAX_CROSSING_US:.0f} us",
              0 < crossing <= MAX_CROSSING_US, crossing)


# ---- the clock ----

def by_axis(report: dict, axis: str) -> dict:
    """Decode cases of the full-size model by one of their axes."""
    return {c["axes"][axis]: c for c in cases_of(report, "synthetic") if c["axes"]["n_prompt"] == 0}


def check_passed(lines: Lines, what: str, case: dict, names: tuple[str, ...]) -> None:
    verdicts = {n: engine_of(case, n).get("verdict", "not there") for n in names}
    lines.add(f"{what}: {', '.join(names)} pass", set(verdicts.values()) == {"PASS"}, verdicts)


def check_table_runs(lines: Lines, report: dict) -> None:
    cases = by_axis(report, "depth")
    for depth in TABLE_DEPTHS:
        case, what = cases.get(depth, {"engines": []}), f"table, depth {depth}"
        check_passed(lines, what, case, ENGINES)
        processes = min((e["ms_per_tok"]["processes"] for e in case["engines"] if e.get("ms_per_tok")), default=0)
        lines.add(f"{what}: processes of each engine", processes >= LEAST_PROCESSES, processes, "speed")
        for name in KERNELS:
            ci = engine_of(case, name).get("share_ci")
            lines.add(f"{what}: the share of {name} is known to {100 * MAX_SHARE_HALF_WIDTH:g} points",
                      ci and (ci["high"] - ci["low"]) / 2 <= MAX_SHARE_HALF_WIDTH, ci, "speed")


def check_blocks(lines: Lines, report: dict) -> None:
    cases = by_axis(report, "n_gen")
    for tokens in BLOCK_TOKENS:
        check_passed(lines, f"blocks of {tokens} tokens", cases.get(tokens, {"engines": []}), KERNELS)


def check_telemetry(lines: Lines, report: dict) -> None:
    cost = engine_of(report["cases"][0], "ring")["card"]["watching_costs"]
    lines.add(f"telemetry costs less than {100 * MAX_TELEMETRY_COST:g} %",
              cost is not None and abs(cost) < MAX_TELEMETRY_COST, cost, "speed")


def check_energy(lines: Lines, report: dict) -> None:
    card = engine_of(report["cases"][0], "ring")["card"]
    lines.add("energy of a token", card["energy_j"] and card["energy_j"] > 0,
              f"{card['energy_j']} J {card.get('energy_j_reason', '')}", "speed")


def check_clock(lines: Lines, clock: dict) -> None:
    rows = clock["rows"]
    trusted = [r for r in rows if max(r["excluding_one"], r["faster_or_slower"]) <= r["most_allowed"]]
    doubted = [r["processes"] for r in rows if r not in trusted]
    lines.add(f"A/A: intervals miss 1 no more often than alpha allows, from {LEAST_PROCESSES} processes on",
              bool(trusted) and max(doubted, default=0) < LEAST_PROCESSES,
              ", ".join(f"{r['processes']} processes: {r['excluding_one']} of {r['splits']}" for r in rows), "speed")
    live = max(clock["live_excluding_one"], clock["live_faster_or_slower"])
    lines.add("A/A end to end", clock["live"] >= LEAST_LIVE_RUNS and live <= 2, f"{live} of {clock['live']}", "speed")
    most = max((r["processes"] for r in rows), default=0)
    lines.add(f"A/A: a row of {POWER_PROCESSES} processes", most >= POWER_PROCESSES, f"at most {most}", "speed")
    see = [r["processes"] for r in trusted for p in r["power"]
           if p["share"] == LEAST_SLOW_DOWN and min(p["seen"], p["rescaled"]) >= WANTED_POWER]
    lines.add(f"{100 * LEAST_SLOW_DOWN:g} % more is seen with power {WANTED_POWER}", bool(see),
              f"by {min(see)} processes" if see else "by no number of processes", "speed")


def check_audit(lines: Lines, audit: dict) -> None:
    verdicts = {e["engine"]: e["verdict"] for c in audit["cases"] for e in c["engines"]}
    lines.add("audit: ring and plain read all bytes", verdicts == dict.fromkeys(KERNELS, "PASS"), verdicts)


# ---- all of them ----

# Run of dev/gpu_check.sh -> the check of its report (<run>-report.json), which must also have exit code 0.
REPORTS = {"full": check_full, "deep": lambda lines, report: None, "tiny": check_tiny, "parity": check_whole_parity,
           "memorised": check_memorised, "strangers": check_strangers, "table": check_table_runs,
           "blocks": check_blocks, "telemetry": check_telemetry, "energy": check_energy}


def load_reports(folder: pathlib.Path) -> dict:
    """The reports of a folder by run; None where a file is not there or holds no report."""
    found = {}
    for run in REPORTS:
        try:
            report = report_file.load(folder / f"{run}-report.json")
            found[run] = report if {"cases", "env", "verdict"} <= report.keys() else None
        except report_file.BadReport:
            found[run] = None
    return found


def gpu_of(report: dict) -> dict:
    return report.get("env", {}).get("gpu") or {}


def cards_of(reports: dict) -> list[dict]:
    """Which card each report was made on."""
    gpus = {run: gpu_of(report) for run, report in reports.items() if report}
    return [{"run": run, "name": gpu.get("name"), "uuid": gpu.get("uuid")} for run, gpu in gpus.items() if gpu]


def check_files(folder: pathlib.Path) -> Lines:
    """All lines of one folder of evidence."""
    lines, reports = Lines(), load_reports(folder)

    def attempt(what: str, check, content) -> None:
        try:
            check(lines, content() if callable(content) else content)
        except (OSError, LookupError, TypeError, AttributeError, ValueError) as error:
            lines.add(f"{what} is complete", False, f"{type(error).__name__}: {error}")

    for run, check in REPORTS.items():
        verdict = (reports[run] or {"verdict": {"status": "no report"}})["verdict"]
        lines.add(f"{run}: verdict", verdict.get("exit_code") == 0, verdict.get("status"))
        if reports[run]:
            attempt(f"{run}-report.json", check, reports[run])
    attempt("table of shares", check_shares, reports)
    for depth in SHARE_BARS:
        if case := decode_case(reports, depth):  # without a case check_shares() fails its row
            attempt(f"depth {depth}", check_depth, case)
    names = sorted({str(card["name"]) for card in cards_of(reports)})
    lines.add("all reports are of one kind of card", len(names) == 1, ", ".join(names) or "none")
    for name, check in {"clock.json": check_clock, "audit.json": check_audit}.items():
        attempt(name, check, lambda name=name: read(folder / name))
    check_gpu_tests(lines, folder / "gpu-tests.xml", folder / "gpu-tests.txt")
    for tool in ("memcheck", "synccheck"):
        check_sanitizer(lines, folder / f"{tool}.log", tool)
    check_log(lines, folder / "gpu_check.log")
    return lines
