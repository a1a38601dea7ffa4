"""The page of a fleet: one HTML file with its findings, cards, matrix of cells and history, that opens without a network.

It is made of the parts of a report's page (scripts/page/): style, script, macros, Vega.
"""

import collections
import datetime
import pathlib
import sqlite3
import sys

import fleet_cards
import fleet_cells
import page_charts as charts
import page_tables
import report_page
import whole_file

NAME = "fleet.html"
CARDS_BESIDE = 12  # with more cards each chart takes the page's whole width
CARDS_LABELLED = 32  # with more cards some names below a chart are left out
CASES_SHOWN = 12  # cases that get charts
FIELDS_SHOWN = 20000  # upper bound for the cells of the matrix and the tries in the chart; the store keeps every try
ROWS_SHOWN = 1000  # upper bound for the table of tries that did not end as done
CARDS_DRAWN = 64  # upper bound for the cards in the chart of what ran when


def write(folder: pathlib.Path, base: sqlite3.Connection, facts: fleet_cards.Facts, refused: list) -> None:
    """Writes fleet.html, or says on stderr why it cannot; store and table do not depend on it."""
    try:
        text = fill(report_page.template("fleet.html.j2"), folder, base, facts, refused, report_page.scripts_of_page())
    except ImportError as error:
        print(f"fleet: {NAME} is not written: there is no module {error.name}", file=sys.stderr)
        return
    except report_page.BadScript as error:
        print(f"fleet: {NAME} is not written: {error}", file=sys.stderr)
        return
    whole_file.put(folder / NAME, text)
    print(f"fleet: {folder / NAME}", file=sys.stderr)


def fill(draw, folder: pathlib.Path, base: sqlite3.Connection, facts: fleet_cards.Facts, refused: list,
         scripts: list) -> str:
    page = page_tables.Page()
    for row in base.execute("SELECT engine, min(rowid) FROM results WHERE ms_per_tok IS NOT NULL GROUP BY 1 ORDER BY 2"):
        page.palette.add(row["engine"], row["engine"])
    about = fleet_cells.read(folder / "fleet.json", {})
    plan = about.get("plan", {})
    headings, rows = fleet_cards.table(facts)
    made = card_charts(page, facts) + case_charts(page, base, facts)
    counts = collections.Counter(row["state"] for row in base.execute("SELECT state FROM cells"))
    return report_page.render(
        draw, page, scripts, title=plan.get("name", folder.name), version=about.get("version", ""), made=about.get("made", ""),
        counts=[(state, counts[state]) for state in fleet_cells.STATES if counts[state]],
        status="PASS" if facts.exit_code == 0 and set(counts) == {"done"} and not refused else
        "INCOMPLETE" if facts.exit_code == 0 and not refused else "FAIL",
        stand_ins=sum(card.stand_in for card in facts.cards), findings=facts.sentences, notes=facts.notes, refused=refused,
        headings=headings, cards=list(zip(facts.cards, rows)), charts=made, matrix=matrix_of(base, facts),
        tries=tries_of(page, base, facts), troubles=troubles_of(base), plan=page_tables.flat(plan))


def x_cards(points: list) -> dict:
    cards = list(dict.fromkeys(p["card"] for p in points))
    return charts.name("card", title=None, sort=cards, axis={
        "labelAngle": -40, "labelLimit": 150, "grid": False,
        "labelOverlap": "greedy" if len(cards) > CARDS_LABELLED else False})


def dots(page: page_tables.Page, points: list, y_title: str, rule_at=None) -> dict:
    """A dot for each card and engine, cards along x. points: card, engine, value, text."""
    values = [p["value"] for p in points]
    room = max(0.04 * (max(values) - min(values)), 0.005 * max(values))
    y = charts.quantity("value", title=y_title, axis={"tickCount": 6, "labelExpr": charts.TICKS}, scale={
        "zero": False, "nice": True, "domain": [min(*values, rule_at or min(values)) - room,
                                                max(*values, rule_at or max(values)) + room]})
    engine = points[0]["engine"] != charts.CEILING
    look = {"color": page.palette.engine_colour(), "shape": page.palette.engine_shape(), "opacity": charts.fade()} \
        if engine else {"color": {"value": "var(--ink)"}}
    layers = [charts.rule_layer(rule_at, "y")] if rule_at is not None else []
    layers.append({"mark": {"type": "point", "filled": True, "size": 80}, "encoding": look | {
        "x": x_cards(points), "y": y, "tooltip": [charts.tip("card", "card"), charts.tip("engine", "engine"),
                                                  charts.tip("text", y_title)]}})
    return {"params": charts.PICKED, "data": {"values": charts.table(points)}, "height": 260, "layer": layers}


def card_charts(page: page_tables.Page, facts: fleet_cards.Facts) -> list:
    """A pair of charts for each kind of cards: how fast each reads, and each engine against its kind."""
    made, wide = [], len(facts.cards) > CARDS_BESIDE
    for kind in dict.fromkeys(card.kind for card in facts.cards):
        cards = [card for card in facts.cards if card.kind == kind]
        reads = [{"card": c.name, "engine": charts.CEILING, "value": 100 * c.reads, "text": f"{100 * c.reads:.2f} %"}
                 for c in cards if c.reads is not None]
        if reads:
            made.append(page.chart(f"How fast each card reads: {kind}", "The rate of the card's own ceiling in % of "
                                   "the median of its kind; median over the cases.",
                                   dots(page, reads, "% of its kind", 100), wide))
        over = [{"card": c.name, "engine": engine, "value": 100 * value, "text": f"{100 * value:.2f} %"}
                for c in cards for engine, value in c.over.items()]
        if over:
            what = "An engine's share of the card's own ceiling" if any(c.shares for c in cards) else \
                "No ceiling was measured here: an engine's token rate"
            made.append(page.chart(f"Engines, card by card: {kind}", f"{what}, over the median of the kind. If a dot "
                                   "is off the line and the card's reading is on it, the kernel differs, not the card.",
                                   dots(page, over, "% of its kind", 100), wide))
    return made


