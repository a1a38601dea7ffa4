"""dev/check_report.py, evidence_lines.py and check_evidence.py: a good run passes, and each line can fail."""

import json
import re
import unittest
import unittest.mock

from support import ROOT

import check_evidence
import check_report
import evidence_lines
import evidence_logs
from support.report_support import HASHES, Folder, case, engine, report

CLEAN = "========= ERROR SUMMARY: 0 errors\n"
RAN = "All tests passed (12 assertions in 1 test case)\n"
SANITIZED = "".join(f"== {t}\n{RAN}{CLEAN}exit status 0\n" for t in evidence_logs.SANITIZED_TESTS)
TESTS = ("test_plain", *evidence_logs.RING_TESTS)
JUNIT = ('<testsuite name="x" tests="4" failures="0" disabled="0" skipped="0">'
         + "".join(f'<testcase name="{t}" status="run"/>' for t in TESTS) + "</testsuite>")
LOG = ("".join(f"== {step}: passed after 1 s\n" for step in evidence_logs.STEPS)
       + "planted rope_theta in plain: exit 3\nplanted cache_length in ring: exit 3\n"
       "faults seen 60 of 60, controls passed 9 of 9\n")


class Cpu(Folder):
    def good(self):
        self.files = {"report.json": report([case(m, [engine("eager"), engine("host-twin")])
                                             for m in ("tiny", "tiny-untied")])}
        self.put("report.json", self.files["report.json"])
        for name in ("tok_per_s.svg", "tok_per_s.png"):
            self.put(f"plots/{name}", "x" * 2000)
        self.put("report.html", "x" * 600_000)

    def failed(self):
        return check_report.check_cpu(self.out).failed()

    def test_lines(self):
        self.assertEqual(self.failed(), [])
        twin = ("cases", 0, "engines", 1)
        for keys, value, line in (
                (("cases",), self.files["report.json"]["cases"][:1], "cases of tiny-untied"),
                (("verdict", "exit_code"), 3, "verdict"),
                ((*twin, "tok_per_s"), None, "tiny d=0 n=64: tok/s of the candidate"),
                *(((*twin, "parity", field), value, "tiny d=0 n=64: parity of host-twin against the committed reference")
                  for field, value in (("strict_matched", 63), ("verdict", "FAIL_TOKEN"), ("reference_sha256", "")))):
            with self.subTest(keys=keys):
                self.put_changed("report.json", keys, value)
                self.assertEqual(self.failed(), [line])
        self.files = {"report.json": report([case(m, [engine("eager"), engine("host-twin", steps=0)])
                                             for m in ("tiny", "tiny-untied")])}
        self.put("report.json", self.files["report.json"])
        self.assertEqual(len(self.failed()), 2)

    def test_files_that_are_not_there(self):
        (self.out / "plots" / "tok_per_s.png").unlink()
        self.assertEqual(self.failed(), ["plots as png"])
        (self.out / "report.html").unlink()
        self.assertEqual(self.failed(), ["plots as png", "page, with its library inside"])
        (self.out / "report.json").unlink()
        self.assertEqual(self.failed(), ["report.json can be read"])


