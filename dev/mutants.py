"""Plants mutants in the code, one at a time, and says which tests notice them.

usage: mutants.py [--draw N] [--seed S]   N mutants (150) by a seed (1), spread over the rooms by their number of lines
       mutants.py --changed BASE          mutants of the lines that differ from the commit BASE
       mutants.py --table                 the mutants of tests/mutants/*.toml, which no rule makes
       mutants.py --check                 builds and tests nothing: are the tables right?

universalmutator makes the mutants, by the rules tests/mutants/cpp.rules and python.rules: comparisons turned and moved by
one, operands of guards dropped, calls dropped, arguments exchanged, constants one more. All tests must be built
(`scripts/setup.sh`). A mutant of C++ is compiled with -O0 and linked, before the libraries, into each program that is
tried; one of Python is tried in a copy of the tree. Its tests are first those of its own room and then, of C++, all unit
tests that link its library. A mutant that does not compile is replaced by another. Left out: headers, code for the card
(.cu) and what only a card runs.

tests/mutants/equivalent.toml names mutants that no test can notice, each with the reason. Exit status: 1 if under 90 % are
killed, or under 85 % in a room of ten or more mutants, or if a table is wrong; 2 if mutants could not be tried.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib

import scripts_path  # noqa: F401
import pinned_wheels
from tracked_files import ROOT, tracked_files

TABLES = pathlib.Path("tests", "mutants")
RULES = {".cpp": "cpp.rules", ".py": "python.rules"}
# Where the mutants lie. Without a card no test runs the device's half of kernels, harness/device, host and micro.
FOLDERS = re.compile(r"(harness/(?!micro/|device/)|references/|kernels/host_twin/|scripts/|dev/)")
WANTED, WANTED_OF_A_ROOM, LARGE_ROOM = 0.90, 0.85, 10
# With a mutant a test may take SLOWER times as long as without, and GRACE_S seconds more.
SLOWER, GRACE_S = 4, 20
SKIPPED = 77
LEFT_OUT = {"gpu", "slow", "waits"}  # labels of tests that are not tried


class Trouble(Exception):
    """An error that keeps mutants from being tried at all."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    old: str  # text of the file, which stands in it once where `line` is 0
    new: str
    line: int = 0  # the line that is `old`, from 1; 0: wherever it stands

    def room(self) -> str:
        return room_of(self.file)

    def planted(self, text: str) -> str:
        if self.line == 0:
            return text.replace(self.old, self.new, 1)
        lines = text.splitlines(keepends=True)
        lines[self.line - 1] = self.new
        return "".join(lines)

    def __str__(self):
        def one_line(text: str) -> str:
            return " ".join(text.split()) or "nothing"
        return f"{self.file}:{self.line}: {one_line(self.old)} -> {one_line(self.new)}"


def room_of(path: str) -> str:
    """The folder of tests/ that holds the tests of a file."""
    parts = path.split("/")
    return "kernels" if parts[0] == "kernels" else parts[1] if parts[0] == "harness" and len(parts) > 2 else parts[0]


def read_table(root: pathlib.Path = ROOT) -> tuple[list[Mutant], dict[Mutant, str]]:
    """The mutants that no rule makes, and those that no test can notice, with the reason."""
    rows, equivalent = [], {}
    for path in sorted((root / TABLES).glob("*.toml")):
        try:
            for name, mutants in tomllib.loads(path.read_text(encoding="utf-8")).items():
                for old, new, *why in mutants:
                    mutant = Mutant(name, old, new)
                    rows.append(mutant)
                    if why:
                        equivalent[mutant] = why[0]
        except (tomllib.TOMLDecodeError, ValueError, AttributeError) as error:
            raise Trouble(f"{path.name}: {error}") from None
    return rows, equivalent


def findings_of(rows: list[Mutant], root: pathlib.Path = ROOT) -> list[str]:
    """Defects of the tables that show without a build, a line each."""
    found = []
    for row, times in collections.Counter(rows).items():
        path = root / row.file
        count = path.read_text(encoding="utf-8").count(row.old) if path.is_file() else 0
        if path.suffix not in RULES or not path.is_file():
            found.append(f"{row.file}: wanted a {' or '.join(RULES)} file that is there")
        elif count != 1:
            found.append(f"{row.file}: found {count} times, wanted once: {row.old}")
        if row.old == row.new or times > 1:
            found.append(f"{row.file}: changes nothing, or stands twice: {row.old}")
    return found


