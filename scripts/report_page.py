"""The page of mkbench reports: one HTML file that holds everything it shows and opens without a network.

  report_page.py REPORT.json [REPORT.json ...] --out FILE.html [--unverified WHY ...]

--unverified: once for each report, in their order: why its figures do not follow from its samples; empty if they do.

Charts are Vega-Lite specifications, drawn by Vega as vl-convert-python packs it, which the page contains. The
page's content security policy forbids every request, and every script but its two.

Exit status: 0 written, 1 a module is missing or the file cannot be written, 2 a report that cannot be read.
"""

import argparse
import base64
import hashlib
import itertools
import json
import os
import pathlib
import sys

import page_charts
import page_tables
import whole_file
from report_file import INCOMPLETE, BadReport, load, refuse_incomplete

PARTS = pathlib.Path(__file__).resolve().parent / "page"


class BadScript(Exception):
    """The page's scripts could not be made; the message says why."""


def cache_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mkbench"


def vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script. Packing takes 2 s, so the cache keeps a script for each version."""
    import importlib.metadata

    kept = None
    try:
        kept = cache_folder() / f"vega-{importlib.metadata.version('vl-convert-python')}-{page_charts.VEGA_LITE}.js"
        return kept.read_text(encoding="utf-8")
    except (OSError, RuntimeError, UnicodeDecodeError):  # not kept yet; RuntimeError: no home folder
        pass
    import vl_convert

    try:
        script = vl_convert.javascript_bundle(vl_version=page_charts.VEGA_LITE)
    except (RuntimeError, ValueError) as error:
        raise BadScript("vl_convert: " + " ".join(str(error).split())[:200]) from None
    if kept is not None:
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            whole_file.put(kept, script)
        except OSError:
            pass
    return script


def source_of(script: str) -> str:
    """The name of a script in a content security policy: its hash."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


def safe_json(value) -> str:
    """JSON that a script element can hold: no text in it ends the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(name: str = "report.html.j2"):
    import jinja2

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PARTS), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.get_template(name)


def render(draw, page: page_tables.Page, scripts: list, **values) -> str:
    """Fills a template with its values, and with the parts that every page of charts has."""
    return draw.render(
        style=(PARTS / "report.css").read_text(encoding="utf-8"), scripts=scripts,
        script_sources=" ".join(source_of(script) for script in scripts), legend=page.palette.legend(),
        data=safe_json({"charts": page.charts, "data": page.data}), **values)


def fill(draw, reports: list, names: list, scripts: list, unverified: list) -> str:
    """The page of reports. Raises one of INCOMPLETE if a report lacks a value or has one that no report may have."""
    import jinja2

    page = page_tables.Page()
    runs = [page_tables.run_view(page, report, name, why)
            for report, name, why in zip(reports, names, itertools.chain(unverified, itertools.repeat("")))]
    try:
        return render(draw, page, scripts, runs=runs, has_ceiling=page.has_ceiling)
    except jinja2.UndefinedError as error:
        raise KeyError(str(error)) from None


def scripts_of_page() -> list:
    scripts = [vega(), (PARTS / "report.js").read_text(encoding="utf-8")]
    if any("</script" in script.lower() for script in scripts):
        raise BadScript("a script of the page contains '</script', which would end it there")
    return scripts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", type=pathlib.Path, metavar="REPORT.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE.html")
    parser.add_argument("--unverified", action="append", default=[], metavar="WHY")
    arguments = parser.parse_args()
    names = [str(path) for path in arguments.reports]
    try:
        reports = [load(path) for path in arguments.reports]
        draw, scripts = template(), scripts_of_page()
    except BadReport as error:
        print(f"report_page: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"report_page: no {error.name}: {error}", file=sys.stderr)
        return 1
    except BadScript as error:
        print(f"report_page: {error}", file=sys.stderr)
        return 1
    try:
        text = fill(draw, reports, names, scripts, arguments.unverified)
    except INCOMPLETE as error:
        return refuse_incomplete("report_page", arguments.reports, error)
    try:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        whole_file.put(arguments.out, text)
    except OSError as error:
        print(f"report_page: {arguments.out}: {error.strerror}", file=sys.stderr)
        return 1
    print(arguments.out)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
