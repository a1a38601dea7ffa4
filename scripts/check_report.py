"""Checks what a run of mkbench wrote against what must hold.

  check_report.py cpu FOLDER   the main command without a GPU: FOLDER is mkbench's output folder
  check_report.py gpu OUT      scripts/gpu_check.sh's folder; writes OUT/evidence.json if all lines hold

Prints one line for each thing that must hold, with what was found; exit 1 unless all of them hold.
"""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree

from source_hash import source_hash

# Microseconds a token at a depth, full size, on an H100 or H200: well under the best public kernel for
# this model (1,037 at depth 0 and 4,232 at 1,900 on an H100; 970 and 4,109 on an H200).
SPEED_BARS_US = {0: 900.0, 4096: 1400.0}
DEPTHS = (0, 512, 4096)
# Above this share of the measured ceiling a time is not believed.
MAX_ROOFLINE = 1.03


class Lines:
    """The list of what must hold, filled one line at a time."""

    def __init__(self):
        self.lines = []

    def add(self, what: str, holds: bool, found) -> None:
        self.lines.append({"what": what, "holds": bool(holds), "found": str(found)})

    def all_hold(self) -> bool:
        return bool(self.lines) and all(line["holds"] for line in self.lines)

    def show(self) -> None:
        for line in self.lines:
            print(f"{'ok    ' if line['holds'] else 'FAILED'}  {line['what']}: {line['found']}")
        failed = sum(not line["holds"] for line in self.lines)
        print(f"{len(self.lines)} lines, {failed} failed")


def load_report(folder: pathlib.Path) -> dict:
    """report.json, or an empty report where there is none: then no line can hold."""
    try:
        return json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{folder}/report.json: {error}")
        return {"cases": [], "verdict": {"status": "no report", "exit_code": 1}}


def cases_of(report: dict, model: str) -> list[dict]:
    return [c for c in report["cases"] if c["model"]["name"] == model]


def engine_of(case: dict, role: str) -> dict:
    """The one engine with this role; an empty one, which passes nothing, if there is none."""
    found = [e for e in case["engines"] if e["role"] == role]
    return found[0] if len(found) == 1 else {}


def check_parity(lines: Lines, case: dict, role: str) -> None:
    engine = engine_of(case, role)
    parity = engine.get("parity") or {}
    steps, matched = parity.get("strict_steps", 0), parity.get("strict_matched", 0)
    against_file = len(parity.get("reference_sha256", "")) == 64
    lines.add(f"{case['name']}: parity of {engine.get('resolved_name', role)} against the committed reference",
              engine.get("verdict") == "PASS" and parity.get("verdict") == "PASS" and against_file
              and steps > 0 and matched == steps,
              f"{matched} of {steps}, {engine.get('verdict')}")


def check_receipts(lines: Lines, case: dict, role: str) -> None:
    engine = engine_of(case, role)
    timed = sum(s["tokens"] for s in engine.get("samples", []))
    checked, wrong = engine.get("receipts_checked", 0), engine.get("receipts_wrong", -1)
    held_to = case["reference"].get("timed_check")
    lines.add(f"{case['name']}: every timed token of {engine.get('resolved_name', role)} against the closed form",
              held_to == "closed form" and timed > 0 and checked == timed and wrong == 0,
              f"{checked} of {timed} checked by {held_to}, {wrong} wrong")


def check_roofline(lines: Lines, case: dict, role: str) -> None:
    engine = engine_of(case, role)
    share = engine.get("roofline_fraction")
    lines.add(f"{case['name']}: share of the roofline of {engine.get('resolved_name', role)}",
              isinstance(share, float) and 0 < share <= MAX_ROOFLINE,
              "none" if share is None else f"{100 * share:.1f} %")


def check_speed(lines: Lines, case: dict, bar_us: float) -> None:
    engine = engine_of(case, "candidate")
    median = (engine.get("ms_per_tok") or {}).get("median")
    lines.add(f"{case['name']}: {engine.get('resolved_name')} under {bar_us:.0f} us a token",
              isinstance(median, float) and 0 < 1000 * median < bar_us,
              "no time" if median is None else f"{1000 * median:.1f} us")


def check_cpu(folder: pathlib.Path) -> Lines:
    """The main command on a CPU: both tiny checkpoints, times of both engines, report and plots."""
    lines = Lines()
    report = load_report(folder)
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
    return lines


