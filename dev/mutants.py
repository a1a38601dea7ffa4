"""Plants mutants in the host code, one at a time, and prints which test notices each.

The tables are tests/mutants/<room>.toml. Each entry names a source file, the tests to run (default: those at the
table's top) and its mutants: a text of the file, the text that replaces it, and, for a mutant that no test can notice,
the argument why. The tree is copied into a scratch folder and built there once,
without CUDA and libtorch. A mutant is then one object file, which is linked before the libraries that hold the right
one; a test program that fails or runs out of time has killed the mutant.

Exit code 1: fewer than 95 % are killed, a row's text does not occur in its file exactly once, a mutant does not
compile, one that was called equivalent is killed, or a test fails without any mutant.
"""

import argparse
import concurrent.futures
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
import time
import tomllib

import scripts_path  # noqa: F401
from tracked_files import ROOT, tracked_files

TABLES = pathlib.Path("tests", "mutants")
WANTED = 0.95
# With a mutant a test may take SLOWER times as long as without, and GRACE_S seconds more.
SLOWER, GRACE_S = 4, 20
KEYS = {"name", "tests", "mutants"}


@dataclasses.dataclass
class Row:
    room: str
    number: int  # from 1, in its table
    file: str
    old: str
    new: str
    tests: list[str]
    equivalent: str

    def name(self) -> str:
        return f"{self.room} {self.number}"

    def change(self) -> str:
        return f"{self.file}: {' '.join(self.old.split())} -> {' '.join(self.new.split()) or 'nothing'}"


@dataclasses.dataclass
class Outcome:
    row: Row
    said: str  # the outcome in words
    killed: bool = False
    wrong: bool = False  # the row itself is wrong


class Trouble(Exception):
    """An error that keeps mutants from being tried at all."""


def read_rows(root: pathlib.Path = ROOT) -> list[Row]:
    rows = []
    for path in sorted((root / TABLES).glob("*.toml")):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise Trouble(f"{path.name}: {error}") from None
        mutants = [(file, mutant) for file in table["file"] for mutant in file["mutants"]]
        for number, (file, mutant) in enumerate(mutants, 1):
            if set(file) - KEYS or len(mutant) not in (2, 3):
                raise Trouble(f"{path.name} row {number}: wanted {', '.join(sorted(KEYS))}; two or three texts a mutant")
            old, new, why = (*mutant, "")[:3]
            rows.append(Row(path.stem, number, file["name"], old, new, file.get("tests", table["tests"]), why))
    return rows


def findings_of(rows: list[Row], root: pathlib.Path = ROOT) -> list[str]:
    """Defects of the table that show without a build, a line each."""
    found = []
    seen = set()
    for row in rows:
        path = root / row.file
        count = path.read_text(encoding="utf-8").count(row.old) if path.is_file() else 0
        if not path.is_file() or path.suffix not in (".cpp", ".h"):
            found.append(f"{row.name()}: {row.file}: wanted a .cpp or .h file that is there")
        elif count != 1:
            found.append(f"{row.name()}: {row.file}: found {count} times, wanted once: {row.old}")
        if row.old == row.new or (row.file, row.old, row.new) in seen:
            found.append(f"{row.name()}: {row.file}: changes nothing, or stands twice: {row.old}")
        seen.add((row.file, row.old, row.new))
    return found


def copy_tree(scratch: pathlib.Path, root: pathlib.Path = ROOT) -> pathlib.Path:
    """Copies the tree; unchanged files keep their times, so that ninja builds little."""
    tree = scratch / "tree"
    wanted = {name: root / name for name in tracked_files(root, untracked=True)}
    # These two build no device code and nothing that needs libtorch.
    wanted["CMakeLists.txt"] = root / TABLES / "CMakeLists.txt"
    wanted["tests/CMakeLists.txt"] = root / TABLES / "tests.cmake"
    for name in set(tracked_files(tree)) - set(wanted) if tree.exists() else ():
        (tree / name).unlink()
    for name, source in wanted.items():
        target = tree / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return tree