def case_charts(page: page_tables.Page, base: sqlite3.Connection, facts: fleet_cards.Facts) -> list:
    """ms per token of every case, card by card."""
    made, wide = [], len(facts.cards) > CARDS_BESIDE
    rows = base.execute("""SELECT r.card, x.case_name, x.engine, x.ms_per_tok FROM results x JOIN reports r USING (report)
                           WHERE x.ms_per_tok IS NOT NULL ORDER BY x.model, x.n_gen, x.n_prompt, x.depth, r.card""")
    cases = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for row in rows:
        cases[row["case_name"]][row["engine"]][row["card"]].append(row["ms_per_tok"])
    for case, engines in list(cases.items())[:CASES_SHOWN]:
        for engine, cards in engines.items():
            points = [{"card": fleet_cards.short(card), "engine": engine, "value": fleet_cards.middle(values),
                       "text": charts.digits(fleet_cards.middle(values))} for card, values in cards.items()]
            made.append(page.chart(f"{case}: {engine}", "Milliseconds per token, median over the repeats.",
                                   dots(page, points, "ms per token"), wide))
    return made


def matrix_of(base: sqlite3.Connection, facts: fleet_cards.Facts) -> dict:
    """A row for each cell, a column for each card: verdict, and ms per token of the engines. Copies share a row."""
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    query = """SELECT c.base, t.card, t.outcome, r.verdict, t.exit_code, r.report FROM tries t JOIN cells c USING (cell)
               LEFT JOIN reports r ON r.report = t.report WHERE t.outcome NOT IN ('cancelled', 'late')"""
    times = collections.defaultdict(list)
    for row in base.execute("SELECT report, engine, depth, ms_per_tok FROM results WHERE ms_per_tok IS NOT NULL "
                            "ORDER BY depth"):
        times[row["report"]].append(f"{row['engine']} d{row['depth']} {charts.digits(row['ms_per_tok'])}")
    for row in base.execute(query):
        verdict = row["verdict"] or {"running": "RUNNING", "lost": "LOST"}.get(row["outcome"], f"exit {row['exit_code']}")
        rows[row["base"]][row["card"]].append({"verdict": verdict, "kind": page_tables.kind_of(verdict),
                                               "times": times.get(row["report"], [])})
    waiting = collections.Counter(row["base"] for row in base.execute("SELECT base FROM cells WHERE state = 'waiting'"))
    names = sorted(set(rows) | set(waiting))
    shown = max(1, FIELDS_SHOWN // max(1, len(facts.cards)))
    return {"cards": [(card.id, card.name) for card in facts.cards], "all": len(names),
            "rows": [(name, [rows[name].get(card.id, []) for card in facts.cards], waiting[name])
                     for name in names[:shown]]}


def seconds_of(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def tries_of(page: page_tables.Page, base: sqlite3.Connection, facts: fleet_cards.Facts):
    """The history: what ran when on which card."""
    drawn = [card.id for card in facts.cards[:CARDS_DRAWN]]
    rows = [dict(row) for row in base.execute(
        "SELECT * FROM tries WHERE started IS NOT NULL AND ended IS NOT NULL AND card IN "
        f"({', '.join('?' * len(drawn))}) ORDER BY started LIMIT {FIELDS_SHOWN}", drawn)]
    if not rows:
        return None
    first = min(seconds_of(row["started"]) for row in rows)
    bars = [{"card": fleet_cards.short(row["card"]), "cell": row["cell"], "outcome": row["outcome"].split(" ")[0],
             "from": (seconds_of(row["started"]) - first) / 60,
             "to": max(seconds_of(row["ended"]) - first, seconds_of(row["started"]) - first + 1) / 60,
             "text": f"{row['started']} to {row['ended']}"} for row in rows]
    colours = {"done": "var(--good)", "failed": "var(--bad)", "lost": "var(--slower)", "cancelled": "var(--open)",
               "late": "var(--ink-2)"}
    spec = {"data": {"values": charts.table(bars)}, "height": 22 * len({bar["card"] for bar in bars}) + 20,
            "mark": {"type": "bar", "height": 14, "stroke": "var(--card)"},
            "encoding": {"y": charts.name("card", title=None, axis={"labelLimit": 160}),
                         "x": charts.quantity("from", title="minutes since the first cell began",
                                              axis={"labelExpr": charts.TICKS}), "x2": {"field": "to"},
                         "color": charts.name("outcome", legend=None, scale={"domain": list(colours),
                                                                             "range": list(colours.values())}),
                         "tooltip": [charts.tip(name, name) for name in ("cell", "card", "outcome")] +
                                    [charts.tip("text", "when")]}}
    return page.chart("What ran when", "A bar is a try of a cell: green done, red failed, orange lost with its worker, "
                      "yellow cancelled, grey late (another worker's result counts)." +
                      (f" The first {CARDS_DRAWN} of {len(facts.cards)} cards are drawn."
                       if len(facts.cards) > CARDS_DRAWN else ""), spec, True)


def troubles_of(base: sqlite3.Connection) -> list:
    """Tries that did not end as done."""
    return [dict(row) for row in base.execute("""
        SELECT cell, n, card, host, outcome, exit_code, started, ended, why FROM tries
        WHERE outcome NOT IN ('done', 'running', '') ORDER BY started LIMIT ?""", (ROWS_SHOWN,))]
