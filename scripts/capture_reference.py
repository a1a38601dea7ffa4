#!/usr/bin/env python3
"""Captures the answers of HF transformers in a reference file against which mkbench judges engines.

usage: capture_reference.py MODEL [--out FILE] [--prompts FILE.json] [--device cpu|cuda] [--replace REASON]

MODEL is tiny, tiny-untied, synthetic:SET, a folder with config.json and model.safetensors, or
qwen3-0.6b (the two published continuations, ids only). Committed models have their prompts here; for
a folder, --prompts names a JSON list of {"name", "set": "strict"|"near-tie", "ids", "steps", "text"}.

Three runs of the same bf16 weights, eager attention, prefill of all ids but the last in chunks of at
most 512 rows, then steps of one row: the truth in fp32 decides the ids (greedy); the baseline in bf16, and
the baseline with its last matmul in fp32, are teacher-forced on the truth's ids. An existing file is
overwritten only with --replace, which records the reason and the sha256 of the old file.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import sys

import numpy as np
import torch
import transformers

import checkpoint_format
import qwen3_hf as hf
import reference_prompts
import synthetic_checkpoint as synthetic

SCHEMA = {"id": "mkbench.reference", "version": "1.0.0"}
TOP, PROJECTIONS, SKETCH_SEED = 32, 32, 20240229
LARGEST_D = 0.5


def raw(values):
    """fp32 values as doubles of 9 significant digits, which identify an fp32 value and keep the file short."""
    return [float(f"{x:.9g}") for x in np.asarray(values.cpu(), np.float32).tolist()]


def sketch_signs(vocab):
    """The +-1 vectors, [projections, vocab]: -1 where bit 0 of splitmix64(seed ^ (p << 32) ^ id) is set."""
    ids = np.arange(vocab, dtype=np.uint64)
    rows = [checkpoint_format.splitmix64(np.uint64(SKETCH_SEED ^ (p << 32)) ^ ids) & np.uint64(1) for p in range(PROJECTIONS)]
    return torch.from_numpy(1.0 - 2.0 * np.stack(rows).astype(np.float64))


def kl_over_top(truth, other, ids):
    """KL(truth || other) over `ids` and one bucket for the rest; fp64 logits [vocab]."""
    p = (truth[ids] - truth.logsumexp(0)).exp()
    q = (other[ids] - other.logsumexp(0)).exp()
    p, q = (torch.cat([x, (1 - x.sum()).clamp_min(0)[None]]) for x in (p, q))
    return float(torch.where(p > 0, p * (p.clamp_min(1e-300) / q.clamp_min(1e-300)).log(), 0.0).sum())


def measure(position, truth, base, exact, signs):
    """One step of the file from the logits of truth, baseline and baseline with an fp32 head (fp32, [vocab]);
    `decided` is added at the end."""
    top = truth.topk(min(TOP, len(truth)))
    # topk leaves the order of equals open; the lowest id comes first, as in argmax.
    pairs = list(zip(top.values.tolist(), top.indices.tolist()))
    order = sorted(range(len(pairs)), key=lambda i: (-pairs[i][0], pairs[i][1]))
    ids = top.indices[order]
    t, e = truth.double(), exact.double()
    centred = t - t.mean()
    error = (e - e.mean()) - centred
    base_top = base.topk(len(ids))
    return {
        "position": position,
        "token": hf.argmax_lowest(truth),
        "top_ids": ids.tolist(),
        "top_logits": raw(truth[ids]),
        "logsumexp": float(t.logsumexp(0)),
        "mean": float(t.mean()),
        "centred_norm": float(centred.norm()),
        "margin": float(t[ids[0]] - t[ids[1]]),
        "max_abs": float(t.abs().max()),
        "baseline": {
            "token": hf.argmax_lowest(base),
            "fp32_head_token": hf.argmax_lowest(exact),
            "top_ids": base_top.indices.tolist(),
            "top_logits": raw(base_top.values),
            "error_norm": float(error.norm()),
            "error_inf_top": float(error[ids].abs().max()),
            "kl": max(0.0, kl_over_top(t, e, ids)),
            "pairwise": float(hf.pairwise_error(truth[None], exact[None], TOP)[0]),
        },
        "sketch": raw(signs @ centred),
    }


def batches(prompts, most):
    """Groups neighbouring prompts of one length and one number of steps, at most `most` to a group."""
    shape = lambda p: (len(p["ids"]), p["steps"])
    begin = 0
    while begin < len(prompts):
        end = begin + 1
        while end < len(prompts) and end - begin < most and shape(prompts[end]) == shape(prompts[begin]):
            end += 1
        yield slice(begin, end)
        begin = end


def run_truth(model, prompts, batch):
    """Greedy ids and logits of the truth for every prompt."""
    decoder, out = hf.Decoder(model), []
    for here in batches(prompts, batch):
        together = prompts[here]
        out += hf.greedy_together(decoder, [p["ids"] for p in together], together[0]["steps"])
    return out


def run_baseline(model, prompts, paths, batch):
    """The baseline, teacher-forced on the truth's ids: per prompt (logits, logits through an fp32 head), both
    [steps, vocab]."""
    decoder, out = hf.Decoder(model), []
    for here in batches(prompts, batch):
        out += hf.teacher_forced(decoder, [p["ids"] for p in prompts[here]], [ids for ids, _ in paths[here]])
    return out


def judge(prompts):
    """Computes D and the decided flags; raises ValueError when a prompt breaks what its set promises."""
    steps = [s for p in prompts for s in p["steps"]]
    d = max(s["baseline"]["pairwise"] for s in steps)
    if not d <= LARGEST_D:
        raise ValueError(f"D is {d:.3f}, wanted at most {LARGEST_D}: the baseline's error is too large to calibrate with")
    near_ties = 0
    for p in prompts:
        for s in p["steps"]:
            tau = d + hf.bf16_step(s["max_abs"])
            s["decided"] = s["margin"] > tau
            near_ties += p["set"] == "near-tie" and not s["decided"]
            if p["set"] == "strict" and not s["margin"] > 2 * tau:
                raise ValueError(f"{p['name']}: margin {s['margin']:.3f} at {s['position']}, wanted over {2 * tau:.3f}")
    if any(p["set"] == "near-tie" for p in prompts) and near_ties == 0:
        raise ValueError("near-tie set: no step is a near tie")
    names = lambda kind: [p["name"] for p in prompts if p["set"] == kind]
    return {
        "D": d,
        "baseline_flips": sum(s["baseline"]["fp32_head_token"] != s["token"] for s in steps),
        "steps": len(steps),
        "near_tie_steps": near_ties,
        "smallest_strict_margin": min(s["margin"] for p in prompts if p["set"] == "strict" for s in p["steps"]),
        "strict": names("strict"),
        "near_tie": names("near-tie"),
    }


def flags():
    """The current state of the switches that could lower precision."""
    return {
        "allow_tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "allow_tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def provenance(device, replaced, batch=1):
    """Everything that is needed to make the file again."""
    program = f"scripts/{pathlib.Path(sys.argv[0]).name}"
    return {
        "program": program,
        "command": "python " + shlex.join([program] + sys.argv[1:]),
        "date": datetime.date.today().isoformat(),
        "replaces": replaced,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "attention": "eager",
        "do_sample": False,
        "prefill_chunk": hf.PREFILL_CHUNK,
        "batch": batch,
        "truth": {"dtype": "float32", "inv_freq_dtype": "float32"} | flags(),
        "baseline": {
            "dtype": "bfloat16",
            "inv_freq_dtype": "float32",
            "allow_bf16_reduced_precision_reduction": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
            "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        },
    }


def load(model):
    """(what the file says about the model, config, tensors) of a committed name, synthetic:SET or folder."""
    kind, _, lagset = model.partition(":")
    if kind == "synthetic":
        config, state = synthetic.CONFIG, synthetic.build(lagset)
        source = {"files": {}, "generator": {"program": "scripts/synthetic_checkpoint.py", "lagset": lagset}}
    else:
        folder = checkpoint_format.DATA / model if (checkpoint_format.DATA / model / "config.json").is_file() else pathlib.Path(model)
        config, state = hf.read_folder(folder)
        files = [folder / "config.json", folder / "model.safetensors"]
        source = {"files": {f.name: {"sha256": checkpoint_format.file_sha256(f), "bytes": f.stat().st_size} for f in files}}
    digest = hf.weights_sha256(state, config["num_hidden_layers"], config["tie_word_embeddings"])
    name = model if kind == "synthetic" else pathlib.Path(model).name
    return {"name": name, "revision": None, "weights_sha256": digest, **source, "config": config}, config, state


def capture(model, prompts, device, batch=1):
    """(model entry, prompts with steps, summary). `batch`: how many prompts of one length are decoded side by
    side, where one after the other would take too long."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    # cuBLAS obeys this variable whatever torch is set to.
    if os.environ.get("NVIDIA_TF32_OVERRIDE", "0") != "0":
        raise ValueError("NVIDIA_TF32_OVERRIDE is set: T must be fp32")
    entry, config, state = load(model)
    for p in prompts:
        bad = [i for i in p["ids"] if not 0 <= i < config["vocab_size"]]
        if bad or not p["ids"] or p["steps"] < 1:
            raise ValueError(f"{p['name']}: ids or steps out of range: {bad or p['steps']}")
    paths = run_truth(hf.build(config, state, torch.float32, device), prompts, batch)
    answers = run_baseline(hf.build(config, state, torch.bfloat16, device), prompts, paths, batch)
    signs, done = sketch_signs(config["vocab_size"]).to(device), []
    for p, (_, truth), (base, exact) in zip(prompts, paths, answers):
        first = len(p["ids"]) - 1
        steps = [measure(first + i, *logits, signs) for i, logits in enumerate(zip(truth, base, exact))]
        texts = [reference_prompts.byte_text(s["token"]) for s in steps] if model.startswith("tiny") else []
        done.append({**p, "generated": len(steps), "steps": steps, "token_texts": texts})
    if model.startswith("synthetic:"):
        check_closed_form(model.partition(":")[2], done)
    return entry, done, judge(done)


