#!/usr/bin/env python3
"""Derives the limits of the fidelity ratios from legitimate decoders, and the sizes of planted faults that they detect.

    ratio_limits.py measure [MODEL ...]   runs every variant of decoder_variants.py, and faults of growing sizes, against
                                          the committed references: reports/limits/measured.json
    ratio_limits.py add REPORT.json ...   adds the engines of other reports (other cards, other frameworks)
    ratio_limits.py tables                writes README.md and limits.json there from measured.json

Each model gives the larger of 1.25 times the largest ratio of its legitimate decoders and the 99.9 % point of their
distribution (upper_point()); the largest over the models is the limit. A test holds harness/judge/ratios.cpp to it.
`measure` takes a minute for a tiny checkpoint and an hour for the full size, on two cores.
"""

import argparse
import datetime
import json
import math
import pathlib
import statistics
import sys

import torch

import scripts_path  # noqa: F401
import checkpoint_format
import decoder_variants as dv
import hf_model as hf
import report_file
from capture_reference import default_path, load
from reference_steps import kl_over_top
from text_tables import markdown

FOLDER = checkpoint_format.ROOT / "reports" / "limits"
MEASURED = FOLDER / "measured.json"
MODELS = ("tiny", "tiny-untied", "synthetic:short")
# What faults are planted in, by class.
CLASSES = {"bf16": dv.HF, "fp32-accumulate": dv.FP32_ACCUMULATE, "fp16": dv.in_fp16(dv.HF)}
RATIOS = ("rms", "step", "inf", "kl", "sweep")
HEADROOM, POINT = 1.25, 0.999
FEWEST = 5            # a model with fewer decoders gives no limit
LEAST_KL = 1e-6       # as in harness/judge/ratios.cpp
SWEEP_STEPS = 2049
# Sizes of each planted fault, from small to large.
FAULTS = {
    "rope_theta": ("rope_theta larger by", [4.0 ** -k for k in range(7, -2, -1)]),
    "scale": ("attention scale larger by", [2.0 ** -k for k in range(10, 0, -1)]),
    "one_head": ("one head's output smaller by", [2.0 ** -k for k in range(8, -1, -1)]),
    "newest": ("newest position weighs less by", [2.0 ** -k for k in range(8, 0, -1)] + [0.99]),
    "residual": ("the MLP of one layer smaller by", [2.0 ** -k for k in range(8, -1, -1)]),
    "columns": ("last columns of one down projection left out", [1, 2, 4, 8, 16, 32, 64]),
    "final_norm": ("weight of the last norm larger by", [2.0 ** -k for k in range(10, 0, -1)]),
    "eps_decades": ("eps larger by powers of ten", [1, 2, 3, 4]),
    "cache_bits": ("bits of K and V fewer by", [1, 2, 3, 4, 5]),
}


def progress(text):
    print(f"ratio_limits: {text}", file=sys.stderr, flush=True)


