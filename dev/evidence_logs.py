"""The list of lines that must hold, and the lines about logs and test results of a GPU check; evidence_lines.py has the
lines about reports."""

import pathlib
import re
import xml.etree.ElementTree

import scripts_path  # noqa: F401
from source_hash import KINDS

BOTH = " ".join(KINDS)

# The steps of dev/gpu_check.sh, by the names that it logs.
STEPS = ("set-up and build", "doctor", "parity, bench and prefill, full size", "bench of ring at all other depths",
         "engines from elsewhere beside ours, one run", "the bench verified",
         "memcheck on small models", "synccheck on small models", "tests with a GPU", "tests without a GPU",
         "parity and bench, tiny", "planted faults are seen", "faults of timing",
         "gate alone: every cache length, full size", "fault corpus", "memorised: trained, captured and judged here", "tune",
         "calibration of the clock", "the README's table", "blocks of 1 to 128 tokens",
         "what telemetry costs", "energy of a token", "the clock's runs verified", "bytes that are read")
SANITIZED_TESTS = ("test_plain", "test_plain_graph", "test_prefill", "test_ring_state")
# Tests of ring that must be among those that ran: test_ring_state holds ring to bit-identical results from run to
# run, at several in-flight limits and paces.
RING_TESTS = ("test_ring", "test_ring_state", "test_ring_rows")
GPU_TESTS_LINE = "tests with the label gpu: all run, none failed"


class Lines:
    """The list of lines that must hold, filled one line at a time."""

    def __init__(self):
        self.lines = []

    def add(self, what: str, holds, found, rests_on: str = BOTH) -> None:
        """rests_on: the source hashes (scripts/source_hash.py) that must fit a tree for the line to apply to it."""
        self.lines.append({"what": what, "holds": bool(holds), "found": str(found), "rests_on": rests_on})

    def failed(self) -> list[str]:
        return [line["what"] for line in self.lines if not line["holds"]]

    def show(self) -> int:
        """Prints all lines, and returns the exit code."""
        for line in self.lines:
            print(f"{'ok    ' if line['holds'] else 'FAILED'}  {line['what']}: {line['found']}")
        print(f"{len(self.lines)} lines, {len(self.failed())} failed")
        return 0 if self.lines and not self.failed() else 1


def check_gpu_tests(lines: Lines, junit: pathlib.Path, registered: pathlib.Path) -> None:
    """Compares CTest's JUnit file with the list of registered tests: with a GPU none may be skipped."""
    try:
        wanted = set(registered.read_text(encoding="utf-8").split())
        suite = xml.etree.ElementTree.parse(junit).getroot()
        counts = {k: int(suite.get(k, "-1")) for k in ("tests", "failures", "skipped", "disabled")}
        ran = {t.get("name") for t in suite.iter("testcase") if t.get("status") == "run"}
    except OSError as error:
        lines.add(GPU_TESTS_LINE, False, f"{pathlib.Path(error.filename).name}: {error.strerror}")
        return
    except xml.etree.ElementTree.ParseError as error:
        lines.add(GPU_TESTS_LINE, False, f"{junit.name}: {error}")
        return
    lines.add(GPU_TESTS_LINE,
              wanted.issuperset(RING_TESTS) and ran == wanted and counts["failures"] == 0
              and counts["skipped"] == 0 and counts["disabled"] == 0,
              f"{len(ran)} of {len(wanted)} ran, {counts}")


def check_sanitizer(lines: Lines, log: pathlib.Path, tool: str) -> None:
    """The log has one section for each test: the tool's summary, then the exit status, which gpu_check.sh writes."""
    text = log.read_text(errors="replace") if log.exists() else ""
    sections = dict(re.findall(r"^== (\S+)\n(.*?)(?=^== |\Z)", text, re.MULTILINE | re.DOTALL))
    for test in SANITIZED_TESTS:
        section = sections.get(test, "")
        summaries = re.findall(r"ERROR SUMMARY: (\d+) errors?", section)
        # The count of assertions is read because a test that runs no case ends without errors as well.
        ran = re.search(r"All tests passed \([1-9]\d* assertion", section)
        clean = summaries and all(n == "0" for n in summaries) and ran and "exit status 0\n" in section
        lines.add(f"{tool} of {test}", clean,
                  f"errors: {', '.join(summaries) or 'no summary'}, {ran.group() if ran else 'no test ran'}", "speed")


def check_log(lines: Lines, log: pathlib.Path) -> None:
    text = log.read_text(errors="replace") if log.exists() else ""
    runs = re.findall(r"^== (.*): (passed|FAILED|not run)", text, re.MULTILINE)
    # The log is in the order of time. Where a step was run again its last outcome counts, and the line says so.
    last = dict(runs)
    bad = [f"{name}: {last.get(name, 'not there')}" for name in STEPS if last.get(name) != "passed"]
    again = sorted({name for name, outcome in runs if outcome != "passed" and last[name] == "passed"})
    faults = re.findall(r"^planted (.*): exit 3$", text, re.MULTILINE)
    lines.add("every step of the check passed", not bad,
              ", ".join(bad) or f"{len(STEPS)} steps"
              + (f"; run again after a failure: {', '.join(again)}" if again else ""))
    corpus = re.findall(r"^faults seen (\d+) of (\d+), controls passed (\d+) of (\d+)$", text, re.MULTILINE)
    seen, faults_all, passed, controls_all = map(int, corpus[-1]) if corpus else (0, 0, 0, 0)
    lines.add("fault corpus: every fault seen, every control passed",
              seen == faults_all > 0 and passed == controls_all > 0,
              f"{seen} of {faults_all}, {passed} of {controls_all}")
    lines.add("planted faults are seen, in plain and in ring",
              any("plain" in f for f in faults) and any("ring" in f for f in faults), ", ".join(faults))
