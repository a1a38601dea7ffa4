"""Checks of this machine and of Slurm before a fleet's first job is submitted. A plan that cannot run is refused by
name: the message says which model, engine, card, partition or node."""

import math
import os
import pathlib
import re
import shlex

import fleet_gpus
import fleet_plan
import fleet_worker
from fleet_plan import BadPlan
from fleet_worker import ask, why_of

PROBE_S = 20  # for a node to answer; busy nodes are checked by their own jobs


def check_words(file: str, plan: fleet_plan.Plan, program: str, runs_here: bool) -> None:
    """Lets mkbench check models, engines and options. runs_here: the cells run on this machine's device."""
    for model in dict.fromkeys(m for entry in plan.models for m in entry):
        done = ask(program, "inspect", model)
        if done.returncode != 0:
            raise BadPlan(f"{file}: models: {model!r}: {why_of(done)}")
    for engine in dict.fromkeys(e for entry in plan.engines for e in entry):
        if engine.endswith((".so", ".py")) and not pathlib.Path(engine).is_file():
            raise BadPlan(f"{file}: engines: {engine!r}: no such file")
    cells = fleet_plan.cells_of(plan, 1)
    for engines in dict.fromkeys(cell.engines for cell in cells):
        cell = next(cell for cell in cells if cell.engines == engines)
        done = ask(program, *fleet_plan.arguments_of(plan, cell, "unused"), "--list-devices")
        if done.returncode != 0:
            raise BadPlan(f"{file}: {why_of(done)}")
    for model in dict.fromkeys(cell.model for cell in cells) if runs_here else ():
        cell = max((c for c in cells if c.model == model), key=lambda c: max(c.depths) + max(c.n_gen))
        done = ask(program, *fleet_plan.arguments_of(plan, cell, "unused"), "--dry-run")
        if done.returncode != 0:
            raise BadPlan(f"{file}: cell {cell.id}: {why_of(done)}")


def local_cards(file: str, plan: fleet_plan.Plan) -> list:
    """The cards of this machine that get a job each."""
    wanted = plan.cards
    if plan.device == "cpu":
        return [fleet_gpus.stand_in(str(number)) for number in range(wanted.stand_ins or wanted.count or 1)]
    cards, why = fleet_gpus.visible_cards()
    if not cards:
        raise BadPlan(f"{file}: device = \"cuda\": {why}")
    for name in wanted.only:
        if not any(card.id.startswith(name) for card in cards):
            raise BadPlan(f"{file}: cards.only: found {name!r}, wanted the beginning of one of "
                          f"{', '.join(c.id for c in cards)}")
    cards = [card for card in cards if wanted.takes(card.id)]
    if wanted.count > len(cards):
        raise BadPlan(f"{file}: cards.count: found {wanted.count}, wanted at most the {len(cards)} cards of this machine")
    return cards[:wanted.count or len(cards)]


def check_slurm(file: str, plan: fleet_plan.Plan, program: str, version: str) -> None:
    least = math.floor(plan.minutes + fleet_worker.BEFORE_END_S / 60) + 1
    if plan.slurm.minutes < least:
        raise BadPlan(f"{file}: slurm.minutes: found {plan.slurm.minutes}, wanted {least} or more: a job begins a cell "
                      f"only if its own limit leaves the {plan.minutes:g} minutes of a cell and "
                      f"{fleet_worker.BEFORE_END_S} s more")
    if plan.cards.each and not plan.cards.count:
        raise BadPlan(f"{file}: cards.count: not there, wanted the number of cards on which each cell is to run "
                      "(or cards.each = false)")
    done = ask("sinfo", "--noheader", "--Node", "--format=%N %P %T %G")
    if done.returncode != 0:
        raise BadPlan(f"{file}: --on slurm: sinfo: {why_of(done)}")
    rows = [line.split(None, 3) for line in done.stdout.splitlines()]
    partition = plan.slurm.partition or next((row[1].rstrip("*") for row in rows if row[1].endswith("*")), "")
    known = sorted({row[1].rstrip("*") for row in rows})
    mine = [row for row in rows if row[1].rstrip("*") == partition]
    if not mine:
        raise BadPlan(f"{file}: slurm.partition: found {partition!r}, wanted one of {', '.join(known)}")
    cards = sum(int(number) for row in mine for number in re.findall(r"\bgpu:(?:[A-Za-z][\w.-]*:)?(\d+)", row[3]))
    if cards == 0:
        raise BadPlan(f"{file}: slurm.partition: {partition!r} has no card: its nodes have no gres 'gpu'")
    if plan.cards.each and plan.cards.count > cards:
        raise BadPlan(f"{file}: cards.count: found {plan.cards.count}, wanted at most the {cards} cards of partition "
                      f"{partition!r}")
    free = [row[0] for row in mine if re.match("idle|mixed", row[2]) and not row[2].endswith("*")]
    check_versions(file, plan, partition, sorted(set(free)), program, version)


def check_versions(file: str, plan: fleet_plan.Plan, partition: str, nodes: list, program: str, version: str) -> None:
    """Asks each idle node for its version of mkbench. Busy nodes are checked by their own jobs."""
    if not nodes:
        return
    script = "\n".join([*plan.slurm.setup, f"echo \"of $SLURMD_NODENAME: $({shlex.quote(program)} --version 2>&1)\""])
    command = ["srun", f"--partition={partition}", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}",
               "--ntasks-per-node=1", f"--immediate={PROBE_S}", "--time=2", "--quiet", "--job-name=mkbench-version",
               *([f"--account={plan.slurm.account}"] if plan.slurm.account else []), *plan.slurm.srun, "bash", "-c", script]
    done = ask(*command)
    for node, found in re.findall(r"^of (\S*): (.*)$", done.stdout, re.MULTILINE):
        if found != version:
            raise BadPlan(f"{file}: node {node}: {program} is {found!r}, wanted {version!r}")


def check_parent(file: str, path: pathlib.Path) -> None:
    """Raises BadPlan if no new folder can be made at `path`: the first and cheapest check."""
    if path.exists():
        raise BadPlan(f"{path}: is there already; --resume {path} goes on with a fleet, --out names a new folder")
    at = path.resolve().parent
    while not at.exists():
        at = at.parent
    if not os.access(at, os.W_OK | os.X_OK):
        raise BadPlan(f"{file}: --out {path}: {at}: no permission to write, wanted a folder that this user may write and "
                      "all nodes see")
