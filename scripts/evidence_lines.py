"""What the GPU check must show, line by line, from the files of one folder of evidence.

The folder is what scripts/check_report.py collects: report.json (all cases of the full-size runs),
tiny-report.json, parity-report.json and memorised-report.json (the gate alone), strangers-report.json (engines from
elsewhere beside ours), the files of evidence_timing.py, gpu-tests.xml and gpu-tests.txt (outcomes, and which tests
there are), memcheck.log, synccheck.log, gpu_check.log. Nothing that mkbench concluded is taken on trust where the
samples allow to compute it again.

Each line rests on source hashes (scripts/source_hash.py): a time or a share of the bandwidth on `speed` alone,
parity of the baseline on `judgement` alone, and every line that holds a kernel to a reference or a baseline on
both.
"""

import json
import math
import pathlib
import statistics

from check_lines import BOTH, Lines
from evidence_logs import check_gpu_tests, check_log, check_sanitizer
from evidence_timing import TIMING_REPORTS, check_timing_files

# Least share of the read bandwidth measured in the same run, full size, TOKENS tokens from each depth.
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
TOKENS = 64
NOT_MEASURED = "not measured"
# Depths at which ring is compared with eager and plain; at the other depths ring runs alone.
COMPARED_DEPTHS = (0, 512, 4032)
# Microseconds a token of the plain megakernel: well under the best public kernel for this model (970 at
# depth 0 and 4,109 at 1,900 on an H200).
PLAIN_BARS_US = {0: 900.0, 4032: 1400.0}
# Largest logit error of ring over plain's: the fixed-point sums of ring may cost this much.
MAX_R_RMS_RATIO = 1.10
MAX_FIRST_TOKEN_US = 30.0
PROMPTS = (512, 2048)
MAX_PREFILL_RATIO = 1.5
# Above this share the ceiling was not found.
MAX_SHARE = 1.03
# Checks that only the gate alone (`mkbench parity`) takes time for: bit-identical repeats, sequences apart, every
# cache length.
WHOLE_PARITY_CHECKS = ("repeats", "isolation", "sweep")
# Least count of decided strict steps of the full-size checkpoint that was trained on the machine itself.
MEMORISED_STEPS = 1500
KERNELS = ("ring", "plain")
# Engines of one run, by resolved name, each with the most launches of an untimed decode (None: one launch cannot
# do, and there are at least MANY_LAUNCHES a token).
# graph and triton replay one a token, and copy ids around it.
STRANGERS = {"eager": None, "graph": 3 * 16, "ring": 1, "plain": 1, "naive-cuda@naive_cuda.so": None,
             "hf@hf_decoder.py": None, "triton@triton_decoder.py": 3 * 16, "extension@extension_decoder.py": None}
MANY_LAUNCHES = 100
MAX_CROSSING_US = 100.0  # of a call to an engine in Python


