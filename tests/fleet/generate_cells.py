"""Makes the folder of a fleet that has run, for measurements of merge: generate_cells.py FOLDER CARDS CELLS_EACH ROWS

Reports are the committed one of an H100 with one depth, ROWS rows of each parity table (0: all, which are most of a
report), and times that differ by card. docs/fleet.md says what a merge of such a folder took.
"""

import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import fleet_support  # noqa: E402

import fleet_cells  # noqa: E402
import fleet_plan  # noqa: E402


def main() -> None:
    path, cards, each = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    fleet_support.ROWS_KEPT = int(sys.argv[4]) or None
    plan = fleet_plan.plan_of("plan.toml", {"models": ["synthetic"], "engines": [["ring", "plain"]], "repeats": each})
    folder = fleet_cells.make(path, plan, cards, "mkbench (generated)", "none")
    draw = random.Random(1)
    names = [f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(cards)]
    bases = sorted({cell.base for cell in folder.cells.values()})
    # As text with the words that differ left open: a report is made once a card, not once a cell.
    for number, card in enumerate(names):
        report = fleet_support.report_of(card, (0,), ("ring", "plain"), "OUTPUT", read=1 + draw.gauss(0, 0.01))
        text = json.dumps(report, indent=1)
        for base in bases:
            write(folder, f"{base}+{number:04d}", card, text)


def write(folder: fleet_cells.Folder, cell: str, card: str, text: str) -> None:
    out = folder.cell_folder(cell) / "try-1" / "report"
    out.mkdir(parents=True)
    (out / "report.json").write_text(text.replace("OUTPUT", str(out)))
    (out.parent / "card.json").write_text(json.dumps({"card": card, "stand_in": False, "host": f"node{int(card[4:12], 16) // 8}"}))
    now = fleet_cells.now()
    row = {"n": 1, "card": card, "worker": "w", "outcome": "done", "exit_code": 0, "started": now, "ended": now, "seconds": 90.0,
           "sha256": fleet_cells.sha256(out / "report.json")}
    (folder.cell_folder(cell) / "status.json").write_text(json.dumps({"id": cell, "tries": [row]}))
    (folder.queue("waiting") / cell).rename(folder.queue("done") / f"{cell}@{card}")


if __name__ == "__main__":
    main()
