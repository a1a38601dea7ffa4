"""Plots of mkbench reports: tok/s and ms/token against context depth.

  plot_report.py REPORT.json [REPORT.json ...] --out DIR [--unverified WHY ...]

Writes one figure for each model (and kind of test), as SVG and PNG, of the charts that the report's page has: a line for
each engine with the confidence interval of every point, speed-ups over the baseline, and the ceiling where one was timed.
One depth alone gives bars. Engines whose times were withheld are left out and named under the title. --unverified, once for
each report in their order, says why its figures do not follow from its samples; empty: they do.

Exit status: 0 written, 1 no vl-convert, 2 a report that cannot be read, 3 nothing to plot.
"""

import argparse
import pathlib
import sys
import textwrap

import chart_files
import page_charts
import page_tables
from report_file import (INCOMPLETE, BadReport, build_of, card_of, is_prefill, labels_of, load, position_of,
                         ranked_comparison, refuse_incomplete, timed)

KINDS = {"rate": "higher is better", "ms": "lower is better"}  # the panels, by the keys of page_tables.measures()
MOST_LABELS = 12  # more would hide each other, and the report's table has them all
NOTE_LETTERS = 180  # most letters in a line under the title


class Figure:
    """Everything that one figure shows."""

    def __init__(self, model: str, card: str, tokens: int, prefill: bool):
        self.model, self.card, self.tokens, self.prefill = model, card, tokens, prefill
        self.points, self.page = {kind: [] for kind in KINDS}, page_tables.Page()
        self.withheld, self.blocks, self.processes, self.rates = [], set(), set(), []
        self.build, self.confidence, self.has_speedup = "", 0.95, False

    @property
    def engines(self) -> list:
        return list(self.page.palette.slots)

    @property
    def depths(self) -> list:
        return sorted({p["x"] for p in self.points["ms"] if p["kind"] == "engine"})

    def add(self, case: dict) -> None:
        x, labels = position_of(case), labels_of(case)
        self.page.add_engines(case)
        speedups = {labels[e["name"]]: c["speedup"] for e in timed(case) if (c := ranked_comparison(case, e))}
        self.has_speedup |= bool(speedups)
        for kind, found in page_tables.measures(case, x).items():
            for point in found if kind in KINDS else ():
                if min(point["low"], point["value"], point["high"]) <= 0:
                    raise ValueError(f"{case['name']}: {point['engine']}: found a time or rate of {point['text']}, "
                                     "wanted over 0")
                speedup = speedups.get(point["engine"]) if kind == "rate" else None
                times = f"{speedup:.1f}x" if speedup else ""
                short = f"{page_charts.digits(point['value'])}\n{times}".strip() if point["kind"] == "engine" else ""
                self.points[kind].append(point | {"short": short, "label": f"{point['label']}  {times}".strip()})
        for engine in case["engines"]:
            if engine["ms_per_tok"] is not None:
                self.blocks.add(engine["ms_per_tok"]["count"])
                self.processes.add(engine["ms_per_tok"].get("processes", 1))
            elif engine.get("timed", True):  # else a baseline that only judged parity
                self.withheld.append(f"{labels[engine['name']]} at {x:,}: {engine['verdict']}")
        ceiling = case.get("ceiling") or {}
        if ceiling.get("ms_per_tok") is not None:
            self.rates.append(ceiling["gb_per_s"])
        for comparison in case["comparisons"]:
            self.confidence = comparison["confidence"]


def collect(reports: list) -> list:
    figures = {}
    for report in reports:
        for case in report["cases"]:
            key = (case["model"]["name"], card_of(report), case["axes"]["n_gen"], is_prefill(case))
            figure = figures.setdefault(key, Figure(*key))
            figure.build = build_of(report)
            figure.add(case)
    return [figure for figure in figures.values() if figure.engines]


def to_text(values, form: str) -> str:
    """The ends of a range: 3,091, or 3,080 to 3,115."""
    return " to ".join(dict.fromkeys(format(value, form) for value in (min(values), max(values))))


def stamps(unverified: list) -> list:
    """The first lines under a title, a line for each report whose figures do not follow from its samples."""
    return [f"NOT VERIFIED, do not quote: {why}"[:NOTE_LETTERS] for why in unverified]