def generated(file: str, lines: set[int] | None = None, root: pathlib.Path = ROOT) -> list[Mutant]:
    """All mutants of a file by the rules, or those of some of its lines."""
    from universalmutator import mutator

    source = (root / file).read_text(encoding="utf-8").splitlines(keepends=True)
    rules = root / TABLES / RULES[pathlib.PurePosixPath(file).suffix]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        made = mutator.mutants_regexp(source, [str(rules)], ignorePatterns=[], ignoreStringOnly=True)
    if "FAILED TO COMPILE" in said.getvalue():
        raise Trouble(said.getvalue())
    return [Mutant(file, source[n - 1], new, n) for n, new, *_ in made if lines is None or n in lines]


def sources() -> dict[str, list[str]]:
    """Room -> its files that can be mutated."""
    found = collections.defaultdict(list)
    for path in tracked_files(untracked=True):
        if FOLDERS.match(path) and pathlib.PurePosixPath(path).suffix in RULES:
            found[room_of(path)].append(path)
    return found


def drawn(count: int, seed: int) -> list[list[Mutant]]:
    """For each mutant to try, it and those that take its place if it does not compile."""
    draw = random.Random(seed)
    rooms = sources()
    lines = {room: sum((ROOT / file).read_text(encoding="utf-8").count("\n") for file in files)
             for room, files in rooms.items()}
    spread = []
    for room in sorted(rooms):
        share = round(count * lines[room] / sum(lines.values()))
        every = [mutant for file in rooms[room] for mutant in generated(file)]
        picked = draw.sample(every, min(len(every), 4 * share))
        spread += [picked[k::share] for k in range(share)]
    return spread


def changed(base: str) -> list[list[Mutant]]:
    """The mutants of the lines that differ from a commit, in the form of drawn()."""
    diff = run(["git", "diff", "--unified=0", "--no-color", base, "--", "."], ROOT)
    lines = collections.defaultdict(set)
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            lines[file] |= set(range(start, start + count))
    known = {file for files in sources().values() for file in files}
    return [[mutant] for file in sorted(set(lines) & known) for mutant in generated(file, lines[file])]


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
    room: str

    def is_python(self) -> bool:
        return len(self.command) > 1 and self.command[1].endswith(".py")


