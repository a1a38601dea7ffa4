#!/usr/bin/env python3
"""Captures the answers of HF transformers in a reference file against which mkbench judges engines.

usage: capture_reference.py MODEL [--prompt TEXT ...] [--steps N] [--prompts FILE.json] [--device cpu|mps|cuda]
                                  [--out FILE] [--replace REASON]

MODEL is a folder with config.json and safetensors, a hub name ORG/NAME[@REVISION] in the local cache (mkbench fetch
puts it there), a committed model (tiny, tiny-llama, synthetic:SET), smollm2-135m once it is fetched, or qwen3-0.6b (the
published continuations, ids only). Committed models and Qwen/Qwen3-0.6B have prompts of their own
(reference_prompts.py); any other model with a tokenizer.json gets a few common ones. --prompts names a JSON list of
{"name", "set", "ids" or "text", "steps"}; set is strict, near-tie, or auto: strict where the truth's margin is wide at
every step. Every --prompt is auto.

Three models with the same bf16 weights run with eager attention. Each prefills all ids but the last in chunks of at
most 512 rows, then takes steps of one row. The truth, in fp32, decides the ids (greedy); the baseline, in bf16, and
the baseline with its last matmul in fp32 are teacher-forced on the truth's ids. An existing file is overwritten
only with --replace, which records the reason and the sha256 of the old file. A model_type that only transformers computes
is decoded by transformers' own class, as where it judges live (baselines/hf_decoder.py): the baseline with SDPA
attention where the class has it, which the file says.

The file goes to where `mkbench --model MODEL` finds it: FOLDER/reference.json; for a hub model
~/.local/share/mkbench/references/models--ORG--NAME/COMMIT/reference.json ($XDG_DATA_HOME instead of ~/.local/share where
it is set). Bad input ends with one line and exit code 2.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import sys

import checkpoint_format
import hub_cache
import smollm2
from hub_cache import BadInput

try:
    import numpy
    import torch
    import transformers

    sys.path.insert(1, str(checkpoint_format.ROOT / "baselines"))
    import hf_decoder
    import hf_model as hf
    import reference_prompts
    import synthetic_checkpoint as synthetic
    import token_texts
    from reference_steps import PROJECTIONS, SKETCH_SEED, judge, largest_d, measure, sketch_signs
except ImportError as missing:
    if __name__ != "__main__":
        raise
    print(f"capture_reference.py: error: {missing}; to install it: python3 -m pip install -r "
          "scripts/requirements/capture.txt", file=sys.stderr)
    raise SystemExit(2) from None

SCHEMA = {"id": "mkbench.reference", "version": "1.0.0"}
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")  # as references/outline.cpp reads them
UNSTATED = 2048
TALKER = "qwen3_tts"  # whose checkpoint is more than a decoder


def progress(text):
    print(f"capture: {text}", file=sys.stderr, flush=True)


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
        progress(f"truth: prompt {here.stop} of {len(prompts)}")
        out += hf.greedy_together(decoder, [p["ids"] for p in together], together[0]["steps"])
    return out


def run_baseline(model, prompts, paths, batch):
    """The baseline, teacher-forced on the truth's ids: per prompt (logits, logits through an fp32 head), both
    [steps, vocab]."""
    decoder, out = hf.Decoder(model), []
    for here in batches(prompts, batch):
        progress(f"baseline: prompt {here.stop} of {len(prompts)}")
        out += hf.teacher_forced(decoder, [p["ids"] for p in prompts[here]], [ids for ids, _ in paths[here]])
    return out


def decode_outline(folder, prompts, precision, device, paths=None):
    """A model that only transformers computes: (greedy ids, logits [steps, vocab]) of each prompt in a precision of
    hf_decoder.Decoder.open(), and its settings. With `paths` these ids are the inputs. Raises ValueError where
    transformers cannot load the model."""
    decoder, out = hf_decoder.Decoder(), []
    decoder.open(folder, torch.device(device), max(len(p["ids"]) + p["steps"] for p in prompts), precision)
    for i, p in enumerate(prompts):
        progress(f"{precision}: prompt {i + 1} of {len(prompts)}")
        logits = torch.empty(p["steps"], decoder.indices.numel(), device=device)
        forced = None if paths is None else torch.tensor([p["ids"][-1], *paths[i][:-1]], device=device)
        decoder.prefill(torch.tensor(p["ids"], device=device))
        out.append((decoder.decode(p["steps"], forced, logits).tolist(), logits))
    return out, decoder.settings


def answers_of(entry, model, config, state, prompts, device, batch):
    """(truth, baseline) of every prompt: (ids, logits), and (logits, logits through an fp32 head)."""
    if state is None:
        folder, entry["settings"] = resolve(model)[1], {}
        truth, entry["settings"]["fp32"] = decode_outline(folder, prompts, "fp32", device)
        paths = [ids for ids, _ in truth]
        base, entry["settings"]["own"] = decode_outline(folder, prompts, "own", device, paths)
        exact, entry["settings"]["head-fp32"] = decode_outline(folder, prompts, "head-fp32", device, paths)
        return truth, [(one[1], other[1]) for one, other in zip(base, exact)]
    paths = run_truth(hf.build(config, state, torch.float32, device), prompts, batch)
    return paths, run_baseline(hf.build(config, state, torch.bfloat16, device), prompts, paths, batch)


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
            "numpy": numpy.__version__,
        },
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "system": platform.system(),
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


def resolve(model):
    """(name, folder, commit) of a model that has a folder; commit is None except for a hub model. Raises BadInput."""
    if model in reference_prompts.NEAR_TIE_TEXTS:
        return model, checkpoint_format.DATA / model, None
    if model == smollm2.NAME:
        return model, smollm2.folder(), None
    folder = pathlib.Path(model)
    if folder.is_dir():
        return folder.resolve().name, folder, None
    hub = hub_cache.parse_hub_name(model)
    if hub is None or folder.exists():
        known = ", ".join((*reference_prompts.NEAR_TIE_TEXTS, "synthetic:SET", "qwen3-0.6b"))
        raise BadInput(f"{model}: {'is a file' if folder.exists() else 'no such folder'}; wanted a folder with config.json and "
                       f"safetensors, a hub name ORG/NAME in the local cache, or one of {known}")
    folder, commit = hub_cache.find_snapshot(hub)
    return hub.id, folder, commit


def facts_of(folder, files):
    """sha256 and size of the files and of the folder's tokenizer."""
    files = files + [f for f in [folder / "tokenizer.json"] if f.is_file()]
    return {f.name: {"sha256": checkpoint_format.file_sha256(f), "bytes": f.stat().st_size} for f in files}


