"""The page that a run leaves beside its report, and what becomes of the run where none can be made."""

import importlib.util
import json
import os
import signal
import sys
import unittest

from support.cli_support import ROOT, CliTest, HostsTest

MISSING = [name for name in ("jinja2", "vl_convert") if not importlib.util.find_spec(name)]
OWN_PYTHON = {"MKBENCH_PYTHON": sys.executable}


@unittest.skipIf(MISSING, f"no {' and no '.join(MISSING)}")
class Made(CliTest):
    def test_a_run_with_plots_has_a_page_and_stands_by_verify(self):
        done = self.bench("--plot=on", env_more=OWN_PYTHON)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("warning: no", done.stderr)
        page = self.out / "report.html"
        self.assertIn(">PASS</span> CPU", page.read_text())
        self.assertTrue(list((self.out / "plots").glob("*.svg")))
        done = self.mkbench("verify", str(self.out))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

        written = page.read_bytes()
        for to in (page, self.folder / "again.html"):
            drawn = self.mkbench("report", str(self.out), *([] if to == page else ["--out", str(to)]), env=OWN_PYTHON)
            self.assertEqual((drawn.returncode, drawn.stdout), (0, f"{to}\n"), drawn.stderr)
            self.assertEqual(to.read_bytes(), written)

        report = self.report()
        report["cases"][0]["engines"][-1]["tok_per_s"] = 9999.0
        (self.out / "report.json").write_text(json.dumps(report))
        for form in ("html", "svg"):
            drawn = self.mkbench("report", str(self.out), "-o", form, env=OWN_PYTHON)
            self.assertEqual(drawn.returncode, 0, drawn.stderr)
            self.assertIn("warning: NOT VERIFIED, do not quote: ", drawn.stderr)
        changed = page.read_text()
        self.assertIn("tok_per_s: found 9999", changed)
        self.assertIn(">NOT VERIFIED</span> CPU", changed)
        self.assertNotIn(">PASS</span> CPU", changed)
        self.assertIn("NOT VERIFIED", next((self.out / "plots").glob("*.svg")).read_text())

    def test_a_failed_run_has_a_page_that_says_why(self):
        broken = self.folder / "broken.so"
        broken.write_text("no library")
        done = self.bench("--engine", f"host-twin,{broken}", "--plot=on", env_more=OWN_PYTHON)
        self.assertEqual(done.returncode, 2, done.stderr)
        text = (self.out / "report.html").read_text()
        self.assertIn(">BAD_INPUT</span> CPU", text)
        self.assertIn("broken.so", text)


    def test_parity_draws_what_is_wrong_and_nothing_else(self):
        for fault in ((), ("--plant-fault", "rope_theta")):
            self.out = self.folder / f"report-{len(fault)}"
            done = self.mkbench("parity", "--device", "cpu", "--model", "tiny", "--engine", "host-twin", "--only", "corpus-17:40",
                                "--plot=on", "--out", str(self.out), *fault, env=OWN_PYTHON)
            self.assertEqual(done.returncode, 3 if fault else 0, done.stderr)
            drawn = sorted(file.name for file in self.out.rglob("*") if file.suffix in (".html", ".svg"))
            self.assertEqual(drawn, ["report.html", "tiny-host-twin-errors.svg"] if fault else [])
        self.assertIn("Errors of host-twin by layer", (self.out / "report.html").read_text())


class NotMade(CliTest):
    def test_a_report_is_verified_before_it_is_drawn(self):
        report = json.loads((ROOT / "reports/evidence/nvidia-h200/report.json").read_text())
        for changed in (False, True):
            if changed:
                report["cases"][0]["engines"][1]["tok_per_s"] = 9999.0
            path = self.folder / "report.json"
            path.write_text(json.dumps(report))
            drawn = self.mkbench("report", str(path), "--out", str(self.out), env={"MKBENCH_PYTHON": "/bin/false"})
            self.assertEqual(drawn.stderr.count("warning: NOT VERIFIED, do not quote: "), changed)
            self.assertEqual(drawn.stderr.count("tok_per_s: found 9999"), changed)
            self.assertEqual(drawn.returncode, 1)
            # Markdown has the warning on top; a program that reads another format would not see one.
            text = self.mkbench("report", str(path), "-o", "md").stdout
            self.assertEqual(text.startswith("> **NOT VERIFIED, do not quote:** "), changed, text[:80])
            if not changed:  # a file is in UTF-8 whatever the terminal's locale
                plain, symbols = (self.mkbench("report", str(path), "-o", "md", env={"LC_ALL": locale}).stdout
                                  for locale in ("C", "C.UTF-8"))
                self.mkbench("report", str(path), "-o", "md", "--out", str(self.folder / "r.md"), env={"LC_ALL": "C"})
                self.assertNotEqual(plain, symbols)
                self.assertEqual((self.folder / "r.md").read_text(), symbols)
            for form in ("json", "jsonl", "csv", "sql", "benchmark", "openmetrics", "annotations"):
                made = self.mkbench("report", str(path), "-o", form, "--out", str(self.folder / form))
                self.assertEqual(made.returncode, 8 if changed else 0, made.stderr)
                self.assertEqual(f"-o {form} has no place for that warning" in made.stderr, changed)
                (self.folder / form).unlink(missing_ok=changed)

    def test_what_cannot_be_made_is_a_warning_and_no_verdict(self):
        for python, why in (("/bin/false", "the page's script ended with 1"), ("/no/python", "cannot run /no/python")):
            done = self.bench("--plot=on", "--out", str(self.out), env_more={"MKBENCH_PYTHON": python})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"mkbench: warning: no report.html: {why}\n", done.stderr)
            self.assertIn("mkbench: warning: no plots: ", done.stderr)
            self.assertEqual(sorted(os.listdir(self.out)), ["junit.xml", "report.json", "report.md"])
            self.assertEqual(self.report()["verdict"]["status"], "PASS")
            self.out = self.folder / "second"


class Interrupted(HostsTest):
    @unittest.skipIf(MISSING, f"no {' and no '.join(MISSING)}")
    def test_a_partial_report_has_a_page_until_a_resumed_run_replaces_it(self):
        # Of two switches the later one counts: start() says --no-plot.
        process = self.start("--model", "tiny", "--reference", self.short_reference(), "-n", "7", "-d", "0,2",
                             "--blocks", "3", "--plot=on", **OWN_PYTHON)
        self.wait_for(process, "case 2/2")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertIn("The run was interrupted", (self.out / "report.html").read_text())
        self.assertFalse((self.out / "plots").exists())
        done = self.mkbench("--resume", str(self.out), "--no-plot", timeout=300,
                            env={"TMPDIR": str(self.tmp), **OWN_PYTHON})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse((self.out / "report.html").exists())


if __name__ == "__main__":
    unittest.main()
