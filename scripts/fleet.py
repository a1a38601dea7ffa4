"""Runs the cells of a plan on many cards, and tells whether a card or a kernel differs.

  fleet.py run PLAN.toml --program MKBENCH [--on local|slurm|workflow] [--out DIR] [--dry-run] [--quiet]
  fleet.py run --resume DIR --program MKBENCH [--on local|slurm] [--quiet]
  fleet.py merge DIR

`mkbench fleet` executes this program. Exit status: 0 all cells passed and all cards computed alike, 1 something is
missing on this machine, 2 a plan or folder that cannot be used, 3 a card with other results, 5 cells are missing,
130 Ctrl-C; else the greatest exit code of the cells.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

import exit_codes
import fleet_cells
import fleet_checks
import fleet_plan
import fleet_submit
import fleet_worker
import pinned_wheels


class Missing(Exception):
    """A module that could not be installed; the message says what to do."""


def need_modules(*names: str) -> None:
    """Makes these modules importable: by this Python and PYTHONPATH if they have all of them, else from the cache,
    where they are installed once."""
    if all(importlib.util.find_spec(name) for name in names):
        return
    try:
        with contextlib.redirect_stdout(sys.stderr):
            folder = pinned_wheels.installed("fleet", "submitit and duckdb (25 MB)")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"no {' or '.join(names)}: pip could not install {pinned_wheels.requirements_of('fleet')} ({error}); "
                      "without a network put its wheels, unpacked, on PYTHONPATH (docs/fleet.md)") from None
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def print_matrix(file: str, plan: fleet_plan.Plan) -> None:
    """Prints the matrix for a GitHub workflow: each entry is the name of a cell and the arguments of its run."""
    cells = fleet_plan.cells_of(dataclasses.replace(plan, cards=dataclasses.replace(plan.cards, each=False)), 1)
    if len(cells) > fleet_plan.MOST_MATRIX_JOBS:
        raise fleet_plan.BadPlan(f"{file}: found {len(cells)} cells, wanted at most {fleet_plan.MOST_MATRIX_JOBS}, "
                                 "as many jobs as a matrix of GitHub may have; entries of an axis that are written as one "
                                 "list, [[a, b]], share a job")
    print(json.dumps({"include": [
        {"cell": cell.id, "arguments": fleet_plan.arguments_of(plan, cell, f"cells/{cell.id}/try-1/report")}
        for cell in cells]}))


def new_fleet(arguments) -> tuple:
    """(folder, backend's cards), or None where there is nothing to run."""
    file, path = str(arguments.plan), arguments.out or pathlib.Path(time.strftime("mkbench-fleet-%Y%m%d-%H%M%S"))
    plan = fleet_plan.read_plan(arguments.plan)
    program = plan.program or arguments.program
    version = fleet_worker.version_of(program)
    if version.startswith("none"):
        raise fleet_plan.BadPlan(f"{file}: program: {program}: {version}")
    local = arguments.on == "local"
    fleet_checks.check_parent(file, path)
    cards = fleet_checks.local_cards(file, plan) if local else []
    fleet_checks.check_words(file, plan, program, local)
    if arguments.on == "workflow":
        print_matrix(file, plan)
        return None
    if arguments.on == "slurm":
        fleet_checks.check_slurm(file, plan, program, version)
    count = len(cards) if local else plan.cards.count
    if arguments.dry_run:
        for cell in fleet_plan.cells_of(plan, max(count, 1)):
            print(" ".join([cell.id, *fleet_plan.arguments_of(plan, cell, "DIR")]))
        return None
    return fleet_cells.make(path.resolve(), plan, count, version, program), cards


def old_fleet(arguments) -> tuple:
    folder = fleet_cells.Folder(arguments.resume.resolve())
    file = str(arguments.resume / "fleet.json")
    program = folder.plan.program or arguments.program
    version = fleet_worker.version_of(program)
    if version != folder.facts["version"]:
        raise fleet_cells.BadFleet(f"{file}: version: found {folder.facts['version']!r}, wanted {version!r}: the cells of a "
                                   "fleet are runs of one mkbench")
    cards = fleet_checks.local_cards(file, folder.plan) if arguments.on == "local" else []
    if arguments.on == "slurm":
        fleet_checks.check_slurm(file, folder.plan, program, version)
    folder.settle()
    return folder, cards


def run(arguments) -> int:
    if arguments.resume and arguments.on == "workflow":
        raise fleet_plan.BadPlan("--on workflow prints the matrix of a plan, and --resume goes on with a folder: give one "
                                 "of them")
    made = old_fleet(arguments) if arguments.resume else new_fleet(arguments)
    if made is None:
        return 0
    folder, cards = made
    need_modules("submitit")
    with folder.alone("submitter") as alone:
        if not alone:
            raise fleet_cells.BadFleet(f"{folder.path}: another mkbench fleet is at work on it")
        if arguments.resume:
            folder.retry_failed()
        backend = (fleet_submit.Local if arguments.on == "local" else fleet_submit.Slurm)(folder, cards)
        try:
            why = fleet_submit.run(folder, backend, arguments.quiet)
            code = merge(folder.path)
        except fleet_submit.Stopped:
            fleet_submit.say(f"stopped; mkbench fleet --resume {folder.path} goes on")
            return exit_codes.INTERRUPTED
    if why:
        counts = folder.counts()
        fleet_submit.say(f"{counts['waiting']} of {len(folder.cells)} cells are missing: {why}; "
                         f"mkbench fleet --resume {folder.path} goes on")
        return code if code in (exit_codes.BAD_INPUT, exit_codes.NONDETERMINISTIC) else exit_codes.INCOMPLETE
    return code


def merge(path: pathlib.Path) -> int:
    """Writes store, table of cards and page from the reports that are there."""
    import fleet_store

    need_modules("duckdb")
    return fleet_store.merge_and_tell(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("plan", nargs="?", type=pathlib.Path)
    running.add_argument("--program", required=True)
    running.add_argument("--on", choices=("local", "slurm", "workflow"), default="local")
    running.add_argument("--out", type=pathlib.Path)
    running.add_argument("--resume", type=pathlib.Path)
    running.add_argument("--dry-run", action="store_true")
    merging = commands.add_parser("merge")
    merging.add_argument("folder", type=pathlib.Path)
    for one in (running, merging):
        one.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    try:
        return run(arguments) if arguments.command == "run" else merge(arguments.folder)
    except (fleet_plan.BadPlan, fleet_cells.BadFleet) as error:
        print(f"mkbench: error: fleet: {error}", file=sys.stderr)
        return exit_codes.BAD_INPUT
    except Missing as error:
        print(f"mkbench: error: fleet: {error}", file=sys.stderr)
        return exit_codes.RUNTIME_ERROR


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
