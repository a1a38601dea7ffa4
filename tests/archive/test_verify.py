"""mkbench verify on real reports: what was edited is found and named. mkbench --resume on interrupted runs."""

import json
import os
import re
import shutil
import signal
import unittest

from support.cli_support import CliTest, HostsTest

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

# An edit of each path, and what names it; None: the path itself. Values that nothing is computed from are named by the
# part of the seal that holds them. test_recompute.cpp edits every number and every verdict.
EDITS = [
    (f"{E1}.tok_per_s", None), (f"{E1}.ms_per_tok.ci.low", None), ("cases[0].memory.least_ms", None),
    ("cases[0].comparisons[0].baseline", None), ("cases[0].comparisons[0].design", None),
    ("calibration.clock.source", "cases[0].comparisons[0].margin_source"), ("verdict.interrupted", "verdict.status"),
    (f"{E1}.parity.exact", None), (f"{E1}.parity.rows[3].mk_id", f"{E1}.parity"),
    (f"{E1}.parity.rows[5].pos", f"{E1}.parity.prompts"), (f"{E1}.samples[0].times.host_ms", f"{E1}.ms_per_tok"),
    (f"{E1}.samples[1].block", f"{E1}.samples[1]"), (f"{E1}.samples[2].valid", None),
    (f"{E1}.samples[3].ids[0]", f"{E1}.samples[3]"), (f"{E0}.samples[0].engine", None), ("cases[0].name", None),
    ("cases[0].ids_sha256", None), ("cases[0].generated_text", None), ("meta.prompt_seed", "cases[0].ids_sha256"),
    ("meta.options.confidence.value", "cases[0].comparisons[0].confidence"),
    ("meta.options.seed.value", "meta.seed"), (f"{E1}.process.pid", E1), ("cases[0].model.weights_sha256", "cases[0]"),
    ("meta.started", "meta"), ("env.cpu.threads", "env"),
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
        for path, name in EDITS:
            with self.subTest(path=path):
                holder, last = at(json.loads((self.maker.out / "report.json").read_text()), path)
                if holder is None:  # an interval that a busy machine made too wide to be given: one is invented
                    path = path.rpartition(".")[0]
                    self.edit(path, {"low": 1.5, "high": 2.5})
                else:
                    self.edit(path, other(holder[last]))
                self.expect_difference(name or path)

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
        text = (self.maker.out / "report.json").read_text()
        for old, new, wanted in (('"mkbench.report"', '"nvbench"', 'schema.id: found "nvbench", wanted "mkbench.report"'),
                                 ('"tokens":', '"tokens": 7, "tokens":', "tokens"), (text, "[1, 2", "report.json")):
            (self.out / "report.json").write_text(text.replace(old, new, 1))
            done = self.verify()
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
            self.assertIn(wanted, done.stderr)
            self.assertIn("report.json", done.stderr)

    def test_arguments(self):
        done = self.mkbench("verify")
        self.assertEqual(done.returncode, 2)
        self.assertIn("verify: found no report, wanted some", done.stderr)
        done = self.mkbench("verify", str(self.folder / "none"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("none", done.stderr)


class Resume(HostsTest):
    """A run of two cases, interrupted in the second one."""

    def interrupted(self):
        process = self.start("--model", "tiny", "--reference", self.short_reference(), "-n", "7", "-d", "0,2",
                             "--blocks", "3")
        self.wait_for(process, "case 2/2")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, stderr)
        before = self.report()
        self.assertEqual([c["interrupted"] for c in before["cases"]], [False, True])
        return before

    def resume(self, *args):
        return self.mkbench("--resume", str(self.out), "--no-plot", *args, timeout=300, env={"TMPDIR": str(self.tmp)})

    def verify(self, folder=None):
        done = self.mkbench("verify", str(folder or self.out))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def reseal(self, change):
        """Changes the report as another program would have written it."""
        report = self.report()
        change(report)
        (self.out / "report.json").write_text(json.dumps(report))
        for line in self.mkbench("verify", str(self.out)).stdout.splitlines():
            part, _, rest = line.partition(": found ")
            if "as the sha256 of its values" in rest:
                report["seal"][part] = re.search(r'recomputed "([0-9a-f]{16})"', rest)[1]
        (self.out / "report.json").write_text(json.dumps(report))

    def test_goes_on(self):
        before = self.interrupted()
        self.verify()
        original = (self.out / "report.json").read_bytes()
        self.reseal(lambda r: r["cases"][0]["model"].update(weights_sha256="f" * 64))
        done = self.resume()
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("weights of tiny: found ", done.stderr)
        (self.out / "report.json").write_bytes(original)
        elsewhere = self.folder / "elsewhere"
        done = self.resume("--out", str(elsewhere))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.out)), ["junit.xml", "report.json", "report.md"])
        self.verify(elsewhere)

        done = self.resume()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.verify()
        self.assertEqual((self.out / "report.1.json").read_bytes(), original)
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

    def test_goes_on_after_a_kill(self):
        flags = ["--model", "tiny", "--reference", self.short_reference(), "-n", "7", "-d", "0,2", "--blocks", "3"]
        for at, finished in (("case 1/2", 0), ("case 2/2", 1)):
            process = self.start(*flags)
            self.wait_for(process, at)
            process.kill()
            process.communicate(timeout=120)
            self.assert_nothing_left(files=False)
            before = self.report()
            self.assertEqual([c["interrupted"] for c in before["cases"]], [finished == 0, True])
            self.verify()
            flags = ["--resume", str(self.out)]
        done = self.resume()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.verify()
        after = self.report()
        self.assertEqual(after["cases"][0], before["cases"][0])
        self.assertEqual([c["verdict"] for c in after["cases"]], ["PASS", "PASS"])
        self.assertEqual([(r["report"], r["cases_taken_over"]) for r in after["meta"]["resumed"]],
                         [("report.1.json", 0), ("report.2.json", 1)])


if __name__ == "__main__":
    unittest.main()
