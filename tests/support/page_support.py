"""What the tests of a report's page share: example reports, planted text, and the page as a reader finds it."""

import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

EXAMPLE = os.environ.get("MKBENCH_REPORT_EXAMPLE", "")
PLANTED = '</script x></script><script>window.planted = 1</script>"><img src="//planted.invalid/x" onerror="window.planted = 1">'
VOID = {"meta", "br", "img", "link", "input", "hr", "path", "circle"}


class Reader(html.parser.HTMLParser):
    """Elements of a page with their attributes, its visible text, and what its scripts and styles hold."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.open, self.texts, self.scripts, self.styles = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attributes).get("type", ""), ""))

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            raise ValueError(f"</{tag}> ends <{self.open[-1] if self.open else 'nothing'}>")
        self.open.pop()

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
        elif inside == "style":
            self.styles.append(data)
        else:
            self.texts.append(data)

    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def data(self) -> dict:
        return json.loads(next(body for kind, body in self.scripts if kind == "application/json"))


class Pages(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def example(self, kind: str) -> dict:
        """A report as report_example writes it."""
        subprocess.run([EXAMPLE, kind, str(self.folder / kind)], check=True, capture_output=True)
        return json.loads((self.folder / kind / "report.json").read_text())

    def make(self, *reports, name="page", out="", env=None, program="report_page") -> subprocess.CompletedProcess:
        """Runs a program of scripts/ over reports; the page is self.folder / <name>.html, or `out`."""
        paths = []
        for number, report in enumerate(reports):
            paths.append(self.folder / f"{name}-{number}.json")
            paths[-1].write_text(report if isinstance(report, str) else json.dumps(report))
        return subprocess.run([sys.executable, str(ROOT / "scripts" / f"{program}.py"), *map(str, paths), "--out",
                               str(self.folder / (out or f"{name}.html"))], capture_output=True, text=True,
                              env={**os.environ, **(env or {})})

    def page(self, *reports, name="page") -> pathlib.Path:
        done = self.make(*reports, name=name)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.folder / f"{name}.html"

    def read(self, *reports) -> Reader:
        return Reader(self.page(*reports).read_text(encoding="utf-8"))


def plant(report: dict) -> dict:
    """Puts text that looks like HTML wherever a report holds text of others."""
    for case in report["cases"]:
        case["model"]["name"] += PLANTED
        case["name"] += PLANTED
        case["generated_text"] = PLANTED
        case["reasons"].append(PLANTED)
        for engine in case["engines"]:
            old = engine["name"]
            engine["name"] = engine["resolved_name"] = old + PLANTED
            engine["settings"] = engine["device"] = PLANTED
            engine["reasons"].append(PLANTED)
            for comparison in case["comparisons"]:
                for side in ("baseline", "candidate"):
                    comparison[side] = engine["name"] if comparison[side] == old else comparison[side]
                comparison["caveat"] = PLANTED
            for row in engine["parity"]["rows"] if engine["parity"] else []:
                row["ref_text"] = row["mk_text"] = row["prompt"] = PLANTED
            for check in engine["parity"]["checks"] if engine["parity"] else []:
                check["detail"] = PLANTED
            for sample in engine["samples"][:1]:
                sample["dropped_for"] = PLANTED
    report["meta"]["argv"] = ["mkbench", PLANTED]
    report["meta"]["warnings"] = [PLANTED]
    report["env"]["gpu"] = {"name": PLANTED}
    report["verdict"]["reasons"] = [PLANTED]
    return report


def main(skipped: str) -> None:
    """Runs the tests; `skipped` says why none can run, or is empty."""
    if skipped:
        print(f"skipped: {skipped}")
        sys.exit(77)
    if not EXAMPLE:
        sys.exit("MKBENCH_REPORT_EXAMPLE: not set; ctest sets it")
    unittest.main()
