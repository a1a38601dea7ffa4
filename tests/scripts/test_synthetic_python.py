"""The Python generator of the analytic checkpoint: the committed bytes and continuations, which C++ makes too."""

import base64
import copy
import dataclasses
import importlib.util
import json
import math
import pathlib
import tempfile
import unittest
from unittest import mock

from support import ROOT

try:
    import numpy as np
except ImportError:
    np = None


@unittest.skipIf(np is None, "this Python has no numpy")
class SyntheticPython(unittest.TestCase):
    def setUp(self):
        import synthetic_checkpoint

        self.synthetic = synthetic_checkpoint
        self.committed = json.loads((ROOT / "references/data/synthetic/hashes.json").read_text())

    def test_short_has_the_committed_bytes(self):
        self.assertEqual(self.synthetic.sha256("short"), self.committed["sha256"]["short"])

    def test_cuts_of_other_shapes_have_the_committed_bytes(self):
        for name in ("qwen3-tts-talker", "qwen3-1.7b"):
            cut = dataclasses.replace(self.synthetic.parse(f"{name}:short")[0], layers=4)
            known = self.committed["sha256_of_cuts_of_4_layers"][f"{name}:short"]
            self.assertEqual(self.synthetic.sha256("short", cut), known, name)

    def test_small_models_of_other_families_have_the_committed_bytes(self):
        import shape_table

        small = dict(hidden=1024, intermediate=1536, layers=4, max_positions=4096)
        rows = {"small-llama": ("llama-3.2-1b", small | {"heads": 16, "vocab": 66000}),
                "small-qwen2": ("qwen2.5-7b", small | {"heads": 10, "kv_heads": 5, "vocab": 3072})}
        for name, (of, change) in rows.items():
            shape = dataclasses.replace(shape_table.ROWS[of], **change)
            self.assertEqual(self.synthetic.sha256("short", shape), self.committed["sha256_of_small_models"][f"{name}:short"], name)

    def test_configs_say_what_the_rows_say(self):
        import shape_table

        llama, qwen2, qwen3 = (shape_table.ROWS[name].config() for name in ("llama-3.1-8b", "qwen2.5-7b", "qwen3-8b"))
        self.assertEqual(llama["rope_parameters"], {"rope_type": "llama3", "rope_theta": 500000, "factor": 8.0, "low_freq_factor": 1.0,
                                                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})
        self.assertEqual([c["architectures"] for c in (llama, qwen2, qwen3)],
                         [["LlamaForCausalLM"], ["Qwen2ForCausalLM"], ["Qwen3ForCausalLM"]])
        self.assertEqual([c["rms_norm_eps"] for c in (llama, qwen2, qwen3)], [1e-5, 1e-6, 1e-6])
        self.assertEqual(qwen2["rope_parameters"], {"rope_type": "default", "rope_theta": 1000000})
        with self.assertRaisesRegex(ValueError, "published.h: has no kLlama3LowFreq$"):
            shape_table.llama3_value("LowFreq")

    def test_unknown_shapes_and_short_cuts_are_refused(self):
        for name, said in (("smollm2-360m", "hidden is 960"), ("smollm2-1.7b", "no LFSR of 15 bits"), ("qwen2.5-1.5b", "kv_heads is 2")):
            with self.assertRaisesRegex(ValueError, said):
                self.synthetic.parse(f"{name}:short")
        with self.assertRaisesRegex(ValueError, "qwen3-9b:short: .*SHAPE of qwen3-0.6b, .*llama-3.1-8b, qwen2.5-7b, SET"):
            self.synthetic.parse("qwen3-9b:short")
        with self.assertRaisesRegex(ValueError, "3 layers, wanted over 3"):
            self.synthetic.lags("short", dataclasses.replace(self.synthetic.SHAPE, layers=3))

    def test_one_flipped_plant_changes_the_hash(self):
        tensor = self.synthetic.norm(2)
        bits = tensor.bits()
        tensor.add(0, 5, 1.25)
        changed = np.nonzero(bits != tensor.bits())[1]
        self.assertEqual(changed.tolist(), [5])

    def test_bytes_do_not_depend_on_chunks_and_threads(self):
        shape = self.synthetic.SHAPE
        tensors = [self.synthetic.Codewords(1, dataclasses.replace(shape, vocab=3072)),
                   self.synthetic.mlp(shape, 8, 3, False, np.ones(shape.hidden), 1.0)[0]]
        for tensor in tensors:
            in_threads = tensor.bits()
            self.assertLess(self.synthetic.CHUNK_ELEMENTS, in_threads.size)
            np.testing.assert_array_equal(in_threads, tensor.chunk(0, tensor.rows))

    def test_margins_keep_an_entry_for_each_device(self):
        import synthetic_margins

        entry = {"shape": "qwen3-4b", "layers": 36, "lagset": "short", "device": "CPU", "planted": {"5": 1}, "steps": 96,
                 "fp32_equal": 96, "bf16_equal": 96, "distinct": 96, "margin": 11.0, "pairwise_error": 0.1}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "margins.json"
            for change in ({}, {"device": "Card"}, {"margin": 12.0}, {"layers": 4}):
                synthetic_margins.keep(path, entry | change)
            kept = json.loads(path.read_text())
            self.assertEqual([(e["layers"], e["device"], e["margin"]) for e in kept],
                             [(4, "CPU", 11.0), (36, "CPU", 12.0), (36, "Card", 11.0)])
            synthetic_margins.render(path)
            self.assertIn("| qwen3-4b | 36 | short | Card | 5:1 | 96 of 96 |", (path.parent / "README.md").read_text())

    def test_continuations(self):
        self.assertEqual(set(self.committed["continuations"]), set(self.synthetic.LAGS))
        for lagset, known in self.committed["continuations"].items():
            prompt = self.synthetic.prompt(known["depth"], known["seed"])
            ids = self.synthetic.continuation(prompt, lagset, len(known["ids"]))
            self.assertEqual(ids, known["ids"], lagset)

    def test_a_prompt_below_the_lags_is_refused(self):
        with self.assertRaisesRegex(ValueError, "more than 11 ids"):
            self.synthetic.continuation(self.synthetic.prompt(10, 1), "short", 1)


