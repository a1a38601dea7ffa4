"""scripts/check_report.py, evidence_lines.py and check_evidence.py: a good run passes, and each line can fail."""

import copy
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_evidence  # noqa: E402
import check_report  # noqa: E402
import evidence_lines  # noqa: E402
import evidence_logs  # noqa: E402
from gpu_folder import CLEAN, RAN, SANITIZED, GpuFolder  # noqa: E402
from report_support import HASHES, Folder, case, engine, report  # noqa: E402


class Cpu(Folder):
    def good(self):
        self.report = report([case(m, 0, "committed", [engine("eager"), engine("host-twin")])
                              for m in ("tiny", "tiny-untied")])
        self.put("report.json", self.report)
        for name in ("tok_per_s.svg", "tok_per_s.png"):
            self.put(f"plots/{name}", "x" * 2000)
        self.put("report.html", "x" * 600_000)

    def failed(self):
        return check_report.check_cpu(self.out).failed()

    def test_good(self):
        self.assertEqual(self.failed(), [])

    def test_no_report(self):
        (self.out / "report.json").unlink()
        self.assertTrue(self.failed())

    def test_missing_case_plot_or_rate(self):
        changed = copy.deepcopy(self.report)
        del changed["cases"][1]
        self.put("report.json", changed)
        self.assertEqual(self.failed(), ["cases of tiny-untied"])
        changed = copy.deepcopy(self.report)
        changed["cases"][0]["engines"][1]["tok_per_s"] = None
        self.put("report.json", changed)
        self.assertEqual(self.failed(), ["tiny d=0 n=64: tok/s of the candidate"])
        self.put("report.json", self.report)
        (self.out / "plots" / "tok_per_s.png").unlink()
        self.assertEqual(self.failed(), ["plots as png"])
        (self.out / "report.html").unlink()
        self.assertEqual(self.failed(), ["plots as png", "page, with its library inside"])

    def test_parity(self):
        for change in ({"strict_matched": 63}, {"strict_steps": 0, "strict_matched": 0},
                       {"verdict": "FAIL_TOKEN"}, {"reference_sha256": ""}):
            changed = copy.deepcopy(self.report)
            changed["cases"][0]["engines"][1]["parity"].update(change)
            self.put("report.json", changed)
            failed = self.failed()
            self.assertEqual(len(failed), 1, change)
            self.assertIn("parity of host-twin", failed[0])


