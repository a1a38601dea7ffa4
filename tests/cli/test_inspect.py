"""`mkbench inspect`: differences planted in a small folder, one at a time and all at once; other folders."""

import json
import pathlib
import struct
import unittest

from support.cli_support import CliTest
from support.snapshot_files import Checkpoint, write_safetensors

LAYER = "model.layers.{}.{}.weight"


def trunk(prefix, hidden, intermediate, layers, heads, kv_heads, head_dim):
    """The tensors of decoder layers and final norm, without data."""
    shapes = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden],
              "self_attn.q_proj": [heads * head_dim, hidden], "self_attn.k_proj": [kv_heads * head_dim, hidden],
              "self_attn.v_proj": [kv_heads * head_dim, hidden], "self_attn.o_proj": [hidden, heads * head_dim],
              "self_attn.q_norm": [head_dim], "self_attn.k_norm": [head_dim],
              "mlp.gate_proj": [intermediate, hidden], "mlp.up_proj": [intermediate, hidden],
              "mlp.down_proj": [hidden, intermediate]}
    tensors = {f"{prefix}layers.{n}.{name}.weight": ["BF16", shape, None]
               for n in range(layers) for name, shape in shapes.items()}
    tensors[f"{prefix}norm.weight"] = ["BF16", [hidden], None]
    return tensors


def dimensions(hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, positions):
    return {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab,
            "max_position_embeddings": positions, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000,
            "attention_bias": False, "use_sliding_window": False, "torch_dtype": "bfloat16"}


# ---- planted differences ----

def config(key, value):
    def change(checkpoint):
        if value is None:
            del checkpoint.config[key]
        else:
            checkpoint.config[key] = value
    return change


def missing(checkpoint):
    del checkpoint.tensors[LAYER.format(3, "mlp.up_proj")]


def extra(checkpoint):
    checkpoint.tensors["visual.patch_embed.proj.bias"] = ["BF16", [4], b"\x80\x3f" * 4]


def renamed(checkpoint):
    checkpoint.tensors["model.layers.1.self_attn.query_norm.weight"] = checkpoint.tensors.pop(
        LAYER.format(1, "self_attn.q_norm"))


def transposed(checkpoint):
    checkpoint.tensors[LAYER.format(0, "self_attn.o_proj")][1].reverse()


def dtype(checkpoint):
    tensor = checkpoint.tensors["model.norm.weight"]
    tensor[0], tensor[2] = "F64", struct.pack("<128d", *[1.0] * 128)


def head(checkpoint):
    kind, shape, data = checkpoint.tensors["model.embed_tokens.weight"]
    changed = bytearray(data)
    changed[2 * 128 * 17] ^= 1
    checkpoint.tensors["lm_head.weight"] = [kind, list(shape), bytes(changed)]


def not_a_number(checkpoint):
    name = LAYER.format(2, "mlp.down_proj")
    checkpoint.tensors[name][2] = checkpoint.tensors[name][2][:-2] + b"\xc0\x7f"


def manifest(checkpoint):
    checkpoint.manifest = {"files": {"config.json": {"sha256": "0" * 64}, "model.safetensors": {"sha256": "1" * 64}}}


# (what is planted, severity, field, a part of what was expected, of what was found, of the source): one of each kind.
# tests/references/test_inspection.cpp has every row of the input tables, and holds inspect to the loader.
CONFIG = "config.json:"
PLANTED = [
    (config("model_type", "gemma2"), "unsupported", "model_type", "'qwen3'", "'gemma2'", CONFIG + "model_type"),
    (config("max_position_embeddings", None), "fatal", "max_position_embeddings", "a value", "absent",
     CONFIG + "max_position_embeddings"),
    (config("rope_theta", 10000), "fatal", "rope_theta", "1000000 as in rope_parameters.rope_theta", "10000",
     CONFIG + "rope_theta"),
    (config("num_hidden_layers", 5), "fatal", "tensor missing", "model.layers.4.input_layernorm.weight", "absent",
     "model.layers.4.input_layernorm.weight"),
    (missing, "fatal", "tensor missing", "model.layers.3.mlp.up_proj.weight", "absent", "model.safetensors:"),
    (extra, "fatal", "tensor extra", "absent", "visual.patch_embed.proj.bias", "model.safetensors:"),
    (renamed, "fatal", "tensor renamed", "model.layers.1.self_attn.q_norm.weight",
     "model.layers.1.self_attn.query_norm.weight", "model.safetensors:"),
    (transposed, "fatal", "tensor shape", "[128, 512]", "[512, 128] (transposed?)",
     "model.layers.0.self_attn.o_proj.weight"),
    (dtype, "unsupported", "tensor dtype", "BF16, F16 or F32", "F64", "model.norm.weight"),
    (head, "fatal", "tie_word_embeddings", "model.embed_tokens.weight", "first in row 17", "lm_head.weight"),
    (not_a_number, "fatal", "tensor values", "finite", "1 values are NaN or Inf",
     "model.layers.2.mlp.down_proj.weight"),
    (manifest, "fatal", "manifest", "", "sha256 is", "config.json"),
]


