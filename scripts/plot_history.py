"""Draws a history, run after run: ms/token of every engine of a case, and how far the times have gone from the first runs,
with the steps that drift.py finds. Pictures for each card and case, and history.html, a page with all of them."""

import collections
import pathlib
import sys

import chart_files
import drift
import page_charts as charts
import page_tables
import report_page
import whole_file

PAGE = "history.html"
MOST_WIDTH = 800  # pixels of a picture's panel


def figures_of(rows: list) -> dict:
    """(card, case) -> rows with a time, in the order of the runs."""
    figures = {}
    for row in sorted(rows, key=lambda row: (row["started"], row["run"])):
        if row["ms_per_tok_mean"] is not None:
            figures.setdefault((row["card"], row["case_name"]), []).append(row)
    return figures


def runs_of(rows: list) -> dict:
    """run -> its text on the axis, in the order of the runs."""
    names = {row["run"]: f"{row['label']}\n{row['started'][:16]}" for row in rows}
    counts = collections.Counter(names.values())  # two runs of one label may have begun in one minute
    return {run: name if counts[name] == 1 else f"{name} #{run}" for run, name in names.items()}


def times(palette: charts.Palette, rows: list) -> tuple:
    """Title, note and chart of the times."""
    points, names = [], runs_of(rows)
    for row in rows:
        ms, ends = row["ms_per_tok_mean"], (row["ms_per_tok_ci_low"], row["ms_per_tok_ci_high"])
        low, high = ends if None not in ends else (ms, ms)
        points.append({"engine": drift.short(row["engine"]), "kind": "engine", "x": names[row["run"]], "value": ms, "low": low,
                       "high": high, "text": charts.with_interval(ms, *ends)})
    scale = charts.value_scale(points)
    log = ", log scale" if scale["type"] == "log" else ""
    spec = charts.lines(points, palette, charts.run_axis(list(names.values())), f"ms per token{log}", scale)
    return "Milliseconds per token", "lower is better; strokes: confidence interval of the mean", spec


def away(palette: charts.Palette, rows: list, found: list) -> tuple:
    """Title, note and chart of each series in per cent of its first runs, up to its first step; its band is the margin
    around the mean between two steps."""
    points, bands, at, names = [], [], [], runs_of(rows)
    for one, steps in found:
        margin = 100 * drift.margin_of(one.runs)
        at += [{"x": names[one.runs[step.at]["run"]]} for step in steps]
        cuts = [0, *(step.at for step in steps), len(one.values)]
        level = [drift.geometric_mean(one.values[a:b]) for a, b in zip(cuts, cuts[1:])]
        engine = charts.CEILING if one.of == "card" and one.control == "ceiling" else drift.short(one.engine)
        kind = "ceiling" if one.of == "card" else "engine"
        for part, (begin, end) in enumerate(zip(cuts, cuts[1:])):
            for run, value in zip(one.runs[begin:end], one.values[begin:end]):
                percent, middle = (100 * (v / level[0] - 1) for v in (value, level[part]))
                x, reach = names[run["run"]], margin * level[part] / level[0]
                points.append({"engine": engine, "kind": kind, "x": x, "value": percent, "low": percent, "high": percent,
                               "text": f"{percent:+.2f} %"})
                bands.append({"engine": engine, "part": f"{kind} {part}", "x": x, "low": middle - reach,
                              "high": middle + reach})
    axis, scale = charts.run_axis(list(names.values())), {"type": "linear", "zero": True, "nice": True}
    spec = charts.lines(points, palette, axis, "% from the first runs", scale, rule_at=0)
    both = {"x": axis, "color": palette.engine_colour(), "opacity": charts.fade(0.15), "detail": charts.name("part")}
    spec["layer"].insert(0, {"data": {"values": charts.table(bands)}, "mark": "area", "encoding": both | {
        "y": charts.quantity("low", scale=scale, title="% from the first runs"), "y2": {"field": "high"}}})
    if at:
        spec["layer"].append({"data": {"values": charts.table(at)}, "encoding": {"x": axis},
                              "mark": {"type": "rule", "stroke": "var(--bad)", "strokeDash": [4, 3]}})
    note = "engines over their control, dashed the control itself; bands: the calibration's margin; upright lines: steps"
    return "Away from the first runs", note, spec


def add_engines(palette: charts.Palette, rows: list) -> None:
    for row in rows:
        palette.add(drift.short(row["engine"]), row["resolved_name"], row["engine"])


def panels_of(palette: charts.Palette, card: str, case: str, rows: list, found: list) -> list:
    drawn = {}  # one series for each line: an engine may have had another control for a while
    for one, steps in found:
        line = one.engine, one.of == "card"
        longer = line not in drawn or len(one.values) > len(drawn[line][0].values)
        if (one.card, one.case) == (card, case) and longer:
            drawn[line] = one, steps
    return [times(palette, rows), away(palette, rows, list(drawn.values()))]


def spec_of(card: str, case: str, rows: list, found: list) -> dict:
    palette = charts.Palette()
    add_engines(palette, rows)  # the legend names them all
    palette.chart_legend = chart_files.legend(list(palette.slots))
    width = min(MOST_WIDTH, max(600, 90 * len(runs_of(rows))))
    panels = [spec | {"width": width, "title": {"text": title, "subtitle": note}}
              for title, note, spec in panels_of(palette, card, case, rows, found)]
    return chart_files.beside(panels, chart_files.title(f"{case}: runs of one machine",
                                                        [card, *drift.sentences(found, card, case)], "--ink-2"))


def write_page(figures: dict, found: list, out: pathlib.Path) -> int:
    """Writes the page of all cards, and says on stderr why it cannot. Returns the exit status."""
    page, cards = page_tables.Page(), {}
    for (card, case), rows in figures.items():
        add_engines(page.palette, rows)
        made = [page.chart(f"{case}: {title[0].lower()}{title[1:]}", note, spec, wide=True)
                for title, note, spec in panels_of(page.palette, card, case, rows, found)]
        cards.setdefault(card, []).extend(made)
    said = {card: (drift.sentences(found, card), drift.none_found(found, card)) for card in cards}
    try:
        text = report_page.render(report_page.template("history.html.j2"), page, report_page.scripts_of_page(), cards=cards,
                                  said=said, least=drift.LEAST,
                                  has_ceiling=any(series.control == "ceiling" for series, _ in found))
        whole_file.put(out / PAGE, text)
    except (ImportError, report_page.BadScript, OSError) as error:
        print(f"history: {PAGE} is not written: {error}", file=sys.stderr)
        return 1
    print(out / PAGE)
    return 0


def draw(rows: list, found: list, out: pathlib.Path) -> int:
    """Writes the page, SVG and PNG into `out` and prints their paths. Returns the exit status of plot_report.py."""
    figures = figures_of(rows)
    if not figures:
        print("history: nothing to plot: no engine has times", file=sys.stderr)
        return 3
    specs = {f"history-{case}-{card}": spec_of(card, case, mine, found) for (card, case), mine in figures.items()}
    return chart_files.write("history", specs, out, "mkbench history --plot") or write_page(figures, found, out)
