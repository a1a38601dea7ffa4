"""The pages for those who change mkbench say where things are: the files and names that they give are there."""

import re
import unittest

from support import ROOT

import check_includes


class MainJob(unittest.TestCase):
    def test_it_reads_in_twenty_files(self):
        text = (ROOT / "docs/dev/one-run.md").read_text().split("The main job, in the order", 1)[1].split("\n## ", 1)[0]
        numbers, files = zip(*re.findall(r"^(\d+)\. `([^`]+)`: ", text, re.MULTILINE))
        self.assertEqual(list(map(int, numbers)), list(range(1, len(files) + 1)))
        self.assertEqual(len(text.strip().splitlines()) - 2, len(files))  # each line of the list was read
        self.assertLessEqual(len(set(files)), 20)
        self.assertEqual([name for name in files if not (ROOT / name).is_file()], [])


class WhereIsWhat(unittest.TestCase):
    """CONTRIBUTING's table "Where is what": its files are there, and a name behind a file stands in that row's files."""

    NAME = re.compile(r"^\w+(::\w+)*$")

    @classmethod
    def missing(cls, row):
        words = re.findall(r"`([^`]+)`", row)
        names = [word.split("::")[-1] for word in words if cls.NAME.match(word)]
        paths = [word for word in words if "/" in word and " " not in word]
        text = "".join((ROOT / path).read_text() for path in paths if (ROOT / path).is_file())
        return ([path for path in paths if not (ROOT / path).exists()] +
                [name for name in names if not re.search(rf"\b{name}\b", text)])

    def test_this_tree(self):
        section = (ROOT / "CONTRIBUTING.md").read_text().split("## Where is what", 1)[1].split("\n## ", 1)[0]
        rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
        self.assertGreater(len(rows), 8)
        self.assertEqual([word for row in rows for word in self.missing(row)], [])

    def test_what_is_gone_is_found(self):
        self.assertEqual(self.missing("`speed_verdict` in `harness/measure/two_level.cpp`"), [])
        self.assertEqual(self.missing("`speed_verdicts` in `harness/measure/two_level.cpp`"), ["speed_verdicts"])
        self.assertEqual(self.missing("`speed_verdict` in `harness/measure/gone.cpp`"),
                         ["harness/measure/gone.cpp", "speed_verdict"])


class Contributing(unittest.TestCase):
    def test_its_rooms_are_those_that_are_checked(self):
        rows = re.findall(r"^\| `(\w+)/` \| [^|]* \| ([a-z, ]*)\|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
        self.assertEqual({room: set(re.findall(r"\w+", may)) for room, may in rows}, check_includes.ROOMS)

    def test_it_reads_in_ten_minutes(self):
        self.assertLessEqual(len((ROOT / "CONTRIBUTING.md").read_text().split()), 2000)


if __name__ == "__main__":
    unittest.main()