def check_closed_form(lagset, prompts):
    """Raises unless the truth's ids of every strict prompt are those of the closed form."""
    for p in prompts:
        found = [s["token"] for s in p["steps"]]
        if p["set"] == "strict" and found != synthetic.continuation(p["ids"], lagset, len(found)):
            raise ValueError(f"{p['name']}: HF in fp32 left the closed form: {found}")


def published():
    """The token-only reference of the real Qwen3-0.6B: model entry and prompts."""
    prompts = []
    for p in reference_prompts.PUBLISHED:
        first = len(p["ids"]) - 1
        steps = [{"position": first + i, "token": t} for i, t in enumerate(p["tokens"])]
        prompt = {k: v for k, v in p.items() if k != "tokens"}
        prompts.append({**prompt, "set": "near-tie", "generated": len(steps), "steps": steps, "token_texts": []})
    entry = {"name": "Qwen/Qwen3-0.6B", "revision": None, "weights_sha256": None, "files": {}}
    summary = {"steps": sum(len(p["steps"]) for p in prompts), "strict": [], "near_tie": [p["name"] for p in prompts]}
    return entry | {"config": {"vocab_size": 151936}}, prompts, summary


def default_path(model):
    """references/data/<model>/reference.json; the analytic checkpoint has one file for each lag set."""
    kind, _, lagset = model.partition(":")
    file = f"reference-{lagset}.json" if kind == "synthetic" else "reference.json"
    return checkpoint_format.DATA / pathlib.Path(kind).name / file


