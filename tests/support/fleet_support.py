"""Fleets for tests: reports made of a committed one, planted differences of cards, and a program in mkbench's place."""

import copy
import functools
import json
import os
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import fleet  # noqa: E402
import fleet_cells  # noqa: E402
import fleet_plan  # noqa: E402
import fleet_worker  # noqa: E402

TEMPLATE = ROOT / "reports" / "evidence" / "nvidia-h100" / "timing" / "table-report.json"
PROGRAM = ROOT / "tests" / "fleet" / "stand_in_mkbench.py"
UUIDS = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "0123456789abcdef"]
ROWS_KEPT = 3  # of a parity table


def modules_missing() -> str:
    """Why submitit and duckdb cannot be had; empty where they can, and are on sys.path."""
    try:
        fleet.need_modules("duckdb", "submitit")
    except fleet.Missing as error:  # no network, no pip
        return str(error)
    return ""


def main(why_not: str = "") -> None:
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(77)
    unittest.main()


@functools.cache
def template() -> dict:
    report = json.loads(TEMPLATE.read_text())
    for case in report["cases"]:
        for engine in case["engines"]:
            if engine["parity"]:
                engine["parity"]["rows"] = engine["parity"]["rows"][:ROWS_KEPT]
                engine["parity"]["logits_sha256"] = "aa" * 32
    return report


def report_of(uuid: str = "", depths=(0,), engines=("ring", "plain"), name: str = "run", read: float = 1.0,
              slower=None, bits=None, parity=None, stand_in: bool = False) -> dict:
    """A report on a card that reads `read` times as fast as the template's. slower: engine -> factor on its time besides;
    bits, parity: engine -> another hash of its logits, another verdict."""
    source = template()
    report = {key: copy.deepcopy(value) for key, value in source.items() if key != "cases"}
    report["meta"] |= {"output": name, "started": "2026-11-24T12:00:00Z"}
    report["env"]["gpu"]["uuid"] = uuid
    report["cases"] = []
    for depth in depths:
        case = next((c for c in source["cases"] if c["axes"]["depth"] == depth), source["cases"][0])
        case = copy.deepcopy(case)
        case["axes"]["depth"], case["name"] = depth, f"synthetic d={depth} n=64"
        case["engines"] = [e for e in case["engines"] if e["role"] == "baseline" or e["name"] in engines]
        change_case(case, read, slower or {}, bits or {}, parity or {})
        report["cases"].append(case)
    if stand_in:
        report["env"]["gpu"] = {}
        for case in report["cases"]:
            case["ceiling"] |= {"ms_per_tok": None, "gb_per_s": None, "samples": []}
            for engine in case["engines"]:
                engine["share"], engine["share_ci"] = None, None
    return report


def change_case(case: dict, read: float, slower: dict, bits: dict, parity: dict) -> None:
    ceiling = case["ceiling"]
    scale_times(ceiling, 1 / read)
    ceiling["gb_per_s"] *= read
    for engine in case["engines"]:
        name = engine["resolved_name"]
        # A baseline that waits for its host does not follow the card.
        factor = slower.get(name, 1.0) / (1.0 if engine["role"] == "baseline" else read)
        scale_times(engine, factor)
        engine["tok_per_s"] /= factor
        engine["share"] = ceiling["ms_per_tok"]["mean"] / engine["ms_per_tok"]["mean"]
        if name in bits:
            engine["parity"]["logits_sha256"] = bits[name]
        if name in parity:
            engine["parity"]["verdict"] = parity[name]


def scale_times(taker: dict, factor: float) -> None:
    for field in ("mean", "median", "min", "max"):
        taker["ms_per_tok"][field] *= factor
    if taker["ms_per_tok"]["ci"]:
        taker["ms_per_tok"]["ci"] = {end: value * factor for end, value in taker["ms_per_tok"]["ci"].items()}
    for sample in taker["samples"]:
        sample["times"]["host_ms"] *= factor


class FleetTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_fleet_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def plan(self, **changes) -> fleet_plan.Plan:
        table = {"models": ["synthetic"], "engines": ["ring"], "heartbeat_s": 0.1, "program": str(PROGRAM)} | changes
        return fleet_plan.plan_of("plan.toml", table)

    def fleet(self, copies: int = 2, **changes) -> fleet_cells.Folder:
        return fleet_cells.make(self.folder / "fleet", self.plan(**changes), copies, fleet_worker.version_of(str(PROGRAM)),
                                str(PROGRAM))

    def write_plan(self, text: str) -> pathlib.Path:
        path = self.folder / "plan.toml"
        path.write_text(text)
        return path


def finish(folder: fleet_cells.Folder, card: str, report_for, worker: str = "w") -> None:
    """Claims and ends all cells that a card may take, as a worker would. report_for(cell) -> report."""
    while claim := folder.claim(card, worker):
        path = folder.cell_folder(claim.cell.id) / f"try-{claim.number}" / "report"
        path.mkdir()
        report = report_for(claim.cell)
        report["meta"]["output"] = str(path)
        (path / "report.json").write_text(json.dumps(report))
        folder.note_try(claim, host="node", started=fleet_cells.now())
        folder.end(claim, "done", exit_code=0, seconds=1.0, sha256=fleet_cells.sha256(path / "report.json"))


def rows(folder: pathlib.Path, query: str) -> list:
    base = sqlite3.connect(folder / "fleet.sqlite")
    try:
        return base.execute(query).fetchall()
    finally:
        base.close()


def python_path() -> dict:
    """For programs that are started: what this process can import."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
