"""The store of a fleet: every report once, copies and edits refused by name, Parquet that says the same."""

import contextlib
import json
import pathlib
import shutil

from support import fleet_support
from support import page_blocks
from support.fleet_support import UUIDS, FleetTest, finish, main, report_of, rows

import fleet_cells
import fleet_store
import sqlite_store

COUNTS = "SELECT (SELECT count(*) FROM reports), (SELECT count(*) FROM samples), (SELECT count(*) FROM checks)"


class StoreTest(FleetTest):
    def setUp(self):
        super().setUp()
        self.made = self.fleet(copies=4, depths=[0, 512])
        for number in range(4):
            finish(self.made, UUIDS[number], lambda cell: report_of(UUIDS[number], cell.depths, ("ring",), read=1 + number / 100))

    def merge(self):
        done = fleet_store.merge(self.made.path)
        self.addCleanup(done.base.close)
        return done

    def report(self, number):
        return sorted(self.made.path.glob("cells/*/try-1/report/report.json"))[number]

    def edit(self, path, old, new):
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))


class Merged(StoreTest):
    def test_twice_is_once(self):
        first = self.merge()
        self.assertEqual((first.added, first.known, first.refused), (8, 0, []))
        counts = rows(self.made.path, COUNTS)
        report = json.loads(self.report(0).read_text())
        samples = sum(len(e["samples"]) + len(e["dropped_samples"]) for c in report["cases"] for e in c["engines"]) + \
            sum(len(c["ceiling"]["samples"]) for c in report["cases"])
        checks = sum(len(e["parity"]["checks"]) for c in report["cases"] for e in c["engines"])
        self.assertEqual(counts[0][0], 8)
        self.assertEqual(rows(self.made.path, "SELECT count(*) FROM samples JOIN reports USING (report) WHERE path = "
                              f"'{self.report(0).relative_to(self.made.path)}'"), [(samples,)])
        self.assertEqual(rows(self.made.path, "SELECT count(*) FROM checks WHERE report = 1"), [(checks,)])
        second = self.merge()
        self.assertEqual((second.added, second.known, second.refused), (0, 8, []))
        self.assertEqual(rows(self.made.path, COUNTS), counts)

    def test_what_came_later_is_added(self):
        late = self.report(3)
        kept = late.read_bytes()
        late.unlink()
        self.assertEqual(self.merge().added, 7)
        late.write_bytes(kept)
        done = self.merge()
        self.assertEqual((done.added, done.known, done.refused), (1, 7, []))

    def test_cells_that_are_missing_are_told_by_the_exit_code(self):
        self.assertEqual(fleet_store.merge_and_tell(self.made.path), 0)
        done = next(iter((self.made.path / "queue" / "done").iterdir()))
        done.rename(self.made.path / "queue" / "waiting" / done.name.split("@")[0])
        self.assertEqual(fleet_store.merge_and_tell(self.made.path), 5)

    def test_without_a_queue_the_reports_say_how_their_runs_ended(self):
        shutil.rmtree(self.made.path / "queue")
        for path in self.made.path.glob("cells/*/status.json"):
            path.unlink()
        self.assertEqual(fleet_store.merge_and_tell(self.made.path), 0)
        for path in self.made.path.glob("fleet.sqlite*"):
            path.unlink()
        self.edit(self.report(0), '"exit_code": 0', '"exit_code": 3')
        self.assertEqual(fleet_store.merge_and_tell(self.made.path), 3)

    def test_parquet_says_what_sqlite_says(self):
        import duckdb

        base = self.merge().base
        for table in fleet_store.TABLES:
            columns = ", ".join(sqlite_store.columns_of(base, table))
            file = self.made.path / "parquet" / f"{table}.parquet"
            found = duckdb.sql(f"SELECT {columns} FROM '{file}'").fetchall()
            self.assertEqual(sorted(map(repr, found)), sorted(map(repr, rows(self.made.path, f"SELECT {columns} FROM {table}"))))
        self.assertEqual({str(t) for t in duckdb.sql(f"SELECT * FROM '{self.made.path}/parquet/cells.parquet'").types},
                         {"VARCHAR", "BIGINT"})

    def test_the_queries_of_the_page(self):
        import duckdb

        self.merge()
        [block] = page_blocks.blocks("docs/fleet.md", "The store", "sql")
        queries = [query for query in block.split(";") if query.strip()]
        self.assertEqual(len(queries), 3)
        for query in queries:
            result = duckdb.sql(query.replace("'fleet/", f"'{self.made.path}/"))
            self.assertGreater(len(result.fetchall()), 0, query)


