"""Engines in Python through the real command line: HF transformers, a broken one, and ones that misbehave."""

import importlib.util
import os
import pathlib
import shutil
import sys
import unittest

from support.cli_support import ROOT, CliTest, HostsTest

ENGINES = ROOT / "tests" / "engines"

# A decoder that opens and prefills, and what its decode() does.
SMALL = """import ctypes, sys, time
import torch


class Decoder:
    def open(self, folder, device, max_context):
        pass

    def prefill(self, ids):
        pass

    def decode(self, n):
        {}
"""
# What decode() does -> verdict, exit code, words of the reason.
MISBEHAVIOURS = {
    "raises": ("raise ValueError('two\\nlines')", "RUNTIME_ERROR", 1, "ValueError: two lines (raises.py, line 13)"),
    "exits": ("sys.exit(4)", "RUNTIME_ERROR", 1, "SystemExit: 4 (exits.py, line 13)"),
    "crashes": ("ctypes.string_at(0)", "RUNTIME_ERROR", 1, "the host of ./crashes.py died by signal 11 (Segmentation"),
    "hangs": ("while True: time.sleep(0.01)", "HANG", 7, "the host of ./hangs.py: no progress for "),
    "misses": ("import nothing_like_this", "BAD_INPUT", 2, "No module named 'nothing_like_this' (misses.py, line 13); "
                                                           "the Python is "),
    "short": ("return torch.zeros(n - 1, dtype=torch.int64)", "FAIL_TOKEN", 3, ""),
}


class PythonTest(HostsTest):
    references = None

    def judge(self, *args, engine):
        """One run of an engine's file: exit code, report, its engine, and what was told."""
        process = self.start("--model", "tiny", "--engine", str(engine), *args)
        stdout, stderr = process.communicate(timeout=150)
        report = self.report()
        self.assertEqual(report["verdict"]["exit_code"], process.returncode)
        self.assert_nothing_left(files=False)  # torch leaves an empty folder of its compiler
        return process.returncode, report, self.engine(report, str(engine)), stdout + stderr

    def short_run(self):
        """Flags of a run that need not be long, because the engine fails."""
        if self.references is None:
            self.references = self.short_reference(prompts=("corpus-1", "other-2"))
        return ("-n", "7", "--blocks", "1", "--reference", self.references)

    def program(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)
        return str(file)

    def small(self, name, does="return [0] * n"):
        self.program(f"{name}.py", SMALL.format(does))
        return f"./{name}.py"


