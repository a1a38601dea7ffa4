"""Plots of mkbench reports: tok/s and ms/token against context depth.

  plot_report.py REPORT.json [REPORT.json ...] --out DIR

Writes one figure for each model (and kind of test), as SVG and PNG: a line for each engine with the
confidence interval of every point, speed-ups over the baseline, and the ceiling where one was timed.
One depth alone gives bars. Engines whose times were withheld are left out and named below the figure.

Exit status: 0 written, 1 no matplotlib, 2 a report that cannot be read, 3 nothing to plot.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import textwrap

SCHEMA_ID, SCHEMA_MAJOR = "mkbench.report", "1"

# The colours of Okabe and Ito can be told apart with any common colour deficiency; markers differ too.
STYLES = {
    "eager": ("#D55E00", "s"),
    "graph": ("#E69F00", "D"),
    "compiled": ("#009E73", "^"),
    "plain": ("#0072B2", "o"),
    "megakernel": ("#0072B2", "o"),
    "ring": ("#CC79A7", "v"),
    "host-twin": ("#0072B2", "o"),
}
OTHER_STYLES = [("#56B4E9", "P"), ("#CC79A7", "X"), ("#F0E442", "h"), ("#000000", "d")]
INCHES_A_LETTER = 0.09  # of the names below bars, on the safe side
INK, FAINT, GRID = "#222222", "#666666", "#DDDDDD"


# Exceptions that reading an incomplete report can raise.
INCOMPLETE = (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class BadReport(Exception):
    """A file that is not a report; the message names the file and what is wrong with it."""


def load_report(path: pathlib.Path) -> dict:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadReport(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{path}: not JSON: {error}") from None
    schema = report.get("schema") if isinstance(report, dict) else None
    if not isinstance(schema, dict) or schema.get("id") != SCHEMA_ID:
        raise BadReport(f"{path}: schema.id: wanted {SCHEMA_ID}")
    if str(schema.get("version", "")).split(".")[0] != SCHEMA_MAJOR:
        raise BadReport(f"{path}: schema.version: found {schema.get('version')!r}, wanted {SCHEMA_MAJOR}.x")
    return report


def card_of(report: dict) -> str:
    gpu = report["env"].get("gpu")
    if str(report["env"].get("device", "")).startswith("cpu"):
        return "cpu"
    return gpu["name"] if isinstance(gpu, dict) else str(report["env"].get("device", "unknown device"))


def speedup_of(case: dict, engine: dict):
    """Over the first baseline that has times; a baseline has none."""
    baselines = [e["name"] for e in case["engines"] if e["role"] == "baseline"]
    for comparison in case["comparisons"]:
        if engine["name"] in baselines or comparison["baseline"] not in baselines:
            continue
        if comparison["candidate"] == engine["name"] and comparison["speedup"] is not None:
            return comparison["speedup"]
    return None


def label_of(engine: dict) -> str:
    name, resolved = engine["name"], engine["resolved_name"]
    return name if resolved in ("", name) else f"{name} ({resolved})"


def short_label(engine: dict) -> str:
    """As label_of(), but an engine from a file without the file's folders."""
    return engine["resolved_name"] if "/" in engine["name"] and engine["resolved_name"] else label_of(engine)


def is_lossy(engine: dict) -> bool:
    """Whether the engine is quantised: it is shown apart from the others, and never ranked with them."""
    return (engine.get("parity") or {}).get("precision") == "lossy"


def labels_of(case: dict) -> dict:
    """A label for each engine by its name; whole where two short ones are equal, and marked where it is quantised."""
    short = [short_label(e) for e in case["engines"]]
    return {e["name"]: (label if short.count(label) == 1 else label_of(e)) + (" (lossy)" if is_lossy(e) else "")
            for e, label in zip(case["engines"], short)}


