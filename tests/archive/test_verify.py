"""mkbench verify on real reports: what was edited is found and named. mkbench --resume on interrupted runs."""

import json
import os
import re
import shutil
import signal
import unittest

from support.cli_support import BINARY, DATA, CliTest, HostsTest

INTEGRITY = 8


def at(report, path):
    """The object that holds the last part of "cases[0].engines[1].name", and that part."""
    parts = [int(p) if p.isdigit() else p for p in re.findall(r"[^.\[\]]+", path)]
    for part in parts[:-1]:
        report = report[part]
    return report, parts[-1]


def other(value):
    """The value with one digit, or one letter, changed; a number where there is none."""
    if value is None:
        return 1.5
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        text = json.dumps(value)
        digits = [i for i, c in enumerate(text) if c.isdigit()]
        # The last one of a whole number, the third one of a fraction: what a reader of a table sees.
        place = digits[-1] if isinstance(value, int) else digits[min(2, len(digits) - 1)]
        return json.loads(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1:])
    last = value[-1]
    return value[:-1] + (str((int(last) + 1) % 10) if last.isdigit() else "b" if last != "b" else "c")


E0, E1 = "cases[0].engines[0]", "cases[0].engines[1]"

# An edit of each path, and what names it; None: the path itself. Values that nothing is computed from are named by
# the part of the seal that holds them.
EDITS = [
    # figures
    (f"{E1}.tok_per_s", None), (f"{E0}.tok_per_s", None), (f"{E1}.tok_per_s_ci_low", None),
    (f"{E1}.tok_per_s_ci_high", None), (f"{E1}.ms_per_tok.mean", None), (f"{E1}.ms_per_tok.median", None),
    (f"{E1}.ms_per_tok.min", None), (f"{E1}.ms_per_tok.max", None), (f"{E1}.ms_per_tok.ci.low", None),
    (f"{E1}.ms_per_tok.ci.high", None), (f"{E0}.host_ms", None), (f"{E1}.receipts_checked", None),
    (f"{E1}.receipts_wrong", None), ("cases[0].memory.bytes_per_token", None),
    ("cases[0].memory.cached_bytes", None), ("cases[0].memory.pin_gb_per_s", None), ("cases[0].memory.least_ms", None),
    (f"{E0}.share", None), ("cases[0].ceiling.gb_per_s", None),
    # comparisons
    ("cases[0].comparisons[0].confidence", None), ("cases[0].comparisons[0].blocks", None),
    ("cases[0].comparisons[0].baseline", None), ("cases[0].comparisons[0].design", None),
    ("cases[0].comparisons[0].processes", None), ("cases[0].comparisons[0].margin", None),
    ("calibration.clock.margin", None), ("calibration.clock.source", "cases[0].comparisons[0].margin_source"),
    # verdicts
    ("verdict.exit_code", None), ("verdict.interrupted", "verdict.status"),
    # parity
    (f"{E1}.parity.exact", None), (f"{E1}.parity.ties", None), (f"{E1}.parity.drifts", None),
    (f"{E1}.parity.wrong", None), (f"{E1}.parity.steps", None), (f"{E1}.parity.prompts", None),
    (f"{E1}.parity.strict_steps", None), (f"{E1}.parity.strict_matched", None), (f"{E1}.parity.flips", None),
    (f"{E1}.parity.self_inconsistent", None), (f"{E1}.parity.non_finite", None), (f"{E1}.parity.r_rms", None),
    (f"{E1}.parity.r_rms_limit", None), (f"{E1}.parity.rows[3].mk_id", f"{E1}.parity"),
    (f"{E1}.parity.rows[3].ref_id", f"{E1}.parity"), (f"{E1}.parity.rows[5].pos", f"{E1}.parity.prompts"),
    # the raw samples
    (f"{E1}.samples[0].times.host_ms", f"{E1}.ms_per_tok"), (f"{E0}.samples[2].times.host_ms", f"{E0}.ms_per_tok"),
    (f"{E1}.samples[1].tokens", None), (f"{E1}.samples[1].block", f"{E1}.samples[1]"),
    (f"{E1}.samples[1].order", None), (f"{E1}.samples[2].receipts_checked", None),
    (f"{E1}.samples[2].receipts_wrong", None), (f"{E1}.samples[2].valid", None), (f"{E1}.samples[3].late_id", None),
    (f"{E1}.samples[0].ids[4]", f"{E1}.samples[0]"), (f"{E1}.samples[3].ids[0]", f"{E1}.samples[3]"),
    (f"{E1}.samples[3].start_ms", f"{E1}.samples[3]"), (f"{E0}.samples[0].engine", None),
    # what the case and the run were
    ("cases[0].axes.n_gen", "cases[0].name"), ("cases[0].axes.depth", "cases[0].name"), ("cases[0].name", None),
    ("cases[0].ids_sha256", None), ("cases[0].generated_text", None), ("meta.seed", None),
    ("meta.prompt_seed", "cases[0].ids_sha256"),
    ("meta.options.confidence.value", "cases[0].comparisons[0].confidence"),
    ("meta.options.seed.value", "meta.seed"), (f"{E1}.process.pid", E1), (f"{E1}.launches", E1),
    ("cases[0].model.weights_sha256", "cases[0]"), ("cases[0].bytes_free", "cases[0]"), ("meta.started", "meta"),
    ("env.cpu.threads", "env"),
]
WORDS = [
    ("verdict.status", "FAIL_TOKEN", None), ("cases[0].verdict", "PASS_LIVE", None),
    (f"{E1}.verdict", "PASS_LIVE", None), (f"{E0}.verdict", "HANG", "cases[0].verdict"),
    (f"{E1}.parity.verdict", "FAIL_FIDELITY", None), ("cases[0].comparisons[0].verdict", "FASTER", None),
    (f"{E1}.parity.rows[0].match", "WRONG", f"{E1}.parity.wrong"),
    (f"{E1}.parity.rows[0].match", "TIE", f"{E1}.parity.ties"),
]


