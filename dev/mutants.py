"""Plants mutants in the code, one at a time, and says which tests notice them.

usage: mutants.py [--draw N] [--seed S]   N mutants (150) by a seed (1), spread over the rooms by their number of lines
       mutants.py --changed BASE          N mutants of the lines that differ from the commit BASE
       mutants.py --table                 the mutants of tests/mutants/*.toml, which no rule makes
       mutants.py --check                 builds and tests nothing: are the tables right?

universalmutator makes the mutants by the rules of tests/mutants/*.rules, which invert comparisons or move their bound
by one, drop operands of guards, drop calls, exchange arguments, and add one to constants. All tests must be built
(`scripts/setup.sh`). A mutant of C++ is compiled with -O0 and linked, before the libraries, into each program that is
tried: the unit tests of its room, the light ones that link its library, and mkbench for the room's tests in Python. A
mutant of a script is tried in a copy of the tree, by the tests that import or start the script, then by the tests of
its room that are named after it. A mutant that cannot be tried is replaced by another. Left out: headers, code for the
card (.cu), what only a card runs, dev/, text that a script prints by `cat << 'END'`, and sizes and numbers of ticks in
a chart's specification.

tests/mutants/equivalent.toml names mutants that no test can notice, each with the reason. Exit status: 1 if under 90 % are
killed, or under 85 % in a room of ten or more mutants, or if a table is wrong; 2 if mutants could not be tried.
"""

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import dataclasses
import io
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import tomllib

import scripts_path  # noqa: F401
import pinned_wheels
from mutant_workshop import Trouble, Workshop, room_of, run
from tracked_files import ROOT, tracked_files

TABLES, EQUIVALENT = pathlib.Path("tests", "mutants"), "equivalent.toml"
RULES = {".cpp": "cpp.rules", ".py": "python.rules", ".sh": "shell.rules"}
# Where the mutants lie. Without a card no test runs the device's half of kernels, harness/device, host and micro. A test
# runs setup.sh --plan with the machine's own programs: its mutants could install packages.
FOLDERS = re.compile(r"(harness/(?!micro/|device/|host/cuda_program_tune)|references/|kernels/host_twin/|"
                     r"scripts/(?!setup\.sh|packages\.sh))")
WANTED, WANTED_OF_A_ROOM, LARGE_ROOM = 0.90, 0.85, 10


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    old: str  # text of the file, which stands in it once where `line` is 0
    new: str
    line: int = 0  # the line that is `old`, from 1; 0: wherever it stands

    def room(self) -> str:
        return room_of(self.file)

    def key(self) -> tuple[str, str, str]:
        """The texts by which tests/mutants/equivalent.toml names the mutant."""
        return self.file, self.old.strip(), self.new.strip()

    def planted(self, text: str) -> str:
        if self.line == 0:
            return text.replace(self.old, self.new, 1)
        lines = text.splitlines(keepends=True)
        lines[self.line - 1] = self.new
        return "".join(lines)

    def __str__(self):
        def one_line(text: str) -> str:
            return " ".join(text.split()) or "nothing"
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {one_line(self.old)} -> {one_line(self.new)}"


def read_table(root: pathlib.Path = ROOT) -> tuple[list[Mutant], set[tuple[str, str, str]]]:
    """The mutants of the tables, and the keys of those that no test can notice."""
    rows, equivalent = [], set()
    for path in sorted((root / TABLES).glob("*.toml")):
        try:
            for file, mutants in tomllib.loads(path.read_text(encoding="utf-8")).items():
                for old, new, *why in mutants:
                    rows.append(Mutant(file, old, new))
                    if bool(why) != (path.name == EQUIVALENT):
                        raise ValueError(f"wanted a reason in {EQUIVALENT}, and there alone: {old}")
                    if why:
                        equivalent.add(rows[-1].key())
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

    text = (root / file).read_text(encoding="utf-8")
    source, prose = text.splitlines(keepends=True), prose_lines(file, text)
    rules = root / TABLES / RULES[pathlib.PurePosixPath(file).suffix]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        made = mutator.mutants_regexp(source, [str(rules)], ignorePatterns=[], ignoreStringOnly=True)
    if "FAILED TO COMPILE" in said.getvalue():
        raise Trouble(said.getvalue())
    return [Mutant(file, source[n - 1], new, n) for n, new, *_ in made
            if n not in prose and (lines is None or n in lines)]


