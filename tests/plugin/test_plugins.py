"""Engines that mkbench was not built with, through the real binary: intact ones pass, each broken one gets its
verdict and exit code, and the report is always written."""

import json
import os
import pathlib
import subprocess
import unittest
import xml.etree.ElementTree

from support.cli_support import ROOT, CliTest, environment

PLUGINS = pathlib.Path(os.environ["PLUGINS"])

# Fault -> verdict, exit code, and words of the reason. Each engine has a run of its own.
BROKEN = {
    "theta": ("FAIL_TOKEN", 3, "tokens wrong"),
    "vocab": ("FAIL_SELF", 3, "not the lowest-index argmax"),
    "cache": ("FAIL_TOKEN", 3, "tokens wrong"),
    "crash": ("RUNTIME_ERROR", 1, "died by signal 11 (Segmentation fault) during 'decode'"),
    "short": ("FAIL_TOKEN", 3, "decode(64) returned 63 ids"),
    "overrun": ("INTEGRITY", 8, "ids of decode(): 256 bytes were asked for, memory 0 bytes after them was written"),
    "nan": ("FAIL_FIDELITY", 3, "logits are NaN or Inf"),
}

# Fault -> the known bug that it is.
BUGS = {"theta": "rope_theta", "cache": "cache_length"}

# Engine -> verdict and words of the reason. These engines share one run without harm to each other.
BESIDE_OTHERS = {
    "naive_cpu_overwrite": ("INTEGRITY", "model.layers.0.mlp.up_proj.weight was modified"),
    "naive_cpu_fails": ("RUNTIME_ERROR", "decode failed (1): it gives up"),
    "naive_cpu_stateful": ("FAIL_FIDELITY", "R_rms"),
    "refused_version": ("BAD_INPUT", "version of the engine ABI: found 5, wanted 4: compile it against"),
    "refused_device": ("UNSUPPORTED_DEVICE", "devices: found cuda, wanted cpu"),
    "refused_environment": ("ENV_UNFIT", "open failed (3): hidden is 128, wanted 4096"),
}


class PluginTest(CliTest):
    PROMPTS = ("corpus-17", "other-2")
    references = None

    def judge(self, name, *args):
        """Returns the result of a short run of PLUGINS/name.so, the report, and the engine's part of the report."""
        self.out = self.folder / f"report-{name}"
        if self.references is None:
            self.references = self.short_reference(prompts=self.PROMPTS)
        path = str(PLUGINS / f"{name}.so")
        result = self.bench("--engine", path, "--reference", self.references, *args)
        report = self.report()
        return result, report, self.engine(report, path)

    def check(self, name, verdict, code, reason, *args):
        result, report, engine = self.judge(name, *args)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(report["verdict"]["exit_code"], code)
        self.assertEqual(engine["verdict"], verdict, engine["reasons"])
        self.assertIn(reason, engine["reasons"][0])
        self.assertIsNone(engine["ms_per_tok"])
        # The broken engine does not affect eager's verdict.
        self.assertEqual(self.engine(report, "eager")["verdict"], "PASS")
        return engine


