"""report.json as every script reads it: the file, its schema, and the figures of its cases and engines.

A minor version of the schema only adds fields; a field that a report does not have is read as its default here.
"""

import json
import math
import pathlib
import sys

SCHEMA_ID, SCHEMA_MAJOR = "mkbench.report", "1"

# Exceptions that reading an incomplete report can raise.
INCOMPLETE = (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class BadReport(Exception):
    """A file that is not a report; the message names the file and what is wrong with it."""


def parse(name: str, text: str | bytes) -> dict:
    """The report that a text holds; messages call it `name`. Raises BadReport."""
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{name}: not JSON: {error}") from None
    schema = report.get("schema") if isinstance(report, dict) else None
    found = schema if isinstance(schema, dict) else {}
    if found.get("id") != SCHEMA_ID:
        raise BadReport(f"{name}: schema.id: found {found.get('id')!r}, wanted {SCHEMA_ID}: it is no report of mkbench")
    if str(found.get("version", "")).split(".")[0] != SCHEMA_MAJOR:
        raise BadReport(f"{name}: schema.version: found {found.get('version')!r}, wanted {SCHEMA_MAJOR}.x: read it with the "
                        "mkbench that wrote it")
    return report


def load(path: pathlib.Path) -> dict:
    try:
        return parse(str(path), path.read_bytes())
    except OSError as error:
        raise BadReport(f"{path}: {error.strerror}") from None


def refuse_incomplete(program: str, paths: list, error: Exception) -> int:
    """Says in one line that a report lacks what it should have. Returns the exit status."""
    names = ", ".join(str(path) for path in paths)
    found = " ".join(str(error).split())[:200]
    print(f"{program}: {names}: not a complete report: {type(error).__name__}: {found}", file=sys.stderr)
    return 2


def finite(value):
    """The number, or None; raises ValueError for anything else, which a report does not hold."""
    if value is not None and (isinstance(value, bool) or not math.isfinite(value)):
        raise ValueError(f"a number of {value!r}")
    return value


def ends(interval) -> tuple:
    return (finite(interval["low"]), finite(interval["high"])) if interval else (None, None)


def gpu_of(report: dict) -> dict:
    """The facts of the report's card; empty without one."""
    return report["env"].get("gpu") or {}


def card_of(report: dict) -> str:
    gpu = report["env"].get("gpu")
    if str(report["env"].get("device", "")).startswith("cpu"):
        return "cpu"
    return gpu["name"] if isinstance(gpu, dict) else str(report["env"].get("device", "unknown device"))


def build_of(report: dict) -> str:
    """The mkbench that wrote the report: version and commit."""
    meta = report["meta"]
    sha = str(meta.get("git_sha", ""))[:10]
    return f"mkbench {meta.get('version', '?')}" + (f" ({sha}{', changed' if meta.get('dirty') else ''})" if sha else "")


def is_prefill(case: dict) -> bool:
    return case["axes"]["n_prompt"] > 0


def position_of(case: dict) -> int:
    """Where a case stands on the axis of its kind: the length of a prefill, else the depth."""
    return case["axes"]["n_prompt" if is_prefill(case) else "depth"]


def is_quantised(engine: dict) -> bool:
    """Whether the engine is quantised: it is shown apart from the others, and never ranked with them."""
    return engine.get("own_weights", False) or (engine.get("parity") or {}).get("precision") == "lossy"


def label_of(engine: dict) -> str:
    name, resolved = engine["name"], engine["resolved_name"]
    return name if resolved in ("", name) else f"{name} ({resolved})"


def labels_of(case: dict) -> dict:
    """engine's name -> label. Files lose their folders unless two labels would be equal; quantised ones are marked."""
    short = [e["resolved_name"] if "/" in e["name"] and e["resolved_name"] else label_of(e) for e in case["engines"]]
    return {e["name"]: (label if short.count(label) == 1 else label_of(e)) + (" (quantised)" if is_quantised(e) else "")
            for e, label in zip(case["engines"], short)}


def timed(case: dict) -> list:
    """The engines whose times are shown."""
    return [e for e in case["engines"] if e["ms_per_tok"] is not None]


def rate_ends(engine: dict) -> tuple:
    return finite(engine["tok_per_s_ci_low"]), finite(engine["tok_per_s_ci_high"])


def comparison_of(case: dict, engine: dict):
    """The engine's comparison with the fastest baseline that has times, as in the terminal's table."""
    times = {e["name"]: finite(e["ms_per_tok"]["mean"]) or math.inf for e in timed(case) if e["role"] == "baseline"}
    own = [c for c in case["comparisons"]
           if c["candidate"] == engine["name"] and c["baseline"] in times and c["speedup"] is not None]
    return min(own, key=lambda c: times[c["baseline"]], default=None)


def ranked_comparison(case: dict, engine: dict):
    """The comparison that is shown as an engine's speed-up; None for a baseline and a quantised engine."""
    return None if engine["role"] == "baseline" or is_quantised(engine) else comparison_of(case, engine)
