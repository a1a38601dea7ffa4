"""scripts/check_report.py: a good run passes, and each thing that must hold can fail it."""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_evidence  # noqa: E402
import check_report  # noqa: E402
import source_hash  # noqa: E402


def engine(role, ms_per_tok, fraction):
    return {
        "name": role, "resolved_name": "plain" if role == "candidate" else "eager", "role": role,
        "verdict": "PASS", "tok_per_s": 1000 / ms_per_tok, "ms_per_tok": {"median": ms_per_tok},
        "roofline_fraction": fraction, "receipts_checked": 256, "receipts_wrong": 0,
        "parity": {"verdict": "PASS", "strict_steps": 64, "strict_matched": 64,
                   "reference_sha256": "a" * 64},
        "samples": [{"tokens": 128}, {"tokens": 128}],
    }


def case(model, depth, check, ms_per_tok=0.8, fraction=0.5):
    return {
        "name": f"{model} d={depth}", "model": {"name": model}, "axes": {"depth": depth},
        "reference": {"timed_check": check},
        "engines": [engine("baseline", 4.0, 0.1), engine("candidate", ms_per_tok, fraction)],
    }


def report(cases):
    return {"cases": cases, "env": {"gpu": {"name": "NVIDIA H200"}},
            "verdict": {"status": "PASS", "exit_code": 0}}


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = pathlib.Path(holder.name)
        self.good()

    def put(self, path, content):
        (self.out / path).parent.mkdir(parents=True, exist_ok=True)
        (self.out / path).write_text(content if isinstance(content, str) else json.dumps(content))

    def failed(self, check):
        return [line["what"] for line in check(self.out).lines if not line["holds"]]


class Cpu(Folder):
    def good(self):
        self.report = report([case("tiny", 0, "committed"), case("tiny-untied", 0, "committed")])
        self.put("report.json", self.report)
        for name in ("tok_per_s.svg", "tok_per_s.png"):
            self.put(f"plots/{name}", "x" * 2000)

    def test_good(self):
        self.assertEqual(self.failed(check_report.check_cpu), [])

    def test_no_report(self):
        (self.out / "report.json").unlink()
        self.assertTrue(self.failed(check_report.check_cpu))

    def test_missing_case_plot_or_rate(self):
        changed = copy.deepcopy(self.report)
        del changed["cases"][1]
        self.put("report.json", changed)
        self.assertEqual(self.failed(check_report.check_cpu), ["cases of tiny-untied"])
        changed = copy.deepcopy(self.report)
        changed["cases"][0]["engines"][1]["tok_per_s"] = None
        self.put("report.json", changed)
        self.assertEqual(self.failed(check_report.check_cpu), ["tiny d=0: tok/s of the candidate"])
        self.put("report.json", self.report)
        (self.out / "plots" / "tok_per_s.png").unlink()
        self.assertEqual(self.failed(check_report.check_cpu), ["plots as png"])

    def test_parity(self):
        for change in ({"strict_matched": 63}, {"strict_steps": 0, "strict_matched": 0},
                       {"verdict": "FAIL_TOKEN"}, {"reference_sha256": ""}):
            changed = copy.deepcopy(self.report)
            changed["cases"][0]["engines"][1]["parity"].update(change)
            self.put("report.json", changed)
            failed = self.failed(check_report.check_cpu)
            self.assertEqual(len(failed), 1, change)
            self.assertIn("parity of plain", failed[0])


class Gpu(Folder):
    RAN = "All tests passed (12 assertions in 1 test case)\n"
    MEMCHECK = RAN + "========= ERROR SUMMARY: 0 errors\nexit status 0\n"
    JUNIT = '<testsuite name="x" tests="9" failures="0" disabled="0" skipped="0"/>'

    def good(self):
        self.full = report([case("synthetic", 0, "closed form", 0.8, 0.33),
                            case("synthetic", 512, "closed form", 0.9, 0.3),
                            case("synthetic", 4096, "closed form", 1.3, 0.25)])
        self.put("full/report.json", self.full)
        self.put("full/report.md", "# report")
        self.put("full/plots/a.svg", "<svg/>")
        self.put("tiny/report.json", report([case("tiny", 0, "x"), case("tiny-untied", 0, "x")]))
        self.put("memcheck.log", self.MEMCHECK)
        self.put("gpu-tests.xml", self.JUNIT)
        self.put("gpu_check.log", "log")

    def test_good_writes_evidence_that_its_check_takes(self):
        self.assertEqual(self.failed(check_report.check_gpu), [])
        evidence = self.out / "evidence"
        self.assertEqual(check_evidence.check_folder(evidence, source_hash.source_hash()), [])
        self.assertLessEqual(len(list(evidence.iterdir())), 8)
        self.assertEqual(json.loads((evidence / "evidence.json").read_text())["gpu"], "NVIDIA H200")

    def expect_failure(self, part):
        failed = self.failed(check_report.check_gpu)
        self.assertEqual(len(failed), 1, failed)
        self.assertIn(part, failed[0])
        self.assertFalse((self.out / "evidence").exists())

    def change(self, at, role, **fields):
        changed = copy.deepcopy(self.full)
        changed["cases"][at]["engines"][role].update(fields)
        self.put("full/report.json", changed)

    def test_speed_bars(self):
        self.change(0, 1, ms_per_tok={"median": 0.9})
        self.expect_failure("d=0: plain under 900 us")
        self.change(2, 1, ms_per_tok={"median": 1.41})
        self.expect_failure("d=4096: plain under 1400 us")
        self.change(0, 1, ms_per_tok=None)
        self.expect_failure("d=0: plain under 900 us")

    def test_receipts(self):
        for fields in ({"receipts_checked": 255}, {"receipts_wrong": 1},
                       {"samples": [], "receipts_checked": 0}):
            self.change(1, 1, **fields)
            self.expect_failure("d=512: every timed token of plain")
        changed = copy.deepcopy(self.full)
        changed["cases"][1]["reference"]["timed_check"] = "live"
        self.put("full/report.json", changed)
        self.assertEqual(len(self.failed(check_report.check_gpu)), 2)

    def test_roofline(self):
        for share in (None, 0.0, 1.04):
            self.change(1, 0, roofline_fraction=share)
            self.expect_failure("d=512: share of the roofline of eager")

    def test_missing_depth(self):
        changed = copy.deepcopy(self.full)
        del changed["cases"][1]
        self.put("full/report.json", changed)
        self.expect_failure("synthetic at depth 512")

    def test_memcheck(self):
        for text in ("", self.RAN + "exit status 0\n", "ERROR SUMMARY: 0 errors\nexit status 0\n",
                     self.RAN + "ERROR SUMMARY: 3 errors\nexit status 99\n",
                     self.RAN + "ERROR SUMMARY: 0 errors\nexit status 77\n"):
            self.put("memcheck.log", text)
            self.expect_failure("memcheck")

    def test_gpu_tests(self):
        for junit in ("", self.JUNIT.replace('failures="0"', 'failures="1"'),
                      self.JUNIT.replace('skipped="0"', 'skipped="1"'),
                      self.JUNIT.replace('tests="9"', 'tests="0"')):
            self.put("gpu-tests.xml", junit)
            self.expect_failure("tests with the label gpu")

    def test_parity_of_the_baseline_counts(self):
        self.change(0, 0, verdict="FAIL_TOKEN")
        self.expect_failure("d=0: parity of eager")


if __name__ == "__main__":
    unittest.main()
