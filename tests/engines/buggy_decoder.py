"""A decoder of Qwen3 in which one bug can be planted by its name in tests/plugins/bugs.inc, on references/step_decoder.py.

NAIVE_BUG: the bug, none if unset. NAIVE_IDS: if set, the decoder shows no logits."""

import math
import os
import pathlib
import re
import sys

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "references"))

from step_decoder import StepDecoder, Unfit  # noqa: E402

# The bugs that this file has: all that has() is asked for.
BUGS = sorted(set(re.findall(r'has\("(\w+)"\)', pathlib.Path(__file__).read_text(encoding="utf-8"))))


class Buggy(StepDecoder):
    name = "buggy-python"
    precision = "fp32-accumulate"

    def has(self, bug):
        return self.bug == bug

    def load(self, model, tensors):
        if model["model_type"] != "qwen3":
            raise Unfit("model_type: wanted qwen3")
        self.bug = os.environ.get("NAIVE_BUG")
        if self.bug not in (None, *BUGS):
            raise Unfit(f"NAIVE_BUG: found {self.bug}, wanted one of {', '.join(BUGS)}")
        self.weights = {name: tensor.float() for name, tensor in tensors.items()}
        self.dim, self.kv = model["head_dim"], model["num_key_value_heads"]
        self.heads, self.layers = model["num_attention_heads"], model["num_hidden_layers"]
        self.eps = model["rms_norm_eps"]
        torch.set_num_threads(1)  # a step is too small to be shared
        theta = model.get("rope_parameters", model)["rope_theta"]
        if self.has("rope_theta"):
            theta = 1e4
        exponents = torch.arange(0, self.dim, 2, device=self.device) / self.dim
        self.frequencies = theta ** -exponents
        rows = (self.layers + 1, self.max_context, self.kv, self.dim)
        self.keys, self.values = (torch.zeros(rows, device=self.device) for _ in range(2))

    def norm(self, x, weight):
        if self.has("layer_norm"):
            x = x - x.mean(-1, keepdim=True)
        mean = x.square().mean(-1, keepdim=True)
        if self.has("norm_sum"):
            mean = mean * x.shape[-1]
        if self.has("norm_plus_one"):
            weight = weight + 1
        x = x * torch.rsqrt(mean + self.eps) * weight
        return x.clamp(-1, 1) if self.has("clipped") else x

    def rotate(self, x, position):
        angles = self.frequencies * position
        cos, sin = angles.cos(), angles.sin()
        if self.has("rope_missing"):
            return x
        if self.has("rope_sign"):
            sin = -sin
        if self.has("rope_interleaved"):
            low, high = x[..., 0::2], x[..., 1::2]
            return torch.stack((low * cos - high * sin, high * cos + low * sin), -1).flatten(-2)
        low, high = x.chunk(2, -1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def attention(self, x, get, cache, position):
        q, k, v = (functional.linear(x, get(f"self_attn.{p}_proj.weight")).view(-1, self.dim) for p in "qkv")
        if self.has("kv_swapped"):
            k, v = v, k
        late = self.has("norm_after_rope")
        q_norm = (lambda x: x) if self.has("q_norm_missing") else lambda x: self.norm(x, get("self_attn.q_norm.weight"))
        k_norm = (lambda x: x) if self.has("k_norm_missing") else lambda x: self.norm(x, get("self_attn.k_norm.weight"))
        if not late:
            q, k = q_norm(q), k_norm(k)
        q = self.rotate(q, position + 1 if self.has("q_position") else position)
        if not self.has("rope_q_alone"):
            k = self.rotate(k, position)
        if late:
            q, k = q_norm(q), k_norm(k)
        self.keys[cache, position], self.values[cache, position] = k, v

        begin, end = 0, position + 1
        if self.has("mask_one_less"):
            end = max(1, position)
        if self.has("window"):
            begin = max(0, end - 16)
        if self.has("first_row_missing"):
            begin = min(1, position)
        group = self.heads // self.kv
        kv_head = [h % self.kv if self.has("gqa_map") else h // group for h in range(self.heads)]
        keys, values = (rows[cache, begin:end, kv_head] for rows in (self.keys, self.values))
        scores = torch.einsum("hd,thd->ht", q, keys)
        if not self.has("scale_missing"):
            scores = scores / (self.dim if self.has("scale_twice") else math.sqrt(self.dim))
        if self.has("scores_capped"):
            scores = 2 * torch.tanh(scores / 2)
        mixed = torch.einsum("ht,thd->hd", scores.softmax(-1), values)
        if self.has("heads_averaged"):
            mixed[:2] = mixed[:2].mean(0)
        return functional.linear(mixed.flatten(), get("self_attn.o_proj.weight"))

    def mlp(self, x, get):
        gate, up = (functional.linear(x, get(f"mlp.{p}_proj.weight")) for p in ("gate", "up"))
        if self.has("gate_up_swapped"):
            gate, up = up, gate
        if self.has("gelu"):
            gate = functional.gelu(gate, approximate="tanh")
        elif self.has("relu"):
            gate = gate.relu()
        else:
            gate = functional.silu(gate)
        return functional.linear(gate * up, get("mlp.down_proj.weight"))

    def run_layer(self, h, layer, cache, position):
        def get(name):
            return self.weights[f"model.layers.{layer}.{name}"]

        out = self.attention(self.norm(h, get("input_layernorm.weight")), get, cache, position)
        h = out if self.has("attention_residual_missing") else h + out
        x = h if self.has("post_norm_missing") else self.norm(h, get("post_attention_layernorm.weight"))
        out = self.mlp(x, get)
        return out if self.has("mlp_residual_missing") else h + out

    def step(self, token, position, logits):
        h = self.weights["model.embed_tokens.weight"][token[0]]
        if self.has("embedding_scaled"):
            h = h * math.sqrt(len(h))
        if self.has("embedding_halved"):
            h = torch.cat((h[:len(h) // 2], torch.zeros_like(h[len(h) // 2:])))
        for layer in range(self.layers):
            if self.has("layer_skipped") and layer == 2:
                continue
            h = self.run_layer(h, layer, layer, position)
            if self.has("layer_repeated") and layer == 2:
                h = self.run_layer(h, layer, self.layers, position)
        x = h if self.has("final_norm_missing") else self.norm(h, self.weights["model.norm.weight"])
        found = functional.linear(x, self.weights["lm_head.weight"])
        if self.has("head_shifted"):
            found = found.roll(1)
        if logits is not None:
            logits.copy_(found)
        return found.argmax()


class ByIds(Buggy):
    def step(self, token, position):
        return super().step(token, position, None)


Decoder = ByIds if "NAIVE_IDS" in os.environ else Buggy
