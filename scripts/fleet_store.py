"""All reports of a fleet in one SQLite file and as Parquet: fleet.sqlite and parquet/TABLE.parquet of its folder.

A merge may be repeated: reports that are there already are recognised by their hash, and new ones are added. A report
is refused by name if its hash is not the one that its worker noted, or if it claims to be the run of another report.
"""

import collections
import contextlib
import hashlib
import json
import multiprocessing
import os
import pathlib
import sqlite3
import sys
import tempfile

import exit_codes
import fleet_cells
import fleet_plan
import fleet_rows
import report_file
import sqlite_store
import whole_file

VERSION = 1  # PRAGMA user_version
CHUNK = 32  # reports that a process reads in one go
TABLES = {
    "cells": "cell TEXT PRIMARY KEY, base TEXT, model TEXT, engines TEXT, depths TEXT, n_gen TEXT, repeat INTEGER, "
             "state TEXT, tries INTEGER",
    "tries": "cell TEXT, n INTEGER, card TEXT, worker TEXT, host TEXT, outcome TEXT, exit_code INTEGER, started TEXT, "
             "ended TEXT, seconds REAL, why TEXT, report INTEGER, PRIMARY KEY (cell, n)",
    "cards": "card TEXT PRIMARY KEY, kind TEXT, stand_in INTEGER, hosts TEXT, driver TEXT, reports INTEGER, "
             "temperature_c REAL, ecc_corrected REAL, ecc_uncorrected REAL, ecc_new REAL",
    "reports": "report INTEGER PRIMARY KEY, sha256 TEXT UNIQUE, run TEXT UNIQUE, path TEXT UNIQUE, cell TEXT, n INTEGER, "
               "card TEXT, kind TEXT, stand_in INTEGER, host TEXT, version TEXT, build_id TEXT, git_sha TEXT, started TEXT, "
               "finished TEXT, verdict TEXT, exit_code INTEGER, interrupted INTEGER, driver TEXT, temperature_c REAL, "
               "throttle TEXT, ecc_corrected REAL, ecc_uncorrected REAL, ecc_new REAL",
    "results": "report INTEGER, case_name TEXT, model TEXT, depth INTEGER, n_gen INTEGER, n_prompt INTEGER, engine TEXT, "
               "role TEXT, timed INTEGER, verdict TEXT, ms_per_tok REAL, ms_per_tok_low REAL, ms_per_tok_high REAL, "
               "tok_per_s REAL, share REAL, share_low REAL, share_high REAL, ceiling_ms REAL, ceiling_gb_per_s REAL, "
               "sm_clock_mhz REAL, dropped INTEGER, throttle TEXT, parity TEXT, reference_sha256 TEXT, logits_sha256 TEXT",
    "samples": "report INTEGER, case_name TEXT, engine TEXT, process INTEGER, block INTEGER, tokens INTEGER, "
               "ms_per_tok REAL, valid INTEGER, dropped_for TEXT, sm_clock_mhz REAL, power_w REAL, temperature_c REAL, "
               "throttled TEXT",
    "checks": "report INTEGER, case_name TEXT, engine TEXT, name TEXT, status TEXT, value REAL, limit_value REAL, "
              "detail TEXT",
}
TYPES = {"TEXT": "VARCHAR", "INTEGER": "BIGINT", "REAL": "DOUBLE"}
OF_REPORT = ("results", "samples", "checks")


def open_store(path: pathlib.Path) -> sqlite3.Connection:
    base = sqlite_store.opened(path, VERSION, TABLES, "a fleet's store of this version")
    # A store that a crash damages can be made again from the reports.
    base.execute("PRAGMA synchronous = OFF")
    for table in ("results", "tries"):
        base.execute(f"CREATE INDEX IF NOT EXISTS {table}_of ON {table} (report)")
    return base


def insert(base: sqlite3.Connection, table: str, rows: list) -> None:
    sqlite_store.insert(base, table, rows, "INSERT OR REPLACE")


def tries_of(folder: pathlib.Path, cell: str) -> list:
    """A cell's tries, from its status.json or, without one (a matrix of GitHub's workflows), from its folders."""
    status = fleet_cells.read(folder / "cells" / cell / "status.json")
    if status:
        return status["tries"]
    return [{"n": int(path.name[4:]), "outcome": ""} for path in sorted((folder / "cells" / cell).glob("try-*"))]


