"""Small good reports as mkbench writes them; tests of the scripts change them until a line fails."""

import copy
import json
import pathlib
import tempfile
import unittest

CEILING = 4700.0  # GB/s
PINS = 4917.0
# The source hashes of a tree that does not change while the tests run.
HASHES = {"speed": "5" * 64, "judgement": "7" * 64}
ROLES = {"eager": "baseline", "graph": "baseline", "ring": "candidate", "plain": "candidate"}
NO_SPEEDUP = {"speedup": None, "speedup_reason": "eager was not timed",
              "verdict": "INCONCLUSIVE"}


def engine(name, ms_per_tok=0.3, tokens=64, judged_in="", timed=True):
    per_token = [ms_per_tok + 0.02] + [ms_per_tok] * (tokens - 1)
    samples = [{"process": 0, "block": b, "tokens": tokens, "valid": True, "ids": list(range(tokens)),
                "times": {"host_ms": ms_per_tok * tokens, "per_token_ms": per_token}} for b in range(3)]
    return {
        "name": name, "resolved_name": name, "role": ROLES.get(name, "candidate"), "verdict": "PASS",
        "timed": timed, "tok_per_s": 1000 / ms_per_tok, "host_ms": ms_per_tok * tokens,
        "ms_per_tok": {"median": ms_per_tok, "mean": ms_per_tok} if timed else None,
        "receipts_checked": 3 * tokens if timed else 0, "receipts_wrong": 0,
        "parity": {"verdict": "PASS", "strict_steps": 64, "strict_matched": 64, "judged_in": judged_in,
                   "reference_sha256": "a" * 64, "r_rms": 0.06},
        "profile": {"full_us": 300.0, "no_waits_us": 280.0, "no_loads_us": 200.0, "binds": "both"}
        if name == "ring" else None,
        "samples": samples if timed else [],
    }


def ceiling(ms_per_tok, tokens=64):
    """Two passes a sample, in as many blocks as engine() has."""
    return {"reason": "", "samples": [{"process": 0, "block": b, "tokens": 2 * tokens, "valid": True,
                                       "times": {"host_ms": 2 * ms_per_tok * tokens}} for b in range(3)]}


def case(model, depth, check, engines, n_prompt=0, tokens=64, comparisons=(), ceiling_ms=None):
    return {
        "name": f"{model} pp{n_prompt}" if n_prompt else f"{model} d={depth} n={tokens}",
        "model": {"name": model}, "axes": {"depth": depth, "n_gen": tokens, "n_prompt": n_prompt},
        "reference": {"timed_check": check}, "engines": engines, "comparisons": list(comparisons),
        "ceiling": ceiling(ceiling_ms, tokens) if ceiling_ms else {"reason": "none", "samples": []},
    }


def report(cases):
    return {"cases": cases, "env": {"gpu": {"name": "NVIDIA H200"}}, "meta": {"argv": ["mkbench"]},
            "calibration": {"pin_gb_per_s": PINS},
            "verdict": {"status": "PASS", "exit_code": 0, "reasons": [], "interrupted": False}}


def synthetic(depth, alone, judged_in):
    """A case at one depth in which ring reaches 97 % of the ceiling."""
    moved = 1.2e9 + 114688 * depth
    ceiling_ms = moved / (CEILING * 1e6)
    ring = engine("ring", ceiling_ms / 0.97, judged_in=judged_in)
    if alone:
        return case("synthetic", depth, "closed form",
                    [engine("eager", timed=False, judged_in=judged_in), ring],
                    comparisons=[{"baseline": "eager", "candidate": "ring", **NO_SPEEDUP}], ceiling_ms=ceiling_ms)
    others = [engine("eager", 17.0, judged_in=judged_in), engine("plain", 0.6, judged_in=judged_in)]
    return case("synthetic", depth, "closed form", [others[0], ring, others[1]],
                comparisons=[{"baseline": "eager", "candidate": n, "speedup": 40.0, "verdict": "FASTER"}
                             for n in ("ring", "plain")], ceiling_ms=ceiling_ms)


def strangers(wanted):
    """Ours and engines from elsewhere in one run; wanted: evidence_lines.STRANGERS."""
    engines = []
    for name, most in wanted.items():
        made = engine(name, tokens=16)
        made["ms_per_tok"]["ci"] = {"low": 0.29, "high": 0.31}
        made["launch_trace"] = {"problem": "", "tokens": 16, "kernels": most or 1600, "graph_launches": 0}
        made["process"] = {"crossing_us": 44.0}
        engines.append(made)
    return report([case("synthetic", 0, "closed form", engines, tokens=16)])


def timing_runs(depths, tokens):
    """The runs of the GPU check's part `timing`, by the folder or file that they leave."""
    def shared(name):
        made = engine(name, tokens=8)
        made["ms_per_tok"]["processes"] = 5
        made["share_ci"] = {"low": 0.95, "high": 0.965}
        return made

    def alone(tokens, **card):
        ring, plain = engine("ring", tokens=tokens), engine("plain", tokens=tokens)
        ring["card"] = card
        return case("synthetic", 0, "closed form", [ring, plain], tokens=tokens)

    power = [{"share": s, "seen": 0.97, "slower": 0.1, "rescaled": 0.99} for s in (0.01, 0.02, 0.05)]
    clock = {"live": 10, "live_excluding_one": 1, "live_faster_or_slower": 0, "rows": [
        {"processes": p, "splits": 200, "excluding_one": 9, "faster_or_slower": 0, "most_allowed": 21, "power": power}
        for p in (3, 5, 30)]}
    return {
        "table/report.json": report([case("synthetic", d, "closed form", [shared(n) for n in ("eager", "ring", "plain")], tokens=8)
                                     for d in depths]),
        "blocks/report.json": report([alone(n) for n in tokens]),
        "telemetry/report.json": report([alone(8, watching_costs=-0.0004)]),
        "energy/report.json": report([alone(8, energy_j=0.21)]),
        "clock.json": clock,
        "audit/audit.json": {"cases": [{"engines": [{"engine": n, "verdict": "PASS"} for n in ("ring", "plain")]}]},
    }


def prefill(length, judged_in):
    engines = [engine(n, 0.01, tokens=length, judged_in=judged_in) for n in ("eager", "ring", "plain")]
    return case("synthetic", 0, "closed form", engines, n_prompt=length, tokens=0)


def spoiled(value):
    """Copies of a report, each with one value replaced by one that it cannot have. Of a list the first item stands for
    all."""
    def places(inner, path=()):
        yield path
        children = inner.items() if isinstance(inner, dict) else enumerate(inner[:1]) if isinstance(inner, list) else ()
        for key, child in children:
            yield from places(child, path + (key,))

    for path in list(places(value))[1:]:
        for bad in (None, "text", -1, [], {}, [None]):
            changed = copy.deepcopy(value)
            at = changed
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = bad
            yield changed


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = pathlib.Path(holder.name)
        self.good()

    def put(self, path, content):
        (self.out / path).parent.mkdir(parents=True, exist_ok=True)
        (self.out / path).write_text(content if isinstance(content, str) else json.dumps(content))
