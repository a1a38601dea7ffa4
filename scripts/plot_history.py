"""Draws a history: ms/token of every engine of a case, run after run, a figure for each card and case."""

import pathlib
import sys

import chart_files
import page_charts


def figures_of(rows: list) -> dict:
    """(card, case) -> rows with a time, in the order of the runs."""
    figures = {}
    for row in sorted(rows, key=lambda row: (row["started"], row["run"])):
        if row["ms_per_tok_mean"] is not None:
            figures.setdefault((row["card"], row["case_name"]), []).append(row)
    return figures


def spec_of(card: str, case: str, rows: list) -> dict:
    palette, points = page_charts.Palette(), []
    names = {row["run"]: f"{row['label']}\n{row['started'][:16]}" for row in rows}
    for row in rows:
        engine, ms, name = row["engine"].rsplit("/", 1)[-1], row["ms_per_tok_mean"], names[row["run"]]
        palette.add(engine, row["resolved_name"], row["engine"])
        ends = row["ms_per_tok_ci_low"], row["ms_per_tok_ci_high"]
        low, high = ends if None not in ends else (ms, ms)
        # Two runs of one label may have begun in one minute.
        x = name if list(names.values()).count(name) == 1 else f"{name} #{row['run']}"
        points.append({"engine": engine, "kind": "engine", "x": x, "value": ms, "low": low, "high": high,
                       "text": page_charts.with_interval(ms, *ends)})
    palette.chart_legend = chart_files.legend(list(palette.slots))
    scale = page_charts.value_scale(points)
    log = ", log scale" if scale["type"] == "log" else ""
    runs = list(dict.fromkeys(point["x"] for point in points))
    spec = page_charts.lines(points, palette, page_charts.run_axis(runs), f"ms per token{log}", scale)
    panel = spec | {"width": max(600, 90 * len(runs)), "title": {"text": "Milliseconds per token", "subtitle": "lower is better"}}
    heading = chart_files.title(f"{case}: runs of one machine", [f"{card}; strokes: confidence interval of the mean"], "--ink-2")
    return chart_files.beside([panel], heading)


def draw(rows: list, out: pathlib.Path) -> int:
    """Writes SVG and PNG into `out` and prints their paths. Returns the exit status of plot_report.py."""
    figures = figures_of(rows)
    if not figures:
        print("history: nothing to plot: no engine has times", file=sys.stderr)
        return 3
    specs = {f"history-{case}-{card}": spec_of(card, case, mine) for (card, case), mine in figures.items()}
    return chart_files.write("history", specs, out, "mkbench history --plot")