def check_gpu_tests(lines: Lines, junit: pathlib.Path) -> None:
    """CTest's JUnit file: with a GPU no test may be skipped."""
    try:
        suite = xml.etree.ElementTree.parse(junit).getroot()
        counts = {k: int(suite.get(k, "-1")) for k in ("tests", "failures", "skipped", "disabled")}
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        lines.add("tests with the label gpu", False, error)
        return
    lines.add("tests with the label gpu: all run, none failed",
              counts["tests"] > 0 and counts["failures"] == 0 and counts["skipped"] == 0
              and counts["disabled"] == 0, counts)


def check_memcheck(lines: Lines, log: pathlib.Path) -> None:
    text = log.read_text(errors="replace") if log.exists() else ""
    summaries = re.findall(r"ERROR SUMMARY: (\d+) errors?", text)
    # A test that found nothing to run would be clean too. gpu_check.sh writes the exit status.
    ran = re.search(r"All tests passed \([1-9]\d* assertion", text)
    clean = summaries and all(n == "0" for n in summaries) and ran and "exit status 0\n" in text
    lines.add("compute-sanitizer memcheck on tiny", clean,
              f"errors: {', '.join(summaries) or 'no summary'}, {ran.group() if ran else 'no test ran'}")


def check_gpu(out: pathlib.Path) -> Lines:
    """Everything that needs a GPU; writes evidence.json if all of it holds."""
    lines = Lines()
    check_gpu_tests(lines, out / "gpu-tests.xml")
    check_memcheck(lines, out / "memcheck.log")
    tiny, full = load_report(out / "tiny"), load_report(out / "full")
    for name, report in (("tiny", tiny), ("full size", full)):
        lines.add(f"{name}: verdict", report["verdict"]["exit_code"] == 0, report["verdict"]["status"])
    for model in ("tiny", "tiny-untied"):
        cases = cases_of(tiny, model)
        lines.add(f"cases of {model}", bool(cases), len(cases))
        for case in cases:
            for role in ("baseline", "candidate"):
                check_parity(lines, case, role)
    for depth in DEPTHS:
        cases = [c for c in cases_of(full, "synthetic") if c["axes"]["depth"] == depth]
        lines.add(f"synthetic at depth {depth}", len(cases) == 1, f"{len(cases)} cases")
        for case in cases:
            for role in ("baseline", "candidate"):
                check_parity(lines, case, role)
                check_receipts(lines, case, role)
                check_roofline(lines, case, role)
            if depth in SPEED_BARS_US:
                check_speed(lines, case, SPEED_BARS_US[depth])
    if lines.all_hold():
        write_evidence(out, lines, full)
    return lines


# What is committed: small, and enough to read and to recompute.
EVIDENCE_FILES = ("tiny-report.json", "report.json", "report.md", "gpu-tests.xml", "memcheck.log",
                  "gpu_check.log")


def write_evidence(out: pathlib.Path, lines: Lines, full: dict) -> None:
    """Collects the files and evidence.json in out/evidence."""
    folder = out / "evidence"
    folder.mkdir(exist_ok=True)
    sources = dict(zip(EVIDENCE_FILES, ("tiny/report.json", "full/report.json", "full/report.md",
                                        "gpu-tests.xml", "memcheck.log", "gpu_check.log")))
    files = []
    for name, source in sources.items():
        if (out / source).exists():
            (folder / name).write_bytes((out / source).read_bytes())
            files.append(name)
    for plot in sorted((out / "full" / "plots").glob("*.svg"))[:1]:
        (folder / plot.name).write_bytes(plot.read_bytes())
        files.append(plot.name)
    evidence = {
        "state": "fresh",
        "reason": "",
        "source_hash": source_hash(),
        "gpu": full["env"]["gpu"]["name"],
        "files": files,
        "lines": lines.lines,
    }
    (folder / "evidence.json").write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    checks = {"cpu": check_cpu, "gpu": check_gpu}
    if len(sys.argv) != 3 or sys.argv[1] not in checks:
        print(__doc__)
        return 2
    lines = checks[sys.argv[1]](pathlib.Path(sys.argv[2]))
    lines.show()
    return 0 if lines.all_hold() else 1


if __name__ == "__main__":
    sys.exit(main())
