"""The talker's trunk by hidden vector and by id against HF transformers (scripts/talker_trunk.py), and faults that it names."""

import dataclasses
import os
import pathlib
import shutil
import tempfile
import unittest

from support import ROOT

import talker_trunk
import torch

PROBE = os.environ["TRUNK_PROBE"]
PLUGINS, ENGINES = pathlib.Path(os.environ["PLUGINS"]), pathlib.Path(os.environ["ENGINES"])
LAYERS, STEPS = 4, 24
ON_CPU = (*talker_trunk.ON_CPU, PLUGINS / "naive_cpu.so", ENGINES / "host-twin.so")


class TrunkTest:
    """One case of a 4-layer cut, and the folder that holds it."""

    weights, cuda = None, False

    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_trunk_"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)
        cls.case = talker_trunk.make_case(LAYERS, cls.weights, STEPS)
        cls.folder = talker_trunk.write_folder(cls.scratch / "tts", cls.case.shape, cls.case.state)

    def run_engine(self, engine, inputs=None, folder=None, rows=None):
        inputs = self.case.vectors if inputs is None else inputs
        return talker_trunk.run_engine(PROBE, str(engine), folder or self.folder, inputs, self.case.shape, self.cuda,
                                       rows)

    def found(self, engine, run):
        return self.case.failures(str(engine), run)

    def check_engines(self, *engines):
        for engine in engines:
            for entry, inputs in self.case.entries().items():
                with self.subTest(engine=engine, entry=entry):
                    self.assertEqual(self.found(engine, self.run_engine(engine, inputs)), [])

    def check_wrong_theta(self, *engines):
        wrong = talker_trunk.write_folder(self.scratch / "theta", self.case.shape, self.case.state, theta=1e4)
        for engine in engines:
            found = " ".join(self.found(engine, self.run_engine(engine, folder=wrong)))
            self.assertIn("logits: error", found, engine)
            self.assertIn("hidden: error", found, engine)


class RandomWeights(TrunkTest, unittest.TestCase):
    weights = "random"

    def test_engines_follow_hf(self):
        self.check_engines(*ON_CPU)

    def test_wrong_theta_is_found(self):
        self.check_wrong_theta("oracle", "eager", "host-twin")

    def test_swapped_head_is_found(self):
        """By vector the embedding is not read: the logits alone are wrong."""
        embedding, head = talker_trunk.NAMES
        names = {embedding: talker_trunk.NAMES[head], head: talker_trunk.NAMES[embedding]}
        wrong = talker_trunk.write_folder(self.scratch / "head", self.case.shape, self.case.state, names)
        found = self.found("host-twin", self.run_engine("host-twin", folder=wrong))
        self.assertTrue(found)
        self.assertRegex(found[0], "^logits: error")
        self.assertNotIn("hidden: error", " ".join(found))

    def test_hidden_before_the_final_norm_is_found(self):
        found = self.found("naive_cpu", self.run_engine(PLUGINS / "naive_cpu_unnormed.so"))
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found[0], "^hidden: error")

    def test_unequal_rows_are_another_function_and_refused(self):
        """HF rotates by each row; an engine that counts positions can only refuse."""
        half = STEPS // 2
        equal = torch.arange(STEPS).expand(3, STEPS)
        unequal = equal.clone()
        unequal[1, half:] += 3
        run = self.run_engine("host-twin", rows=equal)
        self.assertEqual(self.found("host-twin", run), [])
        other = talker_trunk.run_hf(self.case.shape, self.case.state, self.case.vectors, torch.float32, unequal)
        self.assertNotEqual(talker_trunk.failures("host-twin", run, other, self.case.baseline), [])
        words = (f"mRoPE positions of step 0: found {half}, {half + 3}, {half}, wanted three equal rows: "
                 "mRoPE with unequal rows is unsupported")
        for engine in ("eager", "host-twin", PLUGINS / "naive_cpu.so"):
            with self.assertRaisesRegex(talker_trunk.Refused, words):
                self.run_engine(engine, rows=unequal)
        with self.assertRaisesRegex(talker_trunk.Refused, "found 1, 1, 1, wanted 0 in each row"):
            self.run_engine("eager", rows=equal + 1)

    def test_engines_without_vectors_say_so(self):
        for engine in ("graph", PLUGINS / "naive_cpu_bare.so"):
            words = f"{pathlib.Path(engine).name}: decode_vectors: this engine takes ids and gives logits alone"
            with self.assertRaisesRegex(talker_trunk.Refused, words):
                self.run_engine(engine)


class AnalyticWeights(TrunkTest, unittest.TestCase):
    weights = "none"

    def test_engines_follow_hf_and_the_closed_form(self):
        self.assertEqual(len(self.case.continued), STEPS // 2)
        self.check_engines(*ON_CPU)

    def test_wrong_ids_are_found(self):
        run = self.run_engine("oracle")
        other = dataclasses.replace(self.case, continued=[*self.case.continued[:-1], self.case.continued[-1] ^ 1])
        self.assertEqual(other.failures("oracle", run), ["ids: not those of the closed form"])


if __name__ == "__main__":
    unittest.main()
