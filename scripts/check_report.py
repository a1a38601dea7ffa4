"""Checks the output of a run of mkbench, or collects the evidence of a GPU check.

  check_report.py cpu FOLDER    the main command without a GPU: FOLDER is mkbench's output folder
  check_report.py collect OUT   scripts/gpu_check.sh's folder: writes OUT/evidence, one report of its runs
                                and the files beside it; scripts/check_evidence.py then judges them

`cpu` prints one line for each thing that must hold, with what was found; exit 1 unless all of them hold.
"""

import json
import pathlib
import subprocess
import sys

from check_lines import Lines
from evidence_lines import (cards_of, cases_of, check_files, check_parity, engine_of, load_report,
                            share_table)
from source_hash import source_hashes
from tracked_files import ROOT

# Full-size runs, in the order in which gpu_check.sh makes them.
RUNS = ("full", "deep")
# Runs of the gate alone (`mkbench parity`), of engines from elsewhere beside ours, and of the clock.
OTHER_RUNS = ("parity", "memorised", "strangers", "table", "blocks", "telemetry", "energy")
# Files that are committed beside report.json: small, and enough to compute every line again.
COPIED = {"tiny-report.json": "tiny/report.json", "gpu-tests.xml": "gpu-tests.xml",
          "gpu-tests.txt": "gpu-tests.txt",
          "memcheck.log": "memcheck.log", "synccheck.log": "synccheck.log",
          "clock.json": "clock.json", "audit.json": "audit/audit.json",
          "gpu_check.log": "gpu_check.log"}


def check_cpu(folder: pathlib.Path) -> Lines:
    """Lines of the main command on a CPU: both tiny checkpoints, times of both engines, report, plots and page."""
    lines = Lines()
    report = load_report(folder / "report.json")
    lines.add("verdict", report["verdict"]["exit_code"] == 0, report["verdict"]["status"])
    for model in ("tiny", "tiny-untied"):
        cases = cases_of(report, model)
        lines.add(f"cases of {model}", bool(cases), len(cases))
        for case in cases:
            for role in ("baseline", "candidate"):
                check_parity(lines, case, role)
                rate = engine_of(case, role).get("tok_per_s")
                lines.add(f"{case['name']}: tok/s of the {role}", isinstance(rate, float) and rate > 0, rate)
    for suffix in ("svg", "png"):
        plots = list((folder / "plots").glob(f"*.{suffix}"))
        lines.add(f"plots as {suffix}", bool(plots) and all(p.stat().st_size > 1000 for p in plots),
                  ", ".join(sorted(p.name for p in plots)) or "none")
    page = folder / "report.html"
    size = page.stat().st_size if page.exists() else 0
    lines.add("page, with its library inside", size > 500_000, f"{size:,} bytes")
    return lines


def merge_reports(reports: list[dict]) -> dict:
    """One report with the cases of several runs on one card; `runs` keeps the command lines and calibrations apart."""
    merged = dict(reports[0])
    merged["meta"] = {**(reports[0].get("meta") or {}), "runs": [r.get("meta") for r in reports]}
    merged["calibration"] = {**(reports[0].get("calibration") or {}),
                             "runs": [r.get("calibration") for r in reports]}
    merged["cases"] = sorted((c for r in reports for c in r["cases"]),
                             key=lambda c: (c["axes"]["n_prompt"], c["axes"]["depth"]))
    bad = [r["verdict"] for r in reports if r["verdict"]["exit_code"] != 0]
    merged["verdict"] = {**reports[0]["verdict"], **(bad[0] if bad else {})}
    return merged


def dump_readable(value, indent: str = "") -> str:
    """JSON in the layout that mkbench writes: a list of plain values stands on one line."""
    plain = not isinstance(value, (dict, list)) or not value or (
        isinstance(value, list) and not any(isinstance(v, (dict, list)) for v in value))
    if plain:
        return json.dumps(value)
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {dump_readable(v, inner)}" for k, v in value.items()]
    else:
        parts = [dump_readable(v, inner) for v in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(inner + p for p in parts) + "\n" + indent + closing


def collect(out: pathlib.Path) -> None:
    """Writes OUT/evidence: the files for reports/evidence/<gpu>/, with every line and whether it holds."""
    folder = out / "evidence"
    folder.mkdir(exist_ok=True)
    report = merge_reports([load_report(out / run / "report.json") for run in RUNS])
    (folder / "report.json").write_text(dump_readable(report) + "\n", encoding="utf-8")
    texts = [(out / run / "report.md") for run in RUNS]
    (folder / "report.md").write_text("\n".join(t.read_text(encoding="utf-8") for t in texts if t.exists()),
                                      encoding="utf-8")
    for name in OTHER_RUNS:
        other = load_report(out / name / "report.json")
        for engine in (e for c in other["cases"] for e in c["engines"]):
            drop_passed_rows(engine)
        write_nameless(folder / f"{name}-report.json", dump_readable(other) + "\n")
    for name, source in COPIED.items():
        if (out / source).exists():
            write_nameless(folder / name, (out / source).read_text(encoding="utf-8", errors="replace"))
    draw_plots(folder)
    lines = check_files(folder)
    evidence = {
        "reason": "",
        **{kind: {"state": "fresh", "reason": "", "source_hash": value} for kind, value in source_hashes().items()},
        "gpu": (report["env"].get("gpu") or {}).get("name", "none"),
        "cards": cards_of(folder),
        "files": sorted(p.name for p in folder.iterdir() if p.name != "evidence.json"),
        "table": share_table(report),
        "unmet": lines.failed(),
        "lines": lines.lines,
    }
    (folder / "evidence.json").write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")


def write_nameless(path: pathlib.Path, text: str) -> None:
    """Writes a file that is committed: it names no folder of the machine."""
    path.write_text(text.replace(f"{ROOT}/", ""), encoding="utf-8")


def drop_passed_rows(engine: dict) -> None:
    """Drops the rows of a passed parity, thousands that say EXACT; their counts stay."""
    parity = engine.get("parity") or {}
    if parity.get("verdict") == "PASS":
        parity["rows"] = []


def draw_plots(folder: pathlib.Path) -> None:
    """Draws all depths of both runs in one figure; a Python without vl-convert draws none."""
    plots = folder / "plots"
    script = pathlib.Path(__file__).with_name("plot_report.py")
    subprocess.run([sys.executable, str(script), str(folder / "report.json"), "--out", str(plots)],
                   check=False)
    for plot in plots.glob("*") if plots.is_dir() else ():
        if plot.suffix == ".svg":
            plot.rename(folder / plot.name)
        else:
            plot.unlink()
    if plots.is_dir():
        plots.rmdir()


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[1] not in ("cpu", "collect"):
        print(__doc__)
        return 2
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "collect":
        collect(folder)
        return 0
    lines = check_cpu(folder)
    lines.show()
    return 0 if lines.all_hold() else 1


if __name__ == "__main__":
    sys.exit(main())
