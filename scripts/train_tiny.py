#!/usr/bin/env python3
"""Trains the committed tiny checkpoints until their greedy text is decided by a wide margin.

usage: train_tiny.py [NAME ...] [--out DIR] [--device cpu|cuda]

The text (references/data/tiny_corpus.txt) is read as a ring of bytes, so that generation never runs
off its end. Master weights are fp32. The stopping rule is applied to the bf16 cast, which runs in fp32 (the
truth) and in bf16 with an fp32 head (the baseline): D <= 0.25 over all strict steps and the smallest margin
> 4 tau, where D is the baseline's largest pairwise error among the truth's top 32 and tau is D plus one bf16
step at the largest logit. Label smoothing keeps the logits, and with them bf16's absolute error, small.
"""

import argparse
import itertools
import json
import pathlib
import time

import numpy as np
import torch
from safetensors.torch import save_file

import checkpoint_format
import hf_model as hf

BOS, EOS, PAD, VOCAB = 256, 257, 258, 259
MAX_STEPS, CHECK_EVERY, BATCH, WINDOW = 1500, 50, 12, 160
PEAK_RATE, SMOOTHING = 2e-3, 0.05
# (offset in the corpus, prompt ids, generated ids); None: the prompt is the single id bos.
STRICT = ((None, 1, 128), (100, 17, 64), (417, 33, 64), (800, 64, 48), (1203, 128, 32), (1600, 200, 32))

SHAPE = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 4096,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}
OF_QWEN3 = ("head_dim", "attention_bias", "use_sliding_window", "architectures", "model_type")


def of_family(model_type, architecture, **keys):
    """The config of a tiny model of another family, as published ones are written.

    Without QK-norm the attention scores begin smaller, so the initial weights are larger: from a deviation of 0.02 the
    stopping rule held after 1,200 steps or more.
    """
    common = {key: value for key, value in SHAPE.items() if key not in OF_QWEN3}
    return common | {"initializer_range": 0.06, "model_type": model_type, "architectures": [architecture],
                     "torch_dtype": "bfloat16", "transformers_version": "4.57.1"} | keys


# transformers has written rope_theta in two styles; each config has one of them.
CONFIGS = {
    "tiny": SHAPE
    | {
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
        "transformers_version": "5.17.0",
    },
    "tiny-untied": SHAPE
    | {
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "rope_theta": 500000,
        "rope_scaling": None,
        "transformers_version": "4.57.1",
    },
    "tiny-llama": of_family(
        "llama", "LlamaForCausalLM", head_dim=64, attention_bias=False, mlp_bias=False, tie_word_embeddings=False,
        rope_theta=500000,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 512}),
    "tiny-qwen2": of_family(
        "qwen2", "Qwen2ForCausalLM", num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
        use_sliding_window=False, rope_theta=1000000),
}
SEEDS = {"tiny": 1, "tiny-untied": 2, "tiny-llama": 3, "tiny-qwen2": 4}


def corpus():
    """The text as byte ids."""
    return list((checkpoint_format.DATA / "tiny_corpus.txt").read_bytes())


def window(text, offset, length):
    """`length` ids of the ring of text from `offset` on; if `offset` is None: bos, then the text's beginning."""
    ids = [BOS] if offset is None else []
    start = offset or 0
    return ids + [text[(start + i) % len(text)] for i in range(length - len(ids))]


def strict_prompts(text):
    """(ids, generated length) of each strict prompt."""
    return [(window(text, offset, length), n) for offset, length, n in STRICT]


def initial_state(config, generator):
    """Normal weights and unit norms, on the generator's device: on a CPU a seed gives the same weights everywhere."""
    shapes = hf.without_tensors(hf.config_of(config)).state_dict()
    state = {}
    for name, t in shapes.items():
        if hf.is_tied(config) and name == "lm_head.weight":
            continue
        on = {"device": generator.device}
        normal = torch.randn(t.shape, generator=generator, **on) * config["initializer_range"]
        state[name] = torch.ones(t.shape, **on) if name.endswith("norm.weight") else normal
    return state


def batch_of(text, generator):
    """The rows of a batch start anywhere in the text, one of them with bos."""
    offsets = torch.randint(len(text), (BATCH - 1,), generator=generator).tolist()
    return torch.tensor([window(text, o, WINDOW + 1) for o in [None] + offsets])