def read_tests(build: pathlib.Path) -> list[Test]:
    rooms = {path.stem: path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/*.*")}
    found = []
    for test in json.loads(run([program("ctest"), "--test-dir", str(build), "--show-only=json-v1"], ROOT))["tests"]:
        values = {p["name"]: p["value"] for p in test["properties"]}
        environment = dict(text.split("=", 1) for text in values.get("ENVIRONMENT", []))
        labels = set(values.get("LABELS", []))
        if not labels & LEFT_OUT and "command" in test:
            found.append(Test(test["name"], test["command"], environment, values["WORKING_DIRECTORY"], labels,
                              rooms.get(test["name"].split(".")[0], "")))
    return found


class Workshop:
    """The built tree. Makes and tries mutants, each in a thread of its caller."""

    def __init__(self, build: pathlib.Path, scratch: pathlib.Path):
        self.build, self.scratch = build, scratch
        if not (build / "harness" / "mkbench").exists():
            raise Trouble(f"{build} has no mkbench; scripts/setup.sh builds it, and all tests")
        self.tests = read_tests(build)
        # Source -> (its command, the file that is compiled: itself, or the batch that includes it).
        self.compiled: dict[str, tuple[list[str], pathlib.Path]] = {}
        for entry in json.loads((build / "compile_commands.json").read_text()):
            unit = pathlib.Path(entry["file"])
            batch = re.findall(r'^#include "(.*)"$', unit.read_text(), re.MULTILINE) if "unity_" in unit.name else [str(unit)]
            for source in batch:
                self.compiled.setdefault(os.path.relpath(source, ROOT), (shlex.split(entry["command"]), unit))
        self.links: dict[str, str] = {}
        self.limits: dict[str, float | None] = {}
        self.lock = threading.Lock()

    def link_of(self, target: str) -> str:
        with self.lock:
            if target not in self.links:
                self.links[target] = run([program("ninja"), "-t", "commands", "-s", target], self.build).strip()
            return self.links[target]

    def execute(self, test: Test, command: list[str], environment: dict[str, str], place: pathlib.Path,
                limit_s: float) -> str:
        """How the test failed; empty where it passed."""
        place.mkdir(parents=True, exist_ok=True)
        # stdout and stderr are two files, because a test checks that a host's stdout goes to stderr.
        with (open(place / "stdout", "wb") as out, open(place / "stderr", "wb") as err,
              subprocess.Popen(command, cwd=test.folder, stdout=out, stderr=err, start_new_session=True,
                               env=os.environ | environment | {"TMPDIR": str(place)}) as process):
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "out of time"
        if code == SKIPPED:
            return "skipped"
        return "" if code == 0 else f"exit status {code}" if code > 0 else f"signal {-code}"

    def limit_of(self, test: Test) -> float | None:
        """How long the test may take with a mutant; None where it does not pass without one."""
        with self.lock:
            if test.name in self.limits:
                return self.limits[test.name]
        start = time.monotonic()
        place = self.scratch / f"sound-{test.name}-{threading.get_ident()}"
        problem = self.execute(test, test.command, test.environment, place, 600)
        shutil.rmtree(place, ignore_errors=True)
        with self.lock:
            self.limits[test.name] = None if problem else SLOWER * (time.monotonic() - start) + GRACE_S
            return self.limits[test.name]

    def outcome_of(self, mutant: Mutant, number: int) -> str | None:
        """The test that has killed the mutant, or "" where none did; None where it does not compile."""
        place = self.scratch / str(number)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            text = mutant.planted((ROOT / mutant.file).read_text(encoding="utf-8"))
            if mutant.file.endswith(".py"):
                return self.try_python(mutant, text, place)
            return self.try_cpp(mutant, text, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def try_cpp(self, mutant: Mutant, text: str, place: pathlib.Path) -> str | None:
        if mutant.file not in self.compiled:
            return None
        command, unit = self.compiled[mutant.file]
        command = list(command)
        output = command[command.index("-o") + 1]
        source, mutated, made = place / pathlib.Path(mutant.file).name, place / f"unit{unit.suffix}", place / "mutant.o"
        source.write_text(text)
        mutated.write_text(unit.read_text().replace(f'"{ROOT / mutant.file}"', f'"{source}"')
                           if unit.name.startswith("unity_") else text)
        command[command.index("-o") + 1], command[command.index("-c") + 1] = str(made), str(mutated)
        try:
            run([*command, "-O0", "-w"], self.build)
        except Trouble:
            return None
        folder, target = re.match(r"(.*)/CMakeFiles/([^/]+)\.dir/", output).groups()
        library = f"{folder}/lib{target}.a"

        def relinked(name: str, to: pathlib.Path) -> bool:
            """Links a program with the mutant; False where it does not hold the mutant's library."""
            link = self.link_of(name)
            if library not in link.split():
                return False
            # The mutant comes first, so that the linker does not take these symbols from the library.
            run(re.sub(rf" -o {re.escape(name)} ", f" {made} -o {to} ", link), self.build)
            return True

        units = [t for t in self.tests if not t.is_python() and t.command[0].startswith(f"{self.build}/tests/")]
        units.sort(key=lambda t: (t.room != mutant.room(), "light" not in t.labels))
        for test in units:
            if test.room != mutant.room() and "light" not in test.labels or (limit := self.limit_of(test)) is None:
                continue
            to = place / pathlib.Path(test.command[0]).name
            if relinked(os.path.relpath(test.command[0], self.build), to):
                if self.execute(test, [str(to), *test.command[1:], "--abort"], test.environment, place / "tmp", limit):
                    return test.name
                to.unlink()
        programs = place / "harness"
        shutil.copytree(self.build / "harness", programs, copy_function=os.link,
                        ignore=lambda folder, names: [n for n in names if (pathlib.Path(folder) / n).is_dir()])
        held = []
        for name in ("mkbench", "mkbench-host-cuda", "mkbench-host-torch", "mkbench-all"):
            (programs / name).unlink(missing_ok=True)
            if not relinked(f"harness/{name}", programs / name):
                os.link(self.build / "harness" / name, programs / name)
            else:
                held.append(name)
        if not held:
            return ""
        for test in self.tests:
            if test.is_python() and test.room == mutant.room() and (limit := self.limit_of(test)) is not None:
                environment = {key: value.replace(f"{self.build}/harness", str(programs))
                               for key, value in test.environment.items()}
                if self.execute(test, test.command, environment, place / "tmp", limit):
                    return test.name
        return ""

    def try_python(self, mutant: Mutant, text: str, place: pathlib.Path) -> str | None:
        """Tries the Python tests that name the module, or one that imports it."""
        tree = place / "tree"
        for name in tracked_files(untracked=True):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(ROOT / name, tree / name)
        (tree / mutant.file).unlink()
        (tree / mutant.file).write_text(text)
        try:
            compile(text, mutant.file, "exec")
        except SyntaxError:
            return None
        names = users_of(pathlib.PurePosixPath(mutant.file).stem)
        for test in self.tests:
            if not test.is_python() or not names & words_of(test.command[1]):
                continue
            if (limit := self.limit_of(test)) is None:
                continue
            command = [part.replace(f"{ROOT}/tests/", f"{tree}/tests/") for part in test.command]
            if self.execute(test, command, test.environment, place / "tmp", limit):
                return test.name
        return ""


def words_of(path: str) -> set[str]:
    return set(re.findall(r"\w+", pathlib.Path(path).read_text(encoding="utf-8")))


def users_of(module: str) -> set[str]:
    """The module, and all of scripts/ and dev/ that import it, directly or not."""
    found = {module}
    imports = {path.stem: path.read_text(encoding="utf-8") for folder in ("scripts", "dev") for path in (ROOT / folder).glob("*.py")}
    while True:
        more = {name for name, text in imports.items()
                if name not in found and re.search(rf"^\s*(?:from|import) (?:{'|'.join(found)})\b", text, re.MULTILINE)}
        if not more:
            return found
        found |= more


def try_all(spread: list[list[Mutant]], workshop: Workshop, equivalent: dict, jobs: int) -> int:
    start = time.monotonic()
    killed, tried, survivors = collections.Counter(), collections.Counter(), []

    def first_that_compiles(number: int) -> tuple[Mutant, str | None]:
        for mutant in spread[number]:
            if Mutant(mutant.file, mutant.old.strip(), mutant.new.strip()) in equivalent:
                continue
            outcome = workshop.outcome_of(mutant, number)
            if outcome is not None:
                return mutant, outcome
        return spread[number][-1] if spread[number] else Mutant("", "", ""), None

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for mutant, outcome in pool.map(first_that_compiles, range(len(spread))):
            if outcome is None:
                continue
            tried[mutant.room()] += 1
            killed[mutant.room()] += bool(outcome)
            if not outcome:
                survivors.append(mutant)
            print(f"{'killed by ' + outcome if outcome else 'SURVIVED'}: {mutant}", flush=True)
    print(f"\n{len(survivors)} survived:", *map(str, survivors), sep="\n")
    for room in sorted(tried):
        print(f"{room:12} {killed[room]:4} of {tried[room]:4} killed, {100 * killed[room] / tried[room]:.0f} %")
    total, of = sum(killed.values()), sum(tried.values())
    print(f"{'all':12} {total:4} of {of:4} killed, {100 * total / max(1, of):.1f} %, in {time.monotonic() - start:.0f} s")
    return exit_code(killed, tried)


def exit_code(killed: dict[str, int], tried: dict[str, int]) -> int:
    enough = sum(killed.values()) >= WANTED * sum(tried.values())
    even = all(killed[room] >= WANTED_OF_A_ROOM * tried[room] for room in tried if tried[room] >= LARGE_ROOM)
    return 0 if tried and enough and even else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=150, metavar="N", help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the draw (default: %(default)s)")
    parser.add_argument("--changed", metavar="BASE", help="mutants of the lines that differ from this commit")
    parser.add_argument("--table", action="store_true", help="the mutants of tests/mutants/*.toml")
    parser.add_argument("--check", action="store_true", help="build nothing; check the tables")
    parser.add_argument("--list", action="store_true", help="print the mutants, and try none")
    parser.add_argument("--room", help="mutants of one room")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried at a time (default: cores)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="default: build/release")
    args = parser.parse_args(argv)
    try:
        rows, equivalent = read_table()
        if found := findings_of(rows):
            print("\n".join(found))
            return 1
        if args.check:
            print(f"{len(rows)} mutants, each text found once")
            return 0
        sys.path.insert(0, str(pinned_wheels.installed("mutants", "universalmutator")))
        spread = ([[row] for row in rows if row not in equivalent] if args.table else
                  changed(args.changed) if args.changed else drawn(args.draw, args.seed))
        spread = [mutants for mutants in spread if mutants and args.room in (None, mutants[0].room())]
        if args.list:
            print("\n".join(str(mutant) for mutants in spread for mutant in mutants[:1]))
            return 0
        scratch = args.build.parent / "mutants"
        scratch.mkdir(parents=True, exist_ok=True)
        return try_all(spread, Workshop(args.build.resolve(), scratch.resolve()), equivalent, args.jobs)
    except (Trouble, OSError, subprocess.CalledProcessError) as trouble:
        print(f"mutants: {trouble}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