class InspectTest(CliTest):
    def inspect(self, model, *args, status=None):
        done = self.mkbench("inspect", str(model), "-o", "json", *args)
        self.assertEqual(done.stderr, "")
        report = json.loads(done.stdout)
        self.assertEqual(report["schema"], {"id": "mkbench.inspection", "version": 1})
        self.assertEqual(report["exit_code"], done.returncode)
        self.assertEqual(done.returncode, 0 if report["verdict"] == "runnable" else 2)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout)
        return report

    def named(self, report, severity, field, expected="", found="", source=""):
        return any(f["severity"] == severity and f["field"] == field and expected in f["expected"]
                   and found in f["found"] and source in f["source"] for f in report["findings"])

    def severities(self, report):
        return {f["severity"] for f in report["findings"]} - {"information"}


class Planted(InspectTest):
    def test_all_at_once(self):
        checkpoint = Checkpoint.committed("tiny")
        for plant, *_ in PLANTED:
            plant(checkpoint)
        report = self.inspect(checkpoint.write(self.folder / "all"), "--values", status=2)
        for _, severity, *rest in PLANTED:
            with self.subTest(field=rest[0], found=rest[2]):
                self.assertTrue(self.named(report, severity, *rest))
        self.assertIn("not runnable by mkbench's own engines: model_type is 'gemma2', supported: ", report["verdict_text"])

    def test_tables_name_them_too(self):
        checkpoint = Checkpoint.committed("tiny")
        for plant in (missing, renamed, config("hidden_act", "gelu"), config("num_hidden_layers", 9)):
            plant(checkpoint)
        done = self.mkbench("inspect", str(checkpoint.write(self.folder / "some")))
        self.assertEqual((done.returncode, done.stderr), (2, ""))
        for text in ("| unsupported | hidden_act ", "query_norm", "and 44 more of: tensor missing",
                     "**not runnable: 57 fatal, 1 unsupported, 0 that need a rebuild; because ", "(exit code 2)**"):
            self.assertIn(text.removesuffix("**"), done.stdout)


