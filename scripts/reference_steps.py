"""The figures of a reference: what one step records, and what D and the sets of prompts follow from."""

import base64

import numpy as np
import torch

import checkpoint_format
import hf_model as hf

TOP, PROJECTIONS, SKETCH_SEED = 32, 512, 20240229


def raw(values):
    """fp32 values as doubles of 9 significant digits, which identify an fp32 value and keep the file short."""
    return [float(f"{x:.9g}") for x in np.asarray(values.cpu(), np.float32).tolist()]


def packed(values):
    """fp32 values as base64 of their little-endian bytes: a quarter of their decimal text."""
    return base64.b64encode(np.asarray(values.cpu(), "<f4").tobytes()).decode("ascii")


def sketch_signs(vocab):
    """The +-1 vectors as int8, [projections, vocab]: -1 where bit 0 of splitmix64(seed ^ (p << 32) ^ id) is set."""
    ids = np.arange(vocab, dtype=np.uint64)
    rows = [(checkpoint_format.splitmix64(np.uint64(SKETCH_SEED ^ (p << 32)) ^ ids) & np.uint64(1)).astype(np.int8)
            for p in range(PROJECTIONS)]
    return torch.from_numpy(np.int8(1) - np.int8(2) * np.stack(rows))


def sketch(signs, centred):
    """The projections of fp64 `centred` [vocab], a few at a time: as fp64 the signs of a large vocabulary take 620 MB."""
    return torch.cat([some.double() @ centred for some in signs.split(32)])


def kl_over_top(truth, other, ids):
    """KL(truth || other) over `ids` and one bucket for the rest; fp64 logits [vocab]."""
    p = (truth[ids] - truth.logsumexp(0)).exp()
    q = (other[ids] - other.logsumexp(0)).exp()
    p, q = (torch.cat([x, (1 - x.sum()).clamp_min(0)[None]]) for x in (p, q))
    return float(torch.where(p > 0, p * (p.clamp_min(1e-300) / q.clamp_min(1e-300)).log(), 0.0).sum())


def measure(position, truth, base, exact, signs):
    """One step of the file from the logits of truth, baseline and baseline with an fp32 head (fp32, [vocab]);
    judge() adds `decided`."""
    top = truth.topk(min(TOP, len(truth)))
    # topk does not order equal logits; here the lowest id comes first, as in argmax.
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
        "sketch": packed(sketch(signs, centred)),
    }


def check_strict(p, d):
    """Raises ValueError if a strict prompt has a step whose margin is too small."""
    for s in p["steps"]:
        tau = d + hf.bf16_step(s["max_abs"])
        if not s["margin"] > 2 * tau:
            raise ValueError(f"{p['name']}: margin {s['margin']:.3f} at {s['position']}, wanted over {2 * tau:.3f}")


def largest_d(max_abs):
    """The largest D of a reference (references/greedy_reference.h); `max_abs`: the truth's largest absolute logit."""
    return max(0.5, 4 * hf.bf16_step(max_abs))


def judge(prompts):
    """Computes D, the decided flags, and the sets of the prompts whose set is "auto"; raises ValueError when a
    prompt does not meet the condition of its set."""
    every = [(p, s) for p in prompts for s in p["steps"]]
    steps = [s for _, s in every]
    worst, worst_step = max(every, key=lambda found: found[1]["baseline"]["pairwise"])
    d = worst_step["baseline"]["pairwise"]
    most = largest_d(max(s["max_abs"] for s in steps))
    if not d <= most:
        raise ValueError(f"D is {d:.3f}, wanted at most {most:g}: the baseline's error is too large to calibrate with "
                         f"(largest in prompt '{worst['name']}' at {worst_step['position']})")
    near_ties, is_near_tie = 0, any(p["set"] == "near-tie" for p in prompts)
    for p in prompts:
        taus = [d + hf.bf16_step(s["max_abs"]) for s in p["steps"]]
        if p["set"] == "auto":
            p["set"] = "strict" if all(s["margin"] > 2 * tau for s, tau in zip(p["steps"], taus)) else "near-tie"
        for s, tau in zip(p["steps"], taus):
            s["decided"] = s["margin"] > tau
            near_ties += p["set"] == "near-tie" and not s["decided"]
        if p["set"] == "strict":
            check_strict(p, d)
    if is_near_tie and near_ties == 0:
        raise ValueError("near-tie set: no step is a near tie")
    names = lambda kind: [p["name"] for p in prompts if p["set"] == kind]
    return {
        "D": d,
        "baseline_flips": sum(s["baseline"]["fp32_head_token"] != s["token"] for s in steps),
        "steps": len(steps),
        "near_tie_steps": near_ties,
        "smallest_strict_margin": min((s["margin"] for p in prompts if p["set"] == "strict" for s in p["steps"]), default=None),
        "strict": names("strict"),
        "near_tie": names("near-tie"),
    }
