"""scripts/remote.sh with this very tree and its build: what test_remote.py does with stand-ins, the real mkbench does here.

The folder there is this tree again, seen through an overlay that keeps every change away from it: a mount that only the
server of the test sees. So root has to run this, and the build that is there is used as it is.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

from support import remote_support
from support import ssh_server
from support.cli_support import BINARY
from support.remote_support import ROOT, RemoteTest

import tools_of_tests

BUILD = pathlib.Path(BINARY).parent.parent
# Without .git: remote.sh does not send it.
OVERLAY = """mount -t overlay mkbench -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$1" && rm -rf "$1/.git" || exit 1
shift 2
exec "$@" """
SHORT = ("--compare", "eager", "--device", "cpu", "--model", "tiny", "--blocks", "2", "--n-gen", "8", "--no-plot")
LONG = ("--compare", "eager", "--device", "cpu", "--model", "tiny", "--blocks", "5000", "--no-plot", "-v")


def overlay(folder):
    return ["unshare", "--mount", "bash", "-c", OVERLAY, "overlay", str(ROOT), str(folder)]


def why_not():
    if why := tools_of_tests.no_login():
        return why
    if os.geteuid() != 0:
        return "an overlay can be mounted by root alone"
    folder = pathlib.Path(ssh_server.tempfile.mkdtemp(prefix="mkbench_overlay_"))
    for name in ("upper", "work"):
        (folder / name).mkdir()
    tried = subprocess.run([*overlay(folder), "true"], capture_output=True, text=True)
    shutil.rmtree(folder, ignore_errors=True)
    return f"no overlay can be mounted here: {tried.stderr.strip()}" if tried.returncode else ""


class RealTree(RemoteTest):
    @classmethod
    def setUpClass(cls):
        cls.server = remote_support.server = ssh_server.Server(as_caller=True)
        cls.addClassCleanup(cls.server.stop)
        for name in ("upper/.mkbench-remote", "work"):
            (cls.server.folder / name).mkdir(parents=True)
        cls.server.start(within=overlay(cls.server.folder))
        cache = (BUILD / "CMakeCache.txt").read_text()
        architectures = cache.split("\nMKBENCH_CUDA_ARCHITECTURES:", 1)[1].split("=", 1)[1].split("\n", 1)[0]
        cls.options = ["--dir", str(ROOT), "--env", f"MKBENCH_PRESET={BUILD.name}",
                       "--env", f"MKBENCH_CUDA_ARCHITECTURES={architectures}"]

    def setUp(self):
        super().setUp()
        self.tree = ROOT

    def start(self, *args, **options):
        return super().start(*self.options, *args, cwd=self.folder, **options)

    def test_loop_without_changes(self):
        self.assert_ends(0, "--version")  # the commit may be another one than the build's
        took = []
        for _ in range(3):
            begun = time.monotonic()
            self.assert_ends(0, "--version")
            took.append(time.monotonic() - begun)
        self.assertIn("mkbench", self.out.read_text())
        print(f"the loop took {min(took):.2f} to {max(took):.2f} s; {self.stderr().splitlines()[-1]}")
        self.assertLess(min(took), remote_support.LOOP_LIMIT_S)

    def test_report_comes_back_with_the_commit(self):
        self.assert_ends(0, *SHORT)
        (report,) = self.reports(self.folder).values()
        sha = subprocess.run(["git", "-C", ROOT, "-c", "safe.directory=*", "rev-parse", "HEAD"], capture_output=True,
                             text=True, check=True).stdout.strip()
        self.assertIn(f'"git_sha": "{sha}"', report)

    def start_long_run(self):
        process = self.start(*LONG)
        host = str(BUILD / "harness" / "mkbench-host-torch")
        self.wait_until(lambda: any(command.startswith(host) for command in self.jobs().values()), "a host")
        return process

    def test_dying_connection_ends_the_hosts(self):
        process = self.start_long_run()
        self.server.end_sessions()
        self.assertEqual(process.wait(20), 102, self.stderr())
        self.assert_nothing_left_there()

    def test_ctrl_c(self):
        process = self.start_long_run()
        time.sleep(3)
        self.interrupt(process)
        self.assertEqual(process.wait(60), 130, self.stderr())
        (report,) = self.reports(self.folder).values()
        self.assertIn("INTERRUPTED", report)
        self.assert_nothing_left_there()


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()