def is_outline(folder):
    """Whether config.json names a model_type that mkbench does not compute, or quantised weights (is_foreign_model())."""
    config = checkpoint_format.read_json(folder / "config.json")
    config = config if isinstance(config, dict) else {}
    known = config.get("model_type") in {*checkpoint_format.families(), TALKER}
    return isinstance(config.get("model_type"), str) and (not known or config.get("quantization_config") is not None)


def load_outline(name, folder, commit):
    """load() of a model that only transformers computes: no tensors."""
    index, shards = hf.shards_of(folder)
    path = folder / "config.json"
    if (folder / "adapter_config.json").exists():
        raise BadInput(f"{folder}: holds adapter_config.json: merge the adapter, or move that file")
    config = checkpoint_format.read_json(path)
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    if not reference_prompts.is_count(text.get("vocab_size")):
        raise BadInput(f"{path}: vocab_size is {text.get('vocab_size')!r}, wanted a whole number from 1")
    stated = [text[key] for key in POSITIONS if reference_prompts.is_count(text.get(key))]
    config = config | {"vocab_size": text["vocab_size"], "max_position_embeddings": (stated or [UNSTATED])[0]}
    digest = checkpoint_format.outline_sha256(shards)
    files = facts_of(folder, [path, *([index] if index else []), *shards])
    return {"name": name, "revision": commit, "weights_sha256": digest, "files": files, "config": config}, config, None


