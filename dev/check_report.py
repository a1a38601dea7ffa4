"""Checks the output of a run of mkbench, or collects the evidence of a GPU check.

  check_report.py cpu FOLDER    the main command without a GPU: FOLDER is mkbench's output folder
  check_report.py collect OUT   OUT is dev/gpu_check.sh's folder: writes OUT/evidence, the reports of its runs
                                and the files beside them; dev/check_evidence.py then judges them

`cpu` prints one line for each thing that must hold, with what was found; exit 1 unless all of them hold.
"""

import json
import pathlib
import subprocess
import sys

import scripts_path  # noqa: F401
from evidence_lines import (REPORTS, cards_of, cases_of, check_files, check_tiny, engine_of, gpu_of, load_reports, read,
                            share_table)
from evidence_logs import Lines
from source_hash import source_hashes
from tracked_files import ROOT

# Files that are committed: small, and enough to compute every line again.
COPIED = {**{f"{run}-report.json": f"{run}/report.json" for run in REPORTS},
          "full-report.md": "full/report.md", "deep-report.md": "deep/report.md", "audit.json": "audit/audit.json",
          **{name: name for name in ("gpu-tests.xml", "gpu-tests.txt", "memcheck.log", "synccheck.log", "clock.json",
                                     "gpu_check.log")}}


def check_cpu(folder: pathlib.Path) -> Lines:
    """Lines of the main command on a CPU: both tiny checkpoints, times of both engines, report, plots and page."""
    lines = Lines()
    try:
        report = read(folder / "report.json")
    except (OSError, ValueError) as error:
        lines.add("report.json can be read", False, error)
        return lines
    lines.add("verdict", report["verdict"]["exit_code"] == 0, report["verdict"]["status"])
    check_tiny(lines, report)
    for case in (c for model in ("tiny", "tiny-untied") for c in cases_of(report, model)):
        for role in ("baseline", "candidate"):
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


def collect(out: pathlib.Path) -> None:
    """Writes OUT/evidence: the files for reports/evidence/<gpu>/; evidence.json has every line and whether it holds."""
    folder = out / "evidence"
    folder.mkdir(exist_ok=True)
    for name, source in COPIED.items():
        if (out / source).exists():  # what is committed names no folder of the machine
            text = (out / source).read_text(encoding="utf-8", errors="replace").replace(f"{ROOT}/", "")
            (folder / name).write_text(text, encoding="utf-8")
    draw_plots(folder)
    lines, reports = check_files(folder), load_reports(folder)
    evidence = {
        "reason": "",
        **{kind: {"state": "fresh", "reason": "", "source_hash": value} for kind, value in source_hashes().items()},
        "gpu": gpu_of(reports["full"] or {}).get("name", "none"),
        "cards": cards_of(reports),
        "files": sorted(p.name for p in folder.iterdir() if p.name != "evidence.json"),
        "table": share_table(reports),
        "unmet": lines.failed(),
        "lines": lines.lines,
    }
    (folder / "evidence.json").write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")


def draw_plots(folder: pathlib.Path) -> None:
    """Draws all depths of both runs in one figure; a Python without vl-convert draws none."""
    plots = folder / "plots"
    script = ROOT / "scripts" / "plot_report.py"
    subprocess.run([sys.executable, str(script), *(str(folder / f"{run}-report.json") for run in ("full", "deep")),
                    "--out", str(plots)], check=False)
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
    return check_cpu(folder).show()


if __name__ == "__main__":
    sys.exit(main())
