"""The checks of the tree hold on this tree, and each of them can fail: violations are planted."""

import contextlib
import dataclasses
import io
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import ROOT

import check_evidence
import evidence_lines
import check_includes
import change_costs
import check_torch_architectures
import check_tree
import mutants
import source_hash
import tracked_files


class IncludeArrows(unittest.TestCase):
    def test_this_tree(self):
        violations, count = check_includes.check_tree()
        self.assertEqual(violations, [])
        self.assertGreater(count, 30)

    def check_planted(self, path, include, wanted):
        violations = check_includes.check_file(path, f"#pragma once\n#include {include}\n")
        self.assertEqual(len(violations), 1, violations)
        self.assertIn(wanted, violations[0])
        self.assertTrue(violations[0].startswith(f"{path}:2: "), violations[0])

    def test_planted_violations_are_found(self):
        for path, include, wanted in [
            ("references/a.h", '"kernels/phase.h"', "references must not include kernels"),
            ("references/a.cpp", '"harness/cli/command_line.h"', "references must not include harness"),
            ("kernels/plain/a.cuh", '"baselines/eager.h"', "kernels must not include baselines"),
            ("kernels/plain/a.cu", '"harness/cli/command_line.h"', "kernels must not include harness"),
            ("kernels/plain/a.cu", "<torch/torch.h>", "torch headers only"),
            ("kernels/a.h", "<ATen/ATen.h>", "torch headers only"),
            ("baselines/a.cpp", '"kernels/phase.h"', "baselines must not include kernels"),
            ("baselines/a.h", "<torch/torch.h>", "torch headers only"),
            ("harness/host/a.cpp", "<c10/core/Device.h>", "torch headers only"),
            ("harness/host/a.cpp", '"tests/support/catch2.h"', "harness must not include tests"),
            ("tests/a.cpp", "<torch/script.h>", "torch headers only"),
            ("kernels/plain/a.cu", '"megakernel.h"', "written from the root"),
            ("harness/report/a.cpp", '"../parity/judge.h"', "written from the root"),
            ("harness/a.cpp", "<references/base/bf16.h>", "included with quotes"),
            ("harness/cli/a.cpp", '"kernels/phase.h"', "harness/cli must not include kernels"),
            ("harness/cli/commands/a.cpp", '"baselines/eager.h"', "harness/cli must not include baselines"),
            ("harness/selftest/a.cpp", '"kernels/phase.h"', "harness/selftest must not include kernels"),
            ("harness/shed/a.cpp", '"references/engine.h"', "harness/shed is not a room"),
            ("references/base/a.cpp", '"references/engine.h"', "references/base must not include the rest"),
        ]:
            with self.subTest(path=path, include=include):
                self.check_planted(path, include, wanted)

    def test_every_wall_between_rooms(self):
        for room, may in check_includes.ROOMS.items():
            for other in check_includes.ROOMS:
                found = check_includes.check_file(f"harness/{room}/a.cpp", f'#include "harness/{other}/x.h"\n')
                self.assertEqual(len(found), other not in {*may, room, "settings"}, (room, other))

    def test_spelling_does_not_hide_an_include(self):
        for line in ['#include"kernels/phase.h"', ' #  include "kernels/phase.h"  // why']:
            self.assertEqual(len(check_includes.check_file("references/a.h", line)), 1, line)

    def test_fmt_beside_torch(self):
        text = "#include <fmt/core.h>\n#include <torch/torch.h>\n"
        self.assertIn("fmt beside torch", check_includes.check_file("baselines/a.cpp", text)[0])

    def test_code_elsewhere(self):
        self.assertIn("outside", check_includes.check_file("scripts/a.cpp", "")[0])
        template = "scripts/templates/c/engine.c"
        self.assertEqual(check_includes.check_file(template, '#include <stdio.h>\n#include "engine_abi.h"\n'), [])
        self.assertEqual(check_includes.check_file(template, '#include "step_engine.h"\n'), [])
        self.assertIn("alone", check_includes.check_file(template, '#include "references/engine_abi.h"\n')[0])
        text = '#include "engine_abi.h"\n'
        self.assertEqual(check_includes.check_file("references/step_engine.h", text), [])
        for path, text in (("references/config.h", text), ("references/step_engine.h", '#include "config.h"\n')):
            self.assertIn("written from the root", check_includes.check_file(path, text)[0])

    def test_allowed_includes(self):
        for path, include in [
            ("kernels/plain/a.cu", '"references/engine.h"'),
            ("baselines/a.cpp", "<torch/torch.h>"),
            ("harness/a.cpp", '"baselines/eager.h"'),
            ("tests/a.cpp", '"harness/cli/command_line.h"'),
            ("references/a.cpp", "<vector>"),
        ]:
            self.assertEqual(check_includes.check_file(path, f"#include {include}\n"), [])

    def test_a_unit_bears_the_name_of_its_header(self):
        found = check_includes.check_names([
            "harness/flow/job.h", "harness/flow/job.cpp", "harness/flow/job_memory.cpp", "harness/flow/jobs.cpp",
            "harness/judge/job.cpp", "harness/main.cpp", "kernels/a/engine.cpp", "tests/flow/test_job.cpp"])
        self.assertEqual([line.split(":")[0] for line in found], ["harness/flow/jobs.cpp", "harness/judge/job.cpp"])


