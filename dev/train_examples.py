#!/usr/bin/env python3
"""Trains the small models of the examples in tests/engines, a mixture of experts and a hybrid, until their text is decided.

usage: train_examples.py [moe] [hybrid]

As scripts/train_tiny.py, but by transformers' own classes, on the beginning of its text, and within a minute. Writes
tests/engines/models/NAME; their answers come from

  scripts/capture_reference.py tests/engines/models/NAME --prompts tests/engines/models/prompts.json --replace REASON
"""

import argparse
import copy
import itertools
import json
import pathlib
import shutil
import tempfile
import time

import scripts_path  # noqa: F401
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

import checkpoint_format
import hf_model as hf
import train_tiny
from capture_reference import decode_outline

MODELS = checkpoint_format.ROOT / "tests" / "engines" / "models"
TEXT = train_tiny.corpus()[:512]
MAX_STEPS, CHECK_EVERY = 800, 50
# Initial weights of routers are larger than others: odds that are nearly equal are near ties, where bf16 takes other experts.
SHARPER = 5
COMMON = dict(vocab_size=train_tiny.VOCAB, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              head_dim=32, max_position_embeddings=512, tie_word_embeddings=True, initializer_range=0.06, dtype="bfloat16",
              bos_token_id=train_tiny.BOS, eos_token_id=train_tiny.EOS, pad_token_id=train_tiny.PAD,
              num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64)
CONFIGS = {
    "moe": CONFIG_MAPPING["qwen3_moe"](**COMMON, intermediate_size=128, norm_topk_prob=True),
    "hybrid": CONFIG_MAPPING["qwen3_5_moe_text"](
        **COMMON, shared_expert_intermediate_size=64, layer_types=["linear_attention", "full_attention"],
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32),
}


def prompts():
    """The rows of prompts.json: windows of the text, which must be decided, and text that the models were not trained on."""
    found = [{"name": f"corpus-{length}", "set": "strict", "ids": train_tiny.window(TEXT, offset, length), "steps": steps}
             for offset, length, steps in ((None, 1, 48), (100, 17, 32), (417, 33, 32), (200, 128, 24))]
    return found + [{"name": "other-1", "set": "auto", "ids": list(b"The capital of France is"), "steps": 24}]


def judge(folder):
    """(D, smallest margin / tau over the strict steps) of the saved model, as a capture will find them."""
    strict = [p for p in prompts() if p["set"] == "strict"]
    truth, _ = decode_outline(folder, strict, "fp32", "cpu")
    exact, _ = decode_outline(folder, strict, "head-fp32", "cpu", [ids for ids, _ in truth])
    d = max(float(hf.pairwise_error(logits, other).max()) for (_, logits), (_, other) in zip(truth, exact))
    top = torch.cat([logits.topk(2, -1).values for _, logits in truth])
    most = torch.cat([logits.abs().amax(-1) for _, logits in truth])
    return d, min(float(a - b) / (d + hf.bf16_step(float(z))) for (a, b), z in zip(top, most))


def train(name, folder):
    """Saves the bf16 model once it meets the stopping rule; the figures of its last test."""
    torch.manual_seed(1)
    begin, generator = time.monotonic(), torch.Generator().manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32).train()
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith("mlp.gate.weight"):
                tensor.mul_(SHARPER)
    for step, loss in itertools.islice(train_tiny.descend(model, TEXT, generator), MAX_STEPS):
        if step % CHECK_EVERY == 0:
            copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
            d, ratio = judge(folder)
            print(f"{name}: step {step} loss {loss.item():.3f} D {d:.3f} margin/tau {ratio:.2f}", flush=True)
            if d <= 0.25 and ratio > 4:
                return {"steps": step, "loss": loss.item(), "D": d, "smallest_margin_over_tau": ratio, "seed": 1,
                        "torch": torch.__version__, "seconds": round(time.monotonic() - begin, 1)}
    raise SystemExit(f"{name}: the stopping rule did not hold after {MAX_STEPS} steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*CONFIGS, []], help="default: both")
    for name in parser.parse_args().names or CONFIGS:
        folder, files = MODELS / name, {}
        with tempfile.TemporaryDirectory() as made:
            facts = train(name, pathlib.Path(made))
            for file in ("config.json", "model.safetensors"):
                shutil.copyfile(pathlib.Path(made) / file, folder / file)
                files[file] = {"sha256": checkpoint_format.file_sha256(folder / file), "bytes": (folder / file).stat().st_size}
        manifest = {"files": files, "made_by": "dev/train_examples.py", "training": facts}
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    rows = ",\n".join(json.dumps(prompt) for prompt in prompts())
    (MODELS / "prompts.json").write_text(f"[{rows}]\n")


if __name__ == "__main__":
    main()
