"""Small good reports as mkbench writes them; tests of the scripts change them until a line fails."""

import copy
import json
import pathlib
import tempfile
import unittest

# The source hashes of a tree that does not change while the tests run.
HASHES = {"speed": "5" * 64, "judgement": "7" * 64}
CHECKS = ("r_rms", "repeats", "isolation", "sweep")


def engine(name, tokens=64, steps=64, timed=True, **fields):
    ms = {"eager": 17.0, "plain": 0.6}.get(name, 0.3)
    return {
        "name": name, "resolved_name": name, "role": "baseline" if name in ("eager", "graph") else "candidate",
        "verdict": "PASS", "tok_per_s": 1000 / ms, "host_ms": ms * tokens, "first_token_ms": ms + 0.02,
        "itl_p50_ms": ms, "share": 0.97 if timed else None, "share_ci": {"low": 0.96, "high": 0.975},
        "ms_per_tok": {"median": ms, "ci": {"low": ms - 0.01, "high": ms + 0.01}, "processes": 5} if timed else None,
        "receipts_checked": 3 * tokens if timed else 0, "receipts_wrong": 0,
        "parity": {"verdict": "PASS", "strict_steps": steps, "strict_matched": steps, "decided_steps": steps + 4,
                   "judged_in": "", "reference_sha256": "a" * 64, "r_rms": 0.06,
                   "checks": [{"name": c, "status": "passed"} for c in CHECKS]},
        "profile": {"full_us": 300.0, "no_waits_us": 280.0, "no_loads_us": 200.0, "binds": "both"},
        "samples": [{"tokens": tokens}] * 3 if timed else [],
        "card": {"watching_costs": -0.0004, "energy_j": 0.21},
        "launch_trace": {"problem": "", "tokens": 16, "kernels": 1, "graph_launches": 0},
        "process": {"crossing_us": 44.0}, **fields}


def case(model, engines, depth=0, n_prompt=0, tokens=64, comparisons=()):
    return {
        "name": f"{model} pp{n_prompt}" if n_prompt else f"{model} d={depth} n={tokens}", "model": {"name": model},
        "axes": {"depth": depth, "n_gen": tokens, "n_prompt": n_prompt},
        "reference": {"timed_check": "closed form"}, "engines": engines,
        "comparisons": [{"baseline": "eager", "candidate": "ring", **c} for c in comparisons]}


def report(cases):
    return {"schema": {"id": "mkbench.report", "version": "1.8.0"}, "cases": cases, "env": {"gpu": {"name": "NVIDIA H200"}},
            "verdict": {"status": "PASS", "exit_code": 0}}


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

    def put_changed(self, path, keys, value):
        """Writes a file of self.files with the value at `keys` replaced."""
        changed = holder = copy.deepcopy(self.files[path])
        for key in keys[:-1]:
            holder = holder[key]
        holder[keys[-1]] = value
        self.put(path, changed)