class Tree(unittest.TestCase):
    def test_this_tree(self):
        findings, count = check_tree.check_tree()
        self.assertEqual(findings, [])
        self.assertGreater(count, 50)

    def test_planted_findings_are_found(self):
        for text, wanted in [
            ("see /ho" + "me/me/notes.txt", "path of one machine"),
            ("cd '/ro" + "ot/mkbench'", "path of one machine"),
            ("https:" + "//packages.internal.example/simple", "not on the list"),
            ("http:" + "//user:word@packages/simple", "not on the list"),
            ("pip install --index-" + "url x", "package index"),
            ("CHECK_THAT(text, Catc" + 'h::Contains("x"))', "one version of Catch2"),
        ]:
            with self.subTest(text=text):
                findings = check_tree.check_text("README.md", text)
                self.assertTrue(findings)
                self.assertIn(wanted, findings[0])

    def test_long_file(self):
        self.assertEqual(check_tree.check_text("harness/a.cpp", "x\n" * 450), [])
        self.assertIn("451 lines", check_tree.check_text("harness/a.cpp", "x\n" * 451)[0])
        self.assertEqual(check_tree.check_text("references/data/a.json", "x\n" * 451), [])

    def test_folders_of_tests(self):
        for path, count in [("cli/a.py", 0), ("fuzz/a/b", 0), ("CMakeLists.txt", 0), ("a.py", 1), ("shed/a.cpp", 1)]:
            self.assertEqual(len(check_tree.check_text(f"tests/{path}", "")), count)

    def test_public_addresses_and_relative_paths_pass(self):
        text = "https://github.com/a/b and docs.nvidia.com, build/work/x, $HOME/root/y\n"
        self.assertEqual(check_tree.check_text("README.md", text), [])

    def test_links(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            page = "[a](../README.md#two-words-and-more) [b](https://github.com/x#y) [c](#here)\n# Here\n"
            (root / "docs/a.md").write_text(page)
            (root / "README.md").write_text("## Two words, and more\n")
            self.assertEqual(check_tree.check_links("docs/a.md", page, root), [])
            for link, wanted in [("b.md", "file that is not there: b.md"), ("#there", "heading that is not there: #there"),
                                 ("../README.md#more", "heading that is not there: ../README.md#more")]:
                with self.subTest(link=link):
                    [finding] = check_tree.check_links("docs/a.md", f"\n[x]({link})", root)
                    self.assertIn("docs/a.md:2", finding)
                    self.assertIn(wanted, finding)


class TemporaryTree(unittest.TestCase):
    """A git tree of three files that hashes cover and one that no hash covers."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.write("kernels/plain/a.cu", "kernel")
        self.write("CMakeLists.txt", "project")
        self.write("references/model/shape.h", "shape")
        self.write("README.md", "words")
        subprocess.run(["git", "init", "-q", "."], cwd=self.root, check=True)
        self.track()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def track(self):
        subprocess.run(["git", "add", "."], cwd=self.root, check=True)


class CheckFiles(TemporaryTree):
    @staticmethod
    def quote(path, text):
        return [f"{path}: {text}"]

    def test_tracked_text_only(self):
        (self.root / "weights.bin").write_bytes(b"\xff\xfe")
        self.track()
        self.write("README-draft.md", "not tracked")
        findings, count = tracked_files.check_files(self.quote, self.root)
        self.assertEqual(count, 4)
        self.assertEqual(findings, ["CMakeLists.txt: project", "README.md: words", "kernels/plain/a.cu: kernel",
                                    "references/model/shape.h: shape"])

    def test_chosen_files_must_be_text(self):
        (self.root / "kernels/b.cu").write_bytes(b"\xff\xfe")
        self.track()
        findings, count = tracked_files.check_files(self.quote, self.root, {".cu"})
        self.assertEqual((findings, count), (["kernels/b.cu: not UTF-8", "kernels/plain/a.cu: kernel"], 1))

    def test_exit_code(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(tracked_files.show([], 3, "{count} read, {findings} found"), 0)
            self.assertEqual(tracked_files.show(["a: b"], 3, ""), 1)
            self.assertEqual(tracked_files.show([], 0, ""), 1)
        self.assertTrue(printed.getvalue().startswith("3 read, 0 found\na: b\n"))


class SourceHash(TemporaryTree):
    def hash(self):
        return source_hash.source_hash("speed", self.root)

    def test_changes_of_covered_files_are_seen(self):
        before = source_hash.source_hashes(self.root)
        seen = set(before.values())
        for path, text, kinds in [
            ("kernels/plain/a.cu", "kerneL", "speed"),        # bytes
            ("kernels/plain/a.cu", "kerneL;", "speed"),       # size
            ("kernels/plain/b.cu", "", "speed"),              # another file, empty
            ("harness/measure/clock.cpp", "clock", "speed"),
            ("harness/flow/blocks.cpp", "blocks", "speed"),
            ("harness/judge/parity.cpp", "judge", "judgement"),
            ("harness/flow/gate.cpp", "gate", "judgement"),
            ("baselines/eager.cpp", "eager", "judgement"),
            ("references/model/shape.h", "shapes", "judgement"),
            ("harness/host/new.cpp", "new", "speed judgement"),
            ("harness/flow/new.cpp", "new", "speed judgement"),
            ("harness/host/card_work.cpp", "flush", "speed"),
            ("harness/host/faulty_engine.cpp", "fault", "judgement"),
            ("harness/hosts/host_engine.cpp", "proxy", "speed judgement"),
            ("harness/hosts/hosts.cpp", "turns", "speed judgement"),
            ("CMakeLists.txt", "project2", "speed judgement"),
        ]:
            self.write(path, text)
            self.track()
            now = source_hash.source_hashes(self.root)
            self.assertEqual({k for k in now if now[k] != before[k]}, set(kinds.split()), path)
            self.assertFalse({now[k] for k in kinds.split()} & seen, path)
            seen |= set(now.values())
            before = now

    def test_a_name_that_is_no_hash(self):
        with self.assertRaisesRegex(SystemExit, "no file that 'sped' covers; the hashes are speed, judgement"):
            source_hash.source_hash("sped", self.root)

    CODE = 'f("a // b", \'/\', 1\'000);  // why\n\n/* of\n all */ g( R"x(  // kept)x");\n'

    def test_comments_and_blanks_of_code_do_not_matter(self):
        self.write("kernels/plain/a.cu", self.CODE)
        before = self.hash()
        for a, b in (("  // why", " // another reason"), ("/* of\n all */ ", ""), ("\n\n", "\n"), ("\n\n", "\n   \n\n"),
                     ("  // why", ""), ("g( ", "g(  ")):
            self.write("kernels/plain/a.cu", self.CODE.replace(a, b))
            self.assertEqual(self.hash(), before, (a, b))
        seen = {before}
        for a, b in (("a // b", "a // c"), ("a // b", "a  // b"), ("'/'", "'*'"), ("1'000", "1'001"), ("(  // kept", "( // kept"),
                     ("(  // kept", "(  // keep"), ("f(", "h("), ("\n\n", "")):
            self.write("kernels/plain/a.cu", self.CODE.replace(a, b))
            now = self.hash()
            self.assertNotIn(now, seen, (a, b))
            seen.add(now)
        self.write("kernels/plain/a.cu", self.CODE)
        self.write("CMakeLists.txt", "project # why")  # no C++: every byte counts
        self.assertNotEqual(self.hash(), before)

    def test_other_files_do_not_matter(self):
        before = self.hash()
        self.write("README.md", "other words")
        self.write("harness/report/markdown.cpp", "table")
        self.write("harness/cli/options.cpp", "flags")
        self.write("scripts/host.py", "script")
        self.write("tests/a.cpp", "test")
        self.write("CMakeLists.txt.bak", "project")
        self.write(".gitignore", "*.orig\n")
        self.track()
        self.write("kernels/plain/a.cu.orig", "ignored")
        self.assertEqual(self.hash(), before)

    def test_a_new_file_counts_before_it_is_added(self):
        before = self.hash()
        self.write("kernels/ring/new.cu", "kernel")
        untracked = self.hash()
        self.assertNotEqual(untracked, before)
        self.track()
        self.assertEqual(self.hash(), untracked)

    def test_the_value_is_what_the_documentation_says(self):
        import hashlib
        want = hashlib.sha256(b"CMakeLists.txt\x007\x00project"
                              b"kernels/plain/a.cu\x006\x00kernel").hexdigest()
        self.assertEqual(self.hash(), want)

    def test_an_exported_tree_has_the_same_hash(self):
        before = self.hash()
        (self.root / ".git").rename(self.root.parent / (self.root.name + ".gone"))
        self.addCleanup(lambda: __import__("shutil").rmtree(f"{self.root}.gone"))
        self.write("build/release/kernels/x.cu", "left behind by a build")
        self.assertEqual(self.hash(), before)

    def test_this_tree_is_covered(self):
        covered = [p for p in tracked_files.tracked_files() if source_hash.covered(p)]
        for path in ["CMakeLists.txt", "kernels/phase.h", "baselines/eager.cpp", "references/model/shape.h"]:
            self.assertIn(path, covered)
        for start, _ in source_hash.COVERED:
            self.assertTrue([p for p in covered if p.startswith(start)], f"no file left of {start}")
        self.assertFalse([p for p in covered if p.startswith(("tests/", "scripts/", "reports/"))])


class Evidence(TemporaryTree):
    def evidence(self, **changes):
        self.write("reports/evidence/h200/report.json", "{}")
        folder = self.root / "reports/evidence/h200"
        # An empty report fails every line, and the evidence lists them.
        hashes = source_hash.source_hashes(self.root)
        fields = {**{kind: {"state": "fresh", "reason": "", "source_hash": hashes[kind]} for kind in hashes},
                  "reason": "nothing was measured", "gpu": "NVIDIA H200", "files": ["report.json"],
                  "table": evidence_lines.share_table(evidence_lines.load_reports(folder)),
                  "unmet": evidence_lines.check_files(folder).failed(), **changes}
        self.write("reports/evidence/h200/evidence.json", json.dumps(fields))

    def findings(self):
        findings, gpus = check_evidence.check_all(self.root)
        self.assertEqual(gpus, ["h200"])
        return "\n".join(findings)

    def test_fresh_owns_up_to_what_fails(self):
        self.evidence(reason="")
        self.assertIn("lines are unmet and no reason", self.findings())
        self.evidence(unmet=[])
        self.assertIn("fails and is not listed as unmet: full: verdict", self.findings())

    def test_stale_needs_a_reason(self):
        for kind in source_hash.KINDS:
            self.evidence(**{kind: {"state": "stale", "source_hash": "0" * 64, "reason": " "}})
            self.assertIn(f"{kind}: state is stale and no reason", self.findings())
            self.evidence(**{kind: {"state": "stale", "source_hash": "0" * 64, "reason": "the judge changed"}})
            self.assertEqual(self.findings(), "")

    def test_defects(self):
        for changes, wanted in [
            ({"speed": {"state": "good", "reason": "", "source_hash": ""}}, "speed: state: found 'good', wanted fresh"),
            ({"judgement": {"state": "stale", "reason": ""}}, "judgement.source_hash: found None"),
            ({"judgement": None}, "judgement: found None"),
            ({"files": ["gone.json"]}, "gone.json is not there"),
            ({"files": []}, "empty"),
        ]:
            with self.subTest(changes=changes):
                self.evidence(**changes)
                self.assertIn(wanted, self.findings())
        self.write("reports/evidence/h200/evidence.json", "{")
        self.assertIn("cannot be read", self.findings())

    def test_this_tree(self):
        findings, _ = check_evidence.check_all()
        self.assertEqual(findings, [])


class TorchArchitectures(unittest.TestCase):
    def test_rules(self):
        supported = check_torch_architectures.supported
        wheel = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
        for capability in [(8, 0), (8, 9), (9, 0), (10, 3), (12, 1)]:
            self.assertTrue(supported(capability, wheel), capability)
        for capability in [(7, 0), (11, 0), (13, 0)]:
            self.assertFalse(supported(capability, wheel), capability)
        self.assertTrue(supported((13, 0), ["compute_90"]))
        self.assertTrue(supported((9, 0), ["sm_90a"]))
        self.assertFalse(supported((10, 3), ["sm_100a"]))


class ChangeCosts(unittest.TestCase):
    """The table "What a change costs" against its examples."""

    def test_this_tree(self):
        self.assertEqual(change_costs.findings(), [])

    def test_a_dearer_change_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            examples = pathlib.Path(folder)
            for patch in change_costs.EXAMPLES.glob("*.patch"):
                shutil.copy(patch, examples)
            message = (examples / "message.patch").read_text()
            (examples / "model.patch").write_text((examples / "model.patch").read_text() + message)
            (examples / "message.patch").unlink()
            found = "\n".join(change_costs.findings(examples=examples))
            self.assertIn("model: touches 3 files", found)
            self.assertIn("message: found in the table alone", found)


class Mutants(unittest.TestCase):
    """dev/mutants.py, as far as it can be tried without building anything."""

    def test_the_tables(self):
        rows, equivalent = mutants.read_table()
        self.assertEqual(mutants.findings_of(rows), [])
        self.assertLess(len(equivalent), len(rows))
        row = rows[0]
        for change, wanted in [({"old": "no such text"}, "found 0 times"), ({"old": "e"}, "times, wanted once"),
                               ({"new": row.old}, "changes nothing"), ({"file": "harness/none.cpp"}, "wanted a .cpp"),
                               ({"file": "README.md"}, "wanted a .cpp")]:
            with self.subTest(**change):
                found = mutants.findings_of([dataclasses.replace(row, **change)])
                self.assertEqual(len(found), 1, found)
                self.assertIn(wanted, found[0])
        self.assertEqual(len(mutants.findings_of([row, row])), 1)

    def test_rules(self):
        rules = check_tree.ROOT / mutants.TABLES
        for name in mutants.RULES.values():
            for number, line in enumerate((rules / name).read_text(encoding="utf-8").splitlines(), 1):
                with self.subTest(rules=name, line=number):
                    pattern, arrow, _ = line.partition(" ==> ")
                    self.assertTrue(line.startswith("# ") or arrow)
                    re.compile(pattern)

    def test_too_few_killed_fail_the_run(self):
        for killed, tried, code in [({"a": 18, "b": 9}, {"a": 20, "b": 10}, 0), ({"a": 17, "b": 9}, {"a": 20, "b": 10}, 1),
                                    ({"a": 90, "b": 8}, {"a": 90, "b": 10}, 1), ({"a": 90, "b": 7}, {"a": 90, "b": 9}, 0),
                                    ({}, {}, 1)]:
            self.assertEqual(mutants.exit_code(killed, tried), code, (killed, tried))


if __name__ == "__main__":
    unittest.main()
