"""scripts/hf_model.py: a model that is built from tensors is the one that transformers makes."""

import unittest

from support import ROOT  # noqa: F401

import hf_model
import torch
from transformers import GemmaConfig, GemmaForCausalLM


class Build(unittest.TestCase):
    @torch.inference_mode()
    def test_a_scaled_embedding(self):
        """Its factor is no tensor of a checkpoint."""
        config = GemmaConfig(vocab_size=37, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=8, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
        torch.manual_seed(1)
        ids = torch.tensor([[5, 36, 0, 11]])
        for dtype in (torch.float32, torch.bfloat16):
            model = GemmaForCausalLM._from_config(config, attn_implementation="eager").to(dtype)
            model.model.rotary_emb = type(model.model.rotary_emb)(config)  # was cast with the rest
            state = {name: t for name, t in model.state_dict().items() if name != "lm_head.weight"}
            built = hf_model.build(config.to_dict(), state, dtype)
            self.assertTrue(torch.equal(built(ids).logits, model(ids).logits))


if __name__ == "__main__":
    unittest.main()