class Judged:
    """A model with its committed reference, and the truth on the reference's paths."""

    def __init__(self, model):
        self.model = model
        _, config, state = load(model)
        self.forward = dv.Forward(config, state)
        path = default_path(model)
        self.sha256 = checkpoint_format.file_sha256(path)
        self.prompts = json.loads(path.read_text())["prompts"]
        self.steps = [s for p in self.prompts for s in p["steps"]]
        self.truth = self.run(dv.TRUTH)
        worst = max(abs(float(row[i]) - z) for row, s in zip(self.truth, self.steps) for i, z in zip(s["top_ids"], s["top_logits"]))
        if not worst < 2e-3:  # sums in another order differ by about 1e-4
            raise ValueError(f"{model}: fp32 logits differ by {worst:.2g} from the reference's")
        self.long_path = None

    def run(self, variant, faults=None):
        """fp32 logits of all steps, teacher-forced, [steps, vocab]."""
        rows = []
        for p in self.prompts:
            ids = p["ids"] + [s["token"] for s in p["steps"]][:-1]
            rows.append(self.forward.logits(ids, len(p["ids"]) - 1, variant, faults))
        return torch.cat(rows)

    def ratios(self, precision, variant, faults=None):
        """The ratios of harness/judge/ratios.cpp, computed from whole logits, and the flips at near ties."""
        logits = self.run(variant, faults)
        norms, inf, kl, of_rounding, flips = [], 0.0, 0.0, 0.0, 0
        for row, truth, s in zip(logits, self.truth, self.steps):
            e = centred(row) - centred(truth)
            norms.append(float(e.norm()))
            inf = max(inf, float(e[s["top_ids"]].abs().max()))
            ids = torch.tensor(s["top_ids"])
            kl += max(0.0, kl_over_top(truth.double(), row.double(), ids))
            if precision == "bf16" and torch.equal(row, row.bfloat16().float()):
                of_rounding += kl_of_rounding(truth, ids)
            flips += not s["decided"] and hf.argmax_lowest(row) != s["token"]
        base = [s["baseline"] for s in self.steps]
        norm_of = [b["error_norm"] for b in base]
        median = statistics.median(norm_of)
        return {
            "r_rms": math.sqrt(sum(n * n for n in norms) / sum(n * n for n in norm_of)),
            "r_step": max(n / max(median, b) for n, b in zip(norms, norm_of)),
            "r_inf": inf / max(b["error_inf_top"] for b in base),
            "r_kl": kl / (sum(b["kl"] for b in base) + of_rounding + LEAST_KL),
            "flips": flips,
            "near_ties": sum(not s["decided"] for s in self.steps),
        }

    def sweep(self, variant):
        """The largest ratio of a variant's error to the baseline's at one cache length (harness/judge/sweep.cpp)."""
        if self.long_path is None:
            _, config, state = load(self.model)
            ids, truth = hf.greedy(hf.Decoder(hf.build(config, state, torch.float32)), self.prompts[0]["ids"], SWEEP_STEPS)
            inputs = self.prompts[0]["ids"] + ids[:-1]
            first = len(self.prompts[0]["ids"]) - 1
            base = errors(self.forward.logits(inputs, first, dv.HF), truth)
            self.long_path = inputs, first, truth, base.clamp_min(base.median())
        inputs, first, truth, base = self.long_path
        return float((errors(self.forward.logits(inputs, first, variant), truth) / base).max())


def centred(row):
    return row.double() - row.double().mean()


def kl_of_rounding(truth, ids):
    """The KL that rounding the truth's top logits to bf16 adds; harness/judge/ratios.cpp allows for it."""
    top_rounded = truth.double()
    top_rounded[ids] = truth[ids].bfloat16().double()
    return max(0.0, kl_over_top(truth.double(), top_rounded, ids))


def errors(logits, truth):
    """The 2-norm of each row's error less its mean."""
    error = logits.double() - truth.double()
    return (error - error.mean(1, keepdim=True)).norm(dim=1)


def rounded(row):
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}


def measure(model, classes, fresh, without_faults):
    judged = Judged(model)
    named = {"model": model, "reference_sha256": judged.sha256}
    for precision in classes:
        for name, variant in dv.legitimate(precision).items():
            progress(f"{model}: {precision}: {name}")
            row = {"class": precision, "decoder": name, **named, **judged.ratios(precision, variant)}
            if not model.startswith("synthetic"):
                row["r_sweep"] = judged.sweep(variant)
            fresh["decoders"].append(rounded(row))
        if without_faults:
            continue
        for fault, (_, sizes) in FAULTS.items():
            progress(f"{model}: {precision}: fault {fault}")
            for size in sizes:
                row = {"class": precision, "fault": fault, "size": size, **named, **judged.ratios(precision, CLASSES[precision], {fault: size})}
                fresh["faults"].append(rounded(row))


