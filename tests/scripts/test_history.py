"""mkbench history: what finished runs add to it, its table and plots, and files that are no history."""

import contextlib
import io
import json
import math
import pathlib
import random
import shutil
import sqlite3
import tempfile
import unittest

from support.cli_support import CliTest

import drift
import history
import page_charts as charts
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
        self.assertEqual(self.rows("SELECT margin FROM runs WHERE id = 1"), [(report["cases"][0]["comparisons"][0]["margin"],)])

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
        self.assertEqual(drawn, [".html", ".png", ".svg"])
        self.assertTrue("too few runs to tell a step from noise: 2, " in (self.folder / "drawn" / "history.html").read_text())

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
            history.show(history.read_rows(base), [])
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

    def test_a_column_of_runs_that_came_later(self):
        base = self.open()
        self.add(base, "a", "2026-11-01T00:00:00Z", "H", "")  # its report told no margin
        with contextlib.redirect_stdout(io.StringIO()):
            history.add(base, [{**dict(base.execute("SELECT * FROM runs").fetchone()), "id": None, "report_sha256": "b", "margin": 0.02},
                               {"case_name": "c"}], "b")
        self.assertEqual([row["margin"] for row in base.execute("SELECT margin FROM runs ORDER BY id")], [None, 0.02])

    def test_figures_hold_what_has_times(self):
        base = self.open()
        self.add(base, "a", "2026-11-01T00:00:00Z", "H", "")
        self.add(base, "b", "2026-11-02T00:00:00Z", "H", "", ms_per_tok_mean=None)
        self.add(base, "c", "2026-11-03T00:00:00Z", "I", "", engine="./mine.so", resolved_name="mine@mine.so")
        figures = plot_history.figures_of(history.read_rows(base))
        self.assertEqual({key: [row["engine"] for row in rows] for key, rows in figures.items()},
                         {("H", "synthetic d=0 n=64"): ["ring"], ("I", "synthetic d=0 n=64"): ["./mine.so"]})
        self.add(base, "a", "2026-11-04T00:00:00Z", "H", "", report_sha256="again", ms_per_tok_mean=0.3)
        rows = history.read_rows(base)
        spec = json.dumps(plot_history.spec_of("H", "synthetic d=0 n=64", plot_history.figures_of(rows)["H", "synthetic d=0 n=64"],
                                               drift.found_in(rows)))
        self.assertIn(json.dumps(["a\n2026-11-01T00:00", "a\n2026-11-04T00:00"]), spec)  # the runs in their order
        self.assertIn(json.dumps("0.4000 [0.3900, 0.4100]"), spec)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(plot_history.draw([], [], pathlib.Path("unused")), 3)
        self.assertIn("nothing to plot", said.getvalue())