class Point:
    """One engine at one depth: ms/token and tok/s, each with the ends of its interval (or None)."""

    def __init__(self, x, case, engine):
        summary = engine["ms_per_tok"]
        self.x = x
        self.ms = summary["mean"]
        ci = summary["ci"]
        self.ms_ci = (ci["low"], ci["high"]) if ci else None
        self.rate = engine["tok_per_s"]
        low, high = engine["tok_per_s_ci_low"], engine["tok_per_s_ci_high"]
        self.rate_ci = (low, high) if low is not None and high is not None else None
        self.speedup = speedup_of(case, engine)
        for value in (self.ms, self.rate, *(self.ms_ci or ()), *(self.rate_ci or ())):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{case['name']}: {engine['name']}: a time or rate of {value}")
        self.blocks, self.processes = summary["count"], summary.get("processes", 1)


class Figure:
    """Everything that one figure shows: lines by label, the ceiling by depth, what was withheld."""

    def __init__(self, model, card, tokens, prefill):
        self.model, self.card, self.tokens, self.prefill = model, card, tokens, prefill
        self.lines, self.engines, self.floors, self.withheld = {}, {}, {}, []
        self.footer, self.blocks, self.processes, self.confidence, self.rates = "", set(), set(), 0.95, []

    def depths(self):
        return sorted({p.x for points in self.lines.values() for p in points})


def collect(reports: list) -> list:
    figures = {}
    for report in reports:
        card = card_of(report)
        for case in report["cases"]:
            axes = case["axes"]
            prefill = axes["n_prompt"] > 0
            key = (case["model"]["name"], card, axes["n_gen"], prefill)
            figure = figures.setdefault(key, Figure(*key))
            meta = report["meta"]
            sha = str(meta.get("git_sha", ""))[:10]
            figure.footer = f"mkbench {meta.get('version', '?')}" + (f", {sha}" if sha else "")
            add_case(figure, case, axes["n_prompt"] if prefill else axes["depth"])
    return [f for f in figures.values() if f.lines]


def add_case(figure: Figure, case: dict, x: int) -> None:
    labels = labels_of(case)
    for engine in case["engines"]:
        label = labels[engine["name"]]
        if not engine.get("timed", True):  # a baseline that only judged parity
            continue
        if engine["ms_per_tok"] is None:
            figure.withheld.append(f"{label} at {x:,}: {engine['verdict']}")
            continue
        point = Point(x, case, engine)
        figure.lines.setdefault(label, []).append(point)
        figure.engines[label] = engine
        figure.blocks.add(point.blocks)
        figure.processes.add(point.processes)
    ceiling = case.get("ceiling") or {}
    if ceiling.get("ms_per_tok") is not None:
        figure.floors[x] = ceiling["ms_per_tok"]["mean"]
        figure.rates.append(ceiling["gb_per_s"])
    for comparison in case["comparisons"]:
        figure.confidence = comparison["confidence"]


def rates_text(figure: Figure) -> str:
    """What the ceiling has read: "3,091 GB/s", or "3,080 to 3,115 GB/s" over several depths."""
    ends = dict.fromkeys(f"{rate:,.0f}" for rate in (min(figure.rates), max(figure.rates)))
    return " to ".join(ends) + " GB/s"


def style_of(figure: Figure, label: str):
    engine = figure.engines[label]
    for name in (engine["resolved_name"], engine["name"]):
        if name in STYLES:
            return STYLES[name]
    others = [n for n in figure.lines if figure.engines[n]["resolved_name"] not in STYLES]
    return OTHER_STYLES[others.index(label) % len(OTHER_STYLES)]


