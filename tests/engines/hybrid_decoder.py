"""Qwen3.5's hybrids (model_type qwen3_5_text and qwen3_5_moe_text) over torch operators: layers of gated DeltaNet, whose
recurrent state stands for all rows before, between layers of attention. An example to start from.

The state cannot go back to an earlier position, so this decoder offers no rewind(), but save() and restore().
"""

import pathlib
import sys

import torch
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from moe_decoder import BUGS, MoeDecoder  # noqa: E402


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class HybridDecoder(MoeDecoder):
    name = "hybrid-torch"
    MODELS = ("qwen3_5_text", "qwen3_5_moe_text")
    BUGS = (*BUGS, "shared_expert_missing", "state_not_reset", "state_not_saved", "state_in_fp16")
    norm_offset, normalises = 1, True
    rewind = None

    def load(self, model, tensors):
        self.kinds = model["layer_types"]
        self.k_heads, self.v_heads = model["linear_num_key_heads"], model["linear_num_value_heads"]
        self.k_dim, self.v_dim = model["linear_key_head_dim"], model["linear_value_head_dim"]
        self.split = (self.k_heads * self.k_dim, self.k_heads * self.k_dim, self.v_heads * self.v_dim)
        layers = model["num_hidden_layers"]
        # What a layer remembers: its last inputs of the convolution, and a matrix a head, [k_dim, v_dim].
        self.window = torch.zeros(layers, sum(self.split), model["linear_conv_kernel_dim"], dtype=torch.bfloat16, device=self.device)
        self.state = torch.zeros(layers, self.v_heads, self.k_dim, self.v_dim, device=self.device)
        super().load(model, tensors)

    def prefill(self, ids):
        if self.bug != "state_not_reset":
            self.window.zero_()
            self.state.zero_()
        super().prefill(ids)

    def states(self):
        rows = super().states()
        return rows if self.bug == "state_not_saved" else [*rows, self.window, self.state]

    def attention(self, layer, x):
        if self.kinds[layer] == "linear_attention":
            return self.delta_net(layer, x)
        both = functional.linear(x, self.get(layer, "self_attn.q_proj")).view(self.heads, 2, self.dim)
        k, v = (functional.linear(x, self.get(layer, f"self_attn.{p}_proj")).view(-1, self.dim) for p in "kv")
        mixed = self.attend(layer, both[:, 0], k, v) * both[:, 1].flatten().sigmoid()
        return functional.linear(mixed, self.get(layer, "self_attn.o_proj"))

    def delta_net(self, layer, x):
        def project(name):
            return functional.linear(x, self.get(layer, f"linear_attn.in_proj_{name}"))

        window = self.window[layer]
        window.copy_(torch.cat((window[:, 1:], project("qkv")[:, None]), 1))
        mixed = functional.silu((window * self.get(layer, "linear_attn.conv1d")[:, 0]).sum(-1))
        q, k, v = mixed.float().split(self.split)
        group = self.v_heads // self.k_heads
        q, k = (unit(part.view(self.k_heads, self.k_dim)).repeat_interleave(group, 0) for part in (q, k))
        rates = self.tensors[f"model.layers.{layer}.linear_attn.A_log"].float().exp()
        steps = functional.softplus(project("a").float() + self.tensors[f"model.layers.{layer}.linear_attn.dt_bias"])
        state = self.state[layer] * (-rates * steps).exp()[:, None, None]
        known = (state * k[..., None]).sum(-2)
        change = (v.view(self.v_heads, self.v_dim) - known) * project("b").sigmoid().float()[:, None]
        state = state + k[..., None] * change[:, None]
        if self.bug == "state_in_fp16":
            state = state.half().float()
        self.state[layer].copy_(state)
        out = (state * (q * self.k_dim ** -0.5)[..., None]).sum(-2).to(x.dtype).float()
        normed = (out * torch.rsqrt(out.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        gated = self.get(layer, "linear_attn.norm") * normed * functional.silu(project("z").float().view_as(out))
        return functional.linear(gated.to(x.dtype).flatten(), self.get(layer, "linear_attn.out_proj"))

    def mlp(self, layer, x):
        out = super().mlp(layer, x)
        if layer not in self.experts or self.bug == "shared_expert_missing":
            return out
        share = functional.linear(x, self.get(layer, "mlp.shared_expert_gate")).sigmoid()
        return out + share * self.swiglu(layer, "mlp.shared_expert", x)


Decoder = HybridDecoder
