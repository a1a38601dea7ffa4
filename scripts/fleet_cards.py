"""Is it the kernel or the card? What the results of a fleet show about its cards.

Cards of one kind are compared. How fast a card reads is the rate of its own ceiling; an engine's share of that ceiling,
measured in the same run, does not change with the card's speed. A card that is off by more than the rule allows is named,
and so is one that computes other tokens or other logits than its neighbours.
"""

import collections
import dataclasses
import sqlite3
import statistics

import exit_codes
import text_tables

LEAST_CARDS = 4  # fewer give no spread that a card could be outside of
LIMIT = 3.5  # robust standard deviations from the median (Iglewicz and Hoaglin)
TO_SIGMA = 1.4826  # standard deviation over median absolute deviation, for normal values
FLOOR = 0.01  # relative: two readings of one card differ by less, so it is the least limit, even for a spread of 0
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclasses.dataclass
class Card:
    id: str
    kind: str
    stand_in: bool
    facts: dict  # the card's row in the store's table `cards`
    done: int = 0
    failed: int = 0
    gb_per_s: float | None = None  # rate of the ceiling, median over the card's runs
    clock_mhz: float | None = None
    throttle: str = ""
    dropped: int = 0
    reads: float | None = None  # its ceiling rate over the median of its kind; median over the cases
    shares: dict = dataclasses.field(default_factory=dict)  # engine -> its share of this card's ceiling, median
    over: dict = dataclasses.field(default_factory=dict)  # engine -> share (else rate) over the median of its kind

    @property
    def name(self) -> str:
        return short(self.id)


@dataclasses.dataclass
class Facts:
    cards: list
    sentences: list  # (text, kind of the finding: card, kernel, open, bits)
    notes: list
    exit_code: int


def short(card: str) -> str:
    return card[:12] if card.startswith("GPU-") else card


def in_words(count: int) -> str:
    return WORDS[count] if count < len(WORDS) else str(count)


def outliers(values: dict) -> dict:
    """name -> relative distance from the median, of outliers; values must be over 0. Empty for few cards."""
    if len(values) < LEAST_CARDS:
        return {}
    middle = statistics.median(values.values())
    spread = statistics.median(abs(value - middle) for value in values.values())
    limit = max(LIMIT * TO_SIGMA * spread, FLOOR * middle)
    return {name: value / middle - 1 for name, value in values.items() if abs(value - middle) > limit}


def relative(rows: list, value: str, keys: tuple) -> dict:
    """card -> the median, over all cases, of its value divided by the median of its kind in the same case."""
    by_case = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        if row[value]:
            by_case[tuple(row[key] for key in keys)][row["card"]].append(row[value])
    found = collections.defaultdict(list)
    for cards in by_case.values():
        if len(cards) < 2:
            continue
        own = {card: statistics.median(values) for card, values in cards.items()}
        middle = statistics.median(own.values())
        for card, one in own.items():
            found[card].append(one / middle)
    return {card: statistics.median(values) for card, values in found.items()}


CASE = ("kind", "model", "depth", "n_gen", "n_prompt")
QUERY = """SELECT r.card, r.kind, r.build_id, x.*, CASE WHEN x.ceiling_ms > 0 THEN 1 / x.ceiling_ms END AS reads,
             CASE WHEN x.ms_per_tok > 0 THEN 1 / x.ms_per_tok END AS rate
           FROM results x JOIN reports r USING (report) JOIN tries t ON t.report = r.report
           WHERE t.outcome IN ('done', 'failed', '') ORDER BY r.card"""


