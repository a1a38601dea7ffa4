"""Keeps results of finished runs in an SQLite file, and prints or draws them by card and commit.

  history.py DATABASE add NAME      reads JSON lines, the run and then its rows; messages call the run NAME
  history.py DATABASE show [--plot DIR]

`mkbench history` runs it, on reports that it has checked. Exit status: 0 done, 1 no vl-convert, 2 a file that is no
history or no result, 3 nothing to plot.
"""

import argparse
import datetime
import json
import pathlib
import sqlite3
import sys

import drift
import sqlite_store
import text_tables

VERSION = 1  # PRAGMA user_version of the file
RUN_COLUMNS = ("report_sha256", "added", "started", "git_sha", "label", "device", "uuid", "driver", "verdict")
TABLES = {"runs": f"id INTEGER PRIMARY KEY, {', '.join(f'{name} TEXT NOT NULL' for name in RUN_COLUMNS)}, "
                  "UNIQUE (report_sha256)",
          "results": "run INTEGER NOT NULL REFERENCES runs (id)"}  # further columns are added as -o jsonl has them


class BadHistory(Exception):
    """What cannot be added; the message names it and says what is wrong."""


def open_database(path: pathlib.Path) -> sqlite3.Connection:
    return sqlite_store.opened(path, VERSION, TABLES, "a history of this version of mkbench")


def add(base: sqlite3.Connection, lines: list, name: str) -> None:
    """Adds a run, unless its report is in the history already."""
    run, rows = lines[0], lines[1:]
    run["added"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with base:
        base.execute("BEGIN IMMEDIATE")
        if base.execute("SELECT 1 FROM runs WHERE report_sha256 = ?", (run["report_sha256"],)).fetchone():
            print(f"{name}: is in the history already")
            return
        sqlite_store.add_columns(base, "runs", [run])
        sqlite_store.insert(base, "runs", [run])
        number = base.execute("SELECT max(id) FROM runs").fetchone()[0]
        sqlite_store.add_columns(base, "results", rows)
        sqlite_store.insert(base, "results", [row | {"run": number} for row in rows])
    print(f"{name}: {len(rows)} results of {run['label']} on {run['device']} are in the history")


def read_lines(name: str) -> list:
    lines = [json.loads(line) for line in sys.stdin]
    if len(lines) < 2:
        raise BadHistory(f"{name}: found no engine, wanted at least one")
    return lines


# Both tables have a device and a verdict: sqlite3.Row returns the first column of a name, which is the engine's.
QUERY = """SELECT results.*, runs.*, runs.device AS machine FROM results JOIN runs ON runs.id = results.run
           ORDER BY machine, uuid, case_name, engine, role, started, run"""


def read_rows(base: sqlite3.Connection) -> list:
    if base.execute("SELECT count(*) FROM runs").fetchone()[0] == 0:
        return []
    rows = [dict(row) for row in base.execute(QUERY)]
    for row in rows:
        # Cards of one kind are told apart by the first digits of their uuid.
        row["card"] = row["machine"] + (f", {row['uuid'][:12]}" if row["uuid"] else "")
    return rows


def digits(value) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def cells_of(row: dict) -> list:
    low, high = row["ms_per_tok_ci_low"], row["ms_per_tok_ci_high"]
    interval = "" if low is None or high is None else f" [{digits(low)}, {digits(high)}]"
    share = "-" if row["share"] is None else f"{100 * row['share']:.1f} %"
    processes = "-" if row["processes"] is None else f"{row['processes']:.0f}"
    return [row["case_name"], drift.short(row["engine"]), row["started"], row["label"],
            digits(row["ms_per_tok_mean"]) + interval, digits(row["tok_per_s"]), share, processes, row["verdict"]]


HEADINGS = ["case", "engine", "run", "commit", "ms/tok [CI]", "tok/s", "of the ceiling", "processes", "verdict"]
RIGHT = (4, 5, 6, 7)


def show(rows: list, found: list) -> None:
    blocks = []
    for card in dict.fromkeys(row["card"] for row in rows):
        table = text_tables.markdown(HEADINGS, [cells_of(row) for row in rows if row["card"] == card], RIGHT)
        steps = drift.sentences(found, card) or [drift.none_found(found, card)]
        blocks += [f"## {card}", table, "\n".join(f"- {text}" for text in steps)]
    print("\n\n".join(blocks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=pathlib.Path)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add")
    adding.add_argument("name")
    showing = commands.add_parser("show")
    showing.add_argument("--plot", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    try:
        if arguments.command == "show" and not arguments.database.exists():
            print("the history is empty; mkbench history add REPORT, or mkbench run --history, adds to it")
            return 3 if arguments.plot else 0
        arguments.database.parent.mkdir(parents=True, exist_ok=True)
        base = open_database(arguments.database)
        if arguments.command == "add":
            add(base, read_lines(arguments.name), arguments.name)
            return 0
        rows = read_rows(base)
        found = drift.found_in(rows)
        show(rows, found)
    except BadHistory as error:
        print(f"history: {error}", file=sys.stderr)
        return 2
    except (sqlite3.OperationalError, OSError) as error:  # a full disk, no permission
        print(f"history: {arguments.database}: {error}", file=sys.stderr)
        return 1
    except sqlite3.Error as error:
        print(f"history: {arguments.database}: {error}", file=sys.stderr)
        return 2
    if not arguments.plot:
        return 0
    import plot_history

    return plot_history.draw(rows, found, arguments.plot)


if __name__ == "__main__":
    sys.exit(main())
