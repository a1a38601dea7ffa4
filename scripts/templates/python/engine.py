"""A decoder of your own in Python, on torch tensors: Triton, CuTe DSL, a PyTorch extension, or plain torch.

The frame is complete: it checks the model and the weights, and step_decoder.py keeps position and pending id. What is
missing is your kernel, in the function between "Your kernel begins" and "ends". Until then it raises with its own name,
and mkbench's verdict is RUNTIME_ERROR with the line.

mkbench makes a Decoder and calls it from one thread, under torch.no_grad(); several may be open at a time, so state
belongs in self. The Python is the one of --python: from 3.9 on, with numpy, torch, safetensors and what you import. An
exception gives RUNTIME_ERROR; its traceback lies in the report's folder.
"""

import torch
from step_decoder import StepDecoder, Unfit


class Decoder(StepDecoder):
    name = "@NAME@"  # as reports show it
    # How logits are judged. "fp32-accumulate" rounds only KV rows, RoPE and one operand of a product; "bf16" rounds as
    # PyTorch does, "fp16" to fp16 at the same places; "lossy" is quantised and ranked with no other.
    precision = "fp32-accumulate"
    deterministic = True  # equal input gives equal bits; else set False

    # ---- Your kernel begins ------------------------------------------------------------------------------------------

    def step(self, token, position, logits):
        """Embeds token, int64 [1] on the device, writes the KV row of `position`, and returns the id of the largest
        logit, the lowest id among equals (torch.argmax does not promise that one): a tensor of one integer, or an int.
        logits: None where the time is reported. Else float32 [vocab] on the device, NaN, to be filled.
        The clock runs until the ids are on the host and all work of the device is done."""
        raise NotImplementedError("step is not written yet")

    # ---- Your kernel ends --------------------------------------------------------------------------------------------

    def load(self, model, tensors):
        """Weights, bf16 [out, in] on the device, in self.embedding, self.final_norm, self.head and self.layers[i]. Raise
        Unfit here if your kernel has no code for the model: one compiled for a single model compares all sizes."""
        if model["model_type"] != "qwen3":
            raise Unfit(f"model_type: found {model['model_type']}, wanted qwen3")
        if self.device.type == "cpu":
            torch.set_num_threads(1)  # models that fit a CPU are too small to gain from more
        hidden, intermediate, vocab = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
        self.heads, self.kv_heads = model["num_attention_heads"], model["num_key_value_heads"]
        self.head_dim, self.eps = model["head_dim"], model["rms_norm_eps"]
        self.theta = model.get("rope_theta") or model["rope_parameters"]["rope_theta"]
        q_rows, kv_rows = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {
            "input_layernorm": (hidden,), "self_attn.q_proj": (q_rows, hidden), "self_attn.k_proj": (kv_rows, hidden),
            "self_attn.v_proj": (kv_rows, hidden), "self_attn.o_proj": (hidden, q_rows),
            "self_attn.q_norm": (self.head_dim,), "self_attn.k_norm": (self.head_dim,),
            "post_attention_layernorm": (hidden,), "mlp.gate_proj": (intermediate, hidden),
            "mlp.up_proj": (intermediate, hidden), "mlp.down_proj": (hidden, intermediate)}
        self.embedding = tensors.find("model.embed_tokens.weight", vocab, hidden)
        self.final_norm = tensors.find("model.norm.weight", hidden)
        self.head = tensors.find("lm_head.weight", vocab, hidden)
        self.layers = [{name.split(".")[-1]: tensors.find(f"model.layers.{i}.{name}.weight", *shape)
                        for name, shape in shapes.items()} for i in range(model["num_hidden_layers"])]
        rows = (len(self.layers), self.max_context, self.kv_heads, self.head_dim)
        self.keys = torch.zeros(rows, dtype=torch.bfloat16, device=self.device)  # after norm and RoPE
        self.values = torch.zeros(rows, dtype=torch.bfloat16, device=self.device)
