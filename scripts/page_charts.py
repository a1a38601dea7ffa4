"""Charts of a report's page, as Vega-Lite specifications.

Text from a report goes only into data and domains of scales, never into an expression, which Vega would compile.
Colours are CSS variables of scripts/page/report.css, so that a chart follows the light or dark scheme of its page.
"""

import math
import statistics
import zlib

from report_file import finite

VEGA_LITE = "6.4"  # version of Vega-Lite
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right", "triangle-left")
SLOTS = 8  # colours --c0 to --c7
# Colour slots that engines take if they are free, so that an engine has one colour in most charts.
PREFERRED = {"eager": 0, "graph": 1, "compiled": 2, "graph-pdl": 5, "graph-serial": 6, "plain": 3, "megakernel": 3, "host-twin": 3, "ring": 4}
CEILING = "ceiling"
VERDICTS = {"FASTER": ("--faster", "triangle-right"), "SLOWER": ("--slower", "triangle-left"),
            "SAME": ("--ink-2", "square"), "INCONCLUSIVE": ("--ink-2", "circle")}
ROW = 40  # pixels of a row that has its text above its bar


class Palette:
    """Colour and mark of every engine of a page: the same on each page, unless another engine has taken them, and no two
    alike. The ceiling has the colour of the text."""

    def __init__(self):
        self.slots = {}
        self.chart_legend = None  # the legend of each chart; None on a page, which has one legend for all

    def add(self, label: str, *names: str) -> None:
        if label in self.slots:
            return
        wanted = [PREFERRED[name] for name in names if name in PREFERRED]
        own = zlib.crc32(label.encode()) % SLOTS
        free = [slot for slot in range(SLOTS * len(SHAPES)) if slot not in self.slots.values()]
        others = sorted(free, key=lambda slot: (slot // SLOTS, slot in PREFERRED.values(), (slot - own) % SLOTS))
        self.slots[label] = ([slot for slot in wanted if slot in free] + others + [own])[0]

    @staticmethod
    def colour(slot: int) -> int:
        return slot % SLOTS

    @staticmethod
    def shape(slot: int) -> str:
        """The marks are shifted by one where the colours begin again."""
        return SHAPES[(slot + slot // SLOTS) % len(SHAPES)]

    def domain(self) -> list:
        return [*self.slots, CEILING]

    def colours(self) -> dict:
        return {"domain": self.domain(),
                "range": [f"var(--c{self.colour(slot)})" for slot in self.slots.values()] + ["var(--ink)"]}

    def shapes(self) -> dict:
        return {"domain": self.domain(), "range": [self.shape(slot) for slot in self.slots.values()] + ["stroke"]}

    def legend(self) -> list:
        return [{"engine": e, "slot": self.colour(slot), "shape": self.shape(slot)} for e, slot in self.slots.items()]

    def engine_colour(self) -> dict:
        return name("engine", scale=self.colours(), legend=self.chart_legend)

    def engine_shape(self) -> dict:
        return name("engine", scale=self.shapes(), legend=self.chart_legend)


# The page's legend sets `picked`: the other engines fade.
PICKED = [{"name": "picked", "value": None}]
MANY = 60  # from this many blocks on, the marks of samples overlap


def fade(opacity: float = 1) -> dict:
    return {"condition": {"test": "picked !== null && datum.engine !== picked", "value": 0.06}, "value": opacity}


# Ticks as whole numbers or decimals, never with an exponent.
TICKS = "format(datum.value, ',.6~r')"
SIGNED_TICKS = "format(datum.value, '+,.6~r')"


def digits(value: float) -> str:
    """Four significant digits without an exponent."""
    places = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(places, 0), 9)}f}"


def table(rows: list) -> dict:
    """Rows that have the same keys, with the keys listed once; report.js turns them back into objects."""
    columns = list(rows[0]) if rows else []
    return {"columns": columns, "rows": [[row[c] for c in columns] for row in rows]}


def quantity(field: str, **more) -> dict:
    return {"field": field, "type": "quantitative", **more}


def name(field: str, **more) -> dict:
    return {"field": field, "type": "nominal", **more}


def tip(field: str, title: str, form: str = "") -> dict:
    return quantity(field, title=title, format=form) if form else name(field, title=title)


def rule_layer(at: float, channel: str, dash: tuple = (5, 3), ink: str = "--ink", **more) -> dict:
    """A straight line through the whole chart, where `channel` is `at`."""
    return {"data": {"values": [{"at": at}]}, "mark": {"type": "rule", "stroke": f"var({ink})", "strokeDash": list(dash)},
            "encoding": {channel: quantity("at"), **more}}


def depth_axis(xs: list, title: str) -> dict:
    """An axis of depths: logarithmic, but linear near 0, if they span a factor of 16 or more; else linear."""
    scale = {"type": "linear", "zero": False, "nice": False, "padding": 16}
    nonzero = [x for x in xs if x > 0]
    if len(xs) > 3 and max(nonzero) >= 16 * min(nonzero):
        scale |= {"type": "symlog", "constant": min(nonzero)}
    return quantity("x", title=title, scale=scale, axis={"values": xs, "labelOverlap": "greedy", "labelSeparation": 6,
                                                         "grid": False, "format": ",d"})


def run_axis(runs: list) -> dict:
    """Runs in their order, each a text of two lines: its label and when it began."""
    return name("x", title="run", sort=runs, scale={"type": "point", "padding": 0.5}, axis={
        "labelExpr": "split(datum.value, '\\n')", "labelAngle": -30 if len(runs) > 6 else 0, "grid": False, "labelLimit": 160,
        "labelOverlap": "greedy"})


def value_scale(points: list) -> dict:
    """Logarithmic where the values span more than a factor of 8, else from zero."""
    values = [p["value"] for p in points]
    if max(values) > 8 * min(values):
        return {"type": "log", "nice": False, "padding": 14}
    return {"type": "linear", "zero": True, "nice": True}


def is_log(points: list) -> bool:
    return value_scale(points)["type"] == "log"


def lines(points: list, palette: Palette, x: dict, y_title: str, scale: dict, rule_at=None,
          labelled: bool = False) -> dict:
    """A line for each engine over x, with the interval of each point. points: engine, kind, x, value, low, high, text.
    labelled: each point has its figure above it, the text `short`, or below it if the point's `below` is true."""
    y_axis = {"labelExpr": TICKS} | ({"values": log_ticks(points)} if scale["type"] == "log" else {"tickCount": 6})
    y = quantity("value", title=y_title, scale=scale, axis=y_axis)
    layers = [rule_layer(rule_at, "y")] if rule_at is not None else []
    both = {"x": x, "y": y, "color": palette.engine_colour(), "opacity": fade()}
    layers += [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": both | {
            "strokeDash": name("kind", legend=None, scale={"domain": ["engine", "ceiling"], "range": [[1, 0], [5, 3]]})}},
        {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": both | {
            "y": quantity("low", scale=scale, title=y_title), "y2": {"field": "high"}}},
        {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1}, "encoding": both | {
            "shape": palette.engine_shape(),
            "tooltip": [tip("engine", "engine"), tip("x", x["title"], x["axis"].get("format", "")), tip("text", y_title)]}},
    ]
    for below in (False, True) if labelled else ():
        layers.append({"transform": [{"filter": f"datum.below === {str(below).lower()}"}], "encoding": both | {
            "text": name("short")}, "mark": {
                "type": "text", "lineBreak": "\n", "baseline": "top" if below else "bottom", "dy": 7 if below else -7}})
    return {"params": PICKED, "data": {"values": table(points)}, "height": 260, "layer": layers}