class NeededMemory(CliTest):
    def test_imports_are_counted_by_the_text_of_the_file(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        self.addCleanup(sys.path.remove, str(ROOT / "scripts"))
        import needed_memory

        known = needed_memory.LIBRARY_BYTES
        self.assertEqual(needed_memory.library_bytes(ROOT / "baselines" / "hf_decoder.py"), known["torch"] + known["transformers"])
        for text, wanted in (("import torch.nn.functional as F\nimport torch", known["torch"]), ("import math", 0),
                             ("def f():\n    from transformers.cache_utils import X", known["transformers"]),
                             ("import (", 0)):
            file = self.folder / "engine.py"
            file.write_text(text)
            self.assertEqual(needed_memory.library_bytes(file), wanted, text)
        self.assertEqual(needed_memory.library_bytes(self.folder / "none.py"), 0)

    def test_weights_and_rows_are_counted_as_they_are_kept(self):
        sys.path.insert(0, str(ROOT / "scripts"))
        self.addCleanup(sys.path.remove, str(ROOT / "scripts"))
        import needed_memory

        shape = {"vocab": 10, "hidden": 4, "layers": 3, "heads": 2, "kv_heads": 1, "head_dim": 8, "intermediate": 5}
        rows, tables, layer = 2 * 3 * 16 * 7, 2 * 10 * 4, 2 * 4 * (2 * 2 * 8 + 16 + 3 * 5)

        def needed(precision, cuda=True, outline=0, tied=True, settings="", name="none.py", stored=None):
            request = {"name": str(self.folder / name), "max_context": 7, "cuda": cuda, "precision": precision, "settings": settings}
            return needed_memory.needed_bytes(request, {"shape": shape, "tie_word_embeddings": tied, "outline_values": outline // 2,
                                                        "outline_bytes": outline if stored is None else stored})

        self.assertEqual(needed("own"), rows + tables + 3 * layer)
        self.assertEqual(needed("own", tied=False), rows + 2 * tables + 3 * layer)
        self.assertEqual(needed("own", cuda=False), rows)
        self.assertEqual(needed("own", cuda=False, outline=998), rows + 998)
        self.assertEqual(needed("head-fp32", cuda=False), rows + 160)
        self.assertEqual(needed("fp32", cuda=False), 2 * (rows + tables + 3 * layer))
        self.assertEqual(needed("fp32", outline=998), 2 * (rows + 998))
        self.assertEqual(needed("fp32", outline=998, settings="layers=host"), 2 * (rows + tables + 2 * (998 - tables) // 3))
        self.assertEqual(needed("fp32", outline=8, settings="layers=host"), 2 * (rows + 8))
        for name in ("hf_decoder.py", "hf_static_decoder.py"):
            self.assertEqual(needed("own", outline=998, stored=997, name=name), rows + 2 * 998)
            self.assertEqual(needed("own", outline=998, stored=998, name=name), rows + 998)
        self.assertEqual(needed("own", outline=998, stored=997), rows + 998)
        self.assertEqual(needed("head-fp32", outline=998, settings="values="), rows + 2 * 998 + 160)
        self.assertEqual(needed("own", cuda=False, settings="values=a=b"), rows + 2 * (tables + 3 * layer))
        both = needed("fp32", outline=998, settings="layers=host\nvalues=a")
        self.assertEqual(both, 2 * (rows + tables + 2 * (998 - tables) // 3))


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Transformers(PythonTest):
    def test_passes_and_is_timed(self):
        """A decoder of the user's, which is a copy of hf's here."""
        shutil.copy(ROOT / "baselines" / "hf_decoder.py", self.folder / "mine.py")
        code, report, engine, told = self.judge("-n", "16", "--blocks", "2", engine="./mine.py")
        self.assertEqual((code, engine["verdict"]), (0, "PASS"), told)
        self.assertEqual(engine["resolved_name"], "hf@mine.py")
        self.assertEqual(engine["process"]["program"], "host.py")
        self.assertEqual(len(engine["samples"]), 2)
        self.assertEqual(engine["receipts_wrong"], 0)
        self.assertLess(engine["parity"]["r_rms"], 1.2)
        # What a call costs is stated, and is never part of a time: 26 us on a machine that is not busy.
        self.assertGreater(engine["process"]["crossing_us"], 0)
        self.assertLess(engine["process"]["crossing_us"], 500)

    def test_a_broken_one_fails(self):
        code, _, engine, told = self.judge("-n", "16", "--blocks", "2", engine=ENGINES / "broken_decoder.py")
        self.assertEqual(code, 3, told)
        self.assertIn(engine["verdict"], ("FAIL_TOKEN", "FAIL_FIDELITY"))
        self.assertEqual(engine["samples"], [])


class Misbehaviours(PythonTest):
    def test_each_has_its_verdict(self):
        for name, (does, verdict, code, reason) in MISBEHAVIOURS.items():
            with self.subTest(name=name):
                self.out = self.folder / f"report-{name}"
                found, _, engine, told = self.judge(*self.short_run(), "--timeout", "8", engine=self.small(name, does))
                self.assertEqual((found, engine["verdict"]), (code, verdict), told)
                self.assertIn(reason, engine["reasons"][0])
                tracebacks = [file.name for file in self.out.glob("traceback*")]
                self.assertEqual(tracebacks, [f"traceback-{name}.txt"] if name in ("raises", "exits", "misses") else [])

    def test_the_traceback_lies_in_the_reports_folder(self):
        path = self.small("raises", MISBEHAVIOURS["raises"][0])
        _, report, engine, told = self.judge("--model", "tiny-untied", "-n", "7", "--blocks", "1", engine=path)
        self.assertTrue(engine["reasons"][0].endswith(" (raises.py, line 13); traceback-raises.txt"), engine["reasons"])
        self.assertIn("ValueError: two lines (raises.py, line 13); traceback-raises.txt", told)
        text = (self.out / "traceback-raises.txt").read_text()
        self.assertTrue(text.startswith("Traceback (most recent call last):\n"), text)
        self.assertIn('raises.py", line 13, in decode\n', text)
        self.assertTrue(text.endswith("ValueError: two\nlines\n"), text)
        # The second case's has a file of its own.
        self.assertIn("; traceback-raises-2.txt", self.engine(report, path, case=1)["reasons"][0])
        self.assertEqual((self.out / "traceback-raises-2.txt").read_text(), text)

    def test_what_it_prints_is_no_result(self):
        does = "print('a word'); raise RuntimeError('after the word')"
        process = self.start("--model", "tiny", "--engine", self.small("talks", does), *self.short_run(), "-o", "csv")
        stdout, stderr = process.communicate(timeout=100)
        self.assertNotIn("a word", stdout)
        self.assertIn("a word", stderr)

    def test_files_that_are_none(self):
        for text, reason in (("import nothing_like_this\n", "No module named 'nothing_like_this' (none.py, line 1)"),
                             ("class Decoder(:\n", "SyntaxError: "),
                             ("decoder = 1\n", "./none.py: defines no class Decoder (references/decoder.py)")):
            with self.subTest(text=text):
                self.out = self.folder / f"report-{len(text)}"
                self.program("none.py", text)
                code, _, engine, told = self.judge(*self.short_run(), engine="./none.py")
                self.assertEqual((code, engine["verdict"]), (2, "BAD_INPUT"), told)
                self.assertIn(reason, engine["reasons"][0])
        result = self.mkbench("--device", "cpu", "--engine", "./nowhere.py")
        self.assertEqual(result.returncode, 2)
        self.assertIn("engine ./nowhere.py: file: found none", result.stderr)
        result = self.mkbench("--device", "cpu", "--engine", "./none.py", "--in-process")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--in-process: ./none.py is an engine in Python", result.stderr)


class Interpreters(PythonTest):
    """--python, with small programs that stand for Pythons of other machines."""

    def python(self, name, before):
        return self.program(name, f"#!{sys.executable}\nimport sys\n{before}\nimport runpy\ndel sys.argv[0]\n"
                                  "runpy.run_path(sys.argv[0], run_name='__main__')\n")

    def judge_with(self, python, verdict, code, *words):
        self.out = self.folder / f"report-{len(list(self.folder.iterdir()))}"
        found, report, engine, told = self.judge(*self.short_run(), "--python", python, engine=self.small("zeros"))
        self.assertEqual((found, engine["verdict"]), (code, verdict), told)
        for word in words:
            self.assertIn(word, engine["reasons"][0])
        return report

    def test_it_is_the_one_that_is_asked_for(self):
        path = self.python("own-python", "print('the own one', file=sys.stderr)")
        report = self.judge_with("./own-python", "FAIL_TOKEN", 3)
        self.assertEqual(report["meta"]["options"]["python"], {"value": "./own-python", "source": "command line"})
        # A name is looked up on PATH; the environment variable stands for the flag.
        self.out = self.folder / "report-by-name"
        process = self.start("--model", "tiny", "--engine", "./zeros.py", *self.short_run(),
                             MKBENCH_PYTHON=pathlib.Path(path).name, PATH=f"{self.folder}:{os.environ['PATH']}")
        _, stderr = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 3, stderr)
        self.assertEqual(self.report()["meta"]["options"]["python"], {"value": "own-python", "source": "environment"})

    def test_there_is_none(self):
        self.judge_with("./nowhere/python", "ENV_UNFIT", 6, "./nowhere/python cannot start: No such file or directory")

    def test_too_old(self):
        self.python("old", "sys.version_info = (3, 8, 20)")
        self.judge_with("./old", "ENV_UNFIT", 6, "./old cannot start: host.py: found Python 3.8, wanted 3.9 or later")

    def test_no_numpy(self):
        self.python("bare", "sys.modules['numpy'] = None")
        self.judge_with("./bare", "ENV_UNFIT", 6, "./bare cannot start: host.py: ", "numpy")

    def test_no_torch(self):
        self.python("no-torch", "sys.modules['torch'] = None")
        self.judge_with("./no-torch", "BAD_INPUT", 2, "ModuleNotFoundError: ", "torch",
                        f"the Python is {sys.executable}")


if __name__ == "__main__":
    unittest.main()