class Models(InspectTest):
    def test_own_models_run(self):
        for model in ("tiny", "tiny-untied", "synthetic", "synthetic:deep"):
            with self.subTest(model=model):
                self.assertEqual(self.severities(self.inspect(model, "--values", status=0)), set())

    def test_a_missing_shard_hides_nothing_else(self):
        checkpoint = Checkpoint.committed("tiny")
        transposed(checkpoint)
        checkpoint.config["hidden_act"] = "gelu"
        folder = checkpoint.write(self.folder / "sharded")
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        places = {name: "a.safetensors" for name in checkpoint.tensors}
        gone = ["model.norm.weight", LAYER.format(3, "mlp.up_proj")]
        kept = {name: tensor for name, tensor in checkpoint.tensors.items() if name not in gone}
        write_safetensors(folder / "a.safetensors", kept)
        places.update({name: "b.safetensors" for name in gone})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        report = self.inspect(folder, status=2)
        self.assertTrue(self.named(report, "fatal", "shard", "'b.safetensors'", "missing"))
        self.assertTrue(self.named(report, "fatal", "tensor shape", source="a.safetensors:"))
        self.assertTrue(self.named(report, "unsupported", "hidden_act"))
        # The tensors of the missing file are not missing once more.
        self.assertFalse(self.named(report, "fatal", "tensor missing"))

    def test_large_folders_are_read_by_their_headers(self):
        """Qwen3-4B's tensors in three files, 8 GB that are holes."""
        shape = (2560, 9728, 36, 32, 8, 128)
        tensors = {"model.embed_tokens.weight": ["BF16", [151936, 2560], None], **trunk("model.", *shape)}
        folder = self.folder / "4b"
        folder.mkdir()
        settings = dimensions(*shape, 151936, 40960) | {
            "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True}
        (folder / "config.json").write_text(json.dumps(settings))
        names = list(tensors)
        places = {}
        for n in range(3):
            shard = f"model-0000{n + 1}-of-00003.safetensors"
            places.update({name: shard for name in names[n::3]})
            write_safetensors(folder / shard, {name: tensors[name] for name in names[n::3]})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        before = characters_read()
        report = self.inspect(folder)
        self.assertLess(characters_read() - before, 50e6)
        self.assertEqual((report["shape"], report["verdict"]), ("qwen3-4b", "runnable"))
        self.assertTrue(self.named(report, "information", "KV cache", found="147456 bytes a position, 6039797760"))


def characters_read():
    """Bytes that this process and its ended children have read."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


class Talker(InspectTest):
    """Qwen3-TTS: the decoder's config inside another one, and tensors under other names."""

    SHAPE = (1024, 3072, 28, 16, 8, 128)

    def talker(self):
        tensors = {**trunk("talker.model.", *self.SHAPE),
                   "talker.model.codec_embedding.weight": ["BF16", [3072, 1024], None],
                   "talker.codec_head.weight": ["BF16", [3072, 1024], None],
                   "talker.model.text_embedding.weight": ["BF16", [151936, 2048], None],
                   "talker.text_projection.linear_fc1.weight": ["BF16", [2048, 2048], None],
                   "talker.text_projection.linear_fc1.bias": ["BF16", [2048], None],
                   **trunk("talker.code_predictor.model.", 1024, 3072, 5, 16, 8, 128),
                   "talker.code_predictor.lm_head.0.weight": ["BF16", [2048, 1024], None]}
        inner = dimensions(*self.SHAPE, 3072, 32768) | {
            "model_type": "qwen3_tts_talker", "codec_bos_id": 2149, "codec_eos_token_id": 2150,
            "rope_scaling": {"rope_type": "default", "interleaved": True, "mrope_section": [24, 20, 20]}}
        return Checkpoint({"model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"],
                           "tts_bos_token_id": 151672, "talker_config": inner}, tensors)

    def test_is_understood(self):
        folder = self.talker().write(self.folder / "tts")
        report = self.inspect(folder, status=0)
        self.assertEqual((report["shape"], report["verdict"]), ("qwen3-tts-talker", "runnable"))
        self.assertEqual(self.severities(report), set())
        inner = "config.json:talker_config."
        for field, found, source in (
                ("decoder's config", "talker_config", ""), ("hidden_size", "1024", inner + "hidden_size"),
                ("rope_theta", "1000000", inner + "rope_theta"),
                ("mrope_section", "[24, 20, 20] interleaved; plain RoPE while", inner),
                ("max_position_embeddings", "32768", inner), ("codec_eos_token_id", "2150", inner),
                ("tts_bos_token_id", "151672", "config.json:tts_bos"),
                ("vocabulary of the embedding", "3072", "talker.model.codec_embedding.weight"),
                ("vocabulary of the head", "3072", "talker.codec_head.weight"),
                ("tie_word_embeddings", "absent", inner), ("part not covered", "text embedding: 1 tensor,", ""),
                ("part not covered", "text projection: 2 tensors", ""),
                ("part not covered", "code predictor: 57 tensors", ""),
                ("part not covered", "speech tokenizer", "not in this checkpoint"),
                ("input of a step", "inputs_embeds", "model_type"),
                ("output of a step", "hidden vector", "model_type")):
            with self.subTest(field=field):
                self.assertTrue(self.named(report, "information", field, found=found, source=source))

    def test_its_own_differences(self):
        checkpoint = self.talker()
        checkpoint.config["talker_config"]["rope_scaling"]["mrope_section"] = [16, 20, 20]
        checkpoint.config["talker_config"]["hidden_act"] = "gelu"
        del checkpoint.tensors["talker.codec_head.weight"]
        checkpoint.tensors["talker.model.norm.weight"][1] = [512]
        report = self.inspect(checkpoint.write(self.folder / "tts"), status=2)
        inner = "config.json:talker_config."
        for severity, field, expected, source in (
                ("fatal", "rope_scaling.mrope_section", "sum head_dim / 2 = 64", inner),
                ("unsupported", "hidden_act", "'silu'", inner),
                ("fatal", "tensor missing", "'talker.codec_head.weight'", ""),
                ("fatal", "tensor shape", "[1024]", "talker.model.norm.weight")):
            with self.subTest(field=field):
                self.assertTrue(self.named(report, severity, field, expected, source=source))

    def test_without_the_inner_config(self):
        checkpoint = self.talker()
        del checkpoint.config["talker_config"]
        report = self.inspect(checkpoint.write(self.folder / "tts"), status=2)
        self.assertTrue(self.named(report, "fatal", "talker_config", "an object", "absent"))