def number(value: float) -> str:
    """Three significant digits without an exponent."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 \
        else f"{value:.3f}"


def with_speedup(point, pick) -> str:
    """The value as text; on the panel of rates the speed-up over the baseline stands below it."""
    text = number(pick(point))
    return f"{text}\n{point.speedup:.1f}x" if point.speedup and pick(point) == point.rate else text


def halo():
    """A white rim around text, which keeps it readable where it crosses a line of the grid."""
    from matplotlib import patheffects

    return [patheffects.withStroke(linewidth=3, foreground="white")]


def errors(points, pick, pick_ci):
    """Distances to both ends of each interval, for errorbar(); 0 for a point without an interval."""
    low = [max(0.0, pick(p) - pick_ci(p)[0]) if pick_ci(p) else 0 for p in points]
    high = [max(0.0, pick_ci(p)[1] - pick(p)) if pick_ci(p) else 0 for p in points]
    return [low, high]


PANELS = (
    ("tokens per second", "higher is better", lambda p: p.rate, lambda p: p.rate_ci, lambda floor: 1000 / floor),
    ("milliseconds per token", "lower is better", lambda p: p.ms, lambda p: p.ms_ci, lambda floor: floor),
)


def dress(axis, title, hint, log):
    axis.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    axis.set_title(hint, loc="right", fontsize=9, color=FAINT)
    axis.grid(axis="y", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(FAINT)
    axis.tick_params(colors=INK, labelsize=9, length=0)
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if log:
        low, high = axis.get_ylim()
        ticks = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5)]
        axis.yaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
        axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))


def all_values(figure, pick, pick_ci, of_floor):
    """Every value that a panel shows, ends of intervals too: the axis must hold them."""
    points = [p for line in figure.lines.values() for p in line]
    ends = [end for p in points for end in pick_ci(p) or ()]
    return [pick(p) for p in points] + ends + [of_floor(f) for f in figure.floors.values()]


def draw_lines(axis, figure, panel):
    title, hint, pick, pick_ci, of_floor = panel
    values = all_values(figure, pick, pick_ci, of_floor)
    log = max(values) > 8 * min(values)
    depths = figure.depths()
    # Depths that span octaves get a logarithmic axis, whose linear start holds depth 0.
    nonzero = [d for d in depths if d > 0]
    if len(depths) > 3 and max(nonzero) >= 16 * min(nonzero):
        axis.set_xscale("symlog", base=2, linthresh=min(nonzero), linscale=0.5)
    if log:
        axis.set_yscale("log")
        axis.set_ylim(min(values) / 1.5, max(values) * 1.6)
    else:
        axis.set_ylim(0, max(values) * 1.2)
    for label, points in figure.lines.items():
        points.sort(key=lambda p: p.x)
        colour, marker = style_of(figure, label)
        axis.errorbar([p.x for p in points], [pick(p) for p in points], yerr=errors(points, pick, pick_ci),
                      color=colour, marker=marker, markersize=6, linewidth=2, capsize=4, capthick=1.2, label=label,
                      zorder=3)
        # With many points the labels would hide each other, and the report's table has them all.
        for p in points if len(depths) * len(figure.lines) <= 12 else []:
            # The label of the lower of two neighbours goes below its point.
            above = [pick(q) for line in figure.lines.values() for q in line if q.x == p.x and pick(q) > pick(p)]
            crowded = bool(above) and min(above) - pick(p) < 0.2 * max(values)
            axis.annotate(with_speedup(p, pick), (p.x, pick(p)), xytext=(0, -8 if crowded else 8),
                          textcoords="offset points", ha="center", va="top" if crowded else "bottom", fontsize=8.5,
                          color=colour, linespacing=1.1, zorder=5, path_effects=halo())
    if figure.floors:
        xs = sorted(figure.floors)
        axis.plot(xs, [of_floor(figure.floors[x]) for x in xs], color=INK, linestyle=(0, (5, 3)), linewidth=1.4,
                  label=f"ceiling ({rates_text(figure)})", zorder=2)
    axis.set_xticks(depths, [f"{d:,}" for d in depths], rotation=30 if len(depths) > 5 else 0)
    axis.minorticks_off()
    axis.margins(x=0.08)
    axis.set_xlabel("prompt ids" if figure.prefill else "context depth: KV rows before the first timed token",
                    fontsize=9.5, color=INK)
    dress(axis, title, hint + (", log scale" if log else ""), log)


def tilted(figure) -> bool:
    """Whether the names below the bars would run into each other."""
    longest = max(len(part) for label in figure.lines for part in label.split(" ("))
    return len(figure.depths()) == 1 and longest * len(figure.lines) * INCHES_A_LETTER > 4.5


def add_legend(canvas, handles, labels) -> int:
    """Puts the legend above the panels, in as many columns as fit. Returns its rows."""
    for columns in range(len(labels), 0, -1):
        legend = canvas.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.012, 0.885), ncols=columns,
                               frameon=False, fontsize=9.5, columnspacing=1.6)
        if columns == 1 or legend.get_window_extent().x1 < canvas.bbox.x1:
            break
        legend.remove()
    return math.ceil(len(labels) / columns)


def draw_bars(axis, figure, panel):
    title, hint, pick, pick_ci, of_floor = panel
    values = all_values(figure, pick, pick_ci, of_floor)
    axis.set_ylim(0, max(values) * 1.25)
    labels = list(figure.lines)
    for i, label in enumerate(labels):
        point = figure.lines[label][0]
        colour, _ = style_of(figure, label)
        axis.bar(i, pick(point), width=0.55, color=colour, zorder=2)
        axis.errorbar([i], [pick(point)], yerr=errors([point], pick, pick_ci), color=INK, capsize=6, capthick=1.2,
                      linewidth=1.2, zorder=3)
        top = pick_ci(point)[1] if pick_ci(point) else pick(point)
        axis.annotate(with_speedup(point, pick), (i, max(top, pick(point))), xytext=(0, 5), textcoords="offset points", ha="center",
                      va="bottom", fontsize=10.5, color=colour, fontweight="bold", path_effects=halo())
    if figure.floors:
        floor_ms = next(iter(figure.floors.values()))
        axis.axhline(of_floor(floor_ms), color=INK, linestyle=(0, (5, 3)), linewidth=1.4, zorder=4,
                     label=f"ceiling: {number(1000 / floor_ms)} tok/s, {number(floor_ms)} ms "
                           f"({rates_text(figure)})")
    broken = [label.replace(" (", "\n(") for label in labels]
    tilt = tilted(figure)
    axis.set_xticks(range(len(labels)), labels if tilt else broken, fontsize=8.5 if tilt else 10,
                    rotation=20 if tilt else 0, ha="right" if tilt else "center")
    axis.set_xlim(-0.6, len(labels) - 0.4)
    dress(axis, title, hint, False)


def describe(figure: Figure) -> tuple:
    """Draws the title, the line below it, and the notes under the panels."""
    on_cpu = figure.card == "cpu"
    kind = "prefill" if figure.prefill else "decode"
    title = f"{figure.model}: {kind}, batch 1, bf16"
    depths = figure.depths()
    where = "host twin on a CPU: not a GPU result" if on_cpu else figure.card
    what = f"{figure.tokens:,} tokens a block" if not figure.prefill else "untimed tokens check it"
    depth = f", depth {depths[0]:,}" if len(depths) == 1 and not figure.prefill else ""
    blocks, processes = (" to ".join(str(n) for n in sorted({min(found), max(found)}))
                         for found in (figure.blocks, figure.processes))
    over = f"{blocks} paired blocks in {processes} process{'' if processes == '1' else 'es'}"
    notes = [f"Mean over {over} (tok/s: tokens over time); bars: {100 * figure.confidence:g} % confidence interval of the "
             "mean."]
    baselines = [label for label, engine in figure.engines.items() if engine["role"] == "baseline"]
    if any(p.speedup for points in figure.lines.values() for p in points):
        notes[0] += f" x: speed-up over {baselines[0]}."
    notes[0] += f" {figure.footer}"
    if len(depths) == 1 and figure.rates:
        notes.append(f"Ceiling: an engine that only reads what a step must read, timed in the same blocks "
                     f"({rates_text(figure)}).")
    if figure.withheld:
        notes.append("Times withheld: " + "; ".join(figure.withheld) + ".")
    return title, f"{where}, {what}{depth}", notes, on_cpu


def draw(figure: Figure, out: pathlib.Path, plt) -> list:
    bars = len(figure.depths()) == 1
    canvas, axes = plt.subplots(1, 2, figsize=(11, 5.2), facecolor="white")
    for axis, panel in zip(axes, PANELS):
        (draw_bars if bars else draw_lines)(axis, figure, panel)
    title, subtitle, notes, on_cpu = describe(figure)
    canvas.text(0.02, 0.955, title, fontsize=14, fontweight="bold", color=INK, va="center")
    canvas.text(0.02, 0.905, subtitle, fontsize=10.5, color="#B00020" if on_cpu else FAINT, va="center")
    handles, labels = axes[0].get_legend_handles_labels()
    if figure.floors and not bars:  # matplotlib lists plots before error bars; this puts the ceiling last
        handles, labels = handles[1:] + handles[:1], labels[1:] + labels[:1]
    rows = add_legend(canvas, handles, labels) if handles else 0
    wrapped = [line for note in notes for line in textwrap.wrap(note, 165)]
    canvas.text(0.02, 0.018, "\n".join(wrapped), fontsize=8, color=FAINT, va="bottom")
    top = 0.745 - 0.045 * (rows - 1) if rows else 0.79
    bottom = (0.22 if tilted(figure) else 0.135) + 0.03 * len(wrapped)
    canvas.subplots_adjust(left=0.06, right=0.985, top=top, bottom=bottom, wspace=0.15)
    parts = [figure.model, "" if figure.card == "cpu" else figure.card, "prefill" if figure.prefill else f"n{figure.tokens}"]
    return save(canvas, "-".join(p for p in parts if p), out, plt)


def save(canvas, name: str, out: pathlib.Path, plt) -> list:
    """Writes the figure as SVG and PNG into `out`, under `name` less what a file's name should not have."""
    stem = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")
    written = []
    for suffix in ("svg", "png"):
        path = out / f"{stem}.{suffix}"
        # Metadata without a date, so that a report always gives equal bytes.
        canvas.savefig(path, dpi=150, metadata={"Date": None} if suffix == "svg" else {"Software": None})
        written.append(path)
    plt.close(canvas)
    return written