def title_of(figure: Figure, unverified: list) -> dict:
    where = "a CPU: not a GPU result" if figure.card == "cpu" else figure.card
    what = "untimed tokens check it" if figure.prefill else f"{figure.tokens:,} tokens a block"
    depth = f", depth {figure.depths[0]:,}" if len(figure.depths) == 1 and not figure.prefill else ""
    over = f"{to_text(figure.blocks, 'd')} paired blocks in {to_text(figure.processes, 'd')} process" + \
        ("" if figure.processes == {1} else "es")
    notes = [f"Mean over {over} (tok/s: tokens over time); strokes: {100 * figure.confidence:g} % confidence interval of the "
             f"mean.{' x: speed-up over the fastest baseline.' if figure.has_speedup else ''} {figure.build}"]
    if figure.rates:
        notes.append("Ceiling: an engine that only reads what a step must read, timed in the same blocks "
                     f"({to_text(figure.rates, ',.0f')} GB/s).")
    if figure.withheld:
        notes.append("Times withheld: " + "; ".join(figure.withheld) + ".")
    return chart_files.title(
        f"{figure.model}: {'prefill' if figure.prefill else 'decode'}, batch 1, bf16",
        [*stamps(unverified), f"{where}, {what}{depth}",
         *(line for note in notes for line in textwrap.wrap(note, NOTE_LETTERS))],
        "--bad" if figure.card == "cpu" or unverified else "--ink-2")


def spec_of(figure: Figure, unverified: list) -> dict:
    """A panel of rates and one of times, with the names of the engines above them."""
    panels = []
    if len(figure.depths) > 1:
        figure.page.palette.chart_legend = chart_files.legend(figure.engines + [page_charts.CEILING] * bool(figure.rates))
    for kind, hint in KINDS.items():
        points = figure.points[kind]
        if len(figure.depths) == 1:  # a bar for each engine, from the first report with it
            points = [p for i, p in enumerate(points) if p["engine"] not in {q["engine"] for q in points[:i]}]
        for point in points:
            point["below"] = page_charts.is_crowded(points, point)
        title, spec = page_tables.depth_chart(figure.page, kind, points, figure.prefill, labelled=len(points) <= MOST_LABELS)
        panels.append(spec | {"title": {"text": title, "subtitle": hint}, "width": 460})
    return chart_files.beside(panels, title_of(figure, unverified))


def failure_specs(reports: list, unverified: list) -> dict:
    """A figure for each engine with errors by position or layer, by its name."""
    specs = {}
    for report, case in ((report, case) for report in reports for case in report["cases"]):
        panels = {}
        for label, heading, note, spec in page_tables.failures(case):
            panel = spec | {"title": {"text": heading, "subtitle": note}, "width": 460}
            panels.setdefault(label, []).append(panel)
        for label, drawn in panels.items():
            heading = chart_files.title(f"{case['model']['name']}: errors of {label}", [*stamps(unverified), build_of(report)],
                                        "--bad" if unverified else "--ink-2")
            specs.setdefault(f"{case['model']['name']}-{label}-errors", chart_files.beside(drawn, heading))
    return specs


def name_of(figure: Figure) -> str:
    kind = "prefill" if figure.prefill else f"n{figure.tokens}"
    return "-".join(part for part in (figure.model, "" if figure.card == "cpu" else figure.card, kind) if part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", type=pathlib.Path, metavar="REPORT.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--unverified", action="append", default=[], metavar="WHY")
    arguments = parser.parse_args()
    unverified = list(filter(None, arguments.unverified))
    reports = []
    for path in arguments.reports:
        try:
            reports.append(load(path))
            specs = {name_of(figure): spec_of(figure, unverified) for figure in collect(reports)} | \
                failure_specs(reports, unverified)
        except BadReport as error:
            print(f"plot_report: {error}", file=sys.stderr)
            return 2
        except INCOMPLETE as error:
            return refuse_incomplete("plot_report", [path], error)
    if not specs:
        print("plot_report: nothing to plot: no engine of these reports has times or wrong logits", file=sys.stderr)
        return 3
    return chart_files.write("plot_report", specs, arguments.out, "mkbench report -o svg " + " ".join(map(str, arguments.reports)))


if __name__ == "__main__":
    sys.exit(main())