def load(model):
    """(what the file says about the model, config, tensors) of a committed name, synthetic:SET, folder or hub name; no
    tensors of a model that only transformers computes."""
    kind, _, lagset = model.partition(":")
    if kind == "synthetic":
        config, state = synthetic.CONFIG, synthetic.build(lagset)
        name, commit = model, None
        source = {"files": {}, "generator": {"program": "scripts/synthetic_checkpoint.py", "lagset": lagset}}
    else:
        name, folder, commit = resolve(model)
        if is_outline(folder):
            return load_outline(name, folder, commit)
        config, state, files, rounded = hf.read_folder(folder)
        if rounded:
            progress(f"{name}: {len(rounded)} of {len(state)} tensors rounded to bf16")
        reference_prompts.check_expected(name, config, folder / "config.json")
        source = {"files": facts_of(folder, files)}
    digest = hf.weights_sha256(state, config)
    return {"name": name, "revision": commit, "weights_sha256": digest, **source, "config": config}, config, state


def check_prompts(prompts, config):
    """Raises ValueError where the model cannot decode a prompt."""
    for p in prompts:
        bad = [i for i in p["ids"] if not 0 <= i < config["vocab_size"]]
        if bad or not p["ids"] or p["steps"] < 1:
            counts = f"{len(p['ids'])} ids and {p['steps']} steps, wanted at least one of each"
            raise ValueError(f"{p['name']}: {f'ids out of range: {bad}' if bad else counts}")
        if len(p["ids"]) + p["steps"] > config["max_position_embeddings"]:
            raise ValueError(f"{p['name']}: {len(p['ids'])} ids and {p['steps']} steps, but max_position_embeddings is "
                             f"{config['max_position_embeddings']}")


def capture(model, prompts, device, batch=1):
    """(model entry, prompts with steps, summary). `batch`: how many prompts of one length are decoded side by
    side, which is faster than one after the other."""
    hf.use_device(device)
    entry, config, state = load(model)
    check_prompts(prompts, config)
    progress(f"{entry['name']}: {len(prompts)} prompts, {sum(p['steps'] for p in prompts)} steps, on {device}")
    paths, answers = answers_of(entry, model, config, state, prompts, device, batch)
    # Errors are measured in fp64, which Apple's GPU does not have.
    place = "cpu" if device == "mps" else device
    signs, done = sketch_signs(config["vocab_size"]).to(place), []
    for p, (_, truth), (base, exact) in zip(prompts, paths, answers):
        first = len(p["ids"]) - 1
        rows = zip(*(logits.to(place) for logits in (truth, base, exact)))
        steps = [measure(first + i, *logits, signs) for i, logits in enumerate(rows)]
        texts = [reference_prompts.byte_text(s["token"]) for s in steps] if model in reference_prompts.NEAR_TIE_TEXTS else []
        done.append({**p, "generated": len(steps), "steps": steps, "token_texts": texts})
    if model.startswith("synthetic:"):
        check_closed_form(model.partition(":")[2], done)
    return entry, done, judge(done)


def add_texts(prompts, tokenizer):
    """Fills in token_texts; returns the texts of all ids that an engine of this model is likely to emit."""
    ids = set()
    for p in prompts:
        p["token_texts"] = [tokenizer.text(s["token"]) for s in p["steps"]]
        ids.update(p["ids"], *(s["top_ids"] for s in p["steps"]))
    return {str(i): tokenizer.text(i) for i in sorted(ids)}


def check_closed_form(lagset, prompts):
    """Raises unless the truth's ids of every strict prompt are those of the closed form."""
    for p in prompts:
        found = [s["token"] for s in p["steps"]]
        if p["set"] == "strict" and found != synthetic.continuation(p["ids"], lagset, len(found)):
            raise ValueError(f"{p['name']}: HF in fp32 gives other ids than the closed form: {found}")


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
    """Where mkbench looks: references/data/<model>/reference.json of a committed model (the analytic checkpoint has
    one file for each lag set), FOLDER/reference.json, or the user's data folder."""
    kind, _, lagset = model.partition(":")
    if kind == "synthetic":
        return checkpoint_format.DATA / kind / f"reference-{lagset}.json"
    if model in (*reference_prompts.NEAR_TIE_TEXTS, "qwen3-0.6b", smollm2.NAME):
        return checkpoint_format.DATA / model / "reference.json"
    _, folder, commit = resolve(model)
    return hub_cache.reference_path(hub_cache.parse_hub_name(model), commit) if commit else folder / "reference.json"


