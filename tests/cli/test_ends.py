"""Runs that end early: by a signal at each moment, by a disk that is full at each write, or because nobody reads what they
print. What was finished is on disk or was printed, no process is left, and --resume goes on to PASS."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import unittest

from support.cli_support import BINARY, HostsTest

FAULT_AT = os.environ["FAULT_AT"]  # the library of tests/plugins/fault_at.cpp
CASES = ["tiny d=0 n=4", "tiny d=1 n=4"]

# Moment, the call at which the signal comes (as fault_at.cpp counts them), and how many cases the report then holds: after
# SIGKILL, and after a signal that lets the run end in order.
MOMENTS = [
    ("before judging, while the pace is measured", "fwrite", "measuring the pace", 1, 0, 0),
    ("while the baseline is judged", "send", '"forced":true', 1, 0, 0),
    ("while the candidate is judged", "fwrite", "parity host-twin", 1, 0, 0),
    ("after judging", "fwrite", "warm-up eager", 1, 0, 0),
    ("between two blocks", "fwrite", "timing eager", 2, 0, 0),
    ("after the last block", "fwrite", "scoring", 1, 0, 0),
    ("while the first case is written", "write", "report.json.partial", 2, 0, 1),
    ("before it is flushed", "fsync", "report.json.partial", 2, 0, 1),
    ("before it is renamed", "rename", "report.json", 2, 0, 1),
    ("in the second case", "fwrite", "case 2/2 tiny d=1 n=4: timing", 1, 1, 1),
    ("while report.md is written at the end", "write", "report.md.partial", 1, 2, 2),
    ("before the last report.json is renamed", "rename", "report.json", 4, 2, 2),
]
# Before the first report, SIGKILL leaves nothing to resume, and the same command begins again.
EARLIER = [
    ("before the machine is known", "send", '"type":"card"', 1),
    ("while the first report is written", "write", "report.json.partial", 1),
]


class EndsTest(HostsTest):
    def setUp(self):
        super().setUp()
        self.flags = ["--device", "cpu", "--model", "tiny", "--engine", "host-twin", "-n", "4", "-d", "0,1", "--blocks", "2",
                      "--reference", self.short_reference(prompts=("other-2",)), "--no-plot", "-v"]
        self.out = self.folder / "report"

    def run_at(self, fault, action, *more, before=(), **extra):
        """A run to which `action` happens at a call: `signal N` or `errno N`. Without `fault` nothing happens."""
        call, text, nth = fault or ("", "", 0)
        env = self.own(FAULT_CALL=call, FAULT_TEXT=text, FAULT_NTH=str(nth), FAULT_ACTION=action, FAULT_LIBRARY=FAULT_AT, **extra)
        # The library is loaded by mkbench alone, not by what starts it.
        start = [*before, "sh", "-c", 'LD_PRELOAD="$FAULT_LIBRARY" exec "$0" "$@"']
        return subprocess.run([*start, BINARY, *self.flags, "--out", str(self.out), *more], cwd=self.folder, env=env,
                              timeout=100, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def resume(self):
        return self.mkbench("--resume", str(self.out), "--no-plot", env={"TMPDIR": str(self.tmp)})

    def finished(self, report):
        """The samples of each whole case."""
        return {c["name"]: [e["samples"] for e in c["engines"]] for c in report["cases"] if not c["interrupted"]}

    def check_files(self, partial):
        """Each file with a final name is whole; `partial`: temporary names may be there."""
        for file in self.out.rglob("*"):
            self.assertTrue(partial or not file.name.endswith(".partial"), file)
            if file.suffix == ".json":
                json.loads(file.read_text())

    def check_goes_on(self, kept):
        """--resume ends in PASS, and the cases that `kept` has are as they were."""
        done = self.resume()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = self.report()
        self.assertEqual((report["verdict"]["status"], [c["name"] for c in report["cases"]]), ("PASS", CASES))
        self.assertEqual({name: samples for name, samples in self.finished(report).items() if name in kept}, kept)
        self.check_files(partial=False)
        self.assert_nothing_left()

    def check_moments(self, number):
        for row, (moment, call, text, nth, killed, ended) in enumerate(MOMENTS):
            with self.subTest(signal=number.name, moment=moment):
                self.out = self.folder / f"report-{row}"
                run = self.run_at((call, text, nth), f"signal {number.value}")
                self.assert_nothing_left(files=number != signal.SIGKILL)
                whole = killed if number == signal.SIGKILL else ended
                code = -signal.SIGKILL if number == signal.SIGKILL else 0 if whole == 2 else 130
                self.assertEqual(run.returncode, code, run.stderr)
                self.check_files(partial=number == signal.SIGKILL)
                kept = self.finished(self.report())
                self.assertEqual(len(kept), whole)
                self.check_goes_on(kept)

    def check_earlier(self, number):
        for row, (moment, *fault) in enumerate(EARLIER):
            with self.subTest(signal=number.name, moment=moment):
                self.out = self.folder / f"early-{row}"
                run = self.run_at(fault, f"signal {number.value}")
                self.assert_nothing_left(files=False)
                if number != signal.SIGKILL:
                    self.assertEqual(run.returncode, 130, run.stderr)
                    self.check_goes_on({})
                    continue
                resumed = self.resume()
                self.assertEqual(resumed.returncode, 2, resumed.stdout)
                self.assertRegex(resumed.stderr, "start it again|wanted the folder")
                again = self.run_at(None, "")
                self.assertEqual(again.returncode, 0, again.stderr)
                self.check_files(partial=False)


class BySignal:
    """The tests of one signal, `number`; a class each, so that they can run side by side."""

    def test_at_each_moment(self):
        self.check_moments(self.number)
        self.check_earlier(self.number)


class Hangup(BySignal, EndsTest):
    number = signal.SIGHUP


class Terminate(BySignal, EndsTest):
    number = signal.SIGTERM


class Interrupt(BySignal, EndsTest):
    number = signal.SIGINT


class Kill(BySignal, EndsTest):
    number = signal.SIGKILL

    def test_a_script_ends_with_its_parent(self):
        """The history's script, in whose place this one kills mkbench and waits."""
        python = self.folder / "python"
        python.write_text("#!/bin/sh\nkill -9 $PPID\nexec sleep 60\n")
        python.chmod(0o755)
        run = self.run_at(None, "", "--history", MKBENCH_PYTHON=str(python))
        self.assertEqual(run.returncode, -signal.SIGKILL, run.stderr)
        self.assertEqual(len(self.finished(self.report())), 2)
        self.assert_nothing_left()