def judge(config, state, text):
    """(D, smallest margin / tau over the strict steps, steps whose id is not the text's) of the bf16 cast."""
    cast = {name: t.detach().to("cpu", torch.bfloat16) for name, t in state.items()}
    truth = hf.Decoder(hf.build(config, cast, torch.float32))
    base = hf.Decoder(hf.build(config, cast, torch.bfloat16))
    d, margins, off_text = 0.0, [], 0
    for (ids, n), (offset, length, _) in zip(strict_prompts(text), STRICT):
        out, logits = hf.greedy(truth, ids, n)
        off_text += sum(a != b for a, b in zip(out, window(text, offset, length + n)[length:]))
        _, exact = hf.teacher_forced(base, [ids], [out])[0]
        d = max(d, float(hf.pairwise_error(logits, exact).max()))
        top = logits.topk(2, -1).values
        margins += list(zip((top[:, 0] - top[:, 1]).tolist(), logits.abs().amax(-1).tolist()))
    return d, min(m / (d + hf.bf16_step(z)) for m, z in margins), off_text


def descend(model, text, generator):
    """Trains a model of VOCAB ids for ever; yields (step, loss) after each step, the loss as a tensor."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    for step in itertools.count(1):
        # The rate warms up, then decays over the first 600 steps to a tenth, at which fine margins settle.
        rate = min(step / 40, max(0.1, 0.5 * (1 + np.cos(np.pi * min(step, 600) / 600))))
        for group in optimiser.param_groups:
            group["lr"] = PEAK_RATE * rate
        ids = batch_of(text, generator).to(model.device)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1), label_smoothing=SMOOTHING
        )
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        yield step, loss.detach()


def training(config, text, seed, device="cpu"):
    """Yields (step, loss, model) after each step of an endless training."""
    generator = torch.Generator().manual_seed(seed)
    state = initial_state(config, generator)
    model = hf.build(config, state, torch.float32, device, attention="sdpa").requires_grad_(True).train()
    if hf.is_tied(config):
        model.lm_head.weight = model.model.embed_tokens.weight
    for step, loss in descend(model, text, generator):
        yield step, loss, model


def train(name, report, device):
    """The bf16 tensors of a checkpoint that meets the stopping rule, and the figures of its last test."""
    config, text = CONFIGS[name], corpus()
    for step, loss, model in itertools.islice(training(config, text, SEEDS[name], device), MAX_STEPS):
        if step % CHECK_EVERY == 0:
            d, ratio, off_text = judge(config, dict(model.named_parameters()), text)
            report(f"{name}: step {step} loss {loss.item():.3f} D {d:.3f} margin/tau {ratio:.2f} wrong ids {off_text}")
            if d <= 0.25 and ratio > 4 and off_text == 0:
                cast = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.named_parameters()}
                return cast, {"steps": step, "loss": loss.item(), "D": d, "smallest_margin_over_tau": ratio}
    raise SystemExit(f"{name}: the stopping rule did not hold after {MAX_STEPS} steps")


def write_checkpoint(folder, config, tensors, made_by, **facts):
    """Writes model.safetensors, config.json and manifest.json of one checkpoint; returns the sha256 of its weights.

    The manifest also says `facts`: how the weights were trained, or where they came from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    files = {}
    for file in ("config.json", "model.safetensors"):
        path = folder / file
        files[file] = {"sha256": checkpoint_format.file_sha256(path), "bytes": path.stat().st_size}
    sha256 = hf.weights_sha256(tensors, config)
    manifest = {"files": files, "weights_sha256": sha256, "made_by": made_by} | facts
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return sha256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(CONFIGS)} (default: all)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="to train on (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=checkpoint_format.DATA, help="where the folders NAME go")
    args = parser.parse_args()
    hf.use_device(args.device)
    for name in args.names or CONFIGS:
        start = time.monotonic()
        tensors, measured = train(name, lambda line: print(line, flush=True), args.device)
        training = measured | {"seed": SEEDS[name], "torch": torch.__version__, "device": args.device}
        training["seconds"] = round(time.monotonic() - start, 1)
        write_checkpoint(args.out / name, CONFIGS[name], tensors, "scripts/train_tiny.py", training=training)


if __name__ == "__main__":
    main()