def load_report(path: pathlib.Path) -> dict:
    """A report, or an empty one where there is none, on which no line holds."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        missing = [k for k in ("cases", "env", "verdict") if k not in report]
        if not missing:
            return report
        print(f"{path}: no report: {', '.join(missing)} missing")
    except (OSError, ValueError, TypeError) as error:
        print(f"{path}: {error}")
    return {"cases": [], "env": {}, "verdict": {"status": "no report", "exit_code": 1}}


def cases_of(report: dict, model: str) -> list[dict]:
    return [c for c in report["cases"] if c["model"]["name"] == model]


def engine_of(case: dict, name: str) -> dict:
    """The one engine with this role or resolved name; an empty one, which passes no check, if there is none."""
    found = [e for e in case["engines"] if name in (e["role"], e["resolved_name"])]
    return found[0] if len(found) == 1 else {}


def label(engine: dict, wanted: str) -> str:
    return engine.get("resolved_name", wanted)


def percent(share) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


# ---- one engine of one case ----

def check_parity(lines: Lines, case: dict, name: str) -> None:
    engine = engine_of(case, name)
    parity = engine.get("parity") or {}
    steps, matched = parity.get("strict_steps", 0), parity.get("strict_matched", 0)
    against_file = len(parity.get("reference_sha256", "")) == 64
    lines.add(f"{case['name']}: parity of {label(engine, name)} against the committed reference",
              engine.get("verdict") == "PASS" and parity.get("verdict") == "PASS" and against_file
              and steps > 0 and matched == steps,
              f"{matched} of {steps}, {engine.get('verdict')}",
              "judgement" if engine.get("role") == "baseline" else BOTH)


def check_receipts(lines: Lines, case: dict, name: str) -> None:
    engine = engine_of(case, name)
    timed = sum(s["tokens"] for s in engine.get("samples", []))
    checked, wrong = engine.get("receipts_checked", 0), engine.get("receipts_wrong", -1)
    held_to = case["reference"].get("timed_check")
    lines.add(f"{case['name']}: every timed token of {label(engine, name)} against the closed form",
              held_to == "closed form" and timed > 0 and checked == timed and wrong == 0,
              f"{checked} of {timed} checked by {held_to}, {wrong} wrong")


def check_repeats(lines: Lines, case: dict, name: str) -> None:
    """Launches after one late id emit the same ids, and those of the case's first engine.

    A report from before version 1.5 has no late ids: all its launches have one prompt."""
    engine = engine_of(case, name)
    samples = engine.get("samples", [])
    paths = {}
    for sample in [*case["engines"][0].get("samples", []), *samples]:
        paths.setdefault(sample.get("late_id"), set()).add(tuple(sample["ids"]))
    differ = sum(len(of_id) != 1 for of_id in paths.values())
    whole = all(len(s["ids"]) == case["axes"]["n_gen"] for s in samples)
    lines.add(f"{case['name']}: equal tokens in every launch of {label(engine, name)}",
              len(samples) >= 2 and whole and differ == 0,
              f"{len(samples)} launches after {len(paths)} late ids, {differ} of them answered differently", "speed")


def block_times(samples: list) -> dict:
    """Milliseconds a step by process and block, of the samples that count."""
    return {(s["process"], s["block"]): s["times"]["host_ms"] / s["tokens"]
            for s in samples if s.get("valid") and s["tokens"] > 0}


def share_of(case: dict, name: str):
    """Share of the ceiling, computed from the samples of both in the same blocks; None where they do not give it."""
    engine = engine_of(case, name)
    own, ceiling = block_times(engine.get("samples", [])), block_times((case.get("ceiling") or {}).get("samples", []))
    ratios = {}
    for process, block in own.keys() & ceiling.keys():
        ratios.setdefault(process, []).append(math.log(ceiling[process, block] / own[process, block]))
    if not ratios or engine.get("verdict") != "PASS":
        return None
    return math.exp(statistics.mean(statistics.mean(blocks) for blocks in ratios.values()))


def check_share(lines: Lines, case: dict, name: str) -> None:
    share = share_of(case, name)
    lines.add(f"{case['name']}: share of the ceiling of {label(engine_of(case, name), name)}",
              share is not None and 0 < share <= MAX_SHARE, percent(share), "speed")


def check_speed(lines: Lines, case: dict, name: str, bar_us: float) -> None:
    engine = engine_of(case, name)
    median = (engine.get("ms_per_tok") or {}).get("median")
    lines.add(f"{case['name']}: {label(engine, name)} under {bar_us:.0f} us a token",
              isinstance(median, float) and 0 < 1000 * median < bar_us,
              "no time" if median is None else f"{1000 * median:.1f} us", "speed")


def check_first_token(lines: Lines, case: dict) -> None:
    """The first token of a launch by the device's timer, which starts after the launch itself."""
    tokens = [s["times"]["per_token_ms"] for s in engine_of(case, "ring").get("samples", [])]
    what = f"{case['name']}: first token of ring within {MAX_FIRST_TOKEN_US:.0f} us of the steady one"
    if not tokens or any(len(t) < 2 for t in tokens):
        lines.add(what, False, "no times of single tokens", "speed")
        return
    first = 1000 * statistics.median(t[0] for t in tokens)
    steady = 1000 * statistics.median(ms for t in tokens for ms in t[1:])
    lines.add(what, first > 0 and abs(first - steady) <= MAX_FIRST_TOKEN_US,
              f"{first:.1f} us, steady {steady:.1f} us", "speed")