def program(name: str) -> str:
    """The program in the folder of this Python, where set-up installs it, else the one on PATH."""
    beside = pathlib.Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def run(command: list[str] | str, folder: pathlib.Path) -> str:
    """Runs a command and returns its output; raises Trouble where it fails."""
    done = subprocess.run(command, cwd=folder, shell=isinstance(command, str), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise Trouble(done.stdout[-4000:])
    return done.stdout


class Workshop:
    """The built scratch copy. Makes and tries mutants, each in a thread of its caller."""

    def __init__(self, scratch: pathlib.Path, tests: list[str], jobs: int):
        self.scratch, self.tree, self.build = scratch, copy_tree(scratch), scratch / "build"
        run([program("cmake"), "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
             "-DCMAKE_CXX_FLAGS=-O0", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
             f"-DCMAKE_MAKE_PROGRAM={shutil.which(program('ninja'))}"], scratch)
        run([program("ninja"), "-j", str(jobs), *tests], self.build)
        compiled = json.loads((self.build / "compile_commands.json").read_text())
        self.compile = {os.path.relpath(c["file"], self.tree): shlex.split(c["command"]) for c in compiled}
        self.link = {test: run([program("ninja"), "-t", "commands", "-s", f"tests/{test}"], self.build).strip()
                     for test in tests}
        self.limit_s = {}
        for test in tests:
            start = time.monotonic()
            if problem := self.try_program(self.build / "tests" / test, scratch / "tmp" / test, 600):
                raise Trouble(f"{test} fails without a mutant: {problem}")
            self.limit_s[test] = SLOWER * (time.monotonic() - start) + GRACE_S

    def try_program(self, test: pathlib.Path, temporary: pathlib.Path, limit_s: float) -> str:
        """How the test failed; empty where it passed."""
        temporary.mkdir(parents=True, exist_ok=True)
        # stdout and stderr are two files, because a test checks that a host's stdout goes to stderr.
        with (open(temporary / "stdout", "wb") as out, open(temporary / "stderr", "wb") as err,
              subprocess.Popen([test, "--abort"], cwd=self.tree, stdout=out, stderr=err, start_new_session=True,
                               env=os.environ | {"TMPDIR": str(temporary)}) as process):
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "out of time"
        return "" if code == 0 else f"exit status {code}" if code > 0 else f"signal {-code}"

    def try_row(self, row: Row) -> Outcome:
        place = self.scratch / "mutants" / row.name().replace(" ", "-")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        source, mutant = place / pathlib.Path(row.file).name, place / "mutant.o"
        source.write_text((self.tree / row.file).read_text(encoding="utf-8").replace(row.old, row.new, 1))
        if row.file not in self.compile:
            return Outcome(row, "is not among the sources that are built here", wrong=True)
        command = list(self.compile[row.file])
        command[command.index("-o") + 1], command[command.index("-c") + 1] = str(mutant), str(source)
        try:
            run(command, self.build)
            for test in row.tests:
                # The mutant comes first, so that the linker does not take these symbols from the library.
                link = re.sub(rf" -o tests/{test} ", f" {mutant} -o {place / test} ", self.link[test])
                run(link, self.build)
                problem = self.try_program(place / test, place / "tmp", self.limit_s[test])
                if problem and row.equivalent:
                    return Outcome(row, f"called equivalent, but killed by {test} ({problem})", killed=True, wrong=True)
                if problem:
                    return Outcome(row, f"killed by {test} ({problem})", killed=True)
        except Trouble as trouble:
            return Outcome(row, f"does not compile: {trouble}", wrong=True)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return Outcome(row, f"equivalent: {row.equivalent}" if row.equivalent else "SURVIVED")


def try_rows(rows: list[Row], scratch: pathlib.Path, jobs: int) -> int:
    start = time.monotonic()
    workshop = Workshop(scratch, sorted({test for row in rows for test in row.tests}), jobs)
    print(f"built in {time.monotonic() - start:.0f} s; {len(rows)} mutants, {jobs} at a time", flush=True)
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(workshop.try_row, rows):
            outcomes.append(outcome)
            print(f"{outcome.row.name():14} {outcome.said}\n{'':14} {outcome.row.change()}", flush=True)
    for room in sorted({row.room for row in rows}):
        print(summary(room, [o for o in outcomes if o.row.room == room]))
    print(summary("all rooms", outcomes), f"in {time.monotonic() - start:.0f} s")
    return exit_code(outcomes)


def exit_code(outcomes: list[Outcome]) -> int:
    counted = [o for o in outcomes if not o.row.equivalent]
    enough = sum(o.killed for o in counted) >= WANTED * len(counted)
    return 0 if outcomes and enough and not any(o.wrong for o in outcomes) else 1


def summary(room: str, outcomes: list[Outcome]) -> str:
    counted = [o for o in outcomes if not o.row.equivalent]
    killed = sum(o.killed for o in counted)
    rate = f"{100 * killed / len(counted):.1f} %" if counted else "none to kill"
    return (f"{room}: {killed} of {len(counted)} killed ({rate}), {len(outcomes) - len(counted)} equivalent, "
            f"{sum(o.wrong for o in outcomes)} rows wrong")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="build nothing; check that each text occurs once")
    parser.add_argument("--list", action="store_true", help="print the rows")
    parser.add_argument("--room", help="rows of one table")
    parser.add_argument("--row", type=int, metavar="N", nargs="+", help="these rows of that table, from 1")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tried at a time (default: cores)")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "mutants",
                        help="scratch folder; what is built there is used again (default: build/mutants)")
    args = parser.parse_args(argv)
    try:
        rows = [row for row in read_rows()
                if args.room in (None, row.room) and (args.row is None or row.number in args.row)]
        if not rows:
            raise Trouble("--room and --row select no row")
        if args.list:
            print("\n".join(f"{row.name():14} {row.change()}" for row in rows))
            return 0
        if found := findings_of(rows):
            print("\n".join(found))
            return 1
        if args.check:
            print(f"{len(rows)} mutants, each text found once")
            return 0
        args.folder.mkdir(parents=True, exist_ok=True)
        return try_rows(rows, args.folder.resolve(), args.jobs)
    except Trouble as trouble:
        print(f"mutants: {trouble}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
