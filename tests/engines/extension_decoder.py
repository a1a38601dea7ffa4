"""Qwen3 as a PyTorch extension behind references/decoder.py: the steps are C++ on torch tensors, and on a card RMSNorm
is a CUDA kernel of the extension's own. A kernel that you launch from such an extension comes in the same way.

torch.utils.cpp_extension builds it, when the file is loaded for the first time: a minute, by the C++ compiler, ninja and,
where there is a card, nvcc. Later loads take the build from torch's folder of extensions (TORCH_EXTENSIONS_DIR).
"""

import json
import os
import pathlib
import sys

import torch
from safetensors import safe_open
from torch.utils import cpp_extension

PREFILL_CHUNK = 512  # rows at a time: the mask of a whole long prompt would not fit


def build():
    """The module of extension_step.cpp."""
    here, card = pathlib.Path(__file__).resolve().parent, torch.cuda.is_available()
    os.environ["PATH"] += f":{pathlib.Path(sys.executable).parent}"  # the ninja of a virtual environment
    flags = ["-O2", "-DWITH_CUDA"] if card else ["-O2"]
    sources = ["extension_step.cpp", *(["extension_norm.cu"] if card else [])]
    return cpp_extension.load(f"mkbench_extension_step_{'cuda' if card else 'cpu'}", [str(here / s) for s in sources],
                              extra_cflags=flags)


step = build()


class Decoder:
    name = "extension"
    precision = "bf16"

    def open(self, folder, device, max_context):
        if device.type == "cpu":
            torch.set_num_threads(1)  # the models that fit a CPU are too small to share out
        self.device = device
        config = json.loads((folder / "config.json").read_text())
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as shard:
                tensors.update({name: shard.get_tensor(name).to(device) for name in shard.keys()})
        layers = []
        for number in range(config["num_hidden_layers"]):
            def weight(*names, layer=f"model.layers.{number}."):
                found = [tensors[f"{layer}{name}.weight"] for name in names]
                return torch.cat(found) if len(found) > 1 else found[0]
            layers.append([
                weight("input_layernorm"), weight(*(f"self_attn.{n}_proj" for n in "qkv")), weight("self_attn.q_norm"),
                weight("self_attn.k_norm"), weight("self_attn.o_proj"), weight("post_attention_layernorm"),
                weight("mlp.gate_proj", "mlp.up_proj"), weight("mlp.down_proj")])
        embedding = tensors["model.embed_tokens.weight"]
        dim, theta = config["head_dim"], config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        inverse = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        shape = (config["num_attention_heads"], config["num_key_value_heads"], dim, max_context, config["rms_norm_eps"])
        self.model = step.Model(layers, embedding, tensors["model.norm.weight"],
                                tensors.get("lm_head.weight", embedding), inverse.to(device), shape)

    @property
    def position(self):
        return self.model.position

    def prefill(self, ids):
        self.model.rewind(0)
        for chunk in ids[:-1].split(PREFILL_CHUNK):
            if len(chunk) > 0:
                self.model.feed(chunk)
        self.model.set_pending(ids[-1:])

    def decode(self, n, forced=None, logits=None):
        return self.model.decode(n, forced, logits)

    def set_pending(self, id_):
        self.model.set_pending(torch.tensor([id_], device=self.device))

    def rewind(self, position):
        self.model.rewind(position)