def check_profile(lines: Lines, case: dict) -> None:
    profile = engine_of(case, "ring").get("profile") or {}
    values = [profile.get(k) for k in ("full_us", "no_waits_us", "no_loads_us")]
    complete = all(isinstance(v, float) and v > 0 for v in values) and profile.get("binds") in (
        "memory", "chain", "both")
    found = "none" if not complete else (
        f"{values[0]:.1f} us; without waits {values[1]:.1f}, without loads {values[2]:.1f}: "
        f"{profile['binds']}")
    lines.add(f"{case['name']}: both ablations of ring", complete, found, "speed")


# ---- the full-size report ----

def decode_case(report: dict, depth: int):
    """The one case of TOKENS tokens at a depth, or None."""
    found = [c for c in cases_of(report, "synthetic")
             if c["axes"]["n_prompt"] == 0 and c["axes"]["depth"] == depth and c["axes"]["n_gen"] == TOKENS]
    return found[0] if len(found) == 1 else None


def card_of(report: dict):
    """Which column of the table the report was measured for, or None."""
    name = str((report["env"].get("gpu") or {}).get("name", ""))
    found = [card for card in CARDS if card in name]
    return found[0] if len(found) == 1 else None


def share_table(report: dict) -> list[dict]:
    """The table of SHARE_BARS with what this report measured; the other card's column says "not measured"."""
    card, rows = card_of(report), []
    for depth, bars in SHARE_BARS.items():
        case = decode_case(report, depth)
        share = share_of(case, "ring") if case else None
        row = {"depth": depth}
        for column, bar in zip(CARDS, bars):
            measured = column == card and share is not None
            row[column] = {"bar": bar, "share": round(share, 4) if measured else NOT_MEASURED}
        rows.append(row)
    return rows


def check_table(lines: Lines, report: dict) -> None:
    card = card_of(report)
    lines.add(f"the card is one of {' and '.join(CARDS)}", card is not None,
              (report["env"].get("gpu") or {}).get("name"), "speed")
    for row in share_table(report):
        column = row.get(card) or {"bar": max(SHARE_BARS[row["depth"]]), "share": NOT_MEASURED}
        share, bar = column["share"], column["bar"]
        others = ", ".join(f"{c} {NOT_MEASURED}" for c in CARDS if c != card)
        measured = share != NOT_MEASURED
        lines.add(f"depth {row['depth']}: ring reaches {100 * bar:.0f} % of the ceiling",
                  measured and bar <= share <= MAX_SHARE,
                  f"{percent(share) if measured else share} ({others})", "speed")


def check_ceilings(lines: Lines, report: dict) -> None:
    """The ceiling was timed in every block of every decode case on the full-size model."""
    cases = [c for c in cases_of(report, "synthetic") if c["axes"]["n_prompt"] == 0]
    lacking = []
    for case in cases:
        blocks = {(s["process"], s["block"]) for e in case["engines"] for s in e.get("samples", [])}
        if not blocks or not blocks <= set(block_times((case.get("ceiling") or {}).get("samples", []))):
            lacking.append(case["name"])
    lines.add("the ceiling was timed in the blocks of every decode case", bool(cases) and not lacking,
              ", ".join(lacking) or f"{len(cases)} cases", "speed")


def check_depth(lines: Lines, report: dict, depth: int) -> None:
    case = decode_case(report, depth)
    lines.add(f"synthetic at depth {depth}, {TOKENS} tokens", case is not None,
              case["name"] if case else "no such case, or several", "speed")
    if case is None:
        return
    compared = depth in COMPARED_DEPTHS
    for name in ("eager", "ring", "plain") if compared else ("ring",):
        check_parity(lines, case, name)
        check_receipts(lines, case, name)
        check_repeats(lines, case, name)
        if name != "ring":
            check_share(lines, case, name)
    check_first_token(lines, case)
    check_profile(lines, case)
    if depth in PLAIN_BARS_US:
        check_speed(lines, case, "plain", PLAIN_BARS_US[depth])
    speedups = [c for c in case["comparisons"] if c["candidate"] == engine_of(case, "ring").get("name")
                and c["baseline"] == "eager"]
    if compared:
        lines.add(f"{case['name']}: ring is faster than eager",
                  len(speedups) == 1 and speedups[0]["verdict"] == "FASTER",
                  ", ".join(f"{c['speedup']}" for c in speedups) or "not compared")
    else:
        lines.add(f"{case['name']}: ring alone, without a speed-up",
                  len(speedups) == 1 and speedups[0]["speedup"] is None
                  and bool(speedups[0].get("speedup_reason")),
                  ", ".join(c.get("speedup_reason", "no reason") for c in speedups) or "not compared", "speed")


