"""A folder as scripts/gpu_check.sh leaves it, for tests of the lines that are drawn from it."""

import copy
import pathlib
import sys
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_evidence  # noqa: E402
import check_report  # noqa: E402
import evidence_lines  # noqa: E402
import evidence_logs  # noqa: E402
import evidence_timing  # noqa: E402
from report_support import (HASHES, Folder, case, engine, prefill, report, strangers,  # noqa: E402
                            synthetic, timing_runs)


def gate_run(model, steps):
    """A report of `mkbench parity`, in which nothing is timed."""
    engines = [engine(n, timed=False) for n in ("eager", "ring", "plain")]
    for judged in engines:
        judged["parity"].update({
            "strict_steps": steps, "strict_matched": steps, "decided_steps": steps + 4, "rows": [{"match": "EXACT"}],
            "checks": [{"name": c, "status": "passed", "detail": ""} for c in ("r_rms", "repeats", "isolation", "sweep")]
            + [{"name": "receipts", "status": "not_applicable", "detail": "nothing is timed"}]})
    return report([case(model, 0, "", engines)])


CLEAN = "========= ERROR SUMMARY: 0 errors\n"
RAN = "All tests passed (12 assertions in 1 test case)\n"
SANITIZED = "".join(f"== {t}\n{RAN}{CLEAN}exit status 0\n" for t in evidence_logs.SANITIZED_TESTS)


class GpuFolder(Folder):
    TESTS = ("test_plain", *evidence_logs.RING_TESTS)
    JUNIT = ('<testsuite name="x" tests="4" failures="0" disabled="0" skipped="0">'
             + "".join(f'<testcase name="{t}" status="run"/>' for t in TESTS) + "</testsuite>")
    LOG = ("".join(f"== {step}: passed after 1 s\n" for step in evidence_logs.STEPS)
           + "planted rope_theta in plain: exit 3\nplanted cache_length in ring: exit 3\n"
           "faults seen 60 of 60, controls passed 9 of 9\n")

    def good(self):
        depths = list(evidence_lines.SHARE_BARS)
        compared = [synthetic(d, False, "synthetic pp512") for d in depths if d in evidence_lines.COMPARED_DEPTHS]
        self.full = report([prefill(512, ""), prefill(2048, "synthetic pp512"), *compared])
        alone = [d for d in depths if d not in evidence_lines.COMPARED_DEPTHS]
        self.deep = report([synthetic(d, True, "" if d == 32 else "synthetic d=32 n=64") for d in alone])
        for name, content in (("full", self.full), ("deep", self.deep)):
            self.put(f"{name}/report.json", content)
            self.put(f"{name}/report.md", "# report")
        tiny = [case(m, 0, "x", [engine("eager"), engine("plain")]) for m in ("tiny", "tiny-untied")]
        self.put("tiny/report.json", report(tiny))
        self.gate = {"parity": gate_run("synthetic", 88), "memorised": gate_run("./memorised-qwen3", 1536)}
        self.strangers = strangers(evidence_lines.STRANGERS)
        for name, content in {**self.gate, "strangers": self.strangers}.items():
            self.put(f"{name}/report.json", content)
        self.timing = timing_runs(evidence_timing.TABLE_DEPTHS, evidence_timing.BLOCK_TOKENS)
        for path, content in self.timing.items():
            self.put(path, content)
        self.put("memcheck.log", SANITIZED)
        self.put("synccheck.log", SANITIZED)
        self.put("gpu-tests.xml", self.JUNIT)
        self.put("gpu-tests.txt", "".join(f"{t}\n" for t in self.TESTS))
        self.put("gpu_check.log", self.LOG)

    def collect(self):
        # No plots are drawn: they have tests of their own, and these reports have nothing to plot.
        with unittest.mock.patch.multiple(check_report, draw_plots=lambda _: None, source_hashes=lambda: HASHES):
            check_report.collect(self.out)
        return self.out / "evidence"

    def failed(self):
        return check_evidence.check_path(self.collect(), HASHES).failed()

    def expect_failure(self, *parts):
        """Wants one failing line for each part, in any order, and no other."""
        failed = self.failed()
        self.assertEqual(len(failed), len(parts), failed)
        for part in parts:
            self.assertTrue([line for line in failed if part in line], f"{part} is not in {failed}")
        # The evidence lists the failing lines, and the check of CI asks for a reason.
        findings = check_evidence.check_folder(self.out / "evidence", HASHES)
        self.assertEqual(findings, ["evidence/evidence.json: lines are unmet and no reason is given"])

    def change(self, run, where, name, **fields):
        """Changes fields of the engine `name` (of the case, if None) in the case of `run` whose name holds `where`."""
        changed = copy.deepcopy(getattr(self, run))
        found = next(c for c in changed["cases"] if where in c["name"])
        found = found if name is None else next(e for e in found["engines"] if e["name"] == name)
        for field, value in fields.items():
            if isinstance(value, dict) and isinstance(found.get(field), dict):
                found[field].update(value)
            else:
                found[field] = value
        self.put(f"{run}/report.json", changed)

    def slower(self, run, where, factor):
        samples = copy.deepcopy(next(
            c for c in getattr(self, run)["cases"] if where in c["name"])["engines"][1]["samples"])
        for sample in samples:
            sample["times"]["host_ms"] *= factor
        self.change(run, where, "ring", samples=samples)
