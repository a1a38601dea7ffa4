"""Charts of the pages (page_charts.py) as files: SVG and PNG, drawn by vl-convert in the colours of the light page."""

import functools
import json
import pathlib
import re
import sys

import page_charts
import whole_file

STYLE = pathlib.Path(__file__).resolve().parent / "page" / "report.css"
FONT = "Liberation Sans, Arial, sans-serif"  # vl-convert holds the first, so a PNG looks alike on every machine
PNG_SCALE = 2


@functools.cache
def colours() -> dict:
    """The variables of the page's light scheme: --c0 -> #d55e00."""
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]+);", STYLE.read_text(encoding="utf-8").split("@media")[0]))


def config() -> dict:
    ink, quiet, grid = (colours()[name] for name in ("--ink", "--ink-2", "--grid"))
    return {"font": FONT, "background": "white", "view": {"stroke": None}, "text": {"fill": ink},
            "axis": {"labelColor": quiet, "titleColor": ink, "gridColor": grid, "domainColor": quiet, "tickColor": quiet,
                     "titleFontWeight": "normal"},
            "axisY": {"domain": False, "ticks": False},
            "title": {"anchor": "start", "frame": "group", "color": ink, "subtitleColor": quiet},
            "legend": {"labelFontSize": 12, "labelLimit": 420, "symbolSize": 100, "symbolStrokeWidth": 2}}


def title(text: str, lines: list, colour: str) -> dict:
    """The title of a figure and the lines below it, the first of which is in `colour`."""
    return {"text": text, "subtitle": lines, "fontSize": 18, "subtitleColor": f"var({colour})", "subtitleFontSize": 11.5,
            "offset": 14}


def legend(names: list) -> dict:
    """A palette's `chart_legend`: names in rows above the charts."""
    return {"title": None, "orient": "top", "values": names, "columns": 4}


def beside(panels: list, heading: dict) -> dict:
    """Panels in a row, under a heading and one legend."""
    for panel in panels:
        panel.pop("params", None)  # Vega-Lite allows params in the whole figure only
    return {"title": heading, "params": page_charts.PICKED, "hconcat": panels, "spacing": 40,
            "resolve": {"scale": {"color": "shared", "shape": "shared"}}}


def plain(node):
    """A specification that Vega-Lite draws without a page: CSS variables become colours, tables lists of objects."""
    if isinstance(node, dict):
        if set(node) == {"columns", "rows"}:
            return [dict(zip(node["columns"], row)) for row in node["rows"]]
        return {key: plain(inner) for key, inner in node.items()}
    if isinstance(node, list):
        return [plain(inner) for inner in node]
    variable = re.fullmatch(r"var\((--[\w-]+)\)", node) if isinstance(node, str) else None
    return colours().get(variable[1], node) if variable else node


def write(program: str, specs: dict, out: pathlib.Path, later: str) -> int:
    """Writes DIR/NAME.svg and .png for each name of specs and prints the paths. Equal reports give equal bytes. Returns
    the exit status: 1 without vl-convert or where a file cannot be written, and then one line says so and names `later`,
    the command that draws them."""
    try:
        import vl_convert
    except ImportError as error:
        print(f"{program}: plots are left out: no vl_convert: {error}; to draw them, run `{later}` with the Python "
              "that scripts/setup.sh makes", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    for name, spec in specs.items():
        stem = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")
        svg = vl_convert.vegalite_to_svg(json.dumps(plain(spec), allow_nan=False), vl_version=page_charts.VEGA_LITE,
                                         config=config())
        for path, drawn in ((out / f"{stem}.svg", f'<?xml version="1.0" encoding="utf-8"?>\n{svg}\n'.encode()),
                            (out / f"{stem}.png", vl_convert.svg_to_png(svg, scale=PNG_SCALE))):
            try:
                whole_file.put(path, drawn)
            except OSError as error:
                print(f"{program}: {path}: {error.strerror}; once that is mended, run `{later}`", file=sys.stderr)
                return 1
            print(path)
    return 0