class Whole(PluginTest):
    def test_an_engine_with_logits_and_forced_ids(self):
        result, _, engine = self.judge("naive_cpu")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(engine["verdict"], "PASS")
        self.assertEqual(engine["resolved_name"], "naive-cpu@naive_cpu.so")
        self.assertEqual(engine["parity"]["strict_matched"], 64)
        self.assertLess(engine["parity"]["r_rms"], 0.1)
        self.assertEqual(len(engine["samples"]), 2)
        self.assertGreater(engine["ms_per_tok"]["median"], 0)

    def test_engines_without_what_is_optional(self):
        # The reference has near ties on one prompt: there ids are forced by prefilling again, or by decode(1).
        for name in ("naive_cpu_ids", "naive_cpu_bare"):
            with self.subTest(name=name):
                result, _, engine = self.judge(name)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertEqual(engine["verdict"], "PASS")
                self.assertEqual(engine["parity"]["strict_matched"], 64)
                self.assertEqual(engine["parity"]["r_rms"] is None, name == "naive_cpu_ids")
                self.assertEqual(len(engine["samples"]), 2)

    def test_models_of_other_families(self):
        """One decodes them by the record that open() gets; one that does not compare it with its own would not pass."""
        paths = [str(PLUGINS / f"{name}.so") for name in ("naive_cpu", "naive_cpu_bare")]
        result = self.bench("--engine", ",".join(paths), "--model", "tiny-llama,tiny-qwen2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        for case in (0, 1):
            for path in paths:
                engine = self.engine(report, path, case)
                self.assertEqual(engine["verdict"], "PASS", engine["reasons"])
                self.assertLess(engine["parity"]["r_rms"], 0.1)

    def test_a_prefill_test(self):
        result, _, engine = self.judge("naive_cpu", "-n", "4", "-p", "40", "--blocks", "1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(engine["samples"][0]["tokens"], 40)


class AtLength(PluginTest):
    """`mkbench parity`, on the weights of tiny with a context short enough for every cache length."""

    def test_checks_that_do_not_apply_say_why(self):
        paths = {name: str(PLUGINS / f"{name}.so") for name in ("naive_cpu", "naive_cpu_ids", "step_cpu", "naive_cpu_narrow")}
        result = self.mkbench("parity", "--engine", ",".join(paths.values()), *self.short_model(160),
                              "--device", "cpu", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        checks = {}
        for name, path in paths.items():
            engine = self.engine(report, path)
            self.assertEqual(engine["samples"], [])
            checks[name] = {c["name"]: c for c in engine["parity"]["checks"]}
        for name in paths:
            self.assertEqual(self.engine(report, paths[name])["verdict"], "PASS")
            for check in ("ran", "decided", "strict", "same", "repeats", "sweep", "isolation", "head"):
                self.assertEqual(checks[name][check]["status"], "passed", checks[name][check])
            self.assertIn("counts no launches", checks[name]["ran"]["detail"])
            self.assertIn("takes no snapshots", checks[name]["isolation"]["detail"])
        for check in ("finite", "self", "r_rms", "r_step", "r_inf", "r_kl", "ratchet"):
            with self.subTest(check=check):
                without = checks["naive_cpu_ids"][check]
                self.assertEqual(without["status"], "not_applicable", without)
                self.assertIn("shows no logits", without["detail"])
        for name in ("naive_cpu", "step_cpu"):
            self.assertEqual(checks[name]["r_rms"]["status"], "passed")
        suite = next(s for s in xml.etree.ElementTree.parse(self.out / "junit.xml").getroot() if "naive_cpu.so" in s.get("name"))
        narrow = self.engine(report, paths["naive_cpu_narrow"])
        self.assertIn("cache lengths 1-100 of 160 judged", narrow["parity"]["coverage"])
        self.assertIn("; the engine takes at most 100", narrow["parity"]["coverage"])
        told = {p.get("name"): p.get("value") for p in suite.iter("property")}
        self.assertEqual(told["precision"], "fp32-accumulate")
        self.assertRegex(told["coverage"], "^cache lengths 1-160 of 160 judged")
        self.assertIn(told["coverage"], (self.out / "report.md").read_text())


class Broken(PluginTest):
    def test_each_gets_its_verdict(self):
        for fault, (verdict, code, reason) in BROKEN.items():
            with self.subTest(fault=fault):
                engine = self.check(f"naive_cpu_{fault}", verdict, code, reason)
                self.assertEqual(engine["samples"], [])
                if fault in BUGS:
                    diagnosis = engine["parity"]["diagnosis"]
                    self.assertEqual(diagnosis["names"], [BUGS[fault]], diagnosis)
                    self.assertIn(f"bug: {diagnosis['text']}", (self.out / "report.md").read_text())

    def test_one_that_shows_its_states_gets_the_layer_named(self):
        localised = self.check("naive_cpu_deep", "FAIL_TOKEN", 3, "tokens wrong")["parity"]["localised"]
        self.assertIn("the first KV row out of band is layer 2, position 0 ", localised)
        self.assertIn("K out of band, V in band: the K projection, k_norm or RoPE of layer 2", localised)

    def test_a_late_id_or_a_rewind_that_is_ignored(self):
        for fault in ("pending", "rewind"):
            with self.subTest(fault=fault):
                # After many a random late id tiny goes on with the same text as after another one.
                result, _, engine = self.judge(f"naive_cpu_{fault}", "--seed", "1")
                self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
                self.assertEqual(engine["verdict"], "FAIL_TOKEN", engine["reasons"])
                self.assertIn("late id", engine["reasons"][0])

    def test_a_hang(self):
        """The deadline ends a hang, and its silence tells it from slow work."""
        engine = self.check("naive_cpu_hang", "HANG", 7, "no progress for ", "--timeout", "4")
        self.assertRegex(engine["reasons"][0], r"killed [4-9]\.\d s after 'decode' began, position 16; "
                                              r"HANG: 'decode' of .*naive_cpu_hang\.so does not return in decode\(\) call 1, "
                                              r"its progress word says position 16; see hang\.json$")

    def test_many_in_one_run(self):
        """Each engine is judged by itself, and the intact one among them is timed."""
        paths = {name: str(PLUGINS / f"{name}.so") for name in (*BESIDE_OTHERS, "naive_cpu")}
        sound = (PLUGINS / "naive_cpu.so").read_bytes()
        no_libraries = {
            "./text.so": (b"not a library", "no shared library\n"),
            "./pointer.so": (b"version https://git-lfs.github.com/spec/v1\n", "no shared library: it is a Git LFS pointer"),
            "./half.so": (sound[:len(sound) // 2], f"it is cut off: {len(sound) // 2} bytes, its header tells of "),
            "./other.so": (sound[:18] + b"\xf3\0" + sound[20:], "it is built for another processor (ELF machine 243, "),
        }
        for name, (data, _) in no_libraries.items():
            (self.folder / name).write_bytes(data)
        result = self.bench("--engine", ",".join([*paths.values(), *no_libraries]), "--reference",
                            self.short_reference(prompts=self.PROMPTS))
        self.assertEqual(result.returncode, 2, result.stderr)  # BAD_INPUT outranks the other verdicts
        report = self.report()
        for name, (verdict, reason) in BESIDE_OTHERS.items():
            with self.subTest(name=name):
                engine = self.engine(report, paths[name])
                self.assertEqual(engine["verdict"], verdict, engine["reasons"])
                self.assertIn(reason, engine["reasons"][0])
        for name, (_, said) in no_libraries.items():
            self.assertIn(f"{name}: it cannot be loaded: {said}", self.engine(report, name)["reasons"][0] + "\n")
        whole = self.engine(report, paths["naive_cpu"])
        self.assertEqual(whole["verdict"], "PASS", whole["reasons"])
        self.assertEqual(len(whole["samples"]), 2)


class KnownAnswers(CliTest):
    """A library that computes the closed form of `synthetic:cut` in place of its layers passes parity, and no more."""

    LIBRARY = str(PLUGINS / "closed_form.so")

    def test_the_timed_weights_are_salted(self):
        result = self.bench("--model", "synthetic:cut", "--engine", self.LIBRARY, "-d", "12", "-n", "4", "--blocks", "1",
                            timeout=350)
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        report = self.report()
        self.assertGreater(report["cases"][0]["model"]["salt"], 0)
        known, computed = (self.engine(report, name) for name in (self.LIBRARY, "eager"))
        self.assertEqual((known["verdict"], known["parity"]["verdict"]), ("FAIL_TOKEN", "PASS"), known["reasons"])
        self.assertIn("receipt: token 0", known["reasons"][0])
        self.assertEqual(computed["verdict"], "PASS_LIVE", computed["reasons"])
        step = json.loads((self.out / "failures" / "1.json").read_text())
        self.assertEqual(step["salt"], report["cases"][0]["model"]["salt"])

    def test_an_audit_begins_where_the_closed_form_holds(self):
        result = self.mkbench("audit", "--device", "cpu", "--model", "synthetic:cut", "--engine", self.LIBRARY, "-d", "12",
                              "-n", "4", "--tiles", "1", "-q", timeout=350)
        self.assertEqual(result.returncode, 8, result.stdout + result.stderr)
        self.assertIn("layers: 1 of 1 tiles are not read", result.stdout)


class Refused(PluginTest):
    def test_no_file(self):
        (self.folder / "folder.so").mkdir()
        for name, words in (("none.so", "file: found none"), ("folder.so", "wanted a regular file")):
            result = self.bench("--engine", name)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"engine {name}: ", result.stderr)
            self.assertIn(words, result.stderr)

    def test_a_fault_cannot_be_planted_in_it(self):
        self.check("naive_cpu", "BAD_INPUT", 2, "a fault cannot be planted", "--plant-fault", "rope_theta")


class Header(unittest.TestCase):
    def test_is_c99_and_cxx(self):
        for language in (("c", "-std=c99"), ("c++", "-std=c++11")):
            with self.subTest(language=language):
                subprocess.run([os.environ["CXX"], "-x", *language, "-pedantic-errors", "-Wall", "-Wextra", "-Werror",
                                "-fsyntax-only", str(ROOT / "references" / "engine_abi.h")],
                               check=True, env=environment())


if __name__ == "__main__":
    unittest.main()