class Verify(CliTest):
    """One real report on the CPU, made once; each test edits a copy."""

    @classmethod
    def setUpClass(cls):
        maker = cls("setUp")
        CliTest.setUp(maker)
        cls.maker = maker
        # At depth 0 the prompt is one token, which another seed draws too, once in as many times as there are tokens.
        made = maker.bench("--reference", maker.short_reference(), "-n", "6", "-d", "3", "--blocks", "10", timeout=300)
        assert made.returncode == 0, made.stderr

    @classmethod
    def tearDownClass(cls):
        cls.maker.doCleanups()

    def setUp(self):
        super().setUp()
        shutil.copytree(self.maker.out, self.out)

    def verify(self, *args):
        return self.mkbench("verify", str(self.out), *args)

    def expect_difference(self, name, done=None):
        done = done or self.verify()
        self.assertEqual(done.returncode, INTEGRITY, done.stdout + done.stderr)
        paths = [line.split(": found ")[0] for line in done.stdout.splitlines()]
        self.assertTrue(any(p.startswith(name) for p in paths), f"{name} is not in {paths[:8]}")

    def edit(self, path, value):
        report = json.loads((self.maker.out / "report.json").read_text())
        holder, last = at(report, path)
        self.assertNotEqual(holder[last], value)
        if holder[last] is None:
            holder.pop(last + "_reason", None)  # a number has none, and beside one it is BAD_INPUT
        holder[last] = value
        (self.out / "report.json").write_text(json.dumps(report))

    def test_a_report_as_written(self):
        for argument in (self.out, self.out / "report.json"):
            done = self.mkbench("verify", str(argument))
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertRegex(done.stdout, r"^.*: [0-9]{3,} figures recomputed from 20 samples, all equal\n$")

    def test_formatting_is_no_edit(self):
        report = json.loads((self.out / "report.json").read_text())
        (self.out / "report.json").write_text(json.dumps(report, indent=7))
        self.assertEqual(self.verify().returncode, 0)

    def test_an_edited_digit(self):
        self.assertGreaterEqual(len(EDITS), 30)
        for path, name in EDITS:
            with self.subTest(path=path):
                holder, last = at(json.loads((self.maker.out / "report.json").read_text()), path)
                if holder is None:  # an interval that a busy machine made too wide to be given: one is invented
                    path = path.rpartition(".")[0]
                    self.edit(path, {"low": 1.5, "high": 2.5})
                else:
                    self.edit(path, other(holder[last]))
                self.expect_difference(name or path)

    def test_an_edited_verdict(self):
        for path, word, name in WORDS:
            with self.subTest(path=path, word=word):
                self.edit(path, word)
                self.expect_difference(name or path)

    def test_an_edited_check(self):
        checks = at(self.report(), f"{E1}.parity.checks")[0]["checks"]
        for i, check in enumerate(checks):
            if check["limit"] is None or check["name"] == "sweep":
                continue
            with self.subTest(check=check["name"]):
                self.edit(f"{E1}.parity.checks[{i}].limit", other(check["limit"]))
                self.expect_difference(E1)
                self.edit(f"{E1}.parity.checks[{i}].value", other(check["value"]))
                self.expect_difference(E1)
                self.edit(f"{E1}.parity.checks[{i}].status", "failed")
                self.expect_difference(f"{E1}.parity")

    def test_a_sample_that_is_taken_out(self):
        report = self.report()
        del at(report, f"{E1}.samples")[0]["samples"][2]
        (self.out / "report.json").write_text(json.dumps(report))
        self.expect_difference(E1)

    def test_the_other_files(self):
        for name in ("report.md", "junit.xml"):
            text = (self.maker.out / name).read_text()
            for place in [m.start() for m in re.finditer("[0-9]", text)][::17]:
                with self.subTest(file=name, place=place):
                    edited = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1:]
                    (self.out / name).write_text(edited)
                    self.expect_difference(f"{name} line {text[:place].count(chr(10)) + 1}")
            (self.out / name).write_text(text)
            (self.out / name).write_text(text + "more\n")
            self.expect_difference(name)
            (self.out / name).write_text(text)

    def test_a_report_that_was_copied_alone(self):
        os.remove(self.out / "report.md")
        os.remove(self.out / "junit.xml")
        done = self.verify()
        self.assertEqual(done.returncode, 0)
        self.assertIn("not compared: report.md, junit.xml", done.stderr)

    def test_what_is_no_report(self):
        def without(path):
            def change(report):
                holder, last = at(report, path)
                del holder[last]
            return change

        def with_value(path, value):
            def change(report):
                holder, last = at(report, path)
                holder[last] = value
            return change

        def with_duplicate(text):
            return text.replace('"tokens":', '"tokens": 7, "tokens":', 1)

        cases = [
            (with_value("schema.id", "nvbench"), 'schema.id: found "nvbench", wanted "mkbench.report"'),
            (with_value("schema.version", "0.9.0"), 'schema.version: found "0.9.0", wanted 1.*'),
            (with_value("schema.version", "11.0.0"), 'schema.version: found "11.0.0", wanted 1.*'),
            (with_value("schema.version", "1."), 'schema.version: found "1.", wanted 1.*'),
            (with_value("schema.version", "1.-1.0"), 'schema.version: found "1.-1.0", wanted 1.*'),
            (with_value("schema.version", 1.8), "schema.version: found 1.8, wanted 1.*"),
            (without("schema"), "schema: found nothing, wanted an object"),
            (without(f"{E1}.samples[1].tokens"), f"{E1}.samples[1].tokens: found nothing, wanted a value"),
            (with_value(f"{E1}.samples[1].tokens", "8"), f'{E1}.samples[1].tokens: found "8", wanted an integer'),
            (with_value(f"{E1}.samples[1].valid", 1), f"{E1}.samples[1].valid: found 1, wanted true or false"),
            (with_value(f"{E1}.verdict", "GREAT"), f'{E1}.verdict: found "GREAT", wanted one of PASS'),
            (with_value("cases", {}), "cases: found {}, wanted a list"),
            (without("seal"), "seal: found nothing, wanted an object"),
            (with_value("meta.options.confidence.value", "7"), "meta.options.confidence.value: --confidence: '7'"),
        ]
        for change, wanted in cases:
            with self.subTest(wanted=wanted):
                report = json.loads((self.maker.out / "report.json").read_text())
                change(report)
                (self.out / "report.json").write_text(json.dumps(report))
                self.expect_refusal(wanted)
        (self.out / "report.json").write_text(with_duplicate((self.maker.out / "report.json").read_text()))
        self.expect_refusal("tokens")
        (self.out / "report.json").write_text("[1, 2")
        self.expect_refusal("report.json")

    def expect_refusal(self, wanted):
        done = self.verify()
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(wanted, done.stderr)
        self.assertIn("report.json", done.stderr)

    def test_arguments(self):
        done = self.mkbench("verify")
        self.assertEqual(done.returncode, 2)
        self.assertIn("verify: found no report, wanted some", done.stderr)
        done = self.mkbench("verify", str(self.folder / "none"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("none", done.stderr)


class InterruptedTest(HostsTest):
    """A run of two cases, interrupted in the second one."""

    AXES = ("-n", "7", "-d", "0,2", "--blocks", "3")

    def interrupted(self, *args, until="case 2/2"):
        process = self.start("--model", self.model, "--reference", self.references, *self.AXES, *args)
        self.wait_for(process, until)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, stderr)
        before = self.report()
        self.assertEqual([c["interrupted"] for c in before["cases"]], [False, True])
        return before

    def setUp(self):
        super().setUp()
        self.model = "tiny"
        self.references = self.short_reference()

    def resume(self, *args):
        return self.mkbench("--resume", str(self.out), "--no-plot", *args, timeout=300, env={"TMPDIR": str(self.tmp)})

    def verify(self, folder=None):
        done = self.mkbench("verify", str(folder or self.out))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Resume(InterruptedTest):
    def test_goes_on(self):
        before = self.interrupted()
        self.verify()
        elsewhere = self.folder / "elsewhere"
        done = self.resume("--out", str(elsewhere))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.out)), ["junit.xml", "report.json", "report.md"])
        self.verify(elsewhere)

        old = (self.out / "report.json").read_bytes()
        done = self.resume()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.verify()
        self.assertEqual((self.out / "report.1.json").read_bytes(), old)
        after = self.report()
        self.assertEqual(after["cases"][0], before["cases"][0])
        self.assertEqual([c["verdict"] for c in after["cases"]], ["PASS", "PASS"])
        self.assertEqual([len(e["samples"]) for c in after["cases"] for e in c["engines"]], [3] * 4)
        self.assertEqual((after["verdict"]["status"], after["verdict"]["interrupted"]), ("PASS", False))
        self.assertEqual(after["meta"]["prompt_seed"], before["meta"]["prompt_seed"])
        (resumed,) = after["meta"]["resumed"]
        self.assertEqual({k: resumed[k] for k in ("report", "cases_taken_over", "cases", "started", "interrupted")},
                         {"report": "report.1.json", "cases_taken_over": 1, "cases": 2,
                          "started": before["meta"]["started"], "interrupted": before["meta"]["finished"]})
        self.assertIn("1 of 2 cases", (self.out / "report.md").read_text())

        done = self.resume()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("the run is finished (PASS), nothing is left to do", done.stdout)
        self.assertNotIn("report.2.json", os.listdir(self.out))

    def test_interrupted_twice(self):
        self.interrupted()
        process = self.start("--resume", str(self.out))
        self.wait_for(process, "timing ")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=120), 130)
        self.verify()
        self.assertEqual(len(self.report()["meta"]["resumed"]), 1)
        done = self.resume()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.verify()
        self.assertEqual([r["report"] for r in self.report()["meta"]["resumed"]], ["report.1.json", "report.2.json"])


