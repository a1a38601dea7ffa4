"""What the part `timing` of the GPU check must show: files that scripts/check_report.py collects.

clock.json (the calibration of the clock on that card), table-report.json (the README's table), blocks-report.json
(short and long blocks), telemetry-report.json, energy-report.json, audit.json (`mkbench audit`). All lines rest on the hash `speed`,
but for those that hold an engine to a reference.
"""

import json
import pathlib

from check_lines import Lines

TABLE_DEPTHS = (0, 128, 512, 4096, 16384)
TABLE_ENGINES = ("eager", "ring", "plain")
BLOCK_TOKENS = (1, 8, 64, 128)
# Processes of each engine behind a figure of the README.
LEAST_PROCESSES = 5
# Half the interval of a share, in the README's table.
MAX_SHARE_HALF_WIDTH = 0.01
# A share of samples more with telemetry than without.
MAX_TELEMETRY_COST = 0.001
# An injected slow-down, and the power with which it must be seen.
LEAST_SLOW_DOWN, WANTED_POWER = 0.01, 0.9
LEAST_LIVE_RUNS = 10
# A comparison of so many processes is in every calibration of a card.
POWER_PROCESSES = 30


def engines_of(case: dict) -> dict:
    return {e["resolved_name"]: e for e in case["engines"]}


def decode_cases(report: dict, axis: str) -> dict:
    """Decode cases of the full-size model by one of their axes."""
    return {c["axes"][axis]: c for c in report["cases"]
            if c["model"]["name"] == "synthetic" and c["axes"]["n_prompt"] == 0}


def check_table_runs(lines: Lines, report: dict) -> None:
    cases = decode_cases(report, "depth")
    for depth in TABLE_DEPTHS:
        engines = engines_of(cases[depth]) if depth in cases else {}
        passed = [n for n in TABLE_ENGINES if engines.get(n, {}).get("verdict") == "PASS"]
        lines.add(f"table, depth {depth}: {', '.join(TABLE_ENGINES)} pass", len(passed) == len(TABLE_ENGINES),
                  ", ".join(passed) or "none")
        processes = min((e["ms_per_tok"]["processes"] for e in engines.values() if e.get("ms_per_tok")), default=0)
        lines.add(f"table, depth {depth}: processes of each engine", processes >= LEAST_PROCESSES, processes, "speed")
        for name in ("ring", "plain"):
            interval = engines.get(name, {}).get("share_ci")
            half = (interval["high"] - interval["low"]) / 2 if interval else None
            lines.add(f"table, depth {depth}: the share of {name} is known to {100 * MAX_SHARE_HALF_WIDTH:g} points",
                      half is not None and half <= MAX_SHARE_HALF_WIDTH,
                      "no interval" if half is None else f"{100 * half:.2f}", "speed")


def check_blocks(lines: Lines, report: dict) -> None:
    cases = decode_cases(report, "n_gen")
    for tokens in BLOCK_TOKENS:
        engines = engines_of(cases[tokens]) if tokens in cases else {}
        verdicts = {n: engines.get(n, {}).get("verdict", "not there") for n in ("ring", "plain")}
        lines.add(f"blocks of {tokens} tokens: ring and plain pass", set(verdicts.values()) == {"PASS"},
                  ", ".join(f"{n} {v}" for n, v in verdicts.items()))


def check_telemetry(lines: Lines, report: dict) -> None:
    cost = engines_of(report["cases"][0])["ring"]["card"]["watching_costs"]
    lines.add(f"telemetry costs less than {100 * MAX_TELEMETRY_COST:g} %",
              cost is not None and abs(cost) < MAX_TELEMETRY_COST,
              "not measured" if cost is None else f"{100 * cost:.3f} %", "speed")


def check_energy(lines: Lines, report: dict) -> None:
    card = engines_of(report["cases"][0])["ring"]["card"]
    lines.add("energy of a token", card["energy_j"] is not None and card["energy_j"] > 0,
              f"{card['energy_j']} J" if card["energy_j"] else card.get("energy_j_reason", "none"), "speed")


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
    lines.add("audit: ring and plain read all bytes", verdicts == {"ring": "PASS", "plain": "PASS"},
              ", ".join(f"{n} {v}" for n, v in verdicts.items()) or "none")


TIMING_REPORTS = {"table-report.json": check_table_runs, "blocks-report.json": check_blocks,
                  "telemetry-report.json": check_telemetry, "energy-report.json": check_energy}


def check_timing_files(lines: Lines, folder: pathlib.Path) -> None:
    """The files that are no reports."""
    for name, check in {"clock.json": check_clock, "audit.json": check_audit}.items():
        try:
            check(lines, json.loads((folder / name).read_text(encoding="utf-8")))
        except (OSError, KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            lines.add(f"{name} is complete", False, f"{type(error).__name__}: {error}")
