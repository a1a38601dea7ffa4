"""What the tests of scripts/remote.sh share: a server (ssh_server.py), and small trees that stand for this one.

Such a tree has the real scripts remote.sh, remote_job.sh, machine.sh and run.sh. Its setup.sh writes down how it was
called and "builds" mkbench.sh, where that is newer than what was built; mkbench.sh stands for mkbench.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import ssh_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 120
LOOP_LIMIT_S = 5  # of a loop without changes, on loopback

SETUP = """#!/usr/bin/env bash
set -eu
root="$(cd "$(dirname "$0")/.." && pwd -P)"
built="$root/build/release/harness/mkbench"
mkdir -p "$(dirname "$built")"
echo "setup $* device=$MKBENCH_DEVICE jobs=${MKBENCH_JOBS:-}" >> "$root/build/calls"
echo "setup: building" >&2
if [ -e "$root/slow" ]; then touch "$root/build/slow"; sleep 600; fi
if [ -e "$root/broken" ]; then echo "kernel.cu:7: error: expected ';'" >&2; exit 1; fi
if [ -e "$root/huge" ]; then head -c 100000000 /dev/zero > "$root/build/huge"; fi
if [ "$root/mkbench.sh" -nt "$built" ]; then
  cp "$root/mkbench.sh" "$built"
  echo compiled >> "$root/build/calls"
fi
echo "cmake=/x/cmake" > "$root/build/release/setup.env"
"""
MKBENCH = r"""#!/usr/bin/env bash
out="mkbench-report-$(date -u +%Y%m%d-%H%M%S)" code=0 sleeps="" report=1 polite=1
printf '[%s]' "$@"
echo " in $PWD"
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out="$2"; shift ;;
    --exit) code="$2"; shift ;;
    --version) report=0 ;;
    --sleep) sleeps=1 ;;
    --stubborn) polite=0 ;;
  esac
  shift
done
write() { mkdir "$out" && printf '%s' "$1" > "$out/report.json"; }
if [ "$polite" = 0 ]; then trap '' INT TERM; else trap 'write partial; echo interrupted >&2; exit 130' INT; fi
if [ -n "$sleeps" ]; then
  setsid sleep 600 &  # a host, in a group of its own
  echo running
  while :; do sleep 0.1; done
fi
[ "$report" = 0 ] || write whole
exit "$code"
"""

server: ssh_server.Server


class RemoteTest(unittest.TestCase):
    """A tree of its own for each test. `server` is the module's."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_remote_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.tree = self.folder / f"my tree {self.id().rsplit('.', 1)[1]}"
        scripts = self.tree / "scripts"
        scripts.mkdir(parents=True)
        for name in ("remote.sh", "remote_job.sh", "machine.sh", "run.sh"):
            shutil.copy(ROOT / "scripts" / name, scripts / name)
        self.write("scripts/setup.sh", SETUP, 0o755)
        self.write("mkbench.sh", MKBENCH, 0o755)
        self.write(".gitignore", "/build*/\n/mkbench-report-*/\n")
        git = ["git", "-C", str(self.tree), "-c", "user.name=t", "-c", "user.email=t@example.com"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "tree"]):
            subprocess.run([*git, *command], check=True)
        self.there = server.home / "mkbench-remote" / self.tree.name
        self.out = self.folder / "stdout"
        self.said = self.folder / "stderr"

    def write(self, name, text, mode=0o644):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def command(self, *args, target="", key="", known_hosts=""):
        return [str(self.tree / "scripts" / "remote.sh"), target or f"{server.user}@127.0.0.1:{server.port}",
                "-i", str(key or server.user_key), "--ssh", f"UserKnownHostsFile={known_hosts or server.known_hosts}",
                "--ssh", "IdentitiesOnly=yes", *args]

    def start(self, *args, cwd="", patience_s=20, tools="", **target):
        """remote.sh in a session of its own, so that a signal can go to its group as a terminal's Ctrl-C does. `tools`
        is a folder of programs that stand before all others."""
        self.out.write_text("")
        self.said.write_text("")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MKBENCH_")}
        with self.out.open("w") as out, self.said.open("w") as said:
            process = subprocess.Popen(
                self.command(*args, **target), cwd=cwd or self.tree, stdin=subprocess.DEVNULL, stdout=out, stderr=said,
                env={**environment, "MKBENCH_REMOTE_PATIENCE_S": str(patience_s), "TMPDIR": str(self.folder),
                     "PATH": f"{tools}:{environment['PATH']}" if tools else environment["PATH"]},
                start_new_session=True)
        self.addCleanup(process.kill)
        return process

    def remote(self, *args, **options):
        """The exit code of one whole call; what it wrote is in self.out and self.said."""
        return self.start(*args, **options).wait(LIMIT_S)

    def tool(self, name, script):
        """The folder of a program that stands before the machine's own."""
        path = self.folder / "tools" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return path.parent

    def stderr(self):
        return self.said.read_text()

    def errors(self):
        return re.findall(r"^remote: error: (.*)$", self.stderr(), re.MULTILINE)

    def assert_ends(self, code, *args, **options):
        self.assertEqual(self.remote(*args, **options), code, self.stderr())

    def assert_one_error(self, pattern):
        """One line of remote.sh's own says what is wrong."""
        self.assertEqual(len(self.errors()), 1, self.stderr())
        self.assertRegex(self.errors()[0], pattern)

    def wait_until(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"{what} did not come: {self.out.read_text()} {self.stderr()}")
            time.sleep(0.02)

    def wait_for_output(self, text):
        self.wait_until(lambda: text in self.out.read_text() + self.stderr(), text)

    def interrupt(self, process):
        os.killpg(process.pid, signal.SIGINT)

    def jobs(self):
        """Processes of what remote.sh started there."""
        return {pid: command for pid, command in server.processes().items() if "prepare" not in command}

    def assert_nothing_left_there(self):
        self.wait_until(lambda: not self.jobs(), f"the end of {self.jobs()}")

    def calls(self):
        return (self.there / "build" / "calls").read_text().splitlines()

    def reports(self, folder=None):
        """Report folders of this side, and what is in them."""
        return {path.name: (path / "report.json").read_text()
                for path in (folder or self.tree).iterdir() if (path / "report.json").exists()}