def previous(path, reason):
    """What --replace records about the old file; None when there is none."""
    if not path.exists():
        return None
    if not reason:
        raise SystemExit(f"{path}: exists; --replace REASON overwrites it and records why")
    return {"sha256": checkpoint_format.file_sha256(path), "reason": reason}


def write(path, document):
    """Compact JSON, one step a line, so that a diff shows which steps changed."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    text = text.replace('{"position":', '\n{"position":').replace('{"name":', '\n{"name":')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    list_in_manifest(path)


def list_in_manifest(path):
    """Lists the new hash in manifest.json: mkbench refuses a reference whose hash is not the one listed beside it."""
    manifest = path.parent / "manifest.json"
    ours = path.parent.parent == checkpoint_format.DATA
    if not manifest.exists() and not ours:
        return  # a folder of the user
    listed = json.loads(manifest.read_text()) if manifest.exists() else {"files": {}}
    listed["files"][path.name] = {"sha256": checkpoint_format.file_sha256(path), "bytes": path.stat().st_size}
    manifest.write_text(json.dumps(listed, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="default: references/data/<model>/reference.json, of synthetic:SET synthetic/reference-SET.json")
    parser.add_argument("--prompts", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--replace", metavar="REASON")
    args = parser.parse_args()
    path = args.out or default_path(args.model)
    replaced = previous(path, args.replace)
    if args.model == "qwen3-0.6b":
        entry, prompts, summary = published()
        made = {"program": "scripts/capture_reference.py", "replaces": replaced, "provenance": reference_prompts.PROVENANCE}
    else:
        prompts = json.loads(args.prompts.read_text()) if args.prompts else reference_prompts.of(args.model)
        entry, prompts, summary = capture(args.model, prompts, args.device)
        made = provenance(args.device, replaced)
        made["sketch"] = {"seed": SKETCH_SEED, "projections": PROJECTIONS}
    only_tokens = args.model == "qwen3-0.6b"
    write(path, {"schema": SCHEMA, "token_only": only_tokens, "model": entry, "capture": made, "summary": summary, "prompts": prompts})
    print(json.dumps({k: v for k, v in summary.items()}, indent=2))
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
