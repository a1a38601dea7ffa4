"""`--model FOLDER` of a Qwen3-TTS checkpoint: its talker's trunk runs as the Qwen3 model with the same tensors."""

import json
import unittest

from support.cli_support import DATA, CliTest
from support.snapshot_files import Checkpoint

NAMES = {"model.embed_tokens.weight": "talker.model.codec_embedding.weight", "lm_head.weight": "talker.codec_head.weight"}
TOP = ("model_type", "architectures", "tie_word_embeddings")


def talker_of(name):
    """A committed Qwen3 checkpoint with an untied head as a folder of Qwen3-TTS holds it."""
    source = Checkpoint.committed(name)
    tensors = {NAMES.get(tensor, f"talker.{tensor}"): value for tensor, value in source.tensors.items()}
    tensors["talker.model.text_embedding.weight"] = ["BF16", [2], b"\x80\x3f" * 2]
    inner = {key: value for key, value in source.config.items() if key not in TOP}
    inner["rope_scaling"] = {"rope_type": "default", "interleaved": True, "mrope_section": [24, 20, 20]}
    return Checkpoint({"model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"],
                       "talker_config": inner}, tensors)


class Talker(CliTest):
    def test_runs_and_says_what_is_not_covered(self):
        folder = talker_of("tiny-untied").write(self.folder / "tts")
        done = self.bench("--model", str(folder), "--engine", "host-twin")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = self.report()
        case = report["cases"][0]
        self.assertEqual(case["verdict"], "PASS_LIVE")
        model = case["model"]
        self.assertEqual(model["kind"], "qwen3_tts")
        self.assertEqual(model["not_covered"], ["text embedding: 1 tensor, 4 bytes",
                                                "speech tokenizer (codec ids to audio)"])
        manifest = json.loads((DATA / "tiny-untied" / "manifest.json").read_text())
        self.assertEqual(model["weights_sha256"], manifest["weights_sha256"])
        self.assertIn("talker.codec_head.weight, untied", model["head"])
        self.assertIn("- qwen3_tts: the decoder's trunk alone was run, by ids; not covered: text embedding: 1 tensor, 4 bytes; speech",
                      (self.out / "report.md").read_text())
        verified = self.mkbench("verify", str(self.out / "report.json"))
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def test_transformers_reads_it_as_qwen3(self):
        """An engine in Python gets a folder that Qwen3ForCausalLM loads."""
        folder = talker_of("tiny-untied").write(self.folder / "tts")
        done = self.bench("--n-gen", "4", "--model", str(folder), "--engine", "hf")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([engine["verdict"] for engine in self.report()["cases"][0]["engines"]], ["PASS_LIVE"] * 2)


if __name__ == "__main__":
    unittest.main()