def of_report(path):
    """Rows of the engines of a report whose ratios were judged."""
    for case in report_file.load(path)["cases"]:
        for engine in case["engines"]:
            parity = engine["parity"]
            values = {c["name"]: c["value"] for c in (parity or {}).get("checks", [])}
            precision = (parity or {}).get("precision")
            if values.get("r_kl") is None or precision not in CLASSES:
                continue
            model = case["model"]["name"].partition(":")[0].rstrip("/").rpartition("/")[2]
            model = "synthetic:short" if model == "synthetic" else model
            if model not in MODELS or engine["verdict"] not in ("PASS", "FAIL_FIDELITY"):
                progress(f"{path}: {engine['resolved_name']} is left out: model {model}, verdict {engine['verdict']}")
                continue
            card = engine["device"].split(" ", 1)[-1]
            row = {"class": precision, "decoder": f"{engine['resolved_name']}, {card}",
                   "model": model,
                   "reference_sha256": parity["reference_sha256"].split(", ")[0],
                   **{f"r_{name}": values[f"r_{name}"] for name in RATIOS[:4]}}
            yield rounded(row)


def limit_of(rows, ratio):
    """(limit, largest ratio, 99.9 % point, model), from the model with the largest limit for this ratio."""
    key, found = f"r_{ratio}", []
    for model in MODELS:
        values = sorted(r[key] for r in rows if r["model"] == model and r.get(key))
        if len(values) >= FEWEST:
            point = upper_point(values)
            found.append((max(HEADROOM * values[-1], point), values[-1], point, model))
    return max(found)


def upper_point(values):
    """The POINT quantile of a log-normal distribution whose upper half has the spread of the values above the median:
    decoders that round less lie far below it, and say nothing about those that round most."""
    median = statistics.median(values)
    above = [math.log(v / median) for v in values if v >= median]
    deviation = math.sqrt(sum(x * x for x in above) / len(above))
    return median * math.exp(statistics.NormalDist().inv_cdf(POINT) * deviation)


def limits(measured):
    """{class: {ratio: limit}}, rounded up to two digits."""
    result = {}
    for precision in CLASSES:
        rows = [r for r in measured["decoders"] if r["class"] == precision]
        result[precision] = {ratio: rounded_up(limit_of(rows, ratio)[0]) for ratio in RATIOS}
    return result


def rounded_up(x):
    step = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / step - 1e-9) * step:.3g}")


def smallest_seen(rows, fault, ratio, limit):
    """The smallest size of a fault from which on the ratio is over its limit; None if it is not at the largest size."""
    sizes = sorted((r["size"], r[f"r_{ratio}"]) for r in rows if r["fault"] == fault)
    seen = None
    for size, value in reversed(sizes):
        if value <= limit:
            break
        seen = size
    return seen


def tables(measured):
    of = limits(measured)
    lines = ["# Limits of the fidelity ratios", "",
             "Written by `dev/ratio_limits.py tables` from measured.json; the definitions are in that program and in",
             "harness/judge/ratios.h. A ratio is an engine's error over that of HF's bf16 forward with an fp32 head; R_kl of a decoder",
             "that rounds its logits allows for that rounding.", "",
             "The decoders are no independent sample: many differ from another one in the order of their sums alone. So the",
             "99.9 % point says little by itself, and 1.25 times the largest decides where it is more. The ratios here are of whole",
             "logits; the judge estimates R_rms and R_step by 512 random projections (3 % of the error of one step) and a cache",
             "length by 128 (6 %), which the headroom has to hold. Rows that name a card are the judge's.", ""]
    for precision in CLASSES:
        rows = [r for r in measured["decoders"] if r["class"] == precision]
        names = {r["decoder"] for r in rows}
        found = [(ratio, *limit_of(rows, ratio)[1:]) for ratio in RATIOS]
        lines += [f"## Class {precision}: {len(names)} decoders, {len(rows)} rows", "", markdown(
            ["ratio", "largest of a legitimate decoder", "99.9 % point", "model", "limit"],
            [[f"R_{ratio}", f"{largest:.3g}", f"{point:.3g}", model, f"{of[precision][ratio]:g}"]
             for ratio, largest, point, model in found], padded=False), "", markdown(
            ["decoder", "model", *(f"R_{r}" for r in RATIOS), "flips"],
            [[r["decoder"], r["model"], *(f"{r[f'r_{x}']:.3g}" if r.get(f"r_{x}") is not None else "" for x in RATIOS),
              f"{r['flips']} of {r['near_ties']}" if "flips" in r else ""] for r in rows], padded=False), ""]
    return "\n".join(lines + power(measured, of)) + "\n"


