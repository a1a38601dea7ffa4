"""The engines hf and hf-static through the real binary, and what they do where Python lacks something."""

import importlib.util
import sys
import types
import unittest
from unittest import mock

from support.cli_support import ROOT, CliTest

MODELS = ("tiny", "tiny-llama", "tiny-qwen2")
NAMES = ("hf", "hf-static")


def load():
    """baselines/hf_decoder.py as scripts/host.py loads it."""
    spec = importlib.util.spec_from_file_location("hf_under_test", ROOT / "baselines" / "hf_decoder.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Judged(CliTest):
    def test_they_are_yardsticks_that_pass_on_every_family(self):
        """hf-static masks rows by their count alone: what an earlier prompt left behind must not show."""
        for model in MODELS:  # 599 rows are prefilled in two chunks
            references = self.short_reference(model, prompts=("corpus-600", "corpus-17", "other-2"))
        done = self.bench("--model", ",".join(MODELS), "--compare", ",".join(NAMES), "--reference", references, timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = self.report()
        self.assertEqual([c["model"]["name"] for c in report["cases"]], list(MODELS))
        for case in range(len(MODELS)):
            for name in NAMES:
                engine = self.engine(report, name, case)
                self.assertEqual((engine["name"], engine["resolved_name"], engine["role"]), (name, name, "baseline"))
                self.assertEqual((engine["verdict"], engine["receipts_wrong"]), ("PASS", 0), engine["reasons"])
                self.assertEqual(engine["parity"]["precision"], "bf16")
                self.assertLess(engine["parity"]["r_rms"], 1.2)
                self.assertEqual(len([s for s in engine["samples"] if s["valid"]]), 2)
                self.assertEqual(engine["process"]["program"], "host.py")
                self.assertRegex(engine["settings"], r"^transformers=5\S+ torch=\S+ dtype=torch.bfloat16 attention=sdpa allow_tf32=0 .*cpu_threads=1( cuda_graph=0)?$")
        verified = self.mkbench("verify", str(self.out / "report.json"))
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def test_hf_static_needs_a_cache_that_counts(self):
        with mock.patch.object(sys, "path", [str(ROOT / "baselines"), *sys.path]):
            import hf_static_decoder as static
        cache = types.SimpleNamespace(layers=[object()])  # as transformers 5.0 to 5.3 have it
        with mock.patch.object(static.hf_decoder.Decoder, "open"), mock.patch.object(static, "StaticCache", lambda **_: cache):
            decoder = static.Decoder()
            decoder.model = mock.Mock()
            with self.assertRaisesRegex(ImportError, "^hf-static needs transformers 5.6 or later") as raised:
                decoder.open(None, types.SimpleNamespace(type="cpu"), 64)
        self.assertEqual(raised.exception.mkbench_kind, "not_built")


class Missing(CliTest):
    def test_without_transformers_hf_is_skipped_and_says_why(self):
        python = self.folder / "python"
        python.write_text(f"#!{sys.executable}\nimport runpy, sys\nsys.modules['transformers'] = None\ndel sys.argv[0]\n"
                          "runpy.run_path(sys.argv[0], run_name='__main__')\n")
        python.chmod(0o755)
        done = self.bench("--compare", "hf", "--python", str(python), "--reference", self.short_reference())
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = self.report()
        engine = self.engine(report, "hf")
        self.assertEqual(engine["verdict"], "SKIPPED")
        self.assertRegex(engine["reasons"][0], r"^ImportError: hf needs torch and transformers 5 or later \(pip install torch "
                                               r"'transformers>=5'\): .* \(hf_decoder.py, line \d+\); the Python is .*, --python ")
        self.assertEqual(self.engine(report, "host-twin")["verdict"], "PASS")

    def test_what_it_needs(self):
        old = types.ModuleType("transformers")
        old.__version__, old.AutoModelForCausalLM, old.DynamicCache = "4.57.1", None, None
        utils = types.ModuleType("transformers.utils")
        utils.logging = mock.Mock()
        for modules, words in (({"torch": None}, "torch"), ({"transformers": None}, "transformers"),
                               ({"transformers": types.ModuleType("transformers")}, "AutoModelForCausalLM"),
                               ({"transformers": old, "transformers.utils": utils},
                                ": found transformers 4.57.1$")):
            with self.subTest(words=words), mock.patch.dict(sys.modules, {"torch": types.ModuleType("torch")} | modules):
                with self.assertRaisesRegex(ImportError, "^hf needs torch and transformers 5 or later .*" + words) as raised:
                    load()
                self.assertEqual(raised.exception.mkbench_kind, "not_built")


if __name__ == "__main__":
    unittest.main()