def check_writable(path):
    """Makes the folder of `path`. Raises BadInput if it cannot be written to, before minutes of work are lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path.parent}: {error.strerror}; --out names another file") from None
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"{path.parent}: cannot be written to; choose another file with --out, and give its folder "
                       "to mkbench --reference")


def previous(path, reason):
    """What --replace records about the old file; None if there is no old file."""
    if not path.exists():
        return None
    if not reason:
        raise BadInput(f"{path}: exists; --replace REASON overwrites it and records why")
    return {"sha256": checkpoint_format.file_sha256(path), "reason": reason}


def write(path, document):
    """Compact JSON, one step a line, so that a diff shows which steps changed."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    text = text.replace('{"position":', '\n{"position":').replace('{"name":', '\n{"name":').replace('"texts":{', '\n"texts":{')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    checkpoint_format.list_in_manifest(path)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--prompt", action="append", default=[], metavar="TEXT")
    parser.add_argument("--steps", type=int, metavar="N", help=f"tokens after each --prompt [{reference_prompts.STEPS}]")
    parser.add_argument("--prompts", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument("--device", choices=("cpu", "mps", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: where mkbench looks, see above")
    parser.add_argument("--replace", metavar="REASON")
    return parser.parse_args()


def choose_prompts(args):
    """The prompts with ids, and the tokenizer (None for a committed model). Raises BadInput."""
    kind, _, lagset = args.model.partition(":")
    if kind == "synthetic" and lagset not in synthetic.LAGS:
        raise BadInput(f"{args.model}: wanted one of {', '.join(f'synthetic:{name}' for name in synthetic.LAGS)}")
    if kind in ("synthetic", *reference_prompts.NEAR_TIE_TEXTS):
        if args.prompt or args.steps:
            raise BadInput(f"{args.model}: a committed model has its own prompts; --prompts FILE.json names others")
        return (reference_prompts.read(args.prompts, None) if args.prompts else reference_prompts.of(args.model)), None
    name, folder, _ = resolve(args.model)
    tokenizer = token_texts.of_folder(folder)
    if args.prompts and args.prompt:
        raise BadInput("--prompt and --prompts exclude each other")
    if args.prompts:
        return reference_prompts.read(args.prompts, tokenizer), tokenizer
    if args.prompt:
        return reference_prompts.from_texts(args.prompt, args.steps, tokenizer, folder), tokenizer
    return reference_prompts.default(name, args.steps, tokenizer, folder), tokenizer


def run(args):
    published_ids = args.model == "qwen3-0.6b"
    prompts, tokenizer = (None, None) if published_ids else choose_prompts(args)
    path = args.out or default_path(args.model)
    replaced = previous(path, args.replace)
    document = {"schema": SCHEMA, "token_only": published_ids}
    if published_ids:
        entry, prompts, summary = published()
        made = {"program": "scripts/capture_reference.py", "replaces": replaced, "provenance": reference_prompts.PROVENANCE}
    else:
        check_writable(path)
        entry, prompts, summary = capture(args.model, prompts, args.device)
        made = provenance(args.device, replaced)
        made["sketch"] = {"seed": SKETCH_SEED, "projections": PROJECTIONS}
        if tokenizer:
            document["texts"] = add_texts(prompts, tokenizer)
    write(path, {**document, "model": entry, "capture": made, "summary": summary, "prompts": prompts})
    print(json.dumps(summary, indent=2))
    for p in prompts:
        if "texts" in document and p["text"]:
            print(f'{p["name"]} ({p["set"]}): "{token_texts.printable(p["text"])}" -> "{"".join(p["token_texts"])}"')
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    try:
        run(parse_arguments())
        return 0
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    except (BadInput, ValueError) as error:
        code, line = 2, f"error: {' '.join(str(error).split())}"
    except OSError as error:
        code, line = 6, f"error: {error}"
    except Exception as error:  # torch out of memory, an operation that a device does not have
        code, line = 1, f"error: {type(error).__name__}: {(str(error) or 'no text').splitlines()[0]}"
    print(f"capture_reference.py: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
