"""What tests of `mkbench profile --timeline` look at: a trace as a viewer reads it, and its sums taken anew."""

import collections
import json
import pathlib

KINDS = ("body", "exchange", "weights", "hand-off", "room")
Span = collections.namedtuple("Span", "block role begin end phase kind token layer")


def schema_problems(trace: dict) -> list[str]:
    """What the schema of the trace event format says, of at most some 20,000 spans; nothing where there is no
    jsonschema to ask."""
    try:
        import jsonschema
    except ImportError:
        return []
    schema = json.loads(pathlib.Path(__file__).with_name("trace_event.schema.json").read_text())
    events = trace["traceEvents"]
    sample = [e for e in events if e["ph"] != "X"] + [e for e in events if e["ph"] == "X"][::len(events) // 20000 + 1]
    found = jsonschema.Draft202012Validator(schema).iter_errors(trace | {"traceEvents": sample})
    return [f"{error.json_path}: {error.message}" for error in found]


def read_spans(trace: dict) -> tuple[list[Span], list[tuple[float, float]]]:
    """The spans of blocks in microseconds, and the frames of tokens."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    spans, frames = [], []
    for e in trace["traceEvents"]:
        if e["ph"] != "X":
            continue
        if e["cat"] == "token":
            frames.append((e["ts"], e["ts"] + e["dur"]))
            continue
        phase = e["name"].removesuffix(f": {e['cat']}")
        spans.append(Span(e["pid"] - 1, names[e["pid"], e["tid"]], e["ts"], e["ts"] + e["dur"], phase, e["cat"],
                          e["args"].get("token", -1), e["args"].get("layer", -1)))
    return spans, frames


def overlaps(spans: list[Span]) -> int:
    """How many spans begin before the span before them on their track has ended."""
    tracks = collections.defaultdict(list)
    for span in spans:
        tracks[span.block, span.role].append(span)
    return sum(b.begin < a.end - 0.0015 for track in tracks.values()
               for a, b in zip(sorted(track), sorted(track)[1:]))


def phase_sums(spans: list[Span], steps: int) -> dict[tuple[str, str], dict[str, float]]:
    """Microseconds of a step by role and phase, then by kind: a mean over blocks."""
    blocks = len({span.block for span in spans})
    sums = collections.defaultdict(lambda: dict.fromkeys(KINDS, 0.0))
    for span in spans:
        if span.token < steps:
            sums[span.role, span.phase][span.kind] += (span.end - span.begin) / blocks / steps
    return sums


def critical_path(spans: list[Span], role: str, steps: int) -> tuple[float, int]:
    """Microseconds of a step from the first span to the last block's end of the last phase, and the block that is last
    most often."""
    ends = {}
    for span in spans:
        if span.role == role and span.kind in ("body", "hand-off") and 0 <= span.token < steps:
            blocks = ends.setdefault((span.token, span.layer, span.phase), {})
            blocks[span.block] = max(blocks.get(span.block, 0), span.end)
    lasts = collections.Counter(min(b for b in blocks if blocks[b] == max(blocks.values())) for blocks in ends.values())
    most = max(lasts.values())
    return max(max(blocks.values()) for blocks in ends.values()) / steps, min(b for b in lasts if lasts[b] == most)
