"""mkbench history: what finished runs add to it, its table and plots, and files that are no history."""

import contextlib
import io
import json
import pathlib
import shutil
import sqlite3
import unittest

from support.cli_support import CliTest

import history
import plot_history

BAD_INPUT, INTEGRITY = 2, 8


class History(CliTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.env = {"XDG_DATA_HOME": str(self.data)}
        self.database = self.data / "mkbench" / "history.sqlite"

    def run_history(self, *args):
        return self.mkbench("history", *args, env=self.env)

    def rows(self, query):
        with contextlib.closing(sqlite3.connect(self.database)) as base:
            return base.execute(query).fetchall()

    def test_real_runs(self):
        done = self.run_history()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("the history is empty", done.stdout)
        self.assertEqual(self.run_history("--plot").returncode, BAD_INPUT)

        # A run adds nothing by itself.
        references = self.short_reference()
        self.assertEqual(self.bench("--reference", references, env_more=self.env).returncode, 0)
        self.assertFalse(self.database.exists())
        first = self.folder / "first"
        shutil.move(self.out, first)
        done = self.run_history("add", "first", "--label", "version | one")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("first/report.json: 2 results of version | one on ", done.stdout)
        done = self.run_history("add", "first/report.json")
        self.assertEqual((done.returncode, done.stdout), (0, "first/report.json: is in the history already\n"))

        done = self.bench("--reference", references, "--history", "-o", "json", env_more=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        json.loads(done.stdout)  # the run's own
        self.assertIn("2 results of ", done.stderr)
        failed = self.folder / "failed"
        shutil.move(self.out, failed)
        done = self.bench("--reference", references, "--history", "--plant-fault", "swap_gate_up", env_more=self.env)
        self.assertEqual(done.returncode, 3, done.stderr)

        report = json.loads((first / "report.json").read_text())
        twin = self.engine(report, "host-twin")
        found = self.rows("SELECT ms_per_tok_mean, tok_per_s, engine, verdict FROM results WHERE run = 1")
        self.assertIn((twin["ms_per_tok"]["mean"], twin["tok_per_s"], "host-twin", "PASS"), found)
        self.assertEqual([row[0] for row in self.rows("SELECT count(*) FROM results GROUP BY run")], [2, 2, 2])

        done = self.run_history("--plot", "--out", "drawn")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], f"## {report['env']['cpu']['name']}")
        twins = [line for line in lines if "| host-twin" in line]
        self.assertEqual(len(twins), 3)
        self.assertIn("version \\| one", twins[0])
        self.assertIn(report["meta"]["git_sha"][:12], twins[1])
        self.assertIn("FAIL_", twins[2])
        drawn = sorted(path.suffix for path in (self.folder / "drawn").iterdir())
        self.assertEqual(drawn, [".png", ".svg"])

    def test_what_is_not_added(self):
        done = self.bench("--reference", self.short_reference(), env_more=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.report()
        report["cases"][0]["engines"][1]["samples"][0]["times"]["host_ms"] *= 2
        (self.out / "report.json").write_text(json.dumps(report))
        done = self.run_history("add", "report")
        self.assertEqual((done.returncode, done.stdout), (INTEGRITY, ""))
        self.assertIn("history add: report/report.json: cases[0]", done.stderr)
        self.assertFalse(self.database.exists())
        for args, wanted in ((("add",), "history add: found no report"), (("drop",), "history: found 'drop'"),
                             (("--label", "x"), "--label goes with history add"),
                             (("add", "report", "--plot"), "--plot goes with history alone"),
                             (("add", "none"), "none")):
            done = self.run_history(*args)
            self.assertEqual((done.returncode, done.stdout), (BAD_INPUT, ""), done.stderr)
            self.assertIn(wanted, done.stderr)

    def test_a_file_that_is_no_history(self):
        self.database.parent.mkdir(parents=True)
        self.database.write_text("no database, " * 100)
        done = self.run_history()
        self.assertEqual((done.returncode, done.stdout), (BAD_INPUT, ""))
        self.assertRegex(done.stderr, r"^history: .*history.sqlite: file is not a database\n$")
        self.database.unlink()
        with contextlib.closing(sqlite3.connect(self.database)) as base:
            base.execute("CREATE TABLE songs (name TEXT)")
        done = self.run_history()
        self.assertEqual(done.returncode, BAD_INPUT)
        self.assertIn("found user_version 0 and tables ['songs'], wanted user_version 1", done.stderr)

        # A run whose report cannot be added says so, and its own files stand.
        done = self.bench("--reference", self.short_reference(), "--history", env_more=self.env)
        self.assertEqual(done.returncode, BAD_INPUT, done.stdout)
        self.assertIn("was not added", done.stderr)
        self.assertEqual(self.report()["verdict"]["status"], "PASS")


class Script(unittest.TestCase):
    """The script's parts on rows of invented runs."""

    def add(self, base, name, started, device, uuid, more=(), **values):
        run = {"report_sha256": name, "started": started, "git_sha": name * 2, "label": name, "device": device,
               "uuid": uuid, "driver": "580", "verdict": "PASS"}
        run["report_sha256"] = values.pop("report_sha256", name)
        row = {"case_name": "synthetic d=0 n=64", "engine": "ring", "resolved_name": "ring", "role": "candidate",
               "device": "cuda:0 " + device, "verdict": "PASS", "processes": 5, "tok_per_s": 2500.0,
               "ms_per_tok_mean": 0.4, "ms_per_tok_ci_low": 0.39, "ms_per_tok_ci_high": 0.41, "share": 0.97,
               **dict(more), **values}
        with contextlib.redirect_stdout(io.StringIO()) as said:
            history.add(base, [run, row], name)
        return said.getvalue()

    def open(self):
        base = history.open_database(pathlib.Path(":memory:"))
        self.addCleanup(base.close)
        return base

    def test_by_card_and_run(self):
        base = self.open()
        self.add(base, "b", "2026-11-02T00:00:00Z", "NVIDIA H200", "GPU-11111111-2222")
        self.add(base, "a", "2026-11-01T00:00:00Z", "NVIDIA H200", "GPU-11111111-2222", verdict="FAIL_TOKEN",
                 ms_per_tok_mean=None, ms_per_tok_ci_low=None, ms_per_tok_ci_high=None, tok_per_s=None, share=None,
                 processes=None)
        self.add(base, "c", "2026-11-01T00:00:00Z", "NVIDIA H200", "GPU-99999999-2222")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            history.show(history.read_rows(base))
        lines = said.getvalue().splitlines()
        self.assertEqual([line for line in lines if line.startswith("## ")],
                         ["## NVIDIA H200, GPU-11111111", "## NVIDIA H200, GPU-99999999"])
        cells = [[c.strip() for c in line.split("|")[1:-1]] for line in lines if "| ring" in line]
        self.assertEqual([c[3] for c in cells], ["a", "b", "c"])  # by card, then as they ran
        self.assertEqual(cells[0][4:], ["-", "-", "-", "-", "FAIL_TOKEN"])
        self.assertEqual(cells[1][4:], ["0.4 [0.39, 0.41]", "2,500", "97.0 %", "5", "PASS"])

    def test_a_column_that_came_later(self):
        base = self.open()
        self.add(base, "a", "2026-11-01T00:00:00Z", "H", "")
        self.add(base, "b", "2026-11-02T00:00:00Z", "H", "", more={'new "column"': 7.5})
        self.assertEqual([row['new "column"'] for row in history.read_rows(base)], [None, 7.5])
        self.assertEqual(self.add(base, "b", "2026-11-02T00:00:00Z", "H", ""), "b: is in the history already\n")
        self.assertEqual(len(history.read_rows(base)), 2)

    def test_figures_hold_what_has_times(self):
        base = self.open()
        self.add(base, "a", "2026-11-01T00:00:00Z", "H", "")
        self.add(base, "b", "2026-11-02T00:00:00Z", "H", "", ms_per_tok_mean=None)
        self.add(base, "c", "2026-11-03T00:00:00Z", "I", "", engine="./mine.so", resolved_name="mine@mine.so")
        figures = plot_history.figures_of(history.read_rows(base))
        self.assertEqual({key: [row["engine"] for row in rows] for key, rows in figures.items()},
                         {("H", "synthetic d=0 n=64"): ["ring"], ("I", "synthetic d=0 n=64"): ["./mine.so"]})
        self.add(base, "a", "2026-11-04T00:00:00Z", "H", "", report_sha256="again", ms_per_tok_mean=0.3)
        spec = json.dumps(plot_history.spec_of("H", "case", plot_history.figures_of(history.read_rows(base))["H", "synthetic d=0 n=64"]))
        self.assertIn(json.dumps(["a\n2026-11-01T00:00", "a\n2026-11-04T00:00"]), spec)  # the runs in their order
        self.assertIn(json.dumps("0.4000 [0.3900, 0.4100]"), spec)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(plot_history.draw([], pathlib.Path("unused")), 3)
        self.assertIn("nothing to plot", said.getvalue())


if __name__ == "__main__":
    unittest.main()