class NoModel(CliTest):
    """Where there is nothing to inspect: one line, exit code 2."""

    def refused(self, *args):
        done = self.mkbench("inspect", *args)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.replace("\nmkbench: advice: ", " ").count("\n"), 1, done.stderr)
        return done.stderr

    def test_lines(self):
        folder = self.folder / "broken"
        folder.mkdir()
        self.assertIn("config.json: missing; the folder is empty", self.refused(str(folder)))
        (folder / "config.json").write_text('{"model_type": "qwen3",')
        self.assertIn("config.json: not JSON at byte", self.refused(str(folder)))
        (folder / "config.json").unlink()
        (folder / "config.json").mkdir()
        self.assertIn("config.json", self.refused(str(folder), "-o", "json"))
        self.assertIn("not there", self.refused(str(self.folder / "nowhere")))
        self.assertIn("name one model", self.refused())
        self.assertIn("name one model", self.refused("tiny", "synthetic"))

    def test_files_in_place_of_a_folder(self):
        """Bytes of a file, with what is said of it."""
        file = self.folder / "given"
        for head, said in [(b"GGUF\3\0\0\0", "it looks like a GGUF file: write it as safetensors"),
                           (b"PK\3\4", "zip archive"), (b"\x80\2}q", "pickle (protocol 2)"),
                           (b"\x1f\x8b\x08\0", "packed by gzip: unpack it"), (b"\0" * 257 + b"ustar", "a tar archive"),
                           (b"\n<html>", "a page of HTML"), (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
                           (b"", "wanted a folder with config.json and weights\n")]:
            file.write_bytes(head)
            self.assertIn(said, self.refused(str(file)), head)
        (self.folder / "config.json").write_text("{}")
        self.assertIn(f"give the folder: --model {self.folder}\n", self.refused(str(self.folder / "config.json")))

    def test_names_that_other_tools_take(self):
        for name, said in [("https://huggingface.co/Qwen/Qwen3-0.6B/tree/main", "then --model Qwen/Qwen3-0.6B;"),
                           ("hf.co/Qwen/Qwen3-0.6B:Q4_K_M", "mkbench fetch Qwen/Qwen3-0.6B,"),
                           ("hf://Qwen/Qwen3-0.6B@main", "--model Qwen/Qwen3-0.6B;"),
                           ("file:///m/tiny", "give the path alone: --model /m/tiny;"),
                           ("~/tiny", "write $HOME instead"), ("nosuch", "no such model; tried folder 'nosuch'")]:
            self.assertIn(said, self.refused(name), name)

    def test_weights_that_are_none(self):
        """The config is there, so the damaged file is a finding among others."""
        folder = Checkpoint.committed("tiny").write(self.folder / "damaged")
        (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
        done = self.mkbench("inspect", str(folder))
        self.assertEqual((done.returncode, done.stderr), (2, ""))
        self.assertIn("Git LFS pointer", done.stdout)
        self.assertIn("| hidden_size ", done.stdout)


if __name__ == "__main__":
    unittest.main()
