"""`mkbench doctor`: formats, --strict, the Python that is asked; `mkbench list errors`."""

import json
import pathlib
import subprocess
import unittest

from support.cli_support import ROOT, CliTest, environment, BINARY

PYTHON = """#!/bin/sh
echo '{"python": {"version": "3.12.3", "executable": "/opt/py/bin/python"}}'
echo '{"stage": "torch"}'
echo '{"torch": {"error": "ModuleNotFoundError: No module named torch", "missing": true}}'
echo '{"stage": "transformers"}'
%s
"""


class Doctor(CliTest):
    @classmethod
    def setUpClass(cls):
        """Two runs that most tests look at: as it is called first, and strict as JSON."""
        super().setUpClass()
        def run(*args):
            return subprocess.run([BINARY, "doctor", "--python", "none", *args], env=environment(), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

        cls.plain, cls.strict = run(), run("--strict", "-o", "json")
        cls.told = json.loads(cls.strict.stdout)
        cls.problems = [item for item in cls.told["items"] if item["finding"] == "problem"]

    def python(self, last="echo '{\"stage\": \"end\"}'"):
        path = self.folder / "python"
        path.write_text(PYTHON % last)
        path.chmod(0o755)
        return str(path)

    def json(self, *args, status=0):
        done = self.mkbench("doctor", "-o", "json", *args)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["exit_code"], status)
        return report

    def test_strict(self):
        self.assertEqual(self.plain.returncode, 0, self.plain.stderr)
        self.assertEqual(self.strict.returncode, 6 if self.problems else 0, self.strict.stderr)
        self.assertEqual(self.told["exit_code"], self.strict.returncode)
        # Exit code 0 beside a problem says what --strict would do.
        self.assertEqual("with --strict the exit code is 6" in self.plain.stdout, bool(self.problems))

    def test_json_has_what_the_lines_have(self):
        self.assertIsNone(self.told["python"])
        for item in self.told["items"]:
            if item["topic"] not in ("host memory", "disk") and not item["topic"].startswith("GPU"):
                self.assertIn(item["text"], self.plain.stdout)
            self.assertIn(item["finding"], ("ok", "note", "warning", "problem"))
        topics = {item["topic"] for item in self.told["items"]}
        self.assertLessEqual({"driver", "runtime", "toolkit", "libtorch", "operation", "torch matmul", "host memory", "cores",
                              "disk"}, topics)
        self.assertGreater(self.told["machine"]["memory_total_bytes"], self.told["machine"]["memory_free_bytes"])

    def test_libtorch_has_architectures_without_a_driver(self):
        row = next(item for item in self.told["items"] if item["topic"] == "libtorch")
        self.assertRegex(row["text"], r"built on CUDA \d+\.\d+, .*sm_90")

    def test_a_missing_driver_is_told_once(self):
        if self.told["driver_cuda"] is None:
            self.assertEqual([item["topic"] for item in self.problems], ["driver"])
            self.assertTrue(self.problems[0]["what_to_do"])

    def test_python(self):
        done = self.mkbench("doctor", "--python", self.python())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("## Python, for engines in Python", done.stdout)
        self.assertRegex(done.stdout, r"- ok +Python +3\.12\.3 \(/opt/py/bin/python\)\n")
        self.assertRegex(done.stdout, r"- note +torch +not installed\n +-> /opt/py/bin/python -m pip install torch==")
        self.assertIn("looking at the packages of", done.stderr)

    def test_a_python_that_dies_or_is_not_there_is_no_problem_of_mkbench(self):
        """Nor is a GPU that is not there, for --device cpu."""
        report = self.json("--python", self.python("kill -SEGV $$"), "--device", "cpu", "--strict")
        self.assertIn("died by signal 11", report["python"]["problem"])
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
