#!/usr/bin/env python3
"""Runs HF transformers on the analytic checkpoint of a shape, in fp32 and in bf16, against the closed form.

usage: synthetic_margins.py [--layers N] [--sets SET,...] [--device cpu|cuda] [--out FILE.json] SHAPE...
       synthetic_margins.py --render FILE.json    writes README.md beside it

Each shape runs as a cut of N layers [4], whose planted layers move with the layer count; --layers 0 runs the whole
model. Every step takes the closed form's id as input, so "equal" ids are those of a greedy run. The smallest margin
(top logit minus the next) is that of the fp32 run. D is the largest pairwise error of bf16 with an fp32 head against
fp32, over the top 32 ids. Exit status 1 where an id differs or D exceeds 0.5.

The weights are made in bf16 on the host, 2 bytes a parameter. The run in fp32 takes 4 bytes a parameter, on a card;
on a CPU the fp32 tensors replace the bf16 ones. TF32 is off.
"""

import argparse
import dataclasses
import json
import pathlib
import time

import scripts_path  # noqa: F401
import shape_table
import synthetic_checkpoint as synthetic
import text_tables

PROMPTS, STEPS, MOST_D = 4, 24, 0.5
COLUMNS = ("shape", "layers", "lag set", "device", "planted layers", "fp32 ids equal", "bf16 ids equal", "distinct ids", "smallest margin", "D")
HEAD = """# The analytic checkpoint of every shape, followed by HF transformers

Written by `dev/synthetic_margins.py --render reports/analytic/margins.json`; `dev/synthetic_margins.py --help` says
what the columns mean. Eager attention, rotary inverse frequencies in fp32, no TF32; a cut of 4 layers unless the shape has
as many as named.

Where D is over 0.5, HF's bf16 run is too far from its fp32 run to be a committed reference: such a shape has none, and
is judged by the closed form and by a truth computed in the same run.

"""


def prepare(lagset, shape):
    """(prompts, the closed form's ids after each)."""
    length = sum(synthetic.LAGS[lagset].values()) + 4
    prompts = [synthetic.prompt(length, 1000 * i + 1, shape.vocab) for i in range(PROMPTS)]
    return prompts, [synthetic.continuation(ids, lagset, STEPS, shape.vocab) for ids in prompts]


def logits_of(hf, config, state, dtype, device, prompts, paths):
    """[(own logits, logits through an fp32 head)] of each prompt, on the host; the model is freed afterwards."""
    runs = hf.teacher_forced(hf.Decoder(hf.build(config, state, dtype, device)), prompts, paths)
    return [tuple(logits.cpu() for logits in run) for run in runs]


def device_name(device):
    """What the table says: "CPU", or the card's name."""
    import torch

    return "CPU" if device == "cpu" else torch.cuda.get_device_name(device)


def measure(shape, lagset, device):
    """The table's entry for one shape and lag set."""
    import torch

    import hf_model as hf

    begin = time.monotonic()
    prompts, paths = prepare(lagset, shape)
    state, config = synthetic.build(lagset, shape), shape.config()
    made = time.monotonic()
    rounded = logits_of(hf, config, state, torch.bfloat16, device, prompts, paths)
    for name in list(state) if device == "cpu" else []:  # one copy of the weights at a time
        state[name] = state[name].float()
    truth = logits_of(hf, config, state, torch.float32, device, prompts, paths)

    def equal(runs):
        return sum(hf.argmax_lowest(row) == t for (own, _), path in zip(runs, paths) for row, t in zip(own, path))

    tops = [own.topk(2, -1).values for own, _ in truth]
    margin = min(float((top[:, 0] - top[:, 1]).min()) for top in tops)
    error = max(float(hf.pairwise_error(t, head).max()) for (t, _), (_, head) in zip(truth, rounded))
    return {"shape": shape.name, "layers": shape.layers, "lagset": lagset, "device": device_name(device),
            "planted": synthetic.lags(lagset, shape),
            "steps": PROMPTS * STEPS, "fp32_equal": equal(truth), "bf16_equal": equal(rounded),
            "distinct": len({t for path in paths for t in path}), "margin": round(margin, 2), "pairwise_error": round(error, 3),
            "top_logit": round(max(float(top.max()) for top in tops), 1), "seconds": round(time.monotonic() - begin),
            "seconds_of_weights": round(made - begin), "torch": torch.__version__}


def good(entry):
    """Whether all ids are those of the closed form and D is small enough for a reference."""
    return entry["fp32_equal"] == entry["bf16_equal"] == entry["steps"] and entry["pairwise_error"] <= MOST_D


def render(path):
    """Writes README.md beside the file of entries."""
    rows = [[e["shape"], e["layers"], e["lagset"], e["device"],
             " ".join(f"{layer}:{lag}" for layer, lag in e["planted"].items()) or "none", f"{e['fp32_equal']} of {e['steps']}",
             f"{e['bf16_equal']} of {e['steps']}", e["distinct"], f"{e['margin']:.2f}", f"{e['pairwise_error']:.3f}"]
            for e in json.loads(path.read_text())]
    (path.parent / "README.md").write_text(HEAD + text_tables.markdown(COLUMNS, rows, padded=False) + "\n")


def keep(path, entry):
    """Puts an entry into the file, in place of an earlier one of the same shape, layers, lag set and device."""
    def key(e):
        return list(shape_table.ROWS).index(e["shape"]), e["layers"], list(synthetic.LAGS).index(e["lagset"]), e["device"]

    entries = json.loads(path.read_text()) if path.exists() else []
    entries = sorted([e for e in entries if key(e) != key(entry)] + [entry], key=key)
    path.write_text("[\n" + ",\n".join(json.dumps(e) for e in entries) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {synthetic.analytic_names()}")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--sets", default="none,short", metavar="SET,...", help=f"of {', '.join(synthetic.LAGS)} [none,short]")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the models run [cpu]")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.json", help="where entries are kept")
    parser.add_argument("--render", type=pathlib.Path, metavar="FILE.json")
    args = parser.parse_args()
    if args.render:
        return render(args.render)
    if not args.shapes:
        parser.error("name a shape, or --render FILE.json")
    try:
        chosen = [synthetic.parse(f"{shape}:{lagset}") for shape in args.shapes for lagset in args.sets.split(",")]
        cuts = [(dataclasses.replace(s, layers=args.layers or s.layers), lagset) for s, lagset in chosen]
        for shape, lagset in cuts:
            synthetic.lags(lagset, shape)
    except ValueError as error:
        parser.error(str(error))
    import hf_model as hf

    try:
        hf.use_device(args.device)
    except hf.BadInput as error:
        raise SystemExit(f"synthetic_margins.py: {error}") from None
    failed = False
    for shape, lagset in cuts:
        entry = measure(shape, lagset, args.device)
        print(json.dumps(entry), flush=True)
        failed = failed or not good(entry)
        if args.out:
            keep(args.out, entry)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
