"""Decoders with one planted bug, through the real command line, and that each bug of the table is planted. `.ci/long bugs`
has all of them judged."""

import os
import pathlib
import re
import sys
import unittest

from bug_matrix import ROOT, Bug, judge, read_bugs

sys.path.insert(0, str(ROOT / "tests" / "engines"))

LIBRARY = pathlib.Path(os.environ["PLUGINS"]) / "buggy_cpu.so"
PYTHON = ROOT / "tests" / "engines" / "buggy_decoder.py"
ONE_PROMPT = ("--device", "cpu", "--only", "corpus-17")
# Engine, bug, what the engine shows, and the right outcomes.
SAMPLE = [
    (LIBRARY, "gqa_map", "logits", ["named"]),
    (LIBRARY, "rope_interleaved", "ids", ["named", "among"]),
    (LIBRARY, "clipped", "logits", ["none"]),
    (PYTHON, "mask_one_less", "logits", ["named"]),
]


class Judge(unittest.TestCase):
    def test_a_sample_of_bugs(self):
        for engine, name, shown, outcomes in SAMPLE:
            with self.subTest(bug=name):
                judged = judge(engine, read_bugs()[name], shown, *ONE_PROMPT)
                self.assertEqual(judged.verdict, "FAIL_TOKEN")
                self.assertIn(judged.outcome, outcomes, judged.text)

    def test_no_bug(self):
        models = "tiny,tiny-untied,tiny-llama,tiny-qwen2"
        self.assertEqual(judge(LIBRARY, Bug("none", models, [], ""), "logits", *ONE_PROMPT).verdict, "PASS")

    def test_a_bug_that_there_is_not(self):
        judged = judge(LIBRARY, Bug("rope", "tiny", [], ""), "logits", *ONE_PROMPT)
        self.assertEqual(judged.verdict, "BAD_INPUT")
        self.assertIn("NAIVE_BUG: found rope, wanted a name of bugs.inc", judged.text)


class Table(unittest.TestCase):
    def test_the_page_has_the_bugs_of_the_table(self):
        page = (ROOT / "docs" / "planted-bugs.md").read_text(encoding="utf-8").split("\n## ")[0]
        rows = re.findall(r"^\| (\w+) \| (.*?) \| ([\w-]+) \| ", page, re.MULTILINE)[1:]
        self.assertEqual(rows, [(bug.name, bug.text, bug.model) for bug in read_bugs().values()])

    def test_each_bug_is_planted(self):
        import buggy_decoder  # noqa: PLC0415: torch takes a second
        bugs = read_bugs()
        sources = "".join((ROOT / "tests" / "plugins" / f"buggy_{part}.h").read_text() for part in ("decoder", "engine"))
        self.assertEqual(set(re.findall(r"Bug::(\w+)", sources)) - {"none"}, set(bugs))
        self.assertLessEqual(set(buggy_decoder.BUGS), set(bugs))
        for named, least, in_python in ((True, 100, 15), (False, 10, 3)):
            kind = {bug.name for bug in bugs.values() if bool(bug.fits) == named}
            self.assertGreaterEqual(len(kind), least)
            self.assertGreaterEqual(len(kind & set(buggy_decoder.BUGS)), in_python)


if __name__ == "__main__":
    unittest.main()