@unittest.skipUnless(importlib.util.find_spec("transformers"), "this Python has no HF transformers")
class Prompts(unittest.TestCase):
    GOOD = {"name": "a", "set": "auto", "ids": [0, 5], "steps": 1, "text": ""}

    class Tokenizer:
        path = "tokenizer.json"

        def ids(self, text):
            return list(text.encode())

    def setUp(self):
        import reference_prompts

        self.prompts = reference_prompts

    def read(self, document, tokenizer=None):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prompts.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            return self.prompts.read(path, tokenizer)

    def test_those_of_the_committed_references(self):
        import capture_reference

        def committed(model):
            return json.loads(capture_reference.default_path(model).read_text())

        for model in ("tiny", "tiny-untied", "synthetic:short", "synthetic:early", "synthetic:late"):
            made = self.prompts.of(model)
            known = [p | {"steps": len(p["steps"])} for p in committed(model)["prompts"]]
            self.assertEqual(made, [{key: p[key] for key in made[0]} for p in known], model)
        for model in ("tiny", "tiny-untied"):
            known = committed(model)
            prompts = copy.deepcopy(known["prompts"])
            for step in (step for p in prompts for step in p["steps"]):
                step["decided"] = None
            self.assertEqual((capture_reference.judge(prompts), prompts), (known["summary"], known["prompts"]))
            config = json.loads((capture_reference.checkpoint_format.DATA / model / "config.json").read_text())
            self.assertEqual(self.prompts.train_tiny.CONFIGS[model], config)
        entry, prompts, summary = capture_reference.published()
        known = committed("qwen3-0.6b")
        self.assertEqual((prompts, summary), (known["prompts"], known["summary"]))
        self.assertEqual(entry | known["model"], known["model"] | {"config": entry["config"]})

    def test_figures_of_captured_steps_are_the_committed_ones(self):
        import capture_reference

        known = json.loads(capture_reference.default_path("tiny").read_text())["prompts"][1]
        prompt = {key: known[key] for key in ("name", "set", "ids", "text")} | {"steps": 3}
        _, [made], _ = capture_reference.capture("tiny", [prompt], "cpu")
        for found, wanted in zip(made["steps"], known["steps"][:3], strict=True):
            for field, value in wanted.items():
                if field == "sketch":
                    as_numbers = [np.frombuffer(base64.b64decode(one[field]), "<f4") for one in (found, wanted)]
                    np.testing.assert_allclose(*as_numbers, atol=0.01)
                elif field == "baseline":  # bf16 differs from CPU to CPU
                    self.assertEqual(found[field].keys(), value.keys())
                    for name in ("error_norm", "error_inf_top", "pairwise"):
                        self.assertAlmostEqual(found[field][name] / value[name], 1, delta=0.5)
                elif field.startswith(("top", "token", "position", "decided")) and field != "top_logits":
                    self.assertEqual(found[field], value, field)
                else:
                    np.testing.assert_allclose(found[field], value, rtol=1e-3)

    def test_largest_d(self):
        """0.5, or four bf16 steps at the largest logit of any step."""
        import capture_reference

        known = json.loads(capture_reference.default_path("tiny").read_text())["prompts"]
        for largest, most in ((31.9, 0.5), (32, 1), (64, 2)):
            prompts = [dict(p, set="auto", steps=p["steps"][:2]) for p in copy.deepcopy(known[:2])]
            prompts[1]["steps"][0]["max_abs"] = largest
            worst = prompts[0]["steps"][1]["baseline"]
            for worst["pairwise"] in (math.nextafter(most, 0), most):
                self.assertEqual(capture_reference.judge(prompts)["D"], worst["pairwise"])
            worst["pairwise"] = math.nextafter(most, 9)
            with self.assertRaisesRegex(ValueError, f"wanted at most {most}:.*'{prompts[0]['name']}' at"):
                capture_reference.judge(prompts)

    def test_when_training_stops(self):
        """At the first test that keeps each limit: D, the margin, and no step off the text."""
        import make_checkpoint
        import torch
        import train_tiny

        lane = dataclasses.replace(make_checkpoint.TINY, check_every=2, loss=1e9, rows=2, length=20, steps=4)
        trainings = {train_tiny: ((0.25, 4.01), (0.251, 5), (0.2, 4), lambda: train_tiny.train("tiny", str, "cpu")),
                     make_checkpoint: ((0.45, 3.0), (0.451, 5), (0.4, 2.99), lambda: make_checkpoint.train(
                         lane, make_checkpoint.text_of(lane, 1), 1, 10, "cpu", str))}
        steps = [(step, torch.tensor(1.0), torch.nn.Linear(1, 1)) for step in range(1, 11)]
        for module, (good, *bad, train) in trainings.items():
            judged = [(*one, 0) for one in bad] + [(*good, 1), (*good, 0)]
            with mock.patch.object(module, "judge", side_effect=judged), mock.patch.object(train_tiny, "CHECK_EVERY", 2), \
                    mock.patch.object(train_tiny, "training", lambda *_: iter(steps)):
                tensors, figures = train()
            self.assertEqual((figures["steps"], figures["D"], figures["smallest_margin_over_tau"]), (8, *good))
            self.assertEqual({t.dtype for t in tensors.values()}, {torch.bfloat16})
            with mock.patch.object(module, "judge", lambda *_: (9, 9, 9)), \
                    mock.patch.multiple(train_tiny, training=lambda *_: iter(steps), MAX_STEPS=4), \
                    self.assertRaisesRegex(SystemExit, "after (10|4) steps"):
                train()

    def test_those_of_a_file(self):
        other = self.GOOD | {"name": "b", "ids": None, "text": "x"}
        for document in ([self.GOOD, other], {"prompts": [self.GOOD, other]}):
            self.assertEqual(self.read(document, self.Tokenizer()), [self.GOOD, other | {"ids": [120]}])
        for bad in ("7", "[]", "[7]", "{}", '{"a": 1}'):
            with self.assertRaisesRegex(self.prompts.BadInput, "prompts.json: wanted a list of prompts"):
                self.read(bad)
        for field, values in {"name": (None, "", 7, "b"), "set": (None, "easy"), "steps": (None, 0, True, 1.0),
                              "text": (None, 7), "ids": (None, [], 7, [-1], ["a"], [0.5])}.items():
            for value in values:
                with self.subTest(field, value=value), self.assertRaisesRegex(
                        self.prompts.BadInput, f"prompts.json: prompt [12]: {field} is .*, wanted "):
                    self.read([self.GOOD | {"name": "b"}, self.GOOD | {field: value}])

    def test_those_of_texts_and_of_the_published_model(self):
        name, tokenizer = self.prompts.EXPECTED, self.Tokenizer()
        self.assertEqual([(p["name"], p["ids"], p["steps"]) for p in self.prompts.default("m", 0, tokenizer, "f")][1:3],
                         [(f"prompt-{n + 1}", list(self.prompts.TEXTS[n].encode()), 32) for n in (1, 2)])
        self.assertEqual(self.prompts.from_texts(["x"], 7, tokenizer, "f")[0]["steps"], 7)
        self.assertEqual({p["steps"] for p in self.prompts.default(name, 3, None, "f")}, {3})
        for call, said in ((lambda: self.prompts.from_texts(["x"], 1, None, "f"), "f: has no tokenizer.json"),
                           (lambda: self.prompts.from_texts([""], 1, tokenizer, "f"), "'' gives no token"),
                           (lambda: self.prompts.default(name, 0, tokenizer, "f"), "tokenizer.json: prompt .* wanted")):
            with self.assertRaisesRegex(self.prompts.BadInput, said):
                call()
        config = json.loads((self.prompts.EXPECTED_DATA / "config.json").read_text())
        self.prompts.check_expected(name, config, "f")
        for key in (*self.prompts.EXPECTED_KEYS, "rope_theta"):
            self.prompts.check_expected("Org/Other", config | {key: 7}, "f")
            with self.assertRaisesRegex(self.prompts.BadInput, f"f: {key} is 7.*, wanted"):
                self.prompts.check_expected(name, config | {key: 7}, "f")


if __name__ == "__main__":
    unittest.main()
