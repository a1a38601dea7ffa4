"""A short run of the host twin, or of an engine in Python, on machines that lack something or are set up otherwise. Each
ends in PASS, or in ENV_UNFIT with a message that names the cure. Rows that this machine cannot make are skipped."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.cli_support import BINARY, CliTest, environment, main_or_skipped

PYTHON = os.environ["MKBENCH_TEST_PYTHON"]
TWIN, HF = "host-twin", "hf"


def mounted(commands: str) -> list:
    """Words before a command that runs it after these mounts, which nothing else sees."""
    return ["unshare", "--mount", "sh", "-c", f'{commands} && exec "$0" "$@"']


def in_shell(commands: str) -> list:
    return ["bash", "-c", f'{commands}; exec "$0" "$@"']


def python(statement: str) -> list:
    """Words before a command that runs it after this statement: what the kernel hands on to programs."""
    return [sys.executable, "-c", f"import os, signal, sys; {statement}; os.execv(sys.argv[1], sys.argv[1:])"]


# Name, engine, words before the command, changed variables (None: unset), text of the cure ("": it must pass).
ROWS = [
    ("no home", HF, [], {"HOME": None}, ""),
    ("no home to write to", HF, mounted('mount -t tmpfs -o ro none "$HOME_OF_TEST"'), {"HOME": "@home"}, ""),
    ("no /dev/shm", TWIN, mounted("mount -t tmpfs -o ro none /dev/shm"), {}, ""),
    ("no /dev/shm", HF, mounted("mount -t tmpfs -o ro none /dev/shm"), {}, ""),
    ("noexec /tmp", HF, mounted("mount -t tmpfs -o noexec none /var/tmp"), {"TMPDIR": "/var/tmp"}, ""),
    ("user without an entry", TWIN, ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"], {"HOME": "/"}, ""),
    ("user without an entry", HF, ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"], {"HOME": "/"}, ""),
    ("another Python's library", HF, [], {"PYTHONHOME": "/usr"}, "unset PYTHONHOME"),
    ("no docstrings", HF, [], {"PYTHONOPTIMIZE": "2"}, "unset PYTHONOPTIMIZE"),
    ("no such folder of temporary files", HF, [], {"TMPDIR": "@nowhere"}, ""),
    ("warnings are errors", HF, [], {"PYTHONWARNINGS": "error"}, ""),
    ("a folder that is gone", HF, in_shell('mkdir gone; cd gone; rmdir ../gone'), {}, "cd ~"),
    ("no variables", HF, ["env", "-i"], {}, ""),
    ("no /proc", TWIN, mounted("mount -t tmpfs none /proc"), {}, "mount -t proc"),
    ("no locale", HF, [], {"LANG": None, "LC_ALL": None}, ""),
    ("a German locale", HF, [], {"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}, ""),
    ("closed stdin", HF, in_shell("exec <&-"), {}, ""),
    ("closed stdin", TWIN, in_shell("exec <&-"), {}, ""),
    ("SIGCHLD is ignored", HF, python("signal.signal(signal.SIGCHLD, signal.SIG_IGN)"), {}, ""),
    ("all signals are blocked", TWIN, python("signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())"), {}, ""),
    ("few files", TWIN, in_shell("ulimit -n 64"), {}, ""),
    ("little memory", TWIN, in_shell("ulimit -v 400000"), {}, "memory"),
    ("half a processor", TWIN, ("cpu", "cpu.max", "50000 100000", "cpu.cfs_quota_us", "50000"), {}, ""),
    ("few processes", HF, ("pids", "pids.max", "12", "pids.max", "12"), {}, "pids"),
    ("another torch on PYTHONPATH", TWIN, [], {"PYTHONPATH": "@fake"}, ""),
    ("another torch on PYTHONPATH", HF, [], {"PYTHONPATH": "@fake"}, "PYTHONPATH"),
    ("a wrapper as --python", HF, [], {"MKBENCH_PYTHON": "@wrapper"}, ""),
    ("a wrapper that closes descriptors", HF, [], {"MKBENCH_PYTHON": "@closing"}, "closes the descriptors"),
    ("an engine and an environment with odd names", "@odd", [], {"MKBENCH_PYTHON": "@venv"}, ""),
]


class Surroundings(CliTest):
    def setUp(self):
        super().setUp()
        self.references = self.short_reference(prompts=("other-2",))
        odd = self.folder / "blank, comma=and 'quote'"
        self.at = {"@home": self.folder / "home", "@fake": self.folder / "fake", "@wrapper": self.folder / "wrapper",
                   "@closing": self.folder / "closing", "@odd": odd / "my,engine=1.py", "@venv": odd / "bin" / "python"}
        for name in ("home", "fake/torch", odd / "bin"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "fake/torch/__init__.py").write_text("__version__ = '0'\n")
        self.at["@odd"].write_text(f"import sys\nsys.path.append('{pathlib.Path(BINARY).parents[3] / 'baselines'}')\n"
                                   "from hf_decoder import Decoder\n")
        for name, line in [("@wrapper", f'{PYTHON} "$@"; exit $?'), ("@venv", f'exec {PYTHON} "$@"'),
                           ("@closing", f'exec {PYTHON} "$@" 3>&- 4>&- 5>&- 6>&-')]:
            self.at[name].write_text(f"#!/bin/bash\n{line}\n")
            self.at[name].chmod(0o755)

    def group(self, kind, new, new_text, old, old_text):
        """Words before a command that runs it in a control group of its own; None where none can be made."""
        for folder, file, text in [("/sys/fs/cgroup", new, new_text), (f"/sys/fs/cgroup/{kind}", old, old_text)]:
            if not os.path.exists(f"{folder}/cgroup.procs"):
                continue  # of the other version
            try:
                made = pathlib.Path(tempfile.mkdtemp(prefix="mkbench-test-", dir=folder))
            except OSError:
                continue
            self.addCleanup(os.rmdir, made)
            try:
                (made / file).write_text(text)
                return in_shell(f"echo $$ > {made}/cgroup.procs")
            except OSError:
                continue
        return None

    def run_row(self, engine, before, changes):
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "report"
        env = environment(HOME_OF_TEST=str(self.at["@home"]), **{
            key: str(self.at.get(value, value)) for key, value in changes.items() if value is not None})
        for key, value in changes.items():
            if value is None:
                env.pop(key, None)
        for path in (self.folder, out.parent):
            path.chmod(0o777)
        command = [*before, BINARY, "--device", "cpu", "--model", "tiny", "--reference", self.references, "--engine",
                   str(self.at.get(engine, engine)), "--compare", "none", "-n", "4", "--blocks", "1", "--out", str(out)]
        return subprocess.run(command, cwd=out.parent, env=env, timeout=200, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def possible(self, before):
        """Whether this machine can make these surroundings for a program that reads mkbench's files."""
        env = environment(HOME_OF_TEST=str(self.at["@home"]))
        return subprocess.run([*before, shutil.which("test"), "-r", PYTHON], cwd=self.folder, env=env, check=False,
                              stderr=subprocess.DEVNULL).returncode == 0

    def test_each_passes_or_names_the_cure(self):
        for name, engine, before, changes, cure in ROWS:
            with self.subTest(surroundings=name, engine=engine):
                words = self.group(*before) if isinstance(before, tuple) else before
                if words is None or not self.possible(words):
                    print(f"skipped: {name}: cannot be made here", file=sys.stderr)
                    continue
                done = self.run_row(engine, words, changes)
                self.assertEqual(done.returncode, 6 if cure else 0, done.stdout)
                self.assertIn(cure, done.stdout)


if __name__ == "__main__":
    main_or_skipped()
