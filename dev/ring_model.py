"""Predicts ring's microseconds a token of Qwen3-0.6B from a card's bytes, slots, exchanges and clock.

One block stands for all 128, as they do the same at the same time. Its loader keeps copies in flight while the ring has
room and the pace allows; its consumers fetch a phase's slots, wait for the exchange, compute and hand over. Copies and
exchanges take longer the more copies are in flight. What a report gives: the time without loads, i.e. the dependency
chain; the ceiling's rate; the SM clock, which turns a pace's gap into time. Two numbers were fitted to an H200 with 11
slots (Card.latency, LOAD_SHARE) and hold for an H100, too; two more to an H200 with three slots (ALONE, REUSE). Three
or more copies in flight without a gap are up to 12 % slower than the model says (reports/perf.md).

With reports: each ring case with ablations, predicted beside measured. --slots, --copies, --gap and --head-copies
replace what the card's row of kernels/ring/tuning.cpp says, --gb-per-s and --chain (a factor) the card:
  dev/ring_model.py reports/evidence/nvidia-h200 --slots 3 --copies 2 --gap 0 --head-copies 2
"""

import argparse
import dataclasses
import math
import pathlib
import re
import sys

import scripts_path  # noqa: F401
import report_file
from tracked_files import ROOT

BLOCKS, SLOT_BYTES, LAYERS, HEAD_SLOTS, MEMBERS, HALF_TILE = 128, 16384, 28, 149, 16, 32
QKV, OUT, GATE_UP, DOWN = 4, 2, 6, 3  # slots of a block's share, kernels/ring/held/layer.cuh
LARGE_RING, SLOTS = 6, 11             # a ring of 6 slots or more holds the largest phase (kSmallRing in block.cuh)
# Microseconds, measured (reports/perf.md): from the consumers' arrival to the publisher's release, reading a slot from
# shared memory, attention's arithmetic on a slot of K or V, an exchange without a stream, the arithmetic of a slot of the
# LM head, and the end of a step.
HAND_OVER, FETCH, TILE, EXCHANGE, HEAD_SLOT, STEP_END = 0.3, 0.07, 0.27, 0.79, 0.12, 3.5
# What a stream adds to an exchange, by its share of the ceiling's rate, measured beside a stream that never stops.
LOAD = ((0, 0), (0.606, 0.17), (0.804, 0.32), (0.842, 0.45), (0.913, 1.16), (0.938, 2.41), (1.01, 2.8))
REUSE = 0.2            # fitted: until the loader fills a slot that was released
ALONE = 0.15           # fitted: what more a slot takes where a ring is too small to wait for several at once
LOAD_SHARE = 0.35      # fitted: ring's stream stops where its ring is full
FROM_L2 = 0.15         # part of a copy's time that it takes for a half tile that all blocks of a group read
STEP = 0.02            # microseconds of the simulation


@dataclasses.dataclass
class Card:
    """A card as ring sees it; `latency`: microseconds of a copy of 16 KiB alone."""
    gb_per_s: float
    sm_ghz: float
    latency: float = 0.55

    def copy_us(self, in_flight: float) -> float:
        """Time of one copy, with so many in flight in each block (rates at 1 to 4 in flight: within 3 % of an H200's)."""
        return math.hypot(self.latency, in_flight * self.slot_us())

    def slot_us(self) -> float:
        return BLOCKS * SLOT_BYTES / self.gb_per_s / 1e3

    def exchange_us(self, in_flight: float) -> float:
        share = in_flight * self.slot_us() / self.copy_us(in_flight) if in_flight else 0
        (a, low), (b, high) = next(pair for pair in zip(LOAD, LOAD[1:]) if share <= pair[1][0])
        return EXCHANGE + LOAD_SHARE * (low + (high - low) * (share - a) / (b - a))


@dataclasses.dataclass
class Ring:
    slots: int
    copies: int
    gap_cycles: int
    head_copies: int
    split_from: int


@dataclasses.dataclass
class Fetch:
    """What the consumers wait for and take at once."""
    copies: list[float]  # sizes in slots
    us: float            # from the copies' arrival until their slots are free


def phases_of(ring: Ring, position: int) -> list[list[Fetch]]:
    """The fetches of each phase of a layer."""
    small = ring.slots < LARGE_RING

    def weights(slots: int) -> list[Fetch]:
        return [Fetch([1.0], FETCH + ALONE)] * slots if small else [Fetch([1.0] * slots, FETCH * slots)]

    if position < ring.split_from:
        tiles = [Fetch([FROM_L2], TILE / 2)] * (2 * math.ceil(position / HALF_TILE))
        return [weights(QKV), weights(OUT) + tiles, weights(GATE_UP), weights(DOWN)]
    whole, half = divmod(math.ceil(position / (MEMBERS * HALF_TILE)), 2)
    sizes = [1.0] * whole + [0.5] * half
    turn = 1 if small else 4  # a small ring waits for each tile; its turns of two tiles of K, then two of V, are left out
    tiles = [Fetch(sizes[at:at + turn], TILE * sum(sizes[at:at + turn])) for at in range(0, len(sizes), turn) for _ in "kv"]
    return [weights(QKV), tiles, weights(OUT), weights(GATE_UP), weights(DOWN)]


