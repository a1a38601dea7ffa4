"""A decoder of your own in Python, on torch tensors: Triton, CuTe DSL, a PyTorch extension, or plain torch.

The frame is complete: it checks the model, loads the weights, keeps position and pending id. What is missing is your
kernel, in the two functions between "Your kernel begins" and "ends". Until then each of them raises with its own name,
and mkbench's verdict is RUNTIME_ERROR with the line.

mkbench looks for the class Decoder and calls one from one thread, prefill() and decode() under torch.no_grad(); several
may be open at a time, so state belongs in self. The Python is the one of --python: from 3.9 on, with numpy, torch,
safetensors and what you import. An exception gives RUNTIME_ERROR; its traceback lies in the report's folder.
"""

import json

import torch
from safetensors import safe_open


class Decoder:
    name = "@NAME@"  # as reports show it
    # How logits are judged. "fp32-accumulate" rounds only KV rows, RoPE and one operand of a product; "bf16" rounds as
    # PyTorch does; "lossy" is quantised and ranked with no other.
    precision = "fp32-accumulate"
    deterministic = True  # equal input gives equal bits; else set False
    position = 0  # KV rows written: the frame counts them, and mkbench reads it while a call runs

    # ---- Your kernel begins ------------------------------------------------------------------------------------------

    def prefill_rows(self, ids):
        """1 of 2. Writes the KV rows of ids, int64 [n] on the device, n >= 1, from self.position on. The cache has room
        for them. No output. One id at a time is correct, but slow."""
        raise NotImplementedError("prefill is not written yet")

    def decode_steps(self, n, forced, logits):
        """2 of 2. n greedy steps from self.position on; returns their n ids, an integer tensor on any device or a list.
        A step embeds its input id, writes one KV row, and emits the id of the largest logit, the lowest id among equals
        (torch.argmax does not promise that one).
        forced: None: step 0 takes self.pending, a later step the id emitted before it. Else int64 [n] on the device:
            step t takes forced[t], and still emits the model's own choice.
        logits: None when the clock runs. Else float32 [n, vocab] on the device, NaN, to be filled.
        The clock runs from this call until the ids are on the host and all work of the device is done."""
        raise NotImplementedError("decode is not written yet")

    # ---- Your kernel ends --------------------------------------------------------------------------------------------

    def open(self, folder, device, max_context):
        """folder: config.json and *.safetensors as Hugging Face writes them, which must not be written. device:
        torch.device("cpu") or ("cuda", n), the current one. max_context: rows that the KV cache must hold. Raise here
        if your kernel has no code for the model: one that is compiled for a single model compares all sizes with it."""
        if device.type == "cpu":
            torch.set_num_threads(1)  # models that fit a CPU are too small to gain from more
        self.device, self.max_context = device, max_context
        self.config = json.loads((folder / "config.json").read_text())
        self.hidden, self.intermediate = self.config["hidden_size"], self.config["intermediate_size"]
        self.heads, self.kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.head_dim, self.vocab = self.config["head_dim"], self.config["vocab_size"]
        self.eps = self.config["rms_norm_eps"]
        self.theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        if self.head_dim % 2 or self.heads % self.kv_heads:
            raise ValueError("heads: wanted an even head_dim and heads % kv_heads = 0")
        self.load(folder)
        rows = (len(self.layers), max_context, self.kv_heads, self.head_dim)
        self.keys = torch.zeros(rows, dtype=torch.bfloat16, device=device)  # after norm and RoPE
        self.values = torch.zeros(rows, dtype=torch.bfloat16, device=device)
        self.pending = torch.zeros(1, dtype=torch.int64, device=device)  # the input of the next step

    def load(self, folder):
        """Weights, bf16 [out, in] on the device, in self.embedding, self.final_norm, self.head and self.layers[i]."""
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as shard:
                tensors.update({name: shard.get_tensor(name) for name in shard.keys()})

        def find(name, *shape):
            if f"{name}.weight" not in tensors:
                raise ValueError(f"{name}.weight: there is no such tensor")
            found = tensors[f"{name}.weight"]
            if tuple(found.shape) != shape or found.dtype != torch.bfloat16:
                raise ValueError(f"{name}.weight: found {list(found.shape)} {found.dtype}, wanted {list(shape)} bf16")
            return found.to(self.device)

        q_rows, kv_rows = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "input_layernorm": (self.hidden,), "self_attn.q_proj": (q_rows, self.hidden),
            "self_attn.k_proj": (kv_rows, self.hidden), "self_attn.v_proj": (kv_rows, self.hidden),
            "self_attn.o_proj": (self.hidden, q_rows), "self_attn.q_norm": (self.head_dim,),
            "self_attn.k_norm": (self.head_dim,), "post_attention_layernorm": (self.hidden,),
            "mlp.gate_proj": (self.intermediate, self.hidden), "mlp.up_proj": (self.intermediate, self.hidden),
            "mlp.down_proj": (self.hidden, self.intermediate)}
        self.embedding = find("model.embed_tokens", self.vocab, self.hidden)
        self.final_norm = find("model.norm", self.hidden)
        # A tied model has no LM head of its own.
        self.head = find("lm_head", self.vocab, self.hidden) if "lm_head.weight" in tensors else self.embedding
        self.layers = [{name.split(".")[-1]: find(f"model.layers.{i}.{name}", *shape) for name, shape in shapes.items()}
                       for i in range(self.config["num_hidden_layers"])]

    def prefill(self, ids):
        """Begins a new sequence: KV rows for all ids but the last, which becomes pending."""
        self.position = 0
        if len(ids) > 1:
            self.prefill_rows(ids[:-1])
        self.position = len(ids) - 1
        self.pending = ids[-1:].clone()

    def decode(self, n, forced=None, logits=None):
        """Leave out `logits` or `forced` here where your kernel has none: then tokens alone are judged, or prefill is
        called more often."""
        begin = self.position
        ids = torch.as_tensor(self.decode_steps(n, forced, logits))
        self.position = begin + n
        self.pending = ids[-1:].to(self.device, torch.int64)
        return ids

    def set_pending(self, id_):
        """Replaces the pending id while the clock runs: mkbench draws the id at the last moment."""
        self.pending = torch.tensor([id_], device=self.device)

    def rewind(self, position):
        """Rows below `position` stay, the others count as never written. Without this function mkbench prefills each
        timed prompt again."""
        self.position = position