class RefusedResume(InterruptedTest):
    """The old report stays as it was."""

    def expect_refusal(self, wanted, *args, code=2):
        kept = (self.out / "report.json").read_bytes() if (self.out / "report.json").exists() else b""
        done = self.resume(*args)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(wanted, done.stderr)
        self.assertNotIn("report.1.json", os.listdir(self.out) if self.out.is_dir() else [])
        if kept:
            self.assertEqual((self.out / "report.json").read_bytes(), kept)

    def test_another_option(self):
        self.interrupted()
        for option, value, was in (("--blocks", "4", "3"), ("--n-gen", "8", "7"), ("--n-depth", "0,3", "0,2"),
                                   ("--model", "tiny-untied", "tiny"), ("--engine", "host-twin", "nothing"),
                                   ("--seed", "9", "1"), ("--confidence", "0.9", "0.95"), ("--device", "auto", "cpu"),
                                   ("--order", "random", "abba"), ("--time-budget", "9", "240")):
            with self.subTest(option=option):
                self.expect_refusal(f"{option}: found {value}, wanted {was} as in the interrupted run", option, value)
        done = self.mkbench("parity", "--resume", str(self.out))
        self.assertEqual(done.returncode, 2)
        self.assertIn("command: found parity, wanted run", done.stderr)

    def reseal(self, change):
        """Changes the report as another program would have written it."""
        report = self.report()
        change(report)
        (self.out / "report.json").write_text(json.dumps(report))
        done = self.mkbench("verify", str(self.out))
        for line in done.stdout.splitlines():
            part, _, rest = line.partition(": found ")
            if "as the sha256 of its values" in rest:
                report["seal"][part] = re.search(r'recomputed "([0-9a-f]{16})"', rest)[1]
        (self.out / "report.json").write_text(json.dumps(report))

    def test_another_build_or_machine(self):
        self.interrupted()
        original = (self.out / "report.json").read_bytes()
        for holder, name, wanted in ((("meta",), "build_id", "build_id: found "),
                                     (("env",), "device", "env.device: found cpu, wanted x"),
                                     (("env", "cpu"), "name", "env.cpu.name: found "),
                                     (("env", "libtorch"), "version", "env.libtorch.version: found ")):
            with self.subTest(name=name):
                def change(report, holder=holder, name=name):
                    for part in holder:
                        report = report[part]
                    report[name] = "x"
                self.reseal(change)
                self.expect_refusal(wanted)
                (self.out / "report.json").write_bytes(original)

    def test_an_edited_report(self):
        self.interrupted()
        report = self.report()
        report["cases"][0]["engines"][1]["tok_per_s"] += 1
        (self.out / "report.json").write_text(json.dumps(report))
        self.expect_refusal("cases[0].engines[1].tok_per_s: found ", code=INTEGRITY)

    def test_other_weights(self):
        self.interrupted()
        self.reseal(lambda r: r["cases"][0]["model"].update(weights_sha256="f" * 64))
        self.expect_refusal("weights of tiny: found ")

    def test_another_engine_file(self):
        engine = self.folder / "engine.py"
        shutil.copy(DATA.parent.parent / "tests" / "engines" / "counting_decoder.py", engine)
        shutil.copy(DATA.parent.parent / "tests" / "engines" / "counting.py", self.folder / "counting.py")
        self.interrupted_anyhow("--engine", "host-twin,./engine.py")
        engine.write_text(engine.read_text() + "\n# another version\n")
        self.expect_refusal("sha256 of ./engine.py: found ")

    def interrupted_anyhow(self, *args):
        process = self.start("--model", self.model, "--reference", self.references, *self.AXES, *args)
        self.wait_for(process, "parity")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=120), 130)

    def test_what_is_no_interrupted_run(self):
        self.expect_refusal("found nothing, wanted the folder of an interrupted run")
        self.out.write_text("")
        self.expect_refusal("found a file, wanted the folder of an interrupted run")
        self.out.unlink()
        self.out.mkdir()
        self.expect_refusal("report.json: found nothing, wanted the report of an interrupted run")
        (self.out / "report.json").write_text("{}")
        self.expect_refusal("report.json: schema: found nothing")
        self.expect_refusal("--resume and --dry-run exclude each other", "--dry-run")


if __name__ == "__main__":
    unittest.main()