def check_together(lines: Lines, report: dict) -> None:
    """Parity of all engines in one report, and ring's logits beside plain's."""
    judged, r_rms = {}, {}
    for case in cases_of(report, "synthetic"):
        for engine in case["engines"]:
            parity = engine.get("parity") or {}
            if not parity.get("judged_in") and parity.get("verdict") == "PASS":
                judged.setdefault(engine["resolved_name"], case["name"])
            if parity.get("r_rms") is not None:
                values = r_rms.setdefault(engine["resolved_name"], [])
                values.append(parity["r_rms"])
    names = ("eager", "ring", "plain")
    lines.add("parity of eager, ring and plain judged in the same report",
              all(name in judged for name in names), judged)
    ring, plain = r_rms.get("ring", [0]), r_rms.get("plain", [0])
    positive = all(value > 0 for value in ring + plain)  # NaN is not
    lines.add(f"R_rms of ring at most {MAX_R_RMS_RATIO:.2f} x plain's",
              positive and max(ring) <= MAX_R_RMS_RATIO * min(plain),
              f"{max(ring):.4f}, plain {min(plain):.4f}")


def check_prefill(lines: Lines, report: dict) -> None:
    for prompt in PROMPTS:
        found = [c for c in cases_of(report, "synthetic") if c["axes"]["n_prompt"] == prompt]
        what = f"pp{prompt}: prefill of ring at most {MAX_PREFILL_RATIO} x eager's"
        if len(found) != 1:
            lines.add(what, False, f"{len(found)} cases")
            continue
        ring, eager = engine_of(found[0], "ring"), engine_of(found[0], "eager")
        times = [e.get("host_ms") if e.get("verdict") == "PASS" else None for e in (ring, eager)]
        closed = found[0]["reference"].get("timed_check") == "closed form"
        right = closed and ring.get("receipts_checked", 0) > 0 and ring.get("receipts_wrong") == 0
        holds = right and None not in times and 0 < times[0] <= MAX_PREFILL_RATIO * times[1]
        lines.add(what, holds, "no times" if None in times else
                  f"{times[0]:.1f} ms, eager {times[1]:.1f} ms, {ring.get('receipts_wrong')} receipts wrong")


# ---- the other files ----

def check_tiny(lines: Lines, report: dict) -> None:
    lines.add("tiny: verdict", report["verdict"]["exit_code"] == 0, report["verdict"]["status"])
    for model in ("tiny", "tiny-untied"):
        cases = cases_of(report, model)
        lines.add(f"cases of {model}", bool(cases), len(cases))
        for case in cases:
            for role in ("baseline", "candidate"):
                check_parity(lines, case, role)


def checks_of(engine: dict) -> dict[str, dict]:
    return {c["name"]: c for c in (engine.get("parity") or {}).get("checks", [])}


def check_whole_parity(lines: Lines, report: dict) -> None:
    """`mkbench parity` on the analytic checkpoint: no check fails, and the long ones ran."""
    cases = cases_of(report, "synthetic")
    lines.add("gate alone: one case of synthetic", len(cases) == 1, len(cases))
    for case in cases:
        for name in KERNELS:
            check_parity(lines, case, name)
            checks = checks_of(engine_of(case, name))
            failed = [c for c, result in checks.items() if result["status"] == "failed"]
            lines.add(f"gate alone: no check of {name} fails", bool(checks) and not failed,
                      ", ".join(failed) or f"{len(checks)} checks")
            for check in WHOLE_PARITY_CHECKS:
                result = checks.get(check, {"status": "did not run"})
                lines.add(f"gate alone: {check} of {name}", result["status"] == "passed",
                          result.get("detail") or result["status"])


