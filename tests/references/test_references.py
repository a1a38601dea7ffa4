"""The committed references: their manifests, and in each file all that is needed to make it again."""

import base64
import hashlib
import json
import pathlib
import unittest

DATA = pathlib.Path(__file__).resolve().parents[2] / "references" / "data"
TRAINED = ("tiny", "tiny-llama", "tiny-qwen2", "tiny-untied")
FOLDERS = ("qwen3-0.6b", "smollm2-135m", "synthetic", *TRAINED)

MODEL = ("name", "revision", "weights_sha256", "files", "config")
CAPTURE = ("program", "command", "date", "replaces", "versions", "device", "attention", "do_sample", "prefill_chunk",
           "truth", "baseline", "sketch")
TRUTH = {"dtype": "float32", "inv_freq_dtype": "float32", "allow_tf32_matmul": False, "allow_tf32_cudnn": False,
         "float32_matmul_precision": "highest"}
STEP = ("position", "token", "top_ids", "top_logits", "logsumexp", "mean", "centred_norm", "margin", "max_abs",
        "decided", "sketch")
BASELINE = ("token", "fp32_head_token", "top_ids", "top_logits", "error_norm", "error_inf_top", "kl", "pairwise")
SUMMARY = ("D", "baseline_flips", "steps", "near_tie_steps", "smallest_strict_margin", "strict", "near_tie")


def captured():
    """(path, document) of every reference with logits."""
    for path in sorted(DATA.glob("*/reference*.json")):
        document = json.loads(path.read_text())
        if not document["token_only"]:
            yield path, document


class Manifests(unittest.TestCase):
    def test_every_file_is_listed_as_it_is(self):
        self.assertEqual(sorted(p.name for p in DATA.iterdir() if p.is_dir()), sorted(FOLDERS))
        for folder in FOLDERS:
            listed = json.loads((DATA / folder / "manifest.json").read_text())["files"]
            there = [p for p in (DATA / folder).iterdir() if p.name != "manifest.json"]
            self.assertEqual(sorted(listed), sorted(p.name for p in there), folder)
            for path in there:
                data = path.read_bytes()
                found = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
                self.assertEqual(listed[path.name], found, path)


class PublishedModel(unittest.TestCase):
    """What is committed of Qwen/Qwen3-0.6B, whose weights are not."""

    def test_the_config_is_the_published_one(self):
        files = json.loads((DATA / "qwen3-0.6b" / "files.json").read_text())["files"]
        config = (DATA / "qwen3-0.6b" / "config.json").read_bytes()
        self.assertEqual(hashlib.sha256(config).hexdigest(), files["config.json"]["sha256"])
        self.assertEqual(len(config), files["config.json"]["bytes"])
        self.assertEqual(json.loads(config)["rope_theta"], 1000000)

    def test_prompts(self):
        document = json.loads((DATA / "qwen3-0.6b" / "prompts.json").read_text())
        published = json.loads((DATA / "qwen3-0.6b" / "reference.json").read_text())["prompts"][0]
        prompts = {p["name"]: p for p in document["prompts"]}
        self.assertEqual(len(prompts), len(document["prompts"]))
        # Somebody else's tokenizer gave the ids of the published continuations.
        self.assertEqual(prompts["capital-of-france"]["ids"], published["ids"])
        self.assertEqual(prompts["capital-of-france"]["text"], published["text"])
        self.assertGreater(max(len(p["ids"]) for p in prompts.values()), 512)  # more than one prefill chunk
        for p in prompts.values():
            self.assertEqual(p["set"], "auto")
            self.assertTrue(all(0 <= i < 151669 for i in p["ids"]), p["name"])


class Format(unittest.TestCase):
    def has(self, path, found, wanted):
        missing = [field for field in wanted if field not in found]
        self.assertFalse(missing, f"{path}: lacks {missing}")

    def test_who_has_references(self):
        names = [document["model"]["name"] for _, document in captured()]
        self.assertEqual(sorted(names), ["smollm2-135m", "synthetic:early", "synthetic:late", "synthetic:short", *TRAINED])

    def test_provenance(self):
        for path, document in captured():
            model, capture = document["model"], document["capture"]
            self.has(path, model, MODEL)
            self.has(path, capture, CAPTURE)
            self.has(path, document["summary"], SUMMARY)
            self.has(path, capture["versions"], ("torch", "transformers", "numpy", "python"))
            self.assertEqual(capture["truth"], TRUTH, path)
            self.assertIn("allow_bf16_reduced_precision_reduction", capture["baseline"], path)
            self.assertIn(f"capture_reference.py {model['name']}", capture["command"], path)
            if capture["replaces"] is not None:
                self.assertEqual(len(capture["replaces"]["sha256"]), 64, path)
                self.assertTrue(capture["replaces"]["reason"], path)
            listed = json.loads((path.parent / "manifest.json").read_text())["files"]
            if model["name"] != "smollm2-135m":  # whose files are fetched
                for name, file in model["files"].items():
                    self.assertEqual(file, listed[name], path)
            self.assertTrue(model["files"] or model["generator"]["lagset"], path)

    def test_every_step_has_its_figures(self):
        for path, document in captured():
            for prompt in document["prompts"]:
                for step in prompt["steps"]:
                    self.has(path, step, STEP)
                    self.has(path, step["baseline"], BASELINE)
                    self.assertEqual(len(step["top_ids"]), 32, path)
                    self.assertEqual(len(step["baseline"]["top_ids"]), 32, path)
                    self.assertEqual(len(base64.b64decode(step["sketch"])), 4 * 512, path)


if __name__ == "__main__":
    unittest.main()
