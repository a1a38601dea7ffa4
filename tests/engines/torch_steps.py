"""A base for decoders over torch operators on references/step_decoder.py: the parts that Qwen3's mixtures of experts and
hybrids share, and one CUDA graph a step on a card.

A class has run_layer(layer, h), with which this one makes a step of self.token at self.at (int64 [1]) over tensors that
stay in their places. DECODER_BUG: a bug of the class's BUGS, for tests.
"""

import os
import pathlib
import sys
import zlib

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "references"))

from step_decoder import StepDecoder, Unfit  # noqa: E402

WARM_UP = 3  # steps before the capture: what libraries allocate at their first use must not fall into it


class TorchSteps(StepDecoder):
    precision = "bf16"
    MODELS, BUGS = (), ()
    norm_offset = 0  # added to the weights of norms

    def load(self, model, tensors):
        self.bug = os.environ.get("DECODER_BUG", "")
        if model["model_type"] not in self.MODELS or self.bug not in ("", *self.BUGS):
            raise Unfit(f"found {model['model_type']} {self.bug}, wanted one of {', '.join(self.MODELS)} and of {', '.join(self.BUGS)}")
        self.tensors, self.eps, self.layers = tensors, model["rms_norm_eps"], model["num_hidden_layers"]
        self.kv, self.heads = model["num_key_value_heads"], model["num_attention_heads"]
        self.dim = model.get("head_dim") or model["hidden_size"] // self.heads
        rope = model["rope_parameters"]
        self.turned = int(self.dim * rope.get("partial_rotary_factor", 1))  # leading values of a head that RoPE turns
        exponents = torch.arange(0, self.turned, 2, dtype=torch.float32) / self.turned
        self.frequencies = (1 / rope["rope_theta"] ** exponents).to(self.device)
        self.rows = torch.arange(self.max_context, device=self.device)
        self.ids = torch.arange(model["vocab_size"], device=self.device)
        shape = (self.layers, self.kv, self.max_context, self.dim)
        self.keys, self.values = (torch.zeros(shape, dtype=torch.bfloat16, device=self.device) for _ in range(2))
        self.token, self.at = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
        self.hidden, self.graph, self.slots = {}, None, {}
        if self.device.type == "cpu":
            torch.set_num_threads(1)  # a step of a small model is too small to be shared
        else:
            self.capture()

    @torch.no_grad()
    def capture(self):
        for _ in range(WARM_UP):
            self.run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run()
        self.graph = graph

    def step(self, token, position, logits):
        self.token.copy_(token)
        self.at.fill_(position)
        if self.graph is None:
            self.run()
        else:
            self.graph.replay()
        if logits is not None:
            logits.copy_(self.row)
        return self.found

    def run(self):
        h = self.tensors["model.embed_tokens.weight"][self.token][0]
        for layer in range(self.layers):
            h = self.hidden[layer] = self.run_layer(layer, h)
        self.row = functional.linear(self.norm(h, "model.norm.weight"), self.tensors["lm_head.weight"])
        # torch.argmax() does not promise the lowest index among equals, which bf16 logits often are.
        self.found = torch.where(self.row == self.row.max(), self.ids, len(self.ids) - 1).min()  # of NaN the last id

    def states(self):
        """Views of all that a step reads of the steps before."""
        return [rows[:, :, :self.position] for rows in (self.keys, self.values)]

    def save(self, slot):
        copies = [state.clone() for state in self.states()]
        self.slots[slot] = self.position, self.pending, copies
        checksum = 0
        for copy in copies:
            checksum = zlib.crc32(copy.flatten().view(torch.uint8).cpu().numpy(), checksum)
        return checksum

    def restore(self, slot):
        self.position, self.pending, copies = self.slots[slot]
        for state, copy in zip(self.states(), copies):
            state.copy_(copy)

    def show(self, layer, position=None):
        if self.graph is not None:  # whose memory holds what its last kernel left there
            return None
        return self.hidden[layer] if position is None else torch.cat([self.keys[layer, :, position], self.values[layer, :, position]])

    def get(self, layer, name):
        return self.tensors[f"model.layers.{layer}.{name}.weight"]

    def norm(self, x, name):
        weight, normed = self.tensors[name].float(), x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        if self.norm_offset:
            return (normed * (weight + self.norm_offset)).to(x.dtype)
        return (weight * normed.to(x.dtype)).to(x.dtype)

    def layer_norm(self, layer, which, x):
        return self.norm(x, f"model.layers.{layer}.{which}.weight")

    def rotate(self, x):
        angles = self.at * self.frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        low, high = x[..., :self.turned].chunk(2, -1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin, x[..., self.turned:]), -1)

    def attend(self, layer, q, k, v):
        """The mixed values, [heads * dim], of q [heads, dim] over all rows and that of k and v, [kv heads, dim]."""
        q, k = (self.layer_norm(layer, f"self_attn.{name}_norm", x) for name, x in (("q", q), ("k", k)))
        q, k = self.rotate(q), self.rotate(k)
        for cache, row in ((self.keys, k), (self.values, v)):
            cache[layer].index_copy_(1, self.at, row[:, None])
        scores = q.view(self.kv, -1, self.dim) @ self.keys[layer].transpose(1, 2) * self.dim ** -0.5
        scores = scores.masked_fill(self.rows > self.at, float("-inf"))
        return (scores.float().softmax(-1).to(v.dtype) @ self.values[layer]).flatten()

    def swiglu(self, layer, part, x):
        gate, up, down = (self.get(layer, f"{part}.{name}_proj") for name in ("gate", "up", "down"))
        return self.product(functional.silu(self.product(x, gate)) * self.product(x, up), down)

    def product(self, x, weight):
        """Of a bf16 vector, rounded to bf16; a matrix in fp32 enters it as it is."""
        return functional.linear(x.to(weight.dtype), weight).to(x.dtype)