def read_job(job: tuple) -> tuple:
    """(path, hash, rows) of a report. rows is None if the hash is known, a text if the report cannot be read: why."""
    path, known = job
    try:
        text = pathlib.Path(path).read_bytes()
    except OSError as error:
        return path, "", str(error)
    sha256 = hashlib.sha256(text).hexdigest()
    if sha256 == known:
        return path, sha256, None
    try:
        return path, sha256, fleet_rows.rows_of(report_file.parse("report.json", text))
    except report_file.BadReport as error:
        return path, sha256, str(error)
    except report_file.INCOMPLETE as error:
        return path, sha256, f"not a complete report: {type(error).__name__}: {error}"


class Merge:
    """One pass over a folder."""

    def __init__(self, folder: pathlib.Path, base: sqlite3.Connection):
        self.folder, self.base = folder, base
        self.added, self.known, self.refused = 0, 0, []
        self.paths, self.hashes, self.runs = {}, {}, {}
        for number, path, sha256, run in base.execute("SELECT report, path, sha256, run FROM reports"):
            self.note(number, path, sha256, run)
        self.next = 1 + max((number for number, _ in self.paths.values()), default=0)

    def run(self) -> None:
        markers = self.markers()
        tries, jobs = [], {}
        for cell in sorted(os.listdir(self.folder / "cells")):
            for row in tries_of(self.folder, cell):
                row = {"cell": cell, "card": "", "outcome": "running", "report": None} | row
                tries.append(row)
                path = f"cells/{cell}/try-{row['n']}/report/report.json"
                if (self.folder / path).exists():
                    jobs[path] = row
        arguments = [(str(self.folder / path), self.paths.get(path, (0, ""))[1]) for path in jobs]
        for found, sha256, rows in self.read_all(arguments):
            path = str(pathlib.Path(found).relative_to(self.folder))
            why = rows if isinstance(rows, str) else self.why_not(path, sha256, jobs[path], rows)
            if why:
                self.refused.append(f"{path}: {why}")
            elif rows is not None:
                self.add(path, sha256, jobs[path], rows)
            else:
                self.known += 1
        places = {row["report"]: (row["card"], row["host"])
                  for row in self.base.execute("SELECT report, card, host FROM reports")}
        for path, row in jobs.items():
            if path in self.paths:
                row["report"] = self.paths[path][0]
                row["card"], row["host"] = places[row["report"]]
        self.base.execute("DELETE FROM tries")
        insert(self.base, "tries", tries)
        self.add_cells(markers, tries)
        self.add_cards()

    def read_all(self, arguments: list):
        if len(arguments) < 4 * CHUNK:
            yield from map(read_job, arguments)
            return
        with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
            yield from pool.imap(read_job, arguments, CHUNK)

    def why_not(self, path: str, sha256: str, row: dict, rows) -> str:
        """Why a report is refused; empty if it is taken or is there already."""
        noted, (_, kept) = row.get("sha256"), self.paths.get(path, (0, ""))
        if noted and noted != sha256:
            return f"sha256: found {sha256[:16]}, wanted {noted[:16]}, which its worker noted: it was edited after its run"
        if kept and kept != sha256:
            return f"sha256: found {sha256[:16]}, wanted {kept[:16]}, as it was merged before: it was edited since"
        if rows is None:
            return ""
        if sha256 in self.hashes:
            return f"the same bytes as {self.hashes[sha256]}: a copy"
        run = rows["report"]["run"]
        return f"the same run as {self.runs[run]} with other bytes: an edited copy" if run in self.runs else ""

    def add(self, path: str, sha256: str, row: dict, rows: dict) -> None:
        facts = fleet_cells.read((self.folder / path).parent.parent / "card.json", {})
        number, report = self.next, rows["report"]
        self.next += 1
        stand_in = facts.get("stand_in", not report["uuid"])
        # The card that the report's run used; the job's card may be another one.
        card = ("" if stand_in else report["uuid"]) or facts.get("card") or row["card"] or "cpu"
        kind = f"stand-in: {report['cpu']}" if stand_in else report["gpu"]
        insert(self.base, "reports", [report | errors_of(facts) | {
            "report": number, "sha256": sha256, "path": path, "cell": row["cell"], "n": row["n"], "card": card,
            "kind": kind, "stand_in": int(stand_in),
            "host": row.get("host") or facts.get("host", "")}])
        for table in OF_REPORT:
            insert(self.base, table, [one | {"report": number} for one in rows[table]])
        self.note(number, path, sha256, report["run"])
        self.added += 1

    def note(self, number: int, path: str, sha256: str, run: str) -> None:
        """Notes a report that is in the store."""
        self.paths[path], self.hashes[sha256], self.runs[run] = (number, sha256), path, path

    def markers(self) -> dict:
        """cell -> state, by the queue; empty where the folder has none."""
        found = {}
        for state in fleet_cells.STATES:
            with contextlib.suppress(FileNotFoundError):
                found |= {name.split("@")[0]: state for name in os.listdir(self.folder / "queue" / state)}
        return found

    def add_cells(self, markers: dict, tries: list) -> None:
        counts = collections.Counter(row["cell"] for row in tries)
        cells = fleet_cells.read(self.folder / "cells.json") or [{"id": cell} for cell in counts]
        self.base.execute("DELETE FROM cells")
        insert(self.base, "cells", [
            {"cell": c["id"], "base": fleet_plan.base_of(c["id"]), "model": c.get("model"), "repeat": c.get("repeat", 1),
             "engines": ",".join(c.get("engines", [])), "depths": ",".join(map(str, c.get("depths", []))),
             "n_gen": ",".join(map(str, c.get("n_gen", []))), "state": markers.get(c["id"], "done"),
             "tries": counts[c["id"]]} for c in cells])

    def add_cards(self) -> None:
        self.base.execute("DELETE FROM cards")
        self.base.execute("""
            INSERT INTO cards SELECT r.card, max(r.kind), max(r.stand_in), group_concat(DISTINCT r.host),
              group_concat(DISTINCT r.driver), count(*), max(coalesce(max(s.hottest), 0), coalesce(max(r.temperature_c), 0)),
              max(r.ecc_corrected), max(r.ecc_uncorrected), sum(r.ecc_new)
            FROM reports r LEFT JOIN (SELECT report, max(temperature_c) AS hottest FROM samples GROUP BY report) s
            USING (report) GROUP BY r.card""")