class FullDisk(EndsTest):
    """What was measured is on stdout or stderr, the file is named, and --resume completes the report."""

    # File, the call that fails with ENOSPC (as all later ones of that file), further options.
    WRITES = [
        ("report.json", "open", 1), ("report.json", "write", 1), ("report.json", "write", 2), ("report.json", "write", 4),
        ("report.json", "fsync", 2), ("report.json", "rename", 4), ("report.md", "write", 1), ("junit.xml", "write", 1),
        ("elsewhere.xml", "write", 1, "--junit", "elsewhere.xml"), ("baselines/", "write", 1, "--save-baseline", "kept"),
    ]

    def check_told(self, run, said):
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"(?s)\| +0 \| host-twin .*\| +1 \| host-twin .*\*\*PASS\*\*")
        self.assertRegex(run.stderr, f"error: .*{said}")
        self.check_files(partial=False)
        if (self.out / "report.json").exists():
            self.check_goes_on(self.finished(self.report()))

    def test_each_write(self):
        for row, (file, call, nth, *more) in enumerate(self.WRITES):
            with self.subTest(file=file, call=call, nth=nth):
                self.out = self.folder / f"report-{row}"
                about = file + ".partial" if file.startswith("report") and call != "rename" else file
                run = self.run_at((call, about, nth), f"errno {errno.ENOSPC}", *more)
                self.check_told(run, f"{file}.*No space left on device")
                if (file, nth) == ("report.json", 2):  # each case is printed when it cannot be kept, a line for each engine
                    rows = [json.loads(line) for line in run.stderr.splitlines() if line.startswith("{")]
                    self.assertEqual([row["case_name"] for row in rows], [name for name in CASES for _ in range(2)])

    def test_a_soak(self):
        self.flags = ["soak", "--device", "cpu", "--engine", "host-twin", "--model", "tiny", "--launches", "3", "--tokens", "1",
                      "--context", "128"]
        run = self.run_at(("write", "soak.json", 1), f"errno {errno.ENOSPC}")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("error: report: cannot write", run.stderr)
        self.assertIn("**PASS**", run.stdout)

    def test_small_disks(self):
        """Real file systems; the run is resumed in a copy, where there is room."""
        space = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
        mount = 'mount -t tmpfs -o size="$0" none disk && '
        (self.folder / "disk").mkdir()
        if subprocess.run([*space, "sh", "-c", mount + "true", "8k"], cwd=self.folder, check=False).returncode != 0:
            self.skipTest("no file system may be mounted here")
        for size in ("8k", "56k", "104k", "152k"):
            with self.subTest(size=size):
                script = mount + f'{{ "$@" --out disk; code=$?; cp -r disk {size}; exit $code; }}'
                run = subprocess.run([*space, "sh", "-c", script, size, BINARY, *self.flags], cwd=self.folder, env=self.own(),
                                     timeout=100, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
                self.out = self.folder / size
                self.check_told(run, "No space left on device")


class Unread(EndsTest):
    """Nobody reads what is printed, or it cannot be printed: the report is there."""

    # What the shell does around the run ($@), exit code of the run, words of its stderr.
    ROWS = [
        ('"$@" 2>&1 | head -n 1', 1, ""),
        ('"$@" 2>/dev/full', 0, ""),
        ('"$@" >/dev/full', 1, "No space left on device; the report is in "),
        ('"$@" >&- 2>&- <&-', 0, ""),
        ('nohup "$@"', 0, ""),
    ]

    def test_the_report_is_there(self):
        for row, (script, code, said) in enumerate(self.ROWS):
            with self.subTest(script=script):
                self.out = self.folder / f"report-{row}"
                fault = ("fwrite", "timing eager", 2) if "nohup" in script else None
                run = self.run_at(fault, f"signal {signal.SIGHUP.value}", before=["bash", "-o", "pipefail", "-c", script, "sh"])
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertIn(said, run.stderr)
                self.assertEqual(self.report()["verdict"]["status"], "PASS")
                self.assert_nothing_left()

    def test_results_that_fit_nowhere_else_are_on_stderr(self):
        run = self.run_at(("write", "report.json.partial", 1), f"errno {errno.ENOSPC}",
                          before=["sh", "-c", '"$@" >/dev/full', "sh"])
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, r"(?s)the results follow.*\| +1 \| host-twin ")

    def test_a_limit_of_file_sizes(self):
        run = self.run_at(None, "", before=["bash", "-c", 'ulimit -f 4; "$@"', "sh"])
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("ftruncate: File too large", run.stdout)
        self.assertIn("cannot write", run.stderr)
        self.check_files(partial=False)

    def test_one_of_two_runs_has_a_new_folder(self):
        runs = [subprocess.Popen([BINARY, *self.flags, "--out", str(self.folder / "both")], cwd=self.folder, env=self.own(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
        self.out = self.folder / "both"
        self.assertEqual(sorted(run.wait(timeout=100) for run in runs), [0, 2])
        self.check_goes_on(self.finished(self.report()))


if __name__ == "__main__":
    unittest.main()