def middle(values) -> float | None:
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def facts_of(base: sqlite3.Connection) -> Facts:
    cards = [Card(row["card"], row["kind"], bool(row["stand_in"]), dict(row))
             for row in base.execute("SELECT * FROM cards ORDER BY kind, card")]
    rows = [dict(row) for row in base.execute(QUERY)]
    tries = collections.Counter((row["card"], row["outcome"]) for row in base.execute("SELECT card, outcome FROM tries"))
    failed = collections.Counter()
    for (card_id, outcome), count in tries.items():
        failed[card_id] += count if outcome.startswith(("failed", "lost")) else 0
    by_card = collections.defaultdict(list)
    for row in rows:
        by_card[row["card"]].append(row)
    for card in cards:
        mine = by_card[card.id]
        card.done = tries[card.id, "done"] + tries[card.id, ""]
        card.failed = failed[card.id]
        card.gb_per_s, card.clock_mhz = middle(r["ceiling_gb_per_s"] for r in mine), middle(r["sm_clock_mhz"] for r in mine)
        card.throttle = ", ".join(sorted({word for r in mine for word in r["throttle"].split(", ") if word}))
        card.dropped = sum(r["dropped"] or 0 for r in mine)
        for engine in dict.fromkeys(r["engine"] for r in mine if r["share"] and r["role"] != "baseline"):
            card.shares[engine] = middle(r["share"] for r in mine if r["engine"] == engine)
    sentences, notes = [], []
    for kind in dict.fromkeys(card.kind for card in cards):
        mine = [card for card in cards if card.kind == kind]
        compare_kind(mine, [row for row in rows if row["kind"] == kind], sentences, notes)
    # A failed cell counts as 1 at least: mkbench may have ended with 0 (a report of another card) or by a signal (< 0).
    codes = [max(row[0], 1) for row in base.execute("""
        SELECT max(coalesce(t.exit_code, 1)) FROM tries t JOIN cells c USING (cell)
        WHERE c.state = 'failed' AND t.outcome IN ('failed', 'lost') GROUP BY c.cell""")]
    builds = sorted({row["build_id"] for row in rows})
    # Cells of a workflow's matrix have no queue: the reports say how their runs ended.
    codes += [row[0] for row in base.execute("""
        SELECT DISTINCT r.exit_code FROM tries t JOIN reports r ON r.report = t.report WHERE t.outcome = ''""")]
    if len(builds) > 1:
        notes.append(f"the reports come from {len(builds)} builds of mkbench: {'; '.join(builds)}")
    computes = [exit_codes.NONDETERMINISTIC] if any(finding == "bits" for _, finding in sentences) else []
    return Facts(cards, sentences, notes, max(codes + computes, default=0))


def compare_kind(cards: list, rows: list, sentences: list, notes: list) -> None:
    kind, roles = cards[0].kind, {row["engine"]: row["role"] for row in rows}
    reads = relative(rows, "reads", CASE)
    engines = list(dict.fromkeys(row["engine"] for row in rows if row["ms_per_tok"]))
    over = {}
    for engine in engines:
        mine = [row for row in rows if row["engine"] == engine]
        # A baseline that waits for its host does not follow the card: its share would fall where the card is fast.
        shares = {} if roles[engine] == "baseline" else relative(mine, "share", CASE)
        over[engine] = shares or relative(mine, "rate", CASE)
    for card in cards:
        card.reads = reads.get(card.id)
        card.over = {engine: values[card.id] for engine, values in over.items() if card.id in values}
    if len(cards) < LEAST_CARDS:
        notes.append(f"{kind}: {in_words(len(cards))} card{'s' * (len(cards) > 1)}: too few to tell an outlier, "
                     f"which takes at least {LEAST_CARDS}")
    else:
        has_share = any(row["share"] for row in rows)
        off, off_shares = outliers(reads), {engine: outliers(values) for engine, values in over.items()}
        for card in cards:
            sentences += sentences_of(card, len(cards) - 1, off, off_shares, roles, has_share)
    sentences += bits_of(rows)


def percent(off: float) -> str:
    return f"{100 * abs(off):.1f} % {'less' if off < 0 else 'more'}"


def sentences_of(card: Card, others: int, off: dict, off_shares: dict, roles: dict, has_share: bool) -> list:
    """Findings about one card; empty if nothing is off."""
    mine = {engine: values[card.id] for engine, values in off_shares.items() if card.id in values}
    neighbours = f"its {in_words(others)} neighbours"
    if not has_share:
        return [(f"card {card.name}: {engine}'s token rate is {percent(by)} than on {neighbours}; no ceiling was "
                 "measured, so card and kernel cannot be told apart", "open") for engine, by in mine.items()]
    found, where = [], f"card {card.name}: read rate"
    kernels = {engine: by for engine, by in mine.items() if roles.get(engine) != "baseline"}
    steady = [engine for engine in card.shares if engine not in mine and roles.get(engine) != "baseline"]
    if card.id in off:
        as_others = f"{' and '.join(steady)}'s share of it is as on the others" if steady else ""
        differ = " and ".join(f"{engine}'s share of it is {percent(by)}" for engine, by in kernels.items())
        why = "the card and the kernel" if kernels else "the card"
        kernel = "; ".join(part for part in (as_others, differ) if part) or "no kernel was timed on it"
        found.append((f"{where} {percent(off[card.id])} than on {neighbours}; {kernel}; cause: {why}", "card"))
    else:
        found += [(f"{where} as on {neighbours}; {engine}'s share of it is {percent(by)}; cause: the kernel", "kernel")
                  for engine, by in kernels.items()]
        found += [(f"{where} as on {neighbours}; {engine}'s token rate is {percent(by)}; cause: probably the host, for "
                   "which a baseline waits at every launch", "open")
                  for engine, by in mine.items() if roles.get(engine) == "baseline"]
    return found