def errors_of(facts: dict) -> dict:
    """Errors of the card's memory since its driver was loaded, and how many were new while the cell ran."""
    def counted(when: str, kind: str):
        return facts.get(when, {}).get(f"ecc.errors.{kind}.volatile.total")

    found = {f"ecc_{kind}": counted("after", kind) for kind in ("corrected", "uncorrected")}
    new = [counted("after", kind) - counted("before", kind) for kind in ("corrected", "uncorrected")
           if counted("after", kind) is not None and counted("before", kind) is not None]
    return found | {"ecc_new": sum(new) if new else None}


def write_parquet(base: sqlite3.Connection, folder: pathlib.Path) -> None:
    import duckdb

    folder.mkdir(exist_ok=True)
    for table in TABLES:
        columns = sqlite_store.columns_of(base, table)
        types = ", ".join(f"'{name}': '{TYPES[kind]}'" for name, kind in columns.items())
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            lines, made = os.path.join(scratch, "rows.json"), os.path.join(scratch, "made")
            with open(lines, "w", encoding="utf-8") as file:
                for row in base.execute(f"SELECT {', '.join(columns)} FROM {table}"):
                    file.write(json.dumps(dict(row)) + "\n")
            rows = f"read_json('{lines}', format = 'newline_delimited', columns = {{{types}}})"
            # No statement of duckdb takes a file's name as a parameter, so quotes in the name are doubled.
            rows = rows.replace(f"'{lines}'", "'" + lines.replace("'", "''") + "'")
            target = made.replace("'", "''")
            duckdb.connect().execute(f"COPY (SELECT * FROM {rows}) TO '{target}' (FORMAT parquet)")
            os.replace(made, folder / f"{table}.parquet")


def merge(folder: pathlib.Path) -> Merge:
    """Brings the store of a folder up to date."""
    if not (folder / "cells").is_dir():
        raise fleet_cells.BadFleet(f"{folder}: no fleet's folder: it has no folder 'cells'")
    try:
        base = open_store(folder / "fleet.sqlite")
        with base:
            base.execute("BEGIN IMMEDIATE")
            done = Merge(folder, base)
            done.run()
        write_parquet(base, folder / "parquet")
    except (sqlite3.Error, OSError) as error:
        raise fleet_cells.BadFleet(f"{folder / 'fleet.sqlite'}: {error}") from None
    return done


def merge_and_tell(folder: pathlib.Path) -> int:
    """Store, table of cards and page; prints the table. Returns the exit code of the fleet."""
    import fleet_cards
    import fleet_page

    done = merge(folder)
    print(f"fleet: {done.added} reports added, {done.known} already in the store, {len(done.refused)} refused",
          file=sys.stderr)
    for line in done.refused:
        print(f"fleet: refused: {line}", file=sys.stderr)
    facts = fleet_cards.facts_of(done.base)
    text = fleet_cards.render(facts)
    whole_file.put(folder / "cards.md", text)
    print(text, end="")
    fleet_page.write(folder, done.base, facts, done.refused)
    missing = done.base.execute("SELECT count(*) FROM cells WHERE state IN ('waiting', 'running')").fetchone()[0]
    return exit_codes.BAD_INPUT if done.refused else facts.exit_code or (exit_codes.INCOMPLETE if missing else 0)
