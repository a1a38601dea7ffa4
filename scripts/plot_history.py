"""Draws a history: ms/token of every engine of a case, run after run, a figure for each card and case."""

import pathlib
import sys

import plot_report
from plot_report import FAINT, INK


def figures_of(rows: list) -> dict:
    """(card, case) -> engine -> rows with a time, in the order of the runs."""
    figures = {}
    for row in rows:
        if row["ms_per_tok_mean"] is None:
            continue
        card = row["card"]
        lines = figures.setdefault((card, row["case_name"]), {})
        lines.setdefault(row["engine"], []).append(row)
    return figures


def style_of(lines: dict, engine: str):
    resolved = lines[engine][-1]["resolved_name"]
    for name in (resolved, engine):
        if name in plot_report.STYLES:
            return plot_report.STYLES[name]
    others = [e for e in lines if lines[e][-1]["resolved_name"] not in plot_report.STYLES]
    return plot_report.OTHER_STYLES[others.index(engine) % len(plot_report.OTHER_STYLES)]


def draw_lines(axis, lines: dict) -> None:
    runs = {row["run"]: row for rows in lines.values() for row in rows}
    order = sorted(runs, key=lambda run: (runs[run]["started"], run))
    values = [row["ms_per_tok_mean"] for rows in lines.values() for row in rows]
    log = max(values) > 8 * min(values)
    if log:
        axis.set_yscale("log")
        axis.set_ylim(min(values) / 1.5, max(values) * 1.6)
    else:
        axis.set_ylim(0, max(values) * 1.25)
    for engine, rows in lines.items():
        colour, marker = style_of(lines, engine)
        ms = [row["ms_per_tok_mean"] for row in rows]
        ends = [(row["ms_per_tok_ci_low"], row["ms_per_tok_ci_high"]) for row in rows]
        low = [m - e[0] if e[0] is not None else 0 for m, e in zip(ms, ends)]
        high = [e[1] - m if e[1] is not None else 0 for m, e in zip(ms, ends)]
        axis.errorbar([order.index(row["run"]) for row in rows], ms, yerr=[low, high], color=colour, marker=marker,
                      markersize=6, linewidth=2, capsize=4, capthick=1.2, label=engine.rsplit("/", 1)[-1], zorder=3)
    labels = [f"{runs[run]['label']}\n{runs[run]['started'][:10]}" for run in order]
    axis.set_xticks(range(len(order)), labels, rotation=30 if len(order) > 6 else 0, fontsize=8.5)
    axis.set_xlim(-0.5, len(order) - 0.5)
    plot_report.dress(axis, "milliseconds per token", "lower is better" + (", log scale" if log else ""), log)


def draw(rows: list, out: pathlib.Path) -> int:
    """Writes SVG and PNG into `out` and prints their paths. Returns the exit status of plot_report.py."""
    figures = figures_of(rows)
    if not figures:
        print("history: nothing to plot: no engine has times", file=sys.stderr)
        return 3
    plt = plot_report.load_pyplot("history")
    if plt is None:
        return 1
    out.mkdir(parents=True, exist_ok=True)
    for (card, case), lines in figures.items():
        canvas, axis = plt.subplots(figsize=(9, 5.2), facecolor="white")
        draw_lines(axis, lines)
        canvas.text(0.02, 0.955, f"{case}: runs of one machine", fontsize=14, fontweight="bold", color=INK, va="center")
        canvas.text(0.02, 0.905, f"{card}; bars: confidence interval of the mean", fontsize=10.5, color=FAINT,
                    va="center")
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.07), ncols=len(lines), frameon=False, fontsize=9.5)
        canvas.subplots_adjust(left=0.09, right=0.98, top=0.74, bottom=0.2)
        for path in plot_report.save(canvas, f"history-{case}-{card}", out, plt):
            print(path)
    return 0