class Gpu(GpuFolder):
    def test_good_writes_evidence_that_its_check_takes(self):
        self.assertEqual(self.failed(), [])
        evidence = self.out / "evidence"
        self.assertEqual(check_evidence.check_folder(evidence, HASHES), [])
        written = json.loads((evidence / "evidence.json").read_text())
        self.assertEqual((written["gpu"], written["unmet"]), ("NVIDIA H200", []))
        self.assertEqual([row["depth"] for row in written["table"]], list(evidence_lines.SHARE_BARS))
        self.assertEqual({row["H100"]["share"] for row in written["table"]}, {"not measured"})
        self.assertAlmostEqual(written["table"][0]["H200"]["share"], 0.97)
        merged = json.loads((evidence / "report.json").read_text())
        self.assertEqual(len(merged["cases"]), 14)
        self.assertEqual(len(merged["calibration"]["runs"]), 2)

    def test_every_row_of_the_table_can_fail(self):
        for depth, (bar, _) in evidence_lines.SHARE_BARS.items():
            run = "full" if depth in evidence_lines.COMPARED_DEPTHS else "deep"
            where = f"d={depth} "
            self.slower(run, where, 0.97 / (bar - 0.002))
            self.expect_failure(f"depth {depth}: ring reaches")
            self.slower(run, where, 0.97 / (bar + 0.002))
            self.assertEqual(self.failed(), [], depth)
            self.slower(run, where, 0.97 / 1.04)  # faster than the memory can be read
            self.expect_failure(f"depth {depth}: ring reaches")
            self.put(f"{run}/report.json", getattr(self, run))

    def test_a_failing_row_does_not_hide_the_others(self):
        self.slower("full", "d=0 ", 1.2)
        lines = check_evidence.check_path(self.collect(), HASHES).lines
        rows = [line for line in lines if "ring reaches" in line["what"]]
        self.assertEqual([row["holds"] for row in rows], [False] + [True] * 11)

    def test_the_other_cards_bars(self):
        timing = [path.split("/")[0] for path in self.timing if path.endswith("report.json")]
        for run in ("full", "deep", "tiny", "strangers", *self.gate, *timing):
            changed = json.loads((self.out / run / "report.json").read_text())
            changed["env"]["gpu"]["name"] = "NVIDIA H100 80GB HBM3"
            self.put(f"{run}/report.json", changed)
        self.assertEqual(self.failed(), [])
        table = json.loads((self.out / "evidence" / "evidence.json").read_text())["table"]
        self.assertEqual({row["H200"]["share"] for row in table}, {"not measured"})
        self.assertNotIn("not measured", {row["H100"]["share"] for row in table})

    def test_missing_depth(self):
        changed = copy.deepcopy(self.deep)
        del changed["cases"][-1]
        self.put("deep/report.json", changed)
        self.expect_failure("depth 32704: ring reaches", "synthetic at depth 32704")
        (self.out / "deep/report.json").unlink()
        self.assertGreater(len(self.failed()), 18)

    def test_another_length_is_no_row(self):
        self.change("full", "d=0 ", None, axes={"n_gen": 128})
        self.expect_failure("depth 0: ring reaches", "synthetic at depth 0")

    def test_wrong_hash(self):
        evidence = self.collect()
        for kind in HASHES:
            tree = {**HASHES, kind: "0" * 64}
            self.assertEqual(check_evidence.check_path(evidence, tree).failed(), [f"{kind}: measured on this code"])
            findings = check_evidence.check_folder(evidence, tree)
            self.assertEqual(len(findings), 1, findings)
            self.assertIn(f"{kind}: state is fresh, but", findings[0])

    def test_lines_of_a_stale_hash_are_not_recomputed(self):
        evidence = self.collect()
        written, merged = (json.loads((evidence / f"{n}.json").read_text()) for n in ("evidence", "report"))
        for field, value, rests_on in (("receipts_wrong", 1, {"speed", "judgement"}), ("profile", None, {"speed"})):
            changed = copy.deepcopy(merged)
            changed["cases"][2]["engines"][1][field] = value
            (evidence / "report.json").write_text(json.dumps(changed))
            for stale in (set(), {"speed"}, {"judgement"}, set(HASHES)):
                states = {kind: {"state": "stale", "reason": "moved", "source_hash": ""} for kind in stale}
                (evidence / "evidence.json").write_text(json.dumps({**written, **states}))
                found = check_evidence.check_folder(evidence, HASHES)
                self.assertEqual(len(found), 0 if stale & rests_on else 1, (field, stale, found))

    def test_what_the_lines_rest_on(self):
        lines = check_evidence.check_path(self.collect(), HASHES).lines
        for part, wanted in (("ring reaches", "speed"), ("ablations", "speed"), ("memcheck", "speed"),
                             ("parity of eager against", "judgement"), ("parity of ring against", "speed judgement"),
                             ("faster than eager", "speed judgement"), ("fault corpus", "speed judgement")):
            self.assertEqual({line["rests_on"] for line in lines if part in line["what"]}, {wanted}, part)

    def test_evidence_that_was_touched_up(self):
        evidence = self.collect()
        written = json.loads((evidence / "evidence.json").read_text())
        for field, value, part in (("table", [], "table:"), ("unmet", ["tiny: verdict"], "and holds"),
                                   ("unmet", None, "unmet: found None")):
            (evidence / "evidence.json").write_text(json.dumps({**written, field: value, "reason": "none"}))
            findings = check_evidence.check_folder(evidence, HASHES)
            self.assertEqual(len(findings), 1, findings)
            self.assertIn(part, findings[0])
        (evidence / "evidence.json").write_text(json.dumps(written))
        merged = json.loads((evidence / "report.json").read_text())
        merged["cases"][0]["engines"][1]["receipts_wrong"] = 1
        (evidence / "report.json").write_text(json.dumps(merged))
        self.assertIn("not listed as unmet", check_evidence.check_folder(evidence, HASHES)[0])

    def test_r_rms(self):
        self.change("full", "pp512", "ring", parity={"r_rms": 0.067})
        self.expect_failure("R_rms of ring")
        self.change("full", "pp512", "ring", parity={"r_rms": 0.0655})
        self.assertEqual(self.failed(), [])
        self.change("full", "pp512", "ring", parity={"r_rms": float("nan")})
        self.expect_failure("R_rms of ring")

    def test_parity_in_the_same_report(self):
        self.change("full", "pp512", "plain", parity={"judged_in": "another run"})
        self.expect_failure("judged in the same report")
        self.put("full/report.json", self.full)
        self.change("deep", "d=960", "ring", parity={"strict_matched": 63})
        self.expect_failure("d=960 n=64: parity of ring")

    def test_receipts(self):
        for fields in ({"receipts_checked": 191}, {"receipts_wrong": 1}):
            self.change("deep", "d=8128", "ring", **fields)
            self.expect_failure("d=8128 n=64: every timed token of ring")
        self.change("deep", "d=8128", None, reference={"timed_check": "live"})
        self.expect_failure("d=8128 n=64: every timed token of ring")

    def test_launches_that_differ(self):
        samples = copy.deepcopy(self.full["cases"][2]["engines"][1]["samples"])
        samples[2]["ids"][63] += 1
        self.change("full", "d=0 ", "ring", samples=samples)
        self.expect_failure("d=0 n=64: equal tokens in every launch of ring")

    def test_first_token(self):
        for step, fails in ((0.029, False), (0.031, True), (-0.031, True)):
            samples = copy.deepcopy(self.deep["cases"][0]["engines"][1]["samples"])
            for sample in samples:
                sample["times"]["per_token_ms"][0] = sample["times"]["per_token_ms"][1] + step
            self.change("deep", "d=32 ", "ring", samples=samples)
            if fails:
                self.expect_failure("d=32 n=64: first token of ring")
            else:
                self.assertEqual(self.failed(), [])

    def test_profile(self):
        self.change("deep", "d=64 ", "ring", profile=None)
        self.expect_failure("d=64 n=64: both ablations of ring")

    def test_prefill(self):
        self.change("full", "pp2048", "ring", host_ms=1.51 * 0.01 * 2048)
        self.expect_failure("pp2048: prefill of ring")
        self.change("full", "pp2048", "ring", receipts_wrong=1)
        self.expect_failure("pp2048: prefill of ring")
        changed = copy.deepcopy(self.full)
        del changed["cases"][1]
        self.put("full/report.json", changed)
        self.expect_failure("pp2048: prefill of ring")

    def test_speed_of_plain(self):
        self.change("full", "d=0 ", "plain", ms_per_tok={"median": 0.9})
        self.expect_failure("d=0 n=64: plain under 900 us")
        self.put("full/report.json", self.full)
        self.change("full", "d=4032", "plain", ms_per_tok={"median": 1.41})
        self.expect_failure("d=4032 n=64: plain under 1400 us")

    def change_gate(self, run, name, **fields):
        changed = copy.deepcopy(self.gate[run])
        next(e for e in changed["cases"][0]["engines"] if e["name"] == name)["parity"].update(fields)
        self.put(f"{run}/report.json", changed)

    def test_gate_alone(self):
        checks = self.gate["parity"]["cases"][0]["engines"][1]["parity"]["checks"]
        self.change_gate("parity", "ring", checks=[c for c in checks if c["name"] != "sweep"])
        self.expect_failure("gate alone: sweep of ring")
        self.change_gate("parity", "plain", checks=[{**c, "status": "failed"} if c["name"] == "r_rms" else c for c in checks])
        self.expect_failure("gate alone: no check of plain fails")
        self.change_gate("parity", "plain", checks=[])
        self.assertEqual(len(self.failed()), 4)
        self.put("parity/report.json", report([]))
        self.expect_failure("gate alone: one case")
        self.put("parity/report.json", self.gate["parity"])
        kept = json.loads((self.collect() / "parity-report.json").read_text())
        self.assertEqual({len(e["parity"]["rows"]) for e in kept["cases"][0]["engines"]}, {0})

    def test_memorised(self):
        for fields in ({"strict_matched": 1535}, {"strict_matched": 1499, "strict_steps": 1499}, {"decided_steps": 1499},
                       {"reference_sha256": ""}, {"verdict": "FAIL_FIDELITY"}):
            self.change_gate("memorised", "ring", **fields)
            self.expect_failure("memorised: all of at least 1500 decided strict steps of ring")
        (self.out / "memorised" / "report.json").unlink()
        self.expect_failure("memorised: one case")

    def test_fault_corpus(self):
        for line in ("faults seen 59 of 60, controls passed 9 of 9", "faults seen 60 of 60, controls passed 8 of 9",
                     "faults seen 0 of 0, controls passed 9 of 9", "no corpus"):
            self.put("gpu_check.log", self.LOG.replace("faults seen 60 of 60, controls passed 9 of 9", line))
            self.expect_failure("fault corpus")

    def test_ceiling_missing_in_a_block(self):
        changed = copy.deepcopy(self.deep)
        lacking = changed["cases"][0]
        lacking["ceiling"]["samples"].pop()
        self.put("deep/report.json", changed)
        self.expect_failure("the ceiling was timed in the blocks of every decode case")
        lacking["ceiling"] = {"reason": "memory does not suffice", "samples": []}
        self.put("deep/report.json", changed)
        self.expect_failure("the ceiling was timed in the blocks of every decode case",
                            f"depth {lacking['axes']['depth']}: ring reaches")

    def test_speedup_where_nobody_was_timed(self):
        self.change("deep", "d=960", None, comparisons=[{"baseline": "eager", "candidate": "ring", "speedup": 40.0, "verdict": "FASTER"}])
        self.expect_failure("d=960 n=64: ring alone")

    def test_sanitizers(self):
        ring = "== test_ring_state\n"  # the last section
        for tool in ("memcheck", "synccheck"):
            for text in (SANITIZED.replace(ring + RAN, ring),
                         SANITIZED.split(ring)[0],
                         SANITIZED.split(ring)[0] + ring + RAN + "exit status 0\n",
                         SANITIZED.split(ring)[0] + ring + RAN
                         + "ERROR SUMMARY: 3 errors\nexit status 99\n",
                         SANITIZED.split(ring)[0] + ring + RAN + CLEAN + "exit status 77\n"):
                self.put(f"{tool}.log", text)
                self.expect_failure(f"{tool} of test_ring_state")
            self.put(f"{tool}.log", SANITIZED)

    def test_gpu_tests(self):
        for junit in (self.JUNIT.replace('failures="0"', 'failures="1"'),
                      self.JUNIT.replace('skipped="0"', 'skipped="1"'), "",
                      # Each test in turn is registered and does not run.
                      *(self.JUNIT.replace(f'"{t}" status="run"', f'"{t}" status="notrun"') for t in self.TESTS),
                      *(self.JUNIT.replace(f'<testcase name="{t}" status="run"/>', "") for t in self.TESTS)):
            self.put("gpu-tests.xml", junit)
            self.expect_failure("tests with the label gpu")
        self.put("gpu-tests.xml", self.JUNIT)
        for registered in ("", "test_plain\n"):
            self.put("gpu-tests.txt", registered)
            self.expect_failure("tests with the label gpu")
        (self.out / "gpu-tests.txt").unlink()
        self.expect_failure("tests with the label gpu")

    def test_steps_and_planted_faults(self):
        for step in evidence_logs.STEPS:
            passed = f"== {step}: passed after 1 s\n"
            failed = passed.replace("passed after", "FAILED (1) after")
            self.put("gpu_check.log", self.LOG.replace(passed, ""))
            self.expect_failure("every step")
        for log in (self.LOG.replace(passed, failed), self.LOG + failed,
                    self.LOG.replace(passed, f"== {step}: not run, the time is used up\n")):
            self.put("gpu_check.log", log)
            self.expect_failure("every step")
        self.put("gpu_check.log", failed + self.LOG)  # the repeated step passes, and the line names it
        self.assertEqual(self.failed(), [])
        evidence = json.loads((self.out / "evidence" / "evidence.json").read_text())
        found = [line["found"] for line in evidence["lines"] if line["what"].startswith("every step")]
        self.assertEqual(found, [f"{len(evidence_logs.STEPS)} steps; run again after a failure: {step}"])
        self.put("gpu_check.log", self.LOG.replace("in ring: exit 3", "in ring: exit 0"))
        self.expect_failure("planted faults")

    def test_strangers(self):
        for name, fields, part in [
                ("ring", {"launch_trace": {"kernels": 2}}, "launches of ring"),
                ("plain", {"launch_trace": {"problem": "no CUPTI"}}, "launches of plain"),
                ("eager", {"launch_trace": {"kernels": 99 * 16}}, "launches of eager"),
                ("naive-cuda@naive_cuda.so", {"ms_per_tok": {"ci": None}}, "ms/tok of naive-cuda@naive_cuda.so"),
                ("hf@hf_decoder.py", {"process": {"crossing_us": 101.0}}, "crosses in 100 us"),
                ("hf@hf_decoder.py", {"parity": {"strict_matched": 63}}, "parity of hf@hf_decoder.py"),
                ("hf@hf_decoder.py", {"receipts_wrong": 1}, "every timed token of hf@hf_decoder.py")]:
            with self.subTest(part=part):
                self.change("strangers", "synthetic", name, **fields)
                self.expect_failure(part)

    def test_cards(self):
        self.assertEqual({c["name"] for c in check_report.cards_of(self.collect())}, {"NVIDIA H200"})
        changed = copy.deepcopy(self.gate["parity"])
        changed["env"]["gpu"]["name"] = "NVIDIA H100"
        self.put("parity/report.json", changed)
        self.expect_failure("all reports are of one kind of card")

    def test_the_script_runs_what_the_lines_ask_for(self):
        script = (ROOT / "scripts" / "gpu_check.sh").read_text()
        lists = [[int(d) for d in text.split(",")] for text in re.findall(r"--n-depth ([0-9,]+)", script)]
        self.assertEqual(lists[0], list(evidence_lines.COMPARED_DEPTHS))
        self.assertEqual(sorted(lists[0] + lists[1]), sorted(evidence_lines.SHARE_BARS))
        self.assertEqual(script.count(f"--n-gen {evidence_lines.TOKENS} "), 3)
        self.assertIn(f"--n-prompt {','.join(map(str, evidence_lines.PROMPTS))} ", script)
        self.assertIn(f'sanitized_tests="{" ".join(evidence_logs.SANITIZED_TESTS)}"', script)
        rested_on = script[:script.index("if begin profile")]  # the parts behind it have no line of the evidence
        self.assertEqual(tuple(re.findall(r'^ *step \d+ "([^"]+)"', rested_on, re.MULTILINE)), evidence_logs.STEPS)

    def test_a_report_that_is_none(self):
        for content in ("{}", "[]", "", '{"cases": [{}], "env": {}, "verdict": {"status": "x", "exit_code": 0}}'):
            self.collect()
            self.put("evidence/report.json", content)
            failed = check_evidence.check_path(self.out / "evidence", HASHES).failed()
            self.assertTrue(failed, content)


if __name__ == "__main__":
    unittest.main()
