"""mkbench verify on the committed evidence, which has reports of every minor version of the schema since 1.2."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from support.cli_support import BINARY, ROOT
from test_verify import E0, E1, INTEGRITY, at, other


class CommittedReports(unittest.TestCase):
    """The committed evidence, of every minor version since 1.2: read, computed again, and held to its digits."""
    EVIDENCE = sorted((ROOT / "reports" / "evidence").rglob("*report.json"))

    def verify(self, *files):
        return subprocess.run([BINARY, "verify", *map(str, files)], capture_output=True, text=True, timeout=120)

    def test_all_evidence(self):
        versions = {json.loads(file.read_text())["schema"]["version"] for file in self.EVIDENCE}
        self.assertLessEqual({"1.3.0", "1.6.0", "1.7.0", "1.8.0"}, versions)
        done = self.verify(*self.EVIDENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(re.findall("^.*: [0-9]+ figures recomputed .* all equal$", done.stdout, re.MULTILINE)),
                         len(self.EVIDENCE))
        self.assertEqual(done.stderr.count("nvidia-h100/report.json: fields that this mkbench"), 1)
        self.assertIn("nvidia-h100/report.json is of schema 1.3: report.md and junit.xml are not compared, nor figures "
                      "whose rules have changed since: cases[].comparisons, ", done.stderr)

    def test_a_changed_digit(self):
        for version, path in (("1.3.0", f"{E1}.ms_per_tok.mean"), ("1.3.0", f"{E0}.samples[2].tokens"),
                              ("1.6.0", f"{E1}.ms_per_tok.ci.low"), ("1.7.0", f"{E1}.ms_per_tok.ci.low"),
                              ("1.7.0", f"{E1}.samples[1].start_ms")):
            file = next(f for f in self.EVIDENCE if f'"{version}"' in f.read_text() and "tiny" not in f.name
                        and json.loads(f.read_text())["cases"][0]["engines"][1]["samples"])
            report = json.loads(file.read_text())
            holder, last = at(report, path)
            holder[last] = other(holder[last])
            with self.subTest(version=version, path=path), tempfile.TemporaryDirectory() as folder:
                changed = pathlib.Path(folder, "report.json")
                changed.write_text(json.dumps(report))
                done = self.verify(file, changed)  # the worst exit code of all
                self.assertEqual(done.returncode, INTEGRITY, done.stdout + done.stderr)
                self.assertIn(re.sub(r"\.start_ms$", "", path) + (": found " if "start" in path else ""), done.stdout)


if __name__ == "__main__":
    unittest.main()
