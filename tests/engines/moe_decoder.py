"""Qwen3's mixture of experts (model_type qwen3_moe) over torch operators: an example to start from.

A step gathers the rows of the experts that its router chose, so it reads num_experts_per_tok of them and no more.
"""

import pathlib
import sys

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from torch_steps import TorchSteps  # noqa: E402

BUGS = ("weakest_expert_dropped", "expert_weights_swapped")


class MoeDecoder(TorchSteps):
    name = "moe-torch"
    MODELS, BUGS = ("qwen3_moe",), BUGS
    normalises = None  # whether the weights of the chosen experts sum to 1; None: config.json says it

    def load(self, model, tensors):
        self.chosen = model.get("num_experts_per_tok", 0)
        if self.normalises is None:
            self.normalises = model.get("norm_topk_prob", False)
        self.experts = {layer: self.stack(layer, tensors)
                        for layer in range(model["num_hidden_layers"]) if self.name_of(layer, 0, "gate") in tensors}
        super().load(model, tensors)

    def name_of(self, layer, expert, matrix):
        return f"model.layers.{layer}.mlp.experts.{expert}.{matrix}_proj.weight"

    def stack(self, layer, tensors):
        """Gate and up of all experts, [experts, 2 * width, hidden], and down, [experts, hidden, width]."""
        count = len(tensors[f"model.layers.{layer}.mlp.gate.weight"])  # the router has a row an expert

        def of(matrix):
            return torch.stack([tensors.pop(self.name_of(layer, expert, matrix)) for expert in range(count)])
        return torch.cat([of("gate"), of("up")], 1), of("down")

    def route(self, layer, x):
        """The weights and indices of the chosen experts."""
        odds = functional.linear(x, self.get(layer, "mlp.gate")).softmax(-1, dtype=torch.float32)
        weights, chosen = odds.topk(self.chosen)
        if self.normalises:
            weights = weights / weights.sum()
        if self.bug == "weakest_expert_dropped":
            weights = torch.cat((weights[:-1], torch.zeros_like(weights[-1:])))
        if self.bug == "expert_weights_swapped":
            weights = torch.cat((weights[1:2], weights[:1], weights[2:]))
        return weights.to(x.dtype), chosen

    def mlp(self, layer, x):
        if layer not in self.experts:
            return self.swiglu(layer, "mlp", x)
        weights, chosen = self.route(layer, x)
        gate_up, down = (matrix[chosen] for matrix in self.experts[layer])
        gate, up = (gate_up @ x).chunk(2, -1)
        out = torch.bmm(down, (functional.silu(gate) * up)[..., None])[..., 0] * weights[:, None]
        total = torch.zeros_like(x)
        for one in out[chosen.argsort()]:  # transformers adds them in the order of their numbers, rounding each time
            total = total + one
        return total

    def attention(self, layer, x):
        q, k, v = (self.product(x, self.get(layer, f"self_attn.{p}_proj")).view(-1, self.dim) for p in "qkv")
        return self.product(self.attend(layer, q, k, v), self.get(layer, "self_attn.o_proj"))

    def run_layer(self, layer, h):
        h = h + self.attention(layer, self.layer_norm(layer, "input_layernorm", h))
        return h + self.mlp(layer, self.layer_norm(layer, "post_attention_layernorm", h))


Decoder = MoeDecoder
