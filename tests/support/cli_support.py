"""Runs the real mkbench binary: what the tests of its command line share."""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "references" / "data"
BINARY = os.environ["BINARY_UNDER_TEST"]


def environment(**extra):
    """The caller's environment without any MKBENCH_ variable but those given, without the caller's own data, and without
    plots where nothing is said of them."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MKBENCH_")}
    env["XDG_DATA_HOME"] = str(ROOT / "build" / "no-user-data")
    env.update({"MKBENCH_PLOT": "off"} | extra)
    return env


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_cli_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.out = self.folder / "report"

    def mkbench(self, *args, timeout=170, env=None, binary=BINARY):
        """stdout, stderr and exit code of one run, in an empty folder."""
        return subprocess.run(
            [binary, *args], cwd=self.folder, env=environment(**(env or {})), timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def bench(self, *args, env_more=None, **kwargs):
        """A short run on the CPU with its report in self.out, and printed whole; flags in `args` stand above these."""
        defaults = {"MKBENCH_DEVICE": "cpu", "MKBENCH_MODEL": "tiny", "MKBENCH_N_GEN": "8", "MKBENCH_BLOCKS": "2",
                    "MKBENCH_PLOT": "off", "MKBENCH_OUT": str(self.out), "MKBENCH_VERBOSE": "on"}
        return self.mkbench(*args, env=defaults | (env_more or {}), **kwargs)

    def report(self):
        """The report on disk, which must be whole and say its schema."""
        report = json.loads((self.out / "report.json").read_text())
        self.assertEqual(report["schema"]["id"], "mkbench.report")
        return report

    def engine(self, report, name, case=0):
        engines = report["cases"][case]["engines"]
        return next(e for e in engines if name in (e["name"], e["resolved_name"]))

    def short_reference(self, model="tiny", prompts=("corpus-17", "other-2"), change=None):
        """A folder of references with a few of the committed prompts, which is enough where parity is not the matter."""
        source = json.loads((DATA / model / "reference.json").read_text())
        source["prompts"] = [p for p in source["prompts"] if p["name"] in prompts]
        steps = [step for p in source["prompts"] for step in p["steps"]]
        summary = source["summary"]
        summary["steps"] = len(steps)
        summary["D"] = max(step["baseline"]["pairwise"] for step in steps)
        for step in steps:
            bf16_step = 2.0 ** (math.floor(math.log2(step["max_abs"])) - 7)
            step["decided"] = step["margin"] > summary["D"] + bf16_step
        if change:
            change(source)
        target = self.folder / "references" / model
        target.mkdir(parents=True)
        (target / "reference.json").write_text(json.dumps(source))
        return str(target.parent)

    def short_model(self, context):
        """Flags for tiny's weights in a snapshot that knows few positions, so that every cache length is judged soon."""
        folder = self.folder / f"tiny-{context}"
        folder.mkdir()
        config = json.loads((DATA / "tiny" / "config.json").read_text())
        config["max_position_embeddings"] = context
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").symlink_to(DATA / "tiny" / "model.safetensors")
        references = pathlib.Path(self.short_reference())
        (references / "tiny").rename(references / folder.name)
        return ["--model", str(folder), "--reference", str(references)]


class HostsTest(CliTest):
    """Runs whose processes and temporary files can be found again: their TMPDIR is a folder of their own."""

    def setUp(self):
        super().setUp()
        self.tmp = self.folder / "tmp"
        self.tmp.mkdir()
        self.addCleanup(self.end_left_processes)

    def own(self, **extra):
        return environment(TMPDIR=str(self.tmp), **extra)

    def start(self, *args, **extra):
        """Starts a run with its report in self.out."""
        process = subprocess.Popen(
            [BINARY, "--device", "cpu", "--no-plot", "--out", str(self.out), "-v", *args], cwd=self.folder,
            env=self.own(**extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, process, text):
        """Reads stderr until a line holds `text`."""
        lines = []
        for line in process.stderr:
            lines.append(line)
            if text in line:
                return
        self.fail(f"'{text}' did not come: {lines}")

    def left_processes(self):
        """Processes of this test's runs that are alive: pid -> program and state."""
        found = {}
        mark = f"TMPDIR={self.tmp}".encode()
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    stat = (folder / "stat").read_text()
                    found[int(folder.name)] = ((folder / "cmdline").read_text().split("\0")[0], process_state(stat))
            except OSError:
                pass  # it has ended
        return found

    def end_left_processes(self):
        for pid in self.left_processes():
            os.kill(pid, signal.SIGKILL)

    def assert_nothing_left(self, files=True):
        """Soon after the end of a run no process of it is left, and no temporary file."""
        deadline = time.monotonic() + 20  # a killed process of a busy machine takes its time
        while self.left_processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.left_processes(), {})
        if files:
            self.assertEqual(list(self.tmp.iterdir()), [])
        self.assertEqual(list(pathlib.Path("/dev/shm").glob("mkbench*")), [])


def process_state(stat):
    """The letter of a /proc/PID/stat, after the name in brackets."""
    return stat.rsplit(")", 1)[1].split()[0]


def send_interrupt(process):
    """What a terminal's Ctrl-C does to the parent: each host stands in a group of its own."""
    os.kill(process.pid, signal.SIGINT)


def main_or_skipped():
    """Runs the tests of the started file; exit code 77 where none failed and all were skipped."""
    outcome = unittest.main(exit=False).result
    if len(outcome.skipped) >= outcome.testsRun and outcome.wasSuccessful():
        sys.exit(77)
    sys.exit(not outcome.wasSuccessful())