def layer_us(card: Card, ring: Ring, phases: list, body_us: float, loads: bool = True, layers: int = 5) -> float:
    """Microseconds of a layer among others; body_us: of each phase's arithmetic."""
    fetches = [(fetch, at == len(phase) - 1) for phase in phases for at, fetch in enumerate(phase)]
    sizes = [size for fetch, _ in fetches for size in fetch.copies]
    gap = ring.gap_cycles / card.sm_ghz / 1e3
    flight, ends = [], []
    issued = arrived = released = at = 0
    now = due = wait = exchanged = 0.0
    freed = []  # (time, number of slots released by then)
    wanted, state = len(fetches[0][0].copies), "copies"
    while len(ends) < layers:
        while freed and now >= freed[0][0]:
            released = freed.pop(0)[1]
        while loads and issued < layers * len(sizes) and issued - released < ring.slots \
                and len(flight) < ring.copies and now >= due:
            size = sizes[issued % len(sizes)]
            flight.append([0.0, size])
            due = max(due, now - gap) + gap * size
            issued += 1
        in_flight = sum(size for _, size in flight)
        for copy in flight:
            copy[0] += STEP / card.copy_us(in_flight) / max(copy[1], 0.3)
        while flight and flight[0][0] >= 1:
            flight.pop(0)
            arrived += 1
        now += STEP
        exchanged += STEP / card.exchange_us(in_flight)
        wait -= STEP
        if wait > 0:
            continue
        fetch, last = fetches[at]
        if state == "copies" and (arrived >= wanted or not loads):
            state, wait = "fetch", fetch.us
        elif state == "fetch":
            freed.append((now + REUSE, wanted))
            state = "exchange" if last else "copies"
            if not last:
                at += 1
                wanted += len(fetches[at][0].copies)
        elif state == "exchange" and exchanged >= 1:
            state, wait = "body", body_us + HAND_OVER
        elif state == "body":
            state, exchanged, at = "copies", 0.0, (at + 1) % len(fetches)
            wanted += len(fetches[at][0].copies)
            if at == 0:
                ends.append(now)
    return (ends[-1] - ends[1]) / (layers - 2)


def token_us(card: Card, ring: Ring, depth: int, chain_us: float, tokens: int = 64) -> float:
    """Mean microseconds of `tokens` tokens from `depth` on; chain_us: the same without loads."""
    phases = phases_of(ring, depth + tokens // 2)
    end = HEAD_SLOT * HEAD_SLOTS + STEP_END
    large = phases_of(dataclasses.replace(ring, slots=SLOTS), depth + tokens // 2)
    body = ((chain_us - end) / LAYERS - layer_us(card, ring, large, 0, loads=False)) / len(phases)
    head_slot = max(HEAD_SLOT, card.copy_us(ring.head_copies) / ring.head_copies)
    return LAYERS * layer_us(card, ring, phases, max(0.0, body)) + head_slot * HEAD_SLOTS + STEP_END


def tuned(card_name: str, depth: int) -> Ring:
    """What kernels/ring/tuning.cpp says for a held shape on a Hopper card."""
    text = (ROOT / "kernels/ring/tuning.cpp").read_text()
    rows = [row for row in re.split(r"\{\.card = ", text)[1:] if ".held = false" not in row]
    row = next((row for row in rows if (name := row.split('"')[1]) and name in card_name), None)
    if row is None:
        raise SystemExit(f"ring_model: kernels/ring/tuning.cpp has no row for {card_name}: give a report of an H100 or H200")
    paces = re.findall(r"\{(\w+), \{(\d+), (\d+)\}\}", row)
    pace = next((int(copies), int(gap)) for until, copies, gap in paces if until == "kEver" or depth < int(until))
    head = int(re.search(r"\.head_pace = \{(\d+)", row).group(1))
    return Ring(SLOTS, *pace, head, int(re.search(r"\.split_from = (\d+)", row).group(1)))


def cases_of(report: dict):
    """(depth, tokens, the ring engine of the report) of each case with ablations."""
    for case in report["cases"]:
        for engine in case["engines"]:
            if engine["name"] == "ring" and engine.get("profile"):
                yield case["axes"]["depth"], case["axes"]["n_gen"], engine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=pathlib.Path, help="folders of reports with ring and --ablations")
    for name in ("slots", "copies", "gap", "head-copies"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--gb-per-s", type=float, help="a card with this ceiling")
    parser.add_argument("--latency", type=float, default=Card.latency, help="a copy's time alone, us (default: %(default)s)")
    parser.add_argument("--chain", type=float, default=1.0, help="factor on the report's time without loads")
    options = parser.parse_args()
    replaced = {"slots": options.slots, "copies": options.copies, "gap_cycles": options.gap,
                "head_copies": options.head_copies}
    for folder in options.reports:
        report = report_file.load(folder / "report.json" if folder.is_dir() else folder)
        found = list(cases_of(report))
        if not found:
            print(f"ring_model: {folder}: no case of ring has ablations: run it with --ablations", file=sys.stderr)
            return 2
        print(f"{report_file.card_of(report)}: us a token\n   depth  predicted  measured")
        for depth, tokens, engine in found:
            ring = dataclasses.replace(tuned(report_file.card_of(report), depth),
                                       **{name: value for name, value in replaced.items() if value is not None})
            card = Card(options.gb_per_s or engine["roofline"]["ceiling_gb_per_s"], engine["sm_ghz"], options.latency)
            profile = engine["profile"]
            predicted = token_us(card, ring, depth, options.chain * profile["no_loads_us"], tokens)
            error = 100 * (predicted / profile["full_us"] - 1)
            print(f"{depth:8}{predicted:11.1f}{profile['full_us']:10.1f}{error:+8.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