class Drift(unittest.TestCase):
    """Steps in invented histories: 0.6 % of noise in an engine's time, 0.4 % in the machine's."""

    def rows(self, seed=1, runs=60, at=30, kernel=0.0, card=0.0, control="ceiling", margin=0.01):
        source, rows = random.Random(seed), []
        for run in range(runs):
            later = run >= at
            machine = math.exp(source.gauss(0, 0.004)) * (1 + card * later)
            ms, other = (level * machine * math.exp(source.gauss(0, noise)) for level, noise in ((0.28, 0.006), (0.25, 0.001)))
            ms *= 1 + kernel * later
            common = {"run": run, "started": f"2026-09-{1 + run // 2:02}T{12 * (run % 2):02}:00:00Z", "label": f"c{run}",
                      "card": "H", "case_name": "s", "margin": margin, "share": None, "ms_per_tok_ci_low": None,
                      "ms_per_tok_ci_high": None}
            rows.append(common | {"engine": "a/ring.so", "resolved_name": "ring", "role": "candidate", "ms_per_tok_mean": ms,
                                  "share": other / ms if control == "ceiling" else None})
            if control == "eager":
                rows.append(common | {"engine": "eager", "resolved_name": "eager", "role": "baseline", "ms_per_tok_mean": other})
        return rows

    def steps(self, **more):
        return [(step.series.of, step) for _, steps in drift.found_in(self.rows(**more)) for step in steps]

    def test_a_step_of_two_per_cent_is_found_and_noise_is_none(self):
        for seed in range(10):
            self.assertEqual(self.steps(seed=seed), [], seed)
            for kernel in (0.02, -0.02):
                (of, step), = self.steps(seed=seed, kernel=kernel)
                self.assertEqual(of, "kernel")
                self.assertLessEqual(abs(step.at - 30), 3)
                self.assertTrue(step.first <= step.at <= step.last <= step.first + 8, step)
                self.assertTrue(step.low < step.ratio < step.high and abs(step.ratio - 1 - kernel) < 0.008, step)

    def test_card_or_kernel(self):
        for control, engine in (("ceiling", "ceiling"), ("eager", "eager")):
            (of, step), = self.steps(card=0.03, control=control)
            self.assertEqual((of, step.series.engine), ("card", engine))
            (of, step), = self.steps(kernel=0.03, control=control)
            self.assertEqual((of, step.series.engine, step.series.control), ("kernel", "a/ring.so", engine))
            self.assertEqual({of for of, _ in self.steps(kernel=0.05, card=-0.03, control=control)}, {"card", "kernel"})
        (of, step), = self.steps(card=0.03, control="none")  # by the engine alone nobody can tell
        self.assertEqual((of, step.series.control), ("either", ""))

    def levels(self, values, noise=0.003, margin=0.01, seed=2):
        """A series of these levels; margin: of each run, or a function of its number."""
        source = random.Random(seed)
        runs = [{"margin": margin(i) if callable(margin) else margin} for i in range(len(values))]
        return drift.Series("H", "s", "ring", "either", "", runs, [x * math.exp(source.gauss(0, noise)) for x in values])

    def found(self, *args, **more):
        return [(step.at, round(100 * (step.ratio - 1))) for step in drift.steps_of(self.levels(*args, **more))]

    def test_what_is_too_little(self):
        for runs in (12, 24):
            for at in (5, runs - 5):
                self.assertEqual(self.found([1] * at + [1.3] * (runs - at), noise=0.0005), [(at, 30)])
        self.assertEqual(self.found([1] * 5 + [1.3] * 5), [])  # one order in 126 is as clear
        self.assertEqual(self.found([1] * 4 + [1.3] * 4), [])
        self.assertEqual(self.found([1] * 30 + [1.3] * 4)[1:], [])  # four runs are no level
        self.assertEqual(self.found([1] * 30 + [1.003] * 30, noise=0.0005, margin=None), [])  # clear, and below half a per cent
        self.assertEqual(self.found([1] * 30 + [1.01] * 30, noise=0.0005, margin=None), [(30, 1)])
        self.assertEqual(drift.found_in([row | {"ms_per_tok_mean": None} for row in self.rows()]), [])

    def test_the_margin_is_that_of_most_runs(self):
        step = [1] * 30 + [1.1] * 30
        self.assertEqual(self.found(step, margin=lambda run: 0.5 if run == 2 else 0.01), [(30, 10)])
        self.assertEqual(self.found(step, margin=lambda run: 0.01 if run == 2 else 0.5), [])

    def test_a_slowdown_that_was_mended_stays_found(self):
        whole = [1] * 25 + [1.03] * 10 + [1] * 30
        for runs, wanted in ((30, 1), (35, 1), (45, 2), (65, 2)):
            self.assertEqual([size for _, size in self.found(whole[:runs])], [3, -3][:wanted], runs)

    def test_several_steps_and_a_slow_climb(self):
        self.assertEqual(self.found([1] * 20 + [1.04] * 20 + [0.94] * 20), [(20, 4), (40, -10)])
        climb = drift.steps_of(self.levels([1 + 0.04 * i / 59 for i in range(60)]))
        self.assertTrue(climb and all(step.ratio > 1 for step in climb), climb)
        self.assertEqual(self.found([1] * 400 + [1.05] * 100), [(400, 5)])
        self.assertEqual(self.found([1] * 100 + [1.05] * 300), [])  # it is older than the runs that are looked at

    def test_engines_of_one_run_share_their_control(self):
        rows = [one for row in self.rows(card=0.03, control="eager") for one in
                ([row] if row["engine"] == "eager" else [row, row | {"engine": "b/plain.so"}])]
        series = drift.series_of(reversed(rows))  # rows come in any order
        self.assertEqual(sorted((s.of, s.engine, len(s.values)) for s in series),
                         [("card", "eager", 60), ("kernel", "a/ring.so", 60), ("kernel", "b/plain.so", 60)])

    def test_it_is_said_and_drawn(self):
        rows = self.rows(kernel=0.02)
        found = drift.found_in(rows)
        said, = drift.sentences(found, "H")
        self.assertRegex(said, r"^s, ring\.so: 2\.\d % slower \[1\.\d, 2\.\d\] from 2026-09-1[56]T\d\d:00 \(c\d\d\) on, or from one of .* to 2026-09-1[67]T\d\d:00: the kernel, over the ceiling$")
        self.assertEqual((drift.sentences(found, "I"), drift.sentences(found, "H", "t")), ([], []))
        quicker, = drift.sentences(drift.found_in(self.rows(card=-0.03)), "H")
        self.assertIn("s, ceiling: ", quicker)
        self.assertRegex(quicker, r" % quicker \[2\.\d, 3\.\d\] .*: the card or what runs on it, not a kernel$")
        title, note, spec = plot_history.away(charts.Palette(), rows, found)
        layers = spec["layer"]
        self.assertEqual(layers[-1]["data"]["values"]["rows"], [[f"c{found[0][1][0].at}\n{found[0][1][0].series.runs[found[0][1][0].at]['started'][:16]}"]])
        bands = [dict(zip(layers[0]["data"]["values"]["columns"], row)) for row in layers[0]["data"]["values"]["rows"]]
        self.assertEqual(len(bands), 120)  # of the engine and of its control
        self.assertEqual({band["part"] for band in bands}, {"engine 0", "engine 1", "ceiling 0"})
        self.assertAlmostEqual(bands[0]["high"], 1.0)  # the margin, around the first runs' mean
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            figures = plot_history.figures_of(rows)
            self.assertEqual(plot_history.write_page(figures, found, pathlib.Path(folder)), 0)
            page = (pathlib.Path(folder) / plot_history.PAGE).read_text()
        self.assertTrue(said in page and "no step is told from noise" not in page)
        self.assertEqual(drift.none_found(drift.found_in(self.rows()), "H"), "no step is told from noise")
        for runs, said in ((11, "too few runs to tell a step from noise: 11, about 12"), (12, "no step is told from noise")):
            self.assertTrue(drift.none_found(drift.found_in(self.rows(runs=runs)), "H").startswith(said))


if __name__ == "__main__":
    unittest.main()