def is_crowded(points: list, point: dict) -> bool:
    """Whether another point stands so close above this one that a label has to go below it."""
    log = is_log(points)
    heights = [math.log(p["value"]) if log else p["value"] for p in points]
    own = math.log(point["value"]) if log else point["value"]
    span = max(heights) - (min(heights) if log else 0)
    return any(0 < height - own < 0.15 * span for p, height in zip(points, heights) if p["x"] == point["x"])


def log_ticks(points: list) -> list:
    low, high = min(p["low"] for p in points), max(p["high"] for p in points)
    ticks = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5)]
    return [t for t in ticks if low / 1.5 <= t <= high * 1.5]


def row_text(extra=None) -> dict:
    return {"mark": {"type": "text", "align": "left", "baseline": "middle", "dy": -11, "fontSize": 12,
                     "limit": {"expr": "width"}, "fill": "var(--ink)"},
            "encoding": {"x": {"value": 0}, "text": name("label")} | (extra or {})}


def row_axis(field: str, rows: list) -> dict:
    return name(field, axis=None, sort=list(dict.fromkeys(r[field] for r in rows)),
                scale={"paddingInner": 0.1, "paddingOuter": 0.1})


def bars(points: list, palette: Palette, x_title: str, rule_at=None) -> dict:
    """A bar for each engine from zero, its name and value above it. points: as for lines(), and label."""
    most = max([p["high"] for p in points] + ([rule_at] if rule_at is not None else []))
    x = quantity("value", title=x_title, scale={"domain": [0, most * 1.02], "nice": False},
                 axis={"labelExpr": TICKS, "tickCount": 5})
    layers = [
        {"mark": {"type": "bar", "height": 13, "yOffset": 7}, "encoding": {
            "x": x, "color": palette.engine_colour(), "opacity": fade(),
            "tooltip": [tip("engine", "engine"), tip("text", x_title)]}},
        {"mark": {"type": "rule", "strokeWidth": 2, "yOffset": 7, "y2Offset": 7, "stroke": "var(--ink)"}, "encoding": {
            "x": quantity("low", title=x_title), "x2": {"field": "high"}, "opacity": fade()}},
        row_text(),
    ]
    if rule_at is not None:
        layers.append(rule_layer(rule_at, "x", y=None))
    return {"params": PICKED, "data": {"values": table(points)}, "height": ROW * len(points), "width": "container",
            "encoding": {"y": row_axis("engine", points)}, "layer": layers}