def bits_of(rows: list) -> list:
    """Cards with other results than their neighbours: verdicts of parity, or logits. Builds are not mixed."""
    found = []
    for field, what in (("parity", "parity is {own}, {most} on"), ("logits_sha256", "the logits have other bits than on")):
        groups = collections.defaultdict(lambda: collections.defaultdict(set))
        for row in rows:
            if row[field]:
                groups[row["model"], row["engine"], row["reference_sha256"], row["build_id"]][row["card"]].add(row[field])
        for (model, engine, _, _), cards in groups.items():
            found += odd_cards(f"{engine} on {model}", cards, what)
    return [(text, "bits") for text in dict.fromkeys(found)]


def odd_cards(what: str, cards: dict, how: str) -> list:
    found = [f"card {short(card)} computes otherwise from run to run: {what}: {len(values)} results of the same input"
             for card, values in cards.items() if len(values) > 1]
    steady = {card: next(iter(values)) for card, values in cards.items() if len(values) == 1}
    counts = collections.Counter(steady.values()).most_common()
    if len(counts) < 2:
        return found
    value, most = counts[0]
    if 2 * most <= len(steady):
        groups = "; ".join(", ".join(short(c) for c, v in steady.items() if v == value) for value, _ in counts)
        return [*found, f"cards of one kind give different results, and no result is in the majority: {what}: {groups}"]
    return found + [f"card {short(card)} computes otherwise: {what}: {how.format(own=own, most=value)} its {in_words(most)} "
                    "neighbours" for card, own in steady.items() if own != value]


def ecc_text(card: Card) -> str:
    row = card.facts
    if row["ecc_corrected"] is None:
        return "-"
    new = f", {row['ecc_new']:.0f} new" if row["ecc_new"] else ""
    return f"{row['ecc_corrected']:.0f} / {row['ecc_uncorrected'] or 0:.0f}{new}"


def table(facts: Facts) -> tuple:
    """(headings, rows of texts)"""
    engines = list(dict.fromkeys(engine for card in facts.cards for engine in card.over))
    shared = {engine for card in facts.cards for engine in card.shares}
    headings = ["card", "kind", "cells", "failed", "ceiling GB/s", "read rate, of its kind",
                *(f"{engine}: {'share (of its kind)' if engine in shared else '(rate of its kind)'}" for engine in engines),
                "SM MHz", "throttled", "dropped", "C at most", "ECC corrected / not", "host"]

    def share(card: Card, engine: str) -> str:
        own = f"{100 * card.shares[engine]:.1f} % " if engine in card.shares else ""
        return own + f"({100 * card.over[engine]:.1f} %)" if engine in card.over else own.strip() or "-"

    def text(value, form: str) -> str:
        return "-" if value is None else format(value, form)

    rows = [[card.name, card.kind, str(card.done), str(card.failed), text(card.gb_per_s, ",.0f"),
             "-" if card.reads is None else f"{100 * card.reads:.1f} %", *(share(card, engine) for engine in engines),
             text(card.clock_mhz, ".0f"), card.throttle or "-", str(card.dropped),
             text(card.facts["temperature_c"] or None, ".0f"), ecc_text(card), card.facts["hosts"] or "-"]
            for card in facts.cards]
    return headings, rows


def render(facts: Facts) -> str:
    """Markdown: what was found, then the table of cards."""
    headings, rows = table(facts)
    lines = [f"- {text}" for text, _ in facts.sentences] or ["- no card is off, and all compute alike"]
    lines += [f"- {text}" for text in facts.notes] + [""]
    return "\n".join([*lines, text_tables.markdown(headings, rows), ""])