class Gpu(Folder):
    """A folder as dev/gpu_check.sh leaves it."""

    def good(self):
        def engines(names, **fields):
            return [engine(n, **fields) for n in names]

        both, three, compared = evidence_lines.KERNELS, evidence_lines.ENGINES, evidence_lines.COMPARED_DEPTHS
        strangers = [engine(name, tokens=16, launch_trace={
            "problem": "", "tokens": 16, "kernels": most or 1600, "graph_launches": 0})
            for name, most in evidence_lines.STRANGERS.items()]
        power = [{"share": s, "seen": 0.97, "rescaled": 0.99} for s in (0.01, 0.02, 0.05)]
        self.files = {f"{run}/report.json": report(cases) for run, cases in {
            "full": [case("synthetic", [engine(n, host_ms=0.01 * p) for n in three], n_prompt=p)
                     for p in evidence_lines.PROMPTS]
            + [case("synthetic", engines(three), d, comparisons=[{"speedup": 40.0, "verdict": "FASTER"}]) for d in compared],
            "deep": [case("synthetic", [engine("eager", timed=False), engine("ring")], d,
                          comparisons=[{"speedup": None, "verdict": "INCONCLUSIVE"}])
                     for d in evidence_lines.SHARE_BARS if d not in compared],
            "tiny": [case(m, engines(("eager", "plain"))) for m in ("tiny", "tiny-untied")],
            "parity": [case("synthetic", engines(three, timed=False))],
            "memorised": [case("./memorised-qwen3", engines(three, timed=False, steps=1536))],
            "strangers": [case("synthetic", strangers, tokens=16)],
            "table": [case("synthetic", engines(three), d) for d in evidence_lines.TABLE_DEPTHS],
            "blocks": [case("synthetic", engines(both), tokens=n) for n in evidence_lines.BLOCK_TOKENS],
            "telemetry": [case("synthetic", engines(("ring",)))],
            "energy": [case("synthetic", engines(("ring",)))],
        }.items()}
        self.files |= {
            "clock.json": {"live": 10, "live_excluding_one": 1, "live_faster_or_slower": 0, "rows": [
                {"processes": p, "splits": 200, "excluding_one": 9, "faster_or_slower": 0, "most_allowed": 21,
                 "power": power} for p in (3, 5, 30)]},
            "audit/audit.json": {"cases": [{"engines": [{"engine": n, "verdict": "PASS"} for n in both]}]},
            "memcheck.log": SANITIZED, "synccheck.log": SANITIZED, "gpu-tests.xml": JUNIT,
            "gpu-tests.txt": "".join(f"{t}\n" for t in TESTS), "gpu_check.log": LOG}
        for path, content in self.files.items():
            self.put(path, content)

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

    def place(self, run, where, name):
        """The keys of an engine of the case of `run` whose name holds `where`; of the case where name is None."""
        cases = self.files[f"{run}/report.json"]["cases"]
        index = next(i for i, c in enumerate(cases) if where in c["name"])
        if name is None:
            return "cases", index
        return "cases", index, "engines", [e["name"] for e in cases[index]["engines"]].index(name)

    def test_good_writes_evidence_that_its_check_takes(self):
        self.assertEqual(self.failed(), [])
        self.assertEqual(check_evidence.check_folder(self.out / "evidence", HASHES), [])
        written = json.loads((self.out / "evidence" / "evidence.json").read_text())
        self.assertEqual((written["gpu"], written["unmet"]), ("NVIDIA H200", []))
        self.assertEqual([row["depth"] for row in written["table"]], list(evidence_lines.SHARE_BARS))
        self.assertEqual({row["H100"]["share"] for row in written["table"]}, {"not measured"})
        self.assertEqual({row["H200"]["share"] for row in written["table"]}, {0.97})

    def test_every_row_of_the_table_can_fail(self):
        for depth, bars in evidence_lines.SHARE_BARS.items():
            run = "full" if depth in evidence_lines.COMPARED_DEPTHS else "deep"
            keys, path = (*self.place(run, f"d={depth} ", "ring"), "share"), f"{run}/report.json"
            for share, holds in ((bars[0] - 0.002, False), (bars[0] + 0.002, True), (1.04, False), (None, False)):
                self.put_changed(path, keys, share)
                self.assertEqual(self.failed(), [] if holds else [f"depth {depth}: ring reaches its share of the ceiling"])
            self.put(path, self.files[path])

    def test_the_other_cards_bars(self):
        for path in self.files:
            if path.endswith("report.json"):
                self.put_changed(path, ("env", "gpu", "name"), "NVIDIA H100 80GB HBM3")
        self.assertEqual(self.failed(), [])
        table = json.loads((self.out / "evidence" / "evidence.json").read_text())["table"]
        self.assertEqual({row["H200"]["share"] for row in table}, {"not measured"})
        self.assertEqual({row["H100"]["share"] for row in table}, {0.97})
        self.put("parity/report.json", self.files["parity/report.json"])
        self.expect_failure("all reports are of one kind of card")

    def test_every_line_of_an_engine_can_fail(self):
        for run, where, name, keys, value, line in (
                ("full", "pp512", "ring", ("parity", "r_rms"), 0.067, "R_rms of ring"),
                ("full", "pp512", "ring", ("parity", "r_rms"), float("nan"), "R_rms of ring"),
                ("full", "pp2048", "ring", ("host_ms",), 1.51 * 0.01 * 2048, "pp2048: prefill of ring"),
                ("full", "pp2048", "ring", ("receipts_wrong",), 1, "pp2048: prefill of ring"),
                ("full", "d=0 ", None, ("axes", "n_gen"), 128, "depth 0: ring reaches"),
                ("full", "d=0 ", None, ("comparisons", 0, "verdict"), "SLOWER", "d=0 n=64: ring is faster than eager"),
                ("full", "d=0 ", "plain", ("ms_per_tok", "median"), 0.9, "d=0 n=64: plain under 900 us"),
                ("full", "d=4032", "plain", ("ms_per_tok", "median"), 1.41, "d=4032 n=64: plain under 1400 us"),
                ("full", "d=512", "eager", ("parity", "strict_matched"), 63, "d=512 n=64: parity of eager"),
                ("deep", "d=960", "ring", ("parity", "strict_matched"), 63, "d=960 n=64: parity of ring"),
                ("deep", "d=960", None, ("comparisons", 0, "speedup"), 40.0, "d=960 n=64: ring is alone"),
                ("deep", "d=8128", "ring", ("receipts_checked",), 191, "d=8128 n=64: every timed token of ring"),
                ("deep", "d=8128", "ring", ("receipts_wrong",), 1, "d=8128 n=64: every timed token of ring"),
                ("deep", "d=8128", None, ("reference", "timed_check"), "live", "d=8128 n=64: every timed token of ring"),
                ("deep", "d=32 ", "ring", ("first_token_ms",), 0.331, "d=32 n=64: first token of ring"),
                ("deep", "d=32 ", "ring", ("first_token_ms",), 0.269, "d=32 n=64: first token of ring"),
                ("deep", "d=64 ", "ring", ("profile",), None, "d=64 n=64: both ablations of ring"),
                ("parity", "d=0", "ring", ("parity", "checks", 3, "name"), "other", "gate alone: all checks of ring"),
                ("parity", "d=0", "plain", ("parity", "checks", 0, "status"), "failed", "gate alone: all checks of plain"),
                *(("memorised", "d=0", "ring", ("parity", field), value, "memorised-qwen3 d=0 n=64: parity of ring")
                  for field, value in (("strict_matched", 1535), ("decided_steps", 1499), ("verdict", "FAIL_FIDELITY"))),
                ("strangers", "d=0", "ring", ("launch_trace", "kernels"), 2, "launches of ring"),
                ("strangers", "d=0", "plain", ("launch_trace", "problem"), "no CUPTI", "launches of plain"),
                ("strangers", "d=0", "eager", ("launch_trace", "kernels"), 99 * 16, "launches of eager"),
                ("strangers", "d=0", "graph", ("ms_per_tok", "ci"), None, "ms/tok of graph"),
                ("strangers", "d=0", "hf", ("process", "crossing_us"), 101.0, "crosses in 100 us"),
                ("strangers", "d=0", "hf", ("receipts_wrong",), 1, "every timed token of hf"),
                ("table", "d=0", "ring", ("verdict",), "HANG", "table, depth 0: eager, ring, plain pass"),
                ("table", "d=0", "ring", ("ms_per_tok", "processes"), 4, "table, depth 0: processes"),
                ("table", "d=0", "ring", ("share_ci", "low"), 0.94, "table, depth 0: the share of ring"),
                ("table", "d=128", "plain", ("share_ci",), None, "depth 128: the share of plain"),
                ("blocks", "n=8", "plain", ("verdict",), "INTEGRITY", "blocks of 8 tokens"),
                ("blocks", "n=1", None, ("axes", "n_gen"), 2, "blocks of 1 tokens"),
                ("telemetry", "d=0", "ring", ("card", "watching_costs"), 0.0011, "telemetry costs"),
                ("telemetry", "d=0", "ring", ("card", "watching_costs"), None, "telemetry costs"),
                ("energy", "d=0", "ring", ("card", "energy_j"), None, "energy of a token")):
            with self.subTest(run=run, name=name, keys=keys, value=value):
                self.put_changed(f"{run}/report.json", (*self.place(run, where, name), *keys), value)
                self.expect_failure(line)
                self.put(f"{run}/report.json", self.files[f"{run}/report.json"])
        self.put_changed("full/report.json", (*self.place("full", "pp512", "ring"), "parity", "r_rms"), 0.0655)
        self.assertEqual(self.failed(), [])

    def test_clock_and_audit(self):
        for path, keys, value, lines in (
                ("clock.json", ("rows", 1, "excluding_one"), 22, ["A/A: intervals miss 1"]),
                ("clock.json", ("rows", 2, "faster_or_slower"), 22, ["A/A: intervals miss 1"]),
                ("clock.json", ("rows", 2, "processes"), 15, ["A/A: a row of 30 processes"]),
                ("clock.json", ("rows",), [], ["A/A: intervals miss 1", "A/A: a row of 30", "1 % more is seen"]),
                ("clock.json", ("live",), 9, ["A/A end to end"]),
                ("clock.json", ("live_excluding_one",), 3, ["A/A end to end"]),
                ("clock.json", ("live",), None, ["clock.json is complete"]),
                ("audit/audit.json", ("cases", 0, "engines", 0, "verdict"), "INTEGRITY", ["audit: ring and plain"])):
            with self.subTest(path=path, keys=keys):
                self.put_changed(path, keys, value)
                self.expect_failure(*lines)
                self.put(path, self.files[path])
        # Three processes may be too few on a card; then they show no power.
        for field, value, share in (("excluding_one", 29, 0.97), ("excluding_one", 9, 0.89)):
            rows = [{**row, field: value if row["processes"] == 3 else row[field],
                     "power": [{"share": 0.01, "seen": share, "rescaled": 0.99}]} for row in self.files["clock.json"]["rows"]]
            self.put_changed("clock.json", ("rows",), rows)
            self.assertEqual(self.failed(), ["1 % more is seen with power 0.9"] if share < 0.9 else [])

    def test_cases_and_reports_that_are_not_there(self):
        self.put_changed("deep/report.json", ("cases",), self.files["deep/report.json"]["cases"][:-1])
        self.expect_failure("depth 32704: ring reaches")
        self.put("deep/report.json", self.files["deep/report.json"])
        self.put("parity/report.json", report([]))
        self.expect_failure("parity-report.json is complete")
        hollow = {**self.files["parity/report.json"], "cases": [{}]}
        for content in ("{}", "[]", "", json.dumps(hollow)):
            self.put("parity/report.json", content)
            self.expect_failure("parity-report.json is complete" if "cases" in content else "parity: verdict")
        (self.out / "parity" / "report.json").unlink()
        (self.out / "evidence" / "parity-report.json").unlink()
        self.expect_failure("parity: verdict")

    def test_wrong_hash(self):
        evidence = self.collect()
        for kind in HASHES:
            tree = {**HASHES, kind: "0" * 64}
            self.assertEqual(check_evidence.check_path(evidence, tree).failed(), [f"{kind}: measured on this code"])
            findings = check_evidence.check_folder(evidence, tree)
            self.assertEqual(len(findings), 1, findings)
            self.assertIn(f"{kind}: state is fresh, but", findings[0])

    def test_lines_of_a_stale_hash_are_not_recomputed(self):
        written = json.loads((self.collect() / "evidence.json").read_text())
        for field, value, rests_on in (("receipts_wrong", 1, {"speed", "judgement"}), ("profile", None, {"speed"})):
            self.put_changed("full/report.json", (*self.place("full", "d=0 ", "ring"), field), value)
            self.collect()
            for stale in (set(), {"speed"}, {"judgement"}, set(HASHES)):
                states = {kind: {"state": "stale", "reason": "moved", "source_hash": ""} for kind in stale}
                self.put("evidence/evidence.json", {**written, **states})
                found = check_evidence.check_folder(self.out / "evidence", HASHES)
                self.assertEqual(len(found), 0 if stale & rests_on else 1, (field, stale, found))

    def test_what_the_lines_rest_on(self):
        lines = check_evidence.check_path(self.collect(), HASHES).lines
        for part, wanted in (("ring reaches", "speed"), ("ablations", "speed"), ("memcheck", "speed"),
                             ("parity of eager against", "judgement"), ("parity of ring against", "speed judgement"),
                             ("faster than eager", "speed judgement"), ("fault corpus", "speed judgement")):
            self.assertEqual({line["rests_on"] for line in lines if part in line["what"]}, {wanted}, part)

    def test_evidence_that_was_touched_up(self):
        written = json.loads((self.collect() / "evidence.json").read_text())
        for field, value, part in (("table", [], "table:"), ("unmet", ["tiny: verdict"], "and holds"),
                                   ("unmet", None, "unmet: found None")):
            self.put("evidence/evidence.json", {**written, field: value, "reason": "none"})
            findings = check_evidence.check_folder(self.out / "evidence", HASHES)
            self.assertEqual(len(findings), 1, findings)
            self.assertIn(part, findings[0])

    def test_logs_that_fail(self):
        step = evidence_logs.STEPS[-1]
        passed, failed = f"== {step}: passed after 1 s\n", f"== {step}: FAILED (1) after 1 s\n"
        ring = "== test_ring_state\n"  # the last section
        before = SANITIZED.split(ring)[0]
        corpus = "faults seen 60 of 60, controls passed 9 of 9"
        for names, line, contents in (
                (("memcheck.log", "synccheck.log"), "check of test_ring_state", (
                    SANITIZED.replace(ring + RAN, ring), before, before + ring + RAN + "exit status 0\n",
                    before + ring + RAN + "ERROR SUMMARY: 3 errors\nexit status 99\n",
                    before + ring + RAN + CLEAN + "exit status 77\n")),
                (("gpu-tests.xml",), "tests with the label gpu", (
                    JUNIT.replace('failures="0"', 'failures="1"'), JUNIT.replace('skipped="0"', 'skipped="1"'), "",
                    # Each test in turn is registered and does not run.
                    *(JUNIT.replace(f'"{t}" status="run"', f'"{t}" status="notrun"') for t in TESTS),
                    *(JUNIT.replace(f'<testcase name="{t}" status="run"/>', "") for t in TESTS))),
                (("gpu-tests.txt",), "tests with the label gpu", ("", "test_plain\n")),
                (("gpu_check.log",), "every step", (
                    *(LOG.replace(f"== {s}: passed after 1 s\n", "") for s in evidence_logs.STEPS),
                    LOG.replace(passed, failed), LOG + failed,
                    LOG.replace(passed, f"== {step}: not run, the time is used up\n"))),
                (("gpu_check.log",), "planted faults", (LOG.replace("in ring: exit 3", "in ring: exit 0"),)),
                (("gpu_check.log",), "fault corpus", tuple(LOG.replace(corpus, other) for other in (
                    "faults seen 59 of 60, controls passed 9 of 9", "faults seen 60 of 60, controls passed 8 of 9",
                    "faults seen 0 of 0, controls passed 9 of 9", "no corpus")))):
            for name in names:
                for content in contents:
                    with self.subTest(name=name, content=content):
                        self.put(name, content)
                        self.expect_failure(line)
                self.put(name, self.files[name])
        self.put("gpu_check.log", failed + LOG)  # the repeated step passes, and the line names it
        self.assertEqual(self.failed(), [])
        evidence = json.loads((self.out / "evidence" / "evidence.json").read_text())
        found = [line["found"] for line in evidence["lines"] if line["what"].startswith("every step")]
        self.assertEqual(found, [f"{len(evidence_logs.STEPS)} steps; run again after a failure: {step}"])

    def test_the_script_runs_what_the_lines_ask_for(self):
        script = (ROOT / "dev" / "gpu_check.sh").read_text()
        lists = [[int(d) for d in text.split(",")] for text in re.findall(r"--n-depth ([0-9,]+)", script)]
        self.assertEqual(lists[0], list(evidence_lines.COMPARED_DEPTHS))
        self.assertEqual(sorted(lists[0] + lists[1]), sorted(evidence_lines.SHARE_BARS))
        self.assertEqual(lists[2], list(evidence_lines.TABLE_DEPTHS))
        self.assertEqual(script.count(f"--n-gen {evidence_lines.TOKENS} "), 3)
        self.assertIn(f"--n-gen {','.join(map(str, evidence_lines.BLOCK_TOKENS))} ", script)
        self.assertIn(f"--n-prompt {','.join(map(str, evidence_lines.PROMPTS))} ", script)
        self.assertIn(f'sanitized_tests="{" ".join(evidence_logs.SANITIZED_TESTS)}"', script)
        rested_on = script[:script.index("if begin profile")]  # the parts behind it have no line of the evidence
        self.assertEqual(tuple(re.findall(r'^ *step \d+ "([^"]+)"', rested_on, re.MULTILINE)), evidence_logs.STEPS)


if __name__ == "__main__":
    unittest.main()
