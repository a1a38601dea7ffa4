"""What a decode step reads of a model that transformers computes, by its config alone."""

import importlib.util
import json
import struct
import sys
import tempfile
import unittest
from unittest import mock

from support.cli_support import ROOT

COMMON = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 8, "intermediate_size": 64, "max_position_embeddings": 256, "tie_word_embeddings": True,
          "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
ATTENTION = 32 * (4 + 2 + 2 + 4) * 8
DENSE = ATTENTION + 3 * 32 * 64 + 2 * 32
HEAD = 100 * 32 + 32  # and the final norm
ROW = 2 * 2 * 2 * 8  # bytes of a position's K and V in a layer


def stored(folder, tensors):
    """Writes the header of a safetensors file; tensors: {name: bytes}."""
    end, header = 0, {"__metadata__": {"format": "pt"}}
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class StepReads(unittest.TestCase):
    def setUp(self):
        with mock.patch.object(sys, "path", [str(ROOT / "baselines"), *sys.path]):
            import step_reads
        self.read = step_reads.step_reads
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = ROOT.__class__(folder.name)

    def reads(self, model_type, **keys):
        config = {"model_type": model_type} | COMMON | keys
        (self.folder / "config.json").write_text(json.dumps(config))
        return self.read(str(self.folder))

    def sizes(self):
        """Elements by parameter, of the model that was read last."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(self.folder))
        return {name: p.numel() for name, p in model.named_parameters()}

    def check(self, found, parameters, rows, states=0):
        self.assertEqual(found, {"fixed": 2 * parameters + states, "rows": rows, "unknown": ""})

    def test_a_dense_model_reads_all_but_the_embedding(self):
        rows = [{"bytes": 4 * ROW, "most": 0}]
        self.check(self.reads("llama"), 4 * DENSE + HEAD, rows)
        self.check(self.reads("llama", tie_word_embeddings=False), 4 * DENSE + HEAD + 32, rows)  # and a row of it
        self.check(self.reads("llama", attention_bias=True), 4 * (DENSE + (4 + 2 + 2) * 8 + 32) + HEAD, rows)

    def declared(self, config, **bytes_):
        self.reads("llama", **config)
        index = [json.dumps({"name": name, "storage": {"bytes": size}}) for name, size in bytes_.items()]
        (self.folder / "values.index").write_text("\n".join([*index, json.dumps({"name": "model.norm.weight"})]))
        found = self.read(str(self.folder), str(self.folder / "values"))
        return found["unknown"] or found["fixed"]

    def test_weights_that_an_engine_has_quantised_count_as_it_declares_them(self):
        down, whole = "model.layers.1.mlp.down_proj.weight", 2 * (4 * DENSE + HEAD)
        self.assertEqual(self.declared({}, **{down: 700}), whole - 2 * 32 * 64 + 700)
        # A tied head in another format than the table, of which a step reads a row that is counted with it.
        self.assertEqual(self.declared({}, **{"lm_head.weight": 900}), whole - 2 * 100 * 32 + 900)
        self.assertEqual(self.declared({}, **{"lm_head.weight": 900, "model.embed_tokens.weight": 1600}), whole - 2 * 100 * 32 + 900)
        self.assertEqual(self.declared({}, **{"model.embed_tokens.weight": 1600}), whole - 2 * 100 * 32 + 1600)
        # As of an expert, whose class keeps all of a layer in one matrix.
        self.assertEqual(self.declared({}, **{"model.layers.1.mlp.experts.0.down_proj.weight": 700}), "transformers' class has no parameter "
                         "model.layers.1.mlp.experts.0.down_proj.weight, which the engine says how it keeps")
        untied = {"tie_word_embeddings": False}
        self.assertEqual(self.declared(untied, **{"lm_head.weight": 900, "model.embed_tokens.weight": 1600}), whole - 2 * 100 * 32 + 900 + 16)

    def test_a_table_of_positions_is_read_by_row_and_padding_does_not_matter(self):
        found = self.reads("gpt2", n_embd=32, n_layer=4, n_head=4, n_positions=64)
        layer = 4 * 32 * 32 + 4 * 32 + 8 * 32 * 32 + 5 * 32 + 4 * 32  # attention, MLP, their biases, two norms
        self.check(found, 4 * layer + 100 * 32 + 2 * 32 + 32, [{"bytes": 4 * 2 * 2 * 32, "most": 0}])

    def test_of_experts_those_of_a_token_and_their_router(self):
        for active in (1, 3, 8):
            found = self.reads("qwen3_moe", num_experts=8, num_experts_per_tok=active, moe_intermediate_size=16)
            layer = ATTENTION + 2 * 32 + 2 * 8 + 8 * 32 + active * 3 * 32 * 16
            self.check(found, 4 * layer + HEAD, [{"bytes": 4 * ROW, "most": 0}])

    def test_layers_with_a_window_read_its_rows_alone(self):
        kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
        found = self.reads("gemma3_text", sliding_window=9, layer_types=kinds)
        self.check(found, 4 * (DENSE + 2 * 32 + 2 * 8) + HEAD, [{"bytes": ROW, "most": 0}, {"bytes": 3 * ROW, "most": 8}])

    def test_a_window_of_the_step_alone_reads_a_row_at_most(self):
        found = self.reads("gemma3_text", sliding_window=1, layer_types=["sliding_attention"] * 4)
        self.assertEqual([rows["most"] for rows in found["rows"]], [1])

    def test_a_recurrent_state_is_read_whole(self):
        kinds = ["linear_attention"] * 3 + ["full_attention"]
        found = self.reads("qwen3_5_text", layer_types=kinds, linear_key_head_dim=8, linear_value_head_dim=8,
                           linear_num_key_heads=2, linear_num_value_heads=4, linear_conv_kernel_dim=4)
        self.assertEqual(found["rows"], [{"bytes": ROW, "most": 0}])
        mlp = 3 * 32 * 64 + 2 * 32
        gated = ATTENTION + 32 * 32 + 2 * 8  # its queries come with a gate
        linear = 32 * (64 + 32 + 4 + 4) + 32 * 32 + 64 * 4 + 2 * 4 + 8
        states = 3 * (2 * 64 * 4 + 4 * 4 * 8 * 8)  # 64 channels in bf16, and four heads of 8 x 8 in fp32
        self.assertEqual(found["fixed"] - 2 * (4 * mlp + 3 * linear + gated + HEAD), states)

    def test_heads_that_come_of_one_vector_are_kept_as_that_vector(self):
        found = self.reads("deepseek_v3", num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=4,
                           qk_nope_head_dim=8, v_head_dim=8, first_k_dense_replace=4, n_routed_experts=8, n_group=1,
                           topk_group=1, num_experts_per_tok=2, head_dim=4)
        self.assertEqual(found["rows"], [{"bytes": 4 * 2 * (16 + 4), "most": 0}])

    def test_a_quantised_tensor_counts_as_it_is_stored(self):
        keys = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
                "layer_types": ["full_attention"] * 4}
        plain = self.reads("gpt_oss", **keys)
        quantised = {"quantization_config": {"quant_method": "mxfp4"}}
        stored(self.folder, {"other": 1})
        self.assertIn("no stored tensor is called", self.reads("gpt_oss", **keys, **quantised)["unknown"])
        names = {name: 2 * size for name, size in self.sizes().items()}
        experts = [name for name in names if name.endswith(("gate_up_proj", "down_proj"))]
        for name in experts:  # half a byte a value, and a byte for each 32
            values = names.pop(name) // 2
            names |= {name + "_blocks": values // 2, name + "_scales": values // 32}
        stored(self.folder, names)
        found = self.reads("gpt_oss", **keys, **quantised)
        of_a_token = 4 * 2 * (32 * 2 * 64 + 64 * 32)
        self.assertEqual(len(experts), 8)
        self.assertEqual(plain["fixed"] - found["fixed"], 2 * of_a_token - of_a_token * 17 // 32)

    def test_a_tensor_of_fp8_counts_a_byte_a_value_and_its_scales(self):
        config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
        plain = self.reads("llama")
        names = {}
        for name, size in self.sizes().items():
            names |= {name: size, name + "_scale_inv": 4} if "_proj" in name else {name: 2 * size}
        stored(self.folder, names)
        projections = 4 * (DENSE - 2 * 32)  # all but the norms
        scales = 4 * 4 * 7  # bytes of seven tensors' in each of four layers
        self.assertEqual(plain["fixed"] - self.reads("llama", **config)["fixed"], projections - scales)

    def test_a_model_with_other_parts_reads_as_its_decoder(self):
        kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
        for model_type, keys in (("gemma3", {"sliding_window": 9, "layer_types": kinds}),
                                 ("qwen3_5", {"layer_types": ["linear_attention"] * 3 + ["full_attention"]})):
            with self.subTest(model_type):
                alone = self.reads(model_type + "_text", **keys)
                self.assertGreater(alone["fixed"], 0, alone["unknown"])
                self.assertEqual(self.reads(model_type, text_config=COMMON | keys), alone)

    def test_what_is_not_known_says_why(self):
        for model_type, keys, why in (
                ("llama4_text", {"num_local_experts": 4, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 64}, "takes all experts of model.layers.0."),
                ("mamba", {"state_size": 4}, "its class keeps no state in transformers' cache"),
                ("zebra", {}, "transformers' class does not run without memory: ValueError: "),
                ("gpt_neo", {"attention_types": [[["global", "local"], 2]], "window_size": 4}, "states attention_types, and its cache"),
                ("llama", {"num_experts_per_tok": 2}, "does not state how many experts"),
                ("llama", {"num_attention_heads": "many"}, "does not run without memory: ")):
            with self.subTest(model_type):
                found = self.reads(model_type, **keys)
                self.assertEqual((found["fixed"], found["rows"]), (0, []))
                self.assertIn(why, found["unknown"])


if __name__ == "__main__":
    unittest.main()