def check_memorised(lines: Lines, report: dict) -> None:
    """The checkpoint that was trained here, with its own HF reference."""
    cases = report["cases"]
    lines.add("memorised: one case", len(cases) == 1, len(cases))
    for case in cases:
        for name in KERNELS:
            engine = engine_of(case, name)
            parity = engine.get("parity") or {}
            steps, matched = parity.get("strict_steps", 0), parity.get("strict_matched", -1)
            decided = parity.get("decided_steps", 0)
            lines.add(f"memorised: all of at least {MEMORISED_STEPS} decided strict steps of {name}",
                      engine.get("verdict") == "PASS" and parity.get("verdict") == "PASS"
                      and len(parity.get("reference_sha256", "")) == 64
                      and matched == steps and min(steps, decided) >= MEMORISED_STEPS,
                      f"{matched} of {steps}, {decided} decided, {engine.get('verdict')}")


def check_launches(lines: Lines, engine: dict, name: str, most: int | None) -> None:
    """What the driver recorded in an untimed decode."""
    trace = engine.get("launch_trace") or {}
    tokens = trace.get("tokens", 0)
    launches = trace.get("kernels", 0) + trace.get("graph_launches", 0)
    known = not trace.get("problem") and tokens > 0
    lines.add(f"strangers: launches of {name}",
              known and (launches >= MANY_LAUNCHES * tokens if most is None else 0 < launches <= most),
              trace.get("problem") or f"{launches} for {tokens} tokens")


def check_strangers(lines: Lines, report: dict) -> None:
    """Ours, a CUDA library and Hugging Face transformers in Python, judged and timed in one run."""
    cases = cases_of(report, "synthetic")
    lines.add("strangers: one case of synthetic", len(cases) == 1, len(cases))
    for case in cases:
        for name, most in STRANGERS.items():
            engine = engine_of(case, name)
            check_parity(lines, case, name)
            check_receipts(lines, case, name)
            time = engine.get("ms_per_tok") or {}
            lines.add(f"strangers: ms/tok of {name}, with an interval", bool(time.get("ci")),
                      f"{time['mean']:.4g} [{time['ci']['low']:.4g}, {time['ci']['high']:.4g}]"
                      if time.get("ci") else "none")
            check_launches(lines, engine, name, most)
        crossing = (engine_of(case, "hf@hf_decoder.py").get("process") or {}).get("crossing_us")
        lines.add(f"strangers: a call to an engine in Python crosses in {MAX_CROSSING_US:.0f} us",
                  crossing is not None and 0 < crossing <= MAX_CROSSING_US, crossing)


def check_full(lines: Lines, report: dict) -> None:
    lines.add("full size: verdict", report["verdict"]["exit_code"] == 0, report["verdict"]["status"])
    check_table(lines, report)
    check_ceilings(lines, report)
    check_together(lines, report)
    check_prefill(lines, report)
    for depth in SHARE_BARS:
        check_depth(lines, report, depth)


REPORTS = {"report.json": check_full, "tiny-report.json": check_tiny,
           "parity-report.json": check_whole_parity, "memorised-report.json": check_memorised,
           "strangers-report.json": check_strangers, **TIMING_REPORTS}


def cards_of(folder: pathlib.Path) -> list[dict]:
    """Which card each report of the folder was made on."""
    found = []
    for name in REPORTS:
        gpu = load_report(folder / name)["env"].get("gpu") if (folder / name).exists() else None
        if gpu:
            found.append({"report": name, "name": gpu.get("name"), "uuid": gpu.get("uuid")})
    return found


def check_files(folder: pathlib.Path) -> Lines:
    """All lines of one folder of evidence."""
    lines = Lines()
    for name, check in REPORTS.items():
        try:
            check(lines, load_report(folder / name))
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            lines.add(f"{name} is a complete report", False, f"{type(error).__name__}: {error}")
    cards = cards_of(folder)
    names = sorted({str(card["name"]) for card in cards})
    lines.add("all reports are of one kind of card", len(names) == 1,
              f"{', '.join(names) or 'none'}; {len({card['uuid'] for card in cards})} of them")
    check_gpu_tests(lines, folder / "gpu-tests.xml", folder / "gpu-tests.txt")
    for tool in ("memcheck", "synccheck"):
        check_sanitizer(lines, folder / f"{tool}.log", tool)
    check_timing_files(lines, folder)
    check_log(lines, folder / "gpu_check.log")
    return lines