def prose_lines(file: str, text: str) -> set[int]:
    """Lines that state no behaviour: docstrings in Python, here-documents in shell that are printed as they stand."""
    if file.endswith(".sh"):
        return {line for told in re.finditer(r"^ *cat << '(\w+)'\n.*?^\1$", text, re.MULTILINE | re.DOTALL)
                for line in range(text.count("\n", 0, told.start()) + 1, text.count("\n", 0, told.end()) + 2)}
    if not file.endswith(".py"):
        return set()
    return {line for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            for line in range(node.lineno, node.end_lineno + 1)}


def sources() -> dict[str, list[str]]:
    """Room -> its files that can be mutated."""
    found = collections.defaultdict(list)
    for path in tracked_files(untracked=True):
        if FOLDERS.match(path) and pathlib.PurePosixPath(path).suffix in RULES:
            found[room_of(path)].append(path)
    return found


def drawn(count: int, seed: int) -> list[list[Mutant]]:
    """A list for each mutant to try: the mutant, then those that replace it if it does not compile."""
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


def changed(base: str, count: int, seed: int) -> list[list[Mutant]]:
    """Mutants of the lines that differ from the commit `base`, each in a list of its own."""
    diff = run(["git", "diff", "--unified=0", "--no-color", base, "--", "."], ROOT)
    lines = collections.defaultdict(set)
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            lines[file] |= set(range(int(hunk[1]), int(hunk[1]) + int(hunk[2] or 1)))
    known = {file for files in sources().values() for file in files}
    every = [mutant for file in sorted(set(lines) & known) for mutant in generated(file, lines[file])]
    return [[mutant] for mutant in random.Random(seed).sample(every, min(len(every), count))]


def try_all(spread: list[list[Mutant]], workshop: Workshop, equivalent: set[tuple], jobs: int) -> int:
    start = time.monotonic()
    killed, tried, survivors = collections.Counter(), collections.Counter(), []

    def first_that_compiles(number: int) -> tuple[Mutant, str | None]:
        for mutant in spread[number]:
            if mutant.key() in equivalent:
                continue
            text = mutant.planted((ROOT / mutant.file).read_text(encoding="utf-8"))
            if (killer := workshop.killer_of(mutant.file, text, number)) is not None:
                return mutant, killer
        return spread[number][-1], None

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(first_that_compiles, k) for k in range(len(spread))]):
            mutant, killer = done.result()
            if killer is None:
                continue
            tried[mutant.room()] += 1
            killed[mutant.room()] += bool(killer)
            if not killer:
                survivors.append(str(mutant))
            print(f"{'killed by ' + killer if killer else 'SURVIVED'}: {mutant}", flush=True)
    print(f"\n{len(survivors)} survived:", *sorted(survivors), sep="\n")
    for room in sorted(tried):
        print(f"{room:12} {killed[room]:4} of {tried[room]:4} killed, {100 * killed[room] / tried[room]:.0f} %")
    total, of = killed.total(), tried.total()
    print(f"{'all':12} {total:4} of {of:4} killed, {100 * total / max(1, of):.1f} %, in {time.monotonic() - start:.0f} s")
    return exit_code(killed, tried)


def exit_code(killed: dict[str, int], tried: dict[str, int]) -> int:
    enough = sum(killed.values()) >= WANTED * sum(tried.values())
    even = all(killed[room] >= WANTED_OF_A_ROOM * tried[room] for room in tried if tried[room] >= LARGE_ROOM)
    return 0 if tried and enough and even else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=150, metavar="N", help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="random seed (default: %(default)s)")
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
        spread = ([[row] for row in rows if row.key() not in equivalent] if args.table else
                  changed(args.changed, args.draw, args.seed) if args.changed else drawn(args.draw, args.seed))
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