def ratios(rows: list, margin: float) -> dict:
    """Every paired ratio with its interval on a logarithmic axis; the band is the margin around 1. rows: key, label,
    value, low, high, verdict, text."""
    low, high = min([r["low"] for r in rows] + [1 - 2 * margin]), max([r["high"] for r in rows] + [1 + 2 * margin])
    # In a narrow range ticks at 1, 2 and 5 are too few.
    ticks = {"tickCount": 6} if high < 2.5 * low else {"values": log_ticks(rows + [{"low": 1, "high": 1}])}
    x = quantity("value", title="time of the second over time of the first (log scale)", axis={"labelExpr": TICKS} | ticks,
                 scale={"type": "log", "domain": [low / 1.03, high * 1.03], "nice": False})
    colour, shape = (name("verdict", legend=None, scale={"domain": list(VERDICTS), "range": looks})
                     for looks in ([f"var({c})" for c, _ in VERDICTS.values()], [s for _, s in VERDICTS.values()]))
    y = row_axis("key", rows)
    return {"data": {"values": table(rows)}, "height": ROW * len(rows), "layer": [
        {"data": {"values": [{"from": 1 - margin, "to": 1 + margin}]},
         "mark": {"type": "rect", "fill": "var(--band)"},
         "encoding": {"x": quantity("from"), "x2": {"field": "to"}}},
        rule_layer(1, "x", (1, 0), "--ink-2"),
        {"mark": {"type": "rule", "strokeWidth": 3, "yOffset": 8, "y2Offset": 8},
         "encoding": {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}, "color": colour}},
        {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "yOffset": 8},
         "encoding": {"y": y, "x": x, "color": colour, "shape": shape,
                      "tooltip": [tip("key", "pair"), tip("text", "ratio"), tip("verdict", "verdict")]}},
        row_text({"y": y}),
    ]}


SAMPLE_TIPS = [tip("engine", "engine"), tip("block", "block", "d"), tip("process", "process", "d"),
               tip("ms", "ms per token", ".6~g"), tip("off", "from its median, %", "+.3f"),
               tip("clock", "SM clock, GHz", ".3f"), tip("power", "power, W", ".0f"),
               tip("temperature", "temperature, C", ".0f"), tip("dropped", "left out for")]


def distribution(data: str, samples: list, palette: Palette) -> dict:
    """Every sample as a tick on one axis for all engines: per cent from the engine's own median. The box holds the
    middle half."""
    boxes = []
    for engine in dict.fromkeys(s["engine"] for s in samples):
        offs = [s["off"] for s in samples if s["engine"] == engine and not s["dropped"]]
        low, _, high = statistics.quantiles(offs, n=4, method="inclusive") if len(offs) > 3 else (None, None, None)
        boxes.append({"engine": engine, "low": low, "high": high,
                      "label": f"{engine}: {len(offs)} samples, {min(offs):+.2f} to {max(offs):+.2f} %"})
    y = row_axis("engine", boxes)
    x = quantity("off", title="per cent from the engine's own median", scale={"nice": True, "zero": True},
                 axis={"tickCount": 6, "labelExpr": SIGNED_TICKS})
    colour = palette.engine_colour()
    return {"params": PICKED, "height": ROW * len(boxes), "layer": [
        {"data": {"values": table([b for b in boxes if b["low"] is not None])},
         "mark": {"type": "bar", "height": 18, "yOffset": 8, "y2Offset": 8, "opacity": 0.3},
         "encoding": {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}, "color": colour}},
        {"data": {"name": data}, "transform": [{"filter": "datum.dropped === ''"}],
         "mark": {"type": "tick", "thickness": 2, "size": 16, "yOffset": 8},
         "encoding": {"y": y, "x": x, "color": colour, "tooltip": SAMPLE_TIPS,
                      "opacity": fade(0.4 if len(samples) > MANY * len(boxes) else 1)}},
        row_text({"y": y}) | {"data": {"values": table(boxes)}},
    ]}