class Beside(FleetTest):
    def test_the_query_of_the_page(self):
        """Two fleets whose eager takes half as long again beside others."""
        import duckdb

        for name, slower in (("alone", {}), ("beside", {"eager": 1.5})):
            made = fleet_cells.make(self.folder / name, self.plan(engines=[["ring", "plain"]]), 1, "v", "p")
            finish(made, UUIDS[0], lambda cell: report_of(UUIDS[0], slower=slower))
            fleet_store.merge(made.path).base.close()
        [query] = page_blocks.blocks("docs/fleet.md", "Does sharing a host cost anything?", "sql")
        with contextlib.chdir(self.folder):
            found = duckdb.sql(query).fetchall()
        self.assertEqual([(card, engine, round(ratio, 6)) for card, _, engine, _, _, ratio in found],
                         [(UUIDS[0], "eager", 1.5), (UUIDS[0], "plain", 1.0), (UUIDS[0], "ring", 1.0)])


class Refused(StoreTest):
    def refused(self, *said):
        done = self.merge()
        self.assertEqual(len(done.refused), len(said), done.refused)
        for line, part in zip(done.refused, said):
            self.assertRegex(line, part)
        return done

    def test_an_edited_report(self):
        self.edit(self.report(0), '"mean": 0.3', '"mean": 0.2')
        self.assertEqual(self.refused("^cells/00000.*report.json: sha256: found .*, which its worker noted: it was edited").added, 7)

    def test_a_report_edited_after_it_was_merged(self):
        self.merge()
        status = self.report(0).parent.parent.parent / "status.json"
        self.edit(self.report(0), '"mean": 0.3', '"mean": 0.2')
        self.edit(status, "sha256", "sha")
        self.refused("as it was merged before: it was edited since")
        self.assertEqual(rows(self.made.path, COUNTS)[0][0], 8)

    def test_a_copy_and_an_edited_copy(self):
        first, second, third = (self.report(i) for i in range(3))
        for path in (second, third):
            shutil.copy(first, path)
        self.edit(third, '"mean": 0.3', '"mean": 0.2')
        for path in (second, third):  # whoever copies reports may copy their hashes too
            status = path.parent.parent.parent / "status.json"
            facts = json.loads(status.read_text())
            facts["tries"][0]["sha256"] = fleet_cells.sha256(path)
            status.write_text(json.dumps(facts))
        done = self.refused("the same bytes as cells/00000.*: a copy", "the same run as cells/00000.* with other bytes: an edited copy")
        self.assertEqual(done.added, 6)

    def test_files_that_are_no_reports(self):
        status = lambda path: path.parent.parent.parent / "status.json"  # noqa: E731
        for number, text in enumerate(("{", "[]", '{"schema": {"id": "x"}}',
                                      '{"schema": {"id": "mkbench.report", "version": "2.0.0"}}',
                                      '{"schema": {"id": "mkbench.report", "version": "1.9.0"}}')):
            self.report(number).write_text(text)
            self.edit(status(self.report(number)), "sha256", "sha")
        self.refused("not JSON: ", "schema.id: found None, wanted mkbench.report", "schema.id: found 'x'",
                     "schema.version: found '2.0.0', wanted 1.x", "not a complete report: KeyError: 'meta'")

    def test_a_store_of_something_else(self):
        path = self.made.path / "fleet.sqlite"
        path.write_text("no database, but long enough to be looked at as one\n" * 40)
        with self.assertRaisesRegex(fleet_cells.BadFleet, "fleet.sqlite: file is not a database"):
            self.merge()
        path.unlink()
        self.merge().base.execute("PRAGMA user_version = 9")
        wanted = "not a fleet's store of this version: found user_version 9 .*, wanted user_version 1"
        with self.assertRaisesRegex(fleet_cells.BadFleet, wanted):
            self.merge()
        with self.assertRaisesRegex(fleet_cells.BadFleet, "no fleet's folder"):
            fleet_store.merge(pathlib.Path(self.folder))


if __name__ == "__main__":
    main(fleet_support.modules_missing())