def power(measured, of):
    """The table of faults: the smallest size that each ratio sees."""
    lines = ["## Power", "", "The smallest size of a planted fault from which on a ratio is over its limit; \"-\": no size that was tried.",
             "The ratchet sees smaller ones: it holds an engine to 1.1 to 1.25 times its own ratios (R_kl to 0.005 more at least).",
             *(f"Not measured: {model}." for model in MODELS if not any(r["model"] == model for r in measured["faults"])), ""]
    found = []
    for fault, (text, sizes) in FAULTS.items():
        for model in MODELS:
            for precision in CLASSES:
                rows = [r for r in measured["faults"] if r["model"] == model and r["class"] == precision]
                if not any(r["fault"] == fault for r in rows):
                    continue
                seen = [smallest_seen(rows, fault, ratio, of[precision][ratio]) for ratio in RATIOS[:4]]
                found.append([text, model, precision, f"{sizes[0]:.2g} to {sizes[-1]:.3g}",
                              *("-" if s is None else f"{s:.3g}" for s in seen)])
    return [*lines, markdown(["fault", "model", "class", "sizes tried", *(f"R_{r}" for r in RATIOS[:4])], found, padded=False)]


def written(measured):
    """The text of the files that `tables` writes, by name."""
    return {"README.md": tables(measured), "limits.json": json.dumps(limits(measured), indent=2) + "\n"}


def read():
    if MEASURED.exists():
        return json.loads(MEASURED.read_text())
    return {"schema": "mkbench.ratio_limits", "made": {}, "decoders": [], "faults": []}


def write(measured):
    """Writes measured.json: a line for each row, in the order of the models."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind in ("decoders", "faults"):
        measured[kind].sort(key=lambda r: (list(CLASSES).index(r["class"]), MODELS.index(r["model"])))
    text = json.dumps(measured, ensure_ascii=False).replace('{"class"', '\n{"class"')
    MEASURED.write_text(text + "\n")


def run(args):
    measured = read()
    if args.command == "measure":
        for model in args.what or MODELS:
            if model not in MODELS:
                raise ValueError(f"{model}: wanted one of {', '.join(MODELS)}")
            fresh = {"decoders": [], "faults": []}
            classes = [args.only] if args.only else CLASSES
            measure(model, classes, fresh, args.without_faults)
            made_here = {(model, c, name) for c in classes for name in dv.legitimate(c)}
            measured["decoders"] = [r for r in measured["decoders"] if (r["model"], r["class"], r["decoder"]) not in made_here]
            measured["faults"] = [r for r in measured["faults"] if r["model"] != model or r["class"] not in classes]
            for kind in fresh:
                measured[kind] += fresh[kind]
            now = {"date": datetime.date.today().isoformat(), "torch": torch.__version__,
                   "threads": torch.get_num_threads(), "faults": not args.without_faults}
            measured["made"].setdefault(model, {}).update(dict.fromkeys(classes, now))
            write(measured)
    elif args.command == "add":
        for path in args.what:
            for row in of_report(pathlib.Path(path)):
                key = (row["decoder"], row["model"])
                measured["decoders"] = [r for r in measured["decoders"] if (r["decoder"], r["model"]) != key] + [row]
        write(measured)
    else:
        for name, text in written(measured).items():
            (FOLDER / name).write_text(text)
        print((FOLDER / "limits.json").read_text(), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("measure", "add", "tables"))
    parser.add_argument("what", nargs="*", metavar="MODEL|REPORT.json")
    parser.add_argument("--only", choices=CLASSES, metavar="CLASS", help="measures one class: %(choices)s")
    parser.add_argument("--without-faults", action="store_true", help="measures decoders alone")
    try:
        run(parser.parse_args())
        return 0
    except (ValueError, OSError, KeyError) as error:
        print(f"ratio_limits.py: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
