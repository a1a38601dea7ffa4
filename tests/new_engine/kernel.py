"""A whole kernel for the engine of `mkbench new-engine DIR python`: test_new_engine.py puts the methods between "Your
kernel begins" and "ends". Rows of ids at a time, fp32 between bf16 weights and KV rows."""

import torch


class Kernel:
    def normed(self, x, weight):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * weight.float()

    def turned(self, x, places):
        """RoPE over x [n, heads, head_dim]."""
        half = self.head_dim // 2
        steps = torch.arange(half, dtype=torch.float32, device=self.device) * 2 / self.head_dim
        angle = (places.float()[:, None] / self.theta ** steps)[:, None, :]
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)

    def rows(self, ids, begin):
        """Writes the KV rows of ids from `begin` on, and returns their final hidden vectors, normed."""
        n, end = len(ids), begin + len(ids)
        places = torch.arange(begin, end, device=self.device)
        hidden = self.embedding[ids].float()
        self.shown = []
        unseen = torch.arange(end, device=self.device)[None, :] > places[:, None]
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            x = self.normed(hidden, layer["input_layernorm"])
            q, k, v = ((x @ layer[f"{name}_proj"].float().T).view(n, -1, self.head_dim) for name in "qkv")
            keys[begin:end] = self.turned(self.normed(k, layer["k_norm"]), places).bfloat16()
            values[begin:end] = v.bfloat16()
            group = self.heads // self.kv_heads
            seen_keys = keys[:end].float().repeat_interleave(group, 1)
            seen_values = values[:end].float().repeat_interleave(group, 1)
            q = self.turned(self.normed(q, layer["q_norm"]), places) * self.head_dim ** -0.5
            scores = torch.einsum("nhd,thd->hnt", q, seen_keys).masked_fill(unseen, float("-inf"))
            mixed = torch.einsum("hnt,thd->nhd", scores.softmax(-1), seen_values)
            hidden = hidden + mixed.reshape(n, -1) @ layer["o_proj"].float().T
            x = self.normed(hidden, layer["post_attention_layernorm"])
            gated = torch.nn.functional.silu(x @ layer["gate_proj"].float().T) * (x @ layer["up_proj"].float().T)
            hidden = hidden + gated @ layer["down_proj"].float().T
            self.shown.append(hidden[-1])
        return self.normed(hidden, self.final_norm)

    def prefill_rows(self, tokens):
        for begin in range(0, len(tokens), 512):
            self.rows(tokens[begin:begin + 512], begin)

    def step(self, token, position, logits):
        row = (self.rows(token, position) @ self.head.float().T)[0]
        if logits is not None:
            logits.copy_(row)
        return (row == row.max()).nonzero()[0]

    def show(self, layer, position=None):
        return self.shown[layer] if position is None else torch.stack([self.keys[layer, position], self.values[layer, position]])