def load_pyplot(program: str):
    """matplotlib.pyplot without a screen, which draws equal bytes from equal data; None where it is missing, which one
    line that begins with `program` says."""
    try:
        import matplotlib
    except ImportError as error:
        print(f"{program}: no matplotlib: {error}", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.family": "DejaVu Sans", "svg.hashsalt": "mkbench", "svg.fonttype": "path"})
    import matplotlib.pyplot as plt

    return plt


def refuse_incomplete(paths: list, error: Exception) -> int:
    names = ", ".join(str(path) for path in paths)
    found = " ".join(str(error).split())[:200]
    print(f"plot_report: {names}: not a complete report: {type(error).__name__}: {found}", file=sys.stderr)
    return 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", type=pathlib.Path, metavar="REPORT.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    reports = []
    for path in arguments.reports:
        try:
            reports.append(load_report(path))
            figures = collect(reports)
        except BadReport as error:
            print(f"plot_report: {error}", file=sys.stderr)
            return 2
        except INCOMPLETE as error:
            return refuse_incomplete([path], error)
    if not figures:
        print("plot_report: nothing to plot: no engine of these reports has times", file=sys.stderr)
        return 3
    plt = load_pyplot("plot_report")
    if plt is None:
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        try:
            written = draw(figure, arguments.out, plt)
        except INCOMPLETE as error:
            return refuse_incomplete(arguments.reports, error)
        for path in written:
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
