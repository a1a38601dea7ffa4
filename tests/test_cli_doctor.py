"""`mkbench doctor`: formats, --strict, --require, the Python that is asked; `mkbench list errors`."""

import json
import pathlib
import subprocess
import unittest

from cli_support import ROOT, CliTest, environment, BINARY

PYTHON = """#!/bin/sh
echo '{"python": {"version": "3.12.3", "executable": "/opt/py/bin/python"}}'
echo '{"stage": "torch"}'
echo '{"torch": {"error": "ModuleNotFoundError: No module named torch", "missing": true}}'
echo '{"stage": "bitsandbytes"}'
%s
"""


def finds_gpu():
    """Whether the doctor of this machine is content."""
    return subprocess.run([BINARY, "doctor", "-q", "--strict", "--python", "none"], env=environment(),
                          stdout=subprocess.DEVNULL, check=False).returncode == 0


class Doctor(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gpu = finds_gpu()

    def python(self, last="echo '{\"stage\": \"end\"}'"):
        path = self.folder / "python"
        path.write_text(PYTHON % last)
        path.chmod(0o755)
        return str(path)

    def doctor(self, *args):
        return self.mkbench("doctor", "--python", "none", *args)

    def json(self, *args, status=0):
        done = self.mkbench("doctor", "-o", "json", *args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["exit_code"], status)
        return report

    def test_strict(self):
        plain, strict = self.doctor(), self.doctor("--strict")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        problems = sum(line.startswith("- problem") for line in plain.stdout.splitlines())
        self.assertEqual(problems == 0, self.gpu)
        self.assertEqual(strict.returncode, 0 if self.gpu else 6)
        # Exit code 0 beside a problem says what --strict would do; with --strict nothing is left to say.
        self.assertEqual("with --strict the exit code is 6" in plain.stdout, not self.gpu)
        self.assertNotIn("with --strict", strict.stdout)
        self.assertEqual(self.doctor("--strict", "--device", "cpu").returncode, 0)

    def test_json_has_what_the_lines_have(self):
        report = self.json("--python", "none")
        self.assertIsNone(report["python"])
        text = self.doctor().stdout
        for item in report["items"]:
            if item["topic"] not in ("host memory", "disk") and not item["topic"].startswith("GPU"):
                self.assertIn(item["text"], text)
            self.assertIn(item["finding"], ("ok", "note", "warning", "problem"))
        topics = {item["topic"] for item in report["items"]}
        self.assertLessEqual({"driver", "runtime", "toolkit", "our code", "libtorch", "operation", "torch matmul",
                              "host memory", "cores", "disk", "WSL2", "container"}, topics)
        self.assertGreater(report["machine"]["memory_total_bytes"], report["machine"]["memory_free_bytes"])

    def test_libtorch_has_architectures_without_a_driver(self):
        row = next(item for item in self.json("--python", "none")["items"] if item["topic"] == "libtorch")
        self.assertRegex(row["text"], r"built on CUDA \d+\.\d+, .*sm_90")

    def test_no_problem_is_told_twice(self):
        problems = [item for item in self.json("--python", "none")["items"] if item["finding"] == "problem"]
        if self.gpu:
            self.assertEqual(problems, [])
        else:
            self.assertEqual(len(problems), 1, problems)
            self.assertTrue(problems[0]["what_to_do"])

    def test_require(self):
        met = self.doctor("--require", "ram=0.1,cores=0.1,disk=0.1")
        self.assertEqual(met.returncode, 0, met.stdout)
        self.assertIn("require cores", met.stdout)
        report = self.json("--python", "none", "--require", "ram=1e6,cores=0.1,gpu=RTX 9999,vram=9999", status=6)
        self.assertEqual(report["unmet"], 3)
        rows = {item["topic"]: item for item in report["required"]}
        for key in ("ram", "gpu", "vram"):
            self.assertEqual(rows[f"require {key}"]["finding"], "problem")
            self.assertRegex(rows[f"require {key}"]["text"], "^found .*, wanted ")
        self.assertEqual(rows["require cores"]["finding"], "ok")
        for text in ("vrma=32", "vram=much", "vram", "gpu=", "cores=0"):
            refused = self.doctor("--require", text)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""), text)
            self.assertRegex(refused.stderr, r"^mkbench: error: --require: [^\n]*\n$")

    def test_python(self):
        report = self.json("--python", self.python())
        rows = {item["topic"]: item for item in report["python"]["items"]}
        self.assertEqual(rows["Python"]["text"], "3.12.3 (/opt/py/bin/python)")
        self.assertEqual(rows["torch"]["finding"], "note")
        self.assertTrue(rows["torch"]["what_to_do"].startswith("/opt/py/bin/python -m pip install torch=="))
        text = self.mkbench("doctor", "--python", self.python())
        self.assertIn("## Python, for training", text.stdout)
        self.assertIn("looking at the packages of", text.stderr)

    def test_a_python_that_dies_or_is_not_there_is_no_problem_of_mkbench(self):
        for last, part in (("kill -SEGV $$", "died by signal 11"), ("exit 4", "exit status 4 at bitsandbytes")):
            report = self.json("--python", self.python(last), "--device", "cpu", "--strict")
            self.assertIn(part, report["python"]["problem"])
        report = self.json("--python", "/no/such/python", "--device", "cpu", "--strict")
        self.assertIn("/no/such/python cannot be run", report["python"]["items"][0]["text"])

    def test_errors_are_those_of_the_page(self):
        listed = self.mkbench("list", "errors")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn(listed.stdout, (pathlib.Path(ROOT) / "docs" / "troubleshooting.md").read_text())
        self.assertNotIn("no kernel image", self.mkbench("list", "engines").stdout)


class Advice(CliTest):
    def test_a_failing_engine_whose_text_is_known(self):
        """An engine in Python that fails as one does on a card without its code."""
        (self.folder / "engine.py").write_text(
            "class Decoder:\n    def __init__(self, *args, **kwargs):\n"
            "        raise RuntimeError('CUDA error: no kernel image is available for execution on the device')\n")
        result = self.bench("--engine", "./engine.py", "--compare", "none")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("  - advice: wheel: ", result.stdout)
        lines = result.stderr.splitlines()
        self.assertTrue(lines[-2].startswith("mkbench: advice: wheel: "), lines)
        self.assertIn("RUNTIME_ERROR (exit code 1)", lines[-1])

    def test_others_get_none(self):
        (self.folder / "engine.py").write_text(
            "class Decoder:\n    def __init__(self, *args, **kwargs):\n        raise RuntimeError('no idea')\n")
        result = self.bench("--engine", "./engine.py", "--compare", "none")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertNotIn("advice:", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