def series(data: str, samples: list, palette: Palette, field: str, y_title: str) -> dict:
    """One value of each sample in the order of the blocks. Lines end where a process ends; a cross is a sample that
    was left out."""
    starts = {}
    for sample in samples:
        if sample["process"] > 0:
            starts[sample["process"]] = min(sample["block"], starts.get(sample["process"], sample["block"]))
    blocks = len({s["block"] for s in samples})
    x = quantity("block", title="block (dotted: a new process begins)", scale={"zero": False, "nice": False, "padding": 10},
                 axis={"grid": False, "format": "d", "tickMinStep": 1, "tickCount": min(blocks, 12)})
    axis = {"tickCount": 5, "labelExpr": SIGNED_TICKS if field == "off" else TICKS, "minExtent": 46}
    y = quantity(field, title=y_title, scale={"zero": False, "nice": True}, axis=axis)
    both = {"x": x, "y": y, "color": palette.engine_colour(), "opacity": fade()}
    read = f"datum.{field} !== null"
    layers = [
        {"data": {"name": data}, "transform": [{"filter": f"{read} && datum.dropped === ''"}],
         "mark": {"type": "line", "strokeWidth": 1.3 if blocks <= MANY else 0.7},
         "encoding": both | {"detail": name("process")}},
        {"data": {"name": data}, "transform": [{"filter": f"{read} && datum.dropped === ''"}],
         "mark": {"type": "point", "filled": True, "size": 45 if blocks <= MANY else 8, "opacity": 1},
         "encoding": both | {"shape": palette.engine_shape(), "tooltip": SAMPLE_TIPS}},
    ]
    if any(s["dropped"] and s[field] is not None for s in samples):
        layers.append({"data": {"name": data}, "transform": [{"filter": f"{read} && datum.dropped !== ''"}],
                       "mark": {"type": "text", "text": "\u00d7", "fontSize": 17, "fontWeight": "bold"},
                       "encoding": both | {"tooltip": SAMPLE_TIPS}})
    if starts:
        layers.insert(0, {"data": {"values": [{"at": at - 0.5} for at in starts.values()]},
                          "mark": {"type": "rule", "strokeDash": [1, 3], "stroke": "var(--ink-2)"},
                          "encoding": {"x": quantity("at")}})
    return {"params": PICKED, "height": 200, "layer": layers}


def decades(values: list) -> list:
    """Powers of ten from below the values to above them, at most nine."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**e for e in range(low, high + 1, (high - low) // 9 + 1)]


def errors(found: list, engine: str, x_title: str, y_title: str, worst) -> dict:
    """Errors of an engine, of the baseline, and their limit on a logarithmic axis. found: a report's list of at, error,
    baseline_error, limit. A vertical line stands at `worst`, unless it is None."""
    series = {engine: "error", "baseline": "baseline_error", "limit": "limit"}
    points = [{"x": e["at"], "value": finite(e[field]), "series": label, "kind": field, "text": f"{e[field]:.3g}"}
              for label, field in series.items() for e in found if e[field]]  # a logarithm has no place for 0
    x = quantity("x", title=x_title, scale={"zero": False, "nice": False, "padding": 10},
                 axis={"grid": False, "format": "d", "tickMinStep": 1})
    y = quantity("value", title=y_title + ", log scale", scale={"type": "log"}, axis={"format": ".0e", "values": decades(
        [p["value"] for p in points])})
    colours = dict(zip(series, ("var(--slower)", "var(--c3)", "var(--ink-2)")))
    shown = list(dict.fromkeys(p["series"] for p in points))
    colours = {"domain": shown, "range": [colours[label] for label in shown]}
    both = {"x": x, "y": y, "color": name("series", scale=colours, legend={"title": None, "orient": "top"})}
    return {"data": {"values": table(points)}, "height": 220, "layer": [
        *([] if worst is None else [rule_layer(worst, "x", (1, 3))]),
        {"mark": {"type": "line", "strokeWidth": 1.6}, "encoding": both | {
            "strokeDash": name("kind", legend=None, scale={"domain": list(series.values()), "range": [[1, 0], [1, 0], [5, 3]]})}},
        {"transform": [{"filter": "datum.kind !== 'limit'"}], "mark": {"type": "point", "filled": True, "size": 30, "opacity": 1},
         "encoding": both | {"tooltip": [tip("series", "series"), tip("x", x_title, "d"), tip("text", y_title)]}},
    ]}


def with_interval(value: float, low, high, unit: str = "") -> str:
    """The value and, where there is one, its interval: 9.726x [9.712, 9.740]."""
    return digits(value) + unit + (f" [{digits(low)}, {digits(high)}]" if low is not None else "")
