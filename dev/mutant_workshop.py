"""Tries one mutant of dev/mutants.py: plants it in the built tree's programs, and runs the tests that may notice it."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading

import scripts_path  # noqa: F401
from tracked_files import ROOT, tracked_files

SKIPPED = 77
# Labels of tests that are not tried. Tests with the label "waits" are tried on mutants of scripts alone.
LEFT_OUT = {"gpu", "slow"}
PROGRAMS = ("mkbench", "mkbench-host-cuda", "mkbench-host-torch", "mkbench-all")


class Trouble(Exception):
    """An error that keeps mutants from being tried at all."""


def room_of(path: str) -> str:
    """The folder of tests/ that holds the tests of a file."""
    parts = path.split("/")
    return parts[1] if parts[0] == "harness" and len(parts) > 2 else parts[0]


def run(command: list[str] | str, folder: pathlib.Path) -> str:
    """Runs a command and returns its output; raises Trouble where it fails."""
    done = subprocess.run(command, cwd=folder, shell=isinstance(command, str), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise Trouble(done.stdout[-4000:])
    return done.stdout


def program(name: str) -> str:
    """The program in the folder of this Python, where set-up installs it, else the one on PATH."""
    beside = pathlib.Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


@dataclasses.dataclass
class Test:
    name: str
    command: list[str]
    environment: dict[str, str]
    folder: str
    labels: set[str]
    limit_s: float
    room: str

    def is_python(self) -> bool:
        return len(self.command) > 1 and self.command[1].endswith(".py")


def read_tests(build: pathlib.Path) -> list[Test]:
    """The tests of the default run, light ones first."""
    rooms = {path.stem: path.parent.name for path in (ROOT / "tests").glob("*/*.*")}
    found = []
    for test in json.loads(run([program("ctest"), "--test-dir", str(build), "--show-only=json-v1"], ROOT))["tests"]:
        values = {p["name"]: p["value"] for p in test["properties"]}
        labels = set(values.get("LABELS", []))
        if labels & LEFT_OUT or "command" not in test:
            continue
        environment = dict(text.split("=", 1) for text in values.get("ENVIRONMENT", []))
        found.append(Test(test["name"], test["command"], environment, values["WORKING_DIRECTORY"], labels,
                          values["TIMEOUT"], rooms.get(test["name"].split(".")[0], "")))
    return sorted(found, key=lambda test: "light" not in test.labels)


class Workshop:
    """The built tree, in which mutants are tried; several threads may try one each."""

    def __init__(self, build: pathlib.Path, scratch: pathlib.Path):
        self.build, self.scratch = build, scratch
        if not (build / "harness" / "mkbench").exists():
            raise Trouble(f"{build} has no mkbench; scripts/setup.sh builds it, and all tests")
        self.tests = read_tests(build)
        # Source -> (its command, the file that is compiled: itself, or the batch that includes it).
        self.compiled: dict[str, tuple[list[str], pathlib.Path]] = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            unit = pathlib.Path(entry["file"])
            batch = re.findall(r'^#include "(.*)"$', unit.read_text(), re.MULTILINE) if is_batch(unit) else [str(unit)]
            for source in batch:
                self.compiled.setdefault(os.path.relpath(source, ROOT), (shlex.split(entry["command"]), unit))
        self.links: dict[str, str] = {}
        self.sound: dict[tuple[str, bool], bool] = {}  # (test, in a copy of the tree) -> whether it passes without a mutant
        self.locks: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)

    def killer_of(self, file: str, text: str, number: int) -> str | None:
        """The test that notices that the file holds this text; "" where none does, None where it cannot be tried."""
        place = self.scratch / str(number)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            return (self.killer_of_cpp if file.endswith(".cpp") else self.killer_of_script)(file, text, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def killer_of_cpp(self, file: str, text: str, place: pathlib.Path) -> str | None:
        if (link := self.compile(file, text, place)) is None:
            return None
        room = room_of(file)
        units = [test for test in self.tests if test.command[0].startswith(f"{self.build}/tests/") and
                 (test.room == room or "light" in test.labels) and "waits" not in test.labels]
        for test in sorted(units, key=lambda test: test.room != room):
            to = place / pathlib.Path(test.command[0]).name
            if link(os.path.relpath(test.command[0], self.build), to):
                if self.fails(test, [str(to), *test.command[1:], "--abort"], test.environment, place):
                    return test.name
                to.unlink()
        harness = place / "harness"
        shutil.copytree(self.build / "harness", harness, copy_function=os.link, ignore=subfolders)
        if not [name for name in PROGRAMS if link(f"harness/{name}", harness / name)]:
            return ""
        for test in self.tests:
            environment = {key: value.replace(f"{self.build}/harness", str(harness))
                           for key, value in test.environment.items()}
            if test.is_python() and test.room == room and self.fails(test, test.command, environment, place):
                return test.name
        return ""

    def compile(self, file: str, text: str, place: pathlib.Path):
        """Compiles the mutant; None if that fails. Returns a function that links a program with the mutant, or returns
        False if the program does not hold the mutant's library."""
        if file not in self.compiled:
            return None
        command, unit = self.compiled[file]
        made, mutated, source = place / "mutant.o", place / f"unit{unit.suffix}", place / pathlib.Path(file).name
        source.write_text(text)
        mutated.write_text(unit.read_text().replace(f'"{ROOT / file}"', f'"{source}"') if is_batch(unit) else text)
        command = list(command)
        output = command[command.index("-o") + 1]
        command[command.index("-o") + 1], command[command.index("-c") + 1] = str(made), str(mutated)
        try:
            run([*command, "-O0", "-w"], self.build)
        except Trouble:
            return None
        folder, target = re.match(r"(.*)/CMakeFiles/([^/]+)\.dir/", output).groups()

        def link(name: str, to: pathlib.Path) -> bool:
            with self.locks["links"]:
                if name not in self.links:
                    self.links[name] = run([program("ninja"), "-t", "commands", "-s", name], self.build).strip()
            if f"{folder}/lib{target}.a" not in self.links[name].split():
                return False
            to.unlink(missing_ok=True)
            # The mutant comes first, so that the linker does not take these symbols from the library.
            run(re.sub(rf" -o {re.escape(name)} ", f" {made} -o {to} ", self.links[name]), self.build)
            return True

        return link

    def killer_of_script(self, file: str, text: str, place: pathlib.Path) -> str | None:
        """Tries a script's mutant in a copy of the tree: first the tests in Python that import or start the script, or
        one that needs it, then the tests of its room that are named after it. mkbench and its hosts are copied too, as
        if they were installed there, so that they start the scripts of the copy."""
        script = pathlib.PurePosixPath(file)
        try:
            if script.suffix == ".py":
                compile(text, file, "exec")
            else:
                run(["bash", "-n", "-c", text], ROOT)
        except (SyntaxError, Trouble):
            return None
        tree = place / "tree"
        for name in tracked_files(untracked=True):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(ROOT / name, tree / name)
        for name in PROGRAMS:
            os.link(self.build / "harness" / name, tree / name)
        mode = (tree / file).stat().st_mode
        (tree / file).unlink()
        scripts = users_of(script.name)
        direct = [test for test in self.tests if test.is_python() and
                  needs(scripts, pathlib.Path(test.command[1]).read_text(encoding="utf-8"))]
        words = tuple(f"test_{re.split('[_.]', name)[0]}" for name in scripts)
        programs = [path.stem for path in (ROOT / "tests" / room_of(file)).glob("*.cpp")]

        def is_named(test: Test) -> bool:
            return test.name.startswith(words) if test.is_python() else any(one.startswith(words) for one in programs)

        others = [test for test in self.tests if test.room == room_of(file) and is_named(test) and test not in direct]
        for test in sorted(direct + others, key=lambda test: (not test.name.startswith(f"test_{script.stem}"),
                                                              not is_named(test), test.room != room_of(file))):
            program = tree / pathlib.Path(test.command[0]).name
            if not test.is_python() and not program.exists():
                os.link(test.command[0], program)
            command = [part.replace(f"{ROOT}/tests/", f"{tree}/tests/") for part in test.command] if test.is_python() else \
                [str(program), *test.command[1:], "--abort"]
            environment = {key: value.replace(f"{self.build}/harness/", f"{tree}/")
                           for key, value in test.environment.items()}
            (tree / file).write_text(text)
            (tree / file).chmod(mode)
            if self.passes(test, command, environment, place / "tmp"):
                continue
            # It fails with the mutant. Does it pass in the copy without the mutant?
            shutil.copyfile(ROOT / file, tree / file)
            if self.is_sound(test, command, environment, place):
                return test.name
        return "" if direct + others else None

    def fails(self, test: Test, command: list[str], environment: dict[str, str], place: pathlib.Path) -> bool:
        """Whether the test fails with the mutant; False where it fails without one too."""
        return (not self.passes(test, command, environment, place / "tmp") and
                self.is_sound(test, test.command, test.environment, place))

    def is_sound(self, test: Test, command: list[str], environment: dict[str, str], place: pathlib.Path) -> bool:
        """Whether the test passes by this command, without a mutant; tried once."""
        in_copy = f"{place}/" in " ".join(command)
        with self.locks[f"{test.name} {in_copy}"]:
            if (test.name, in_copy) not in self.sound:
                self.sound[test.name, in_copy] = self.passes(test, command, environment, place / "sound")
            return self.sound[test.name, in_copy]

    def passes(self, test: Test, command: list[str], environment: dict[str, str], place: pathlib.Path) -> bool:
        place.mkdir(parents=True, exist_ok=True)
        # stdout and stderr are two files, because a test checks that a host's stdout goes to stderr.
        with (open(place / "stdout", "wb") as out, open(place / "stderr", "wb") as err,
              subprocess.Popen(command, cwd=test.folder, stdout=out, stderr=err, start_new_session=True,
                               env=os.environ | environment | {
                                   # The scratch lies in the repository, and a test's folders are in none.
                                   "TMPDIR": str(place), "GIT_CEILING_DIRECTORIES": str(self.scratch)}) as process):
            try:
                return process.wait(test.limit_s) in (0, SKIPPED)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return False


def is_batch(unit: pathlib.Path) -> bool:
    return unit.name.startswith("unity_")


def subfolders(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (pathlib.Path(folder) / name).is_dir()]


def needs(scripts: set[str], text: str, starts: str = "") -> bool:
    """Whether the text imports one of these scripts, or has the name of one behind a match of the pattern `starts`."""
    modules = "|".join(name.removesuffix(".py") for name in scripts)
    names = "|".join(map(re.escape, scripts))
    return bool(re.search(rf"^\s*(?:from|import) (?:{modules})\b|{starts}\b(?:{names})\b", text, re.MULTILINE))


def users_of(script: str) -> set[str]:
    """The script, and all of scripts/ and dev/ that import or source it, directly or not."""
    texts = {path.name: path.read_text(encoding="utf-8") for folder in ("scripts", "dev")
             for path in (ROOT / folder).glob("*.*") if path.suffix in (".py", ".sh")}
    found, more = set(), {script}
    while more:
        found |= more
        more = {name for name, text in texts.items() if needs(found, text, r"^\s*(?:\.|source) .*")} - found
    return found
