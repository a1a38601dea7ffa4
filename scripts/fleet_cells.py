"""The folder of a fleet: which cell is waiting, running, done or failed, and what each of its tries left.

  fleet.json            the plan, the version of mkbench, the number of cards
  cells.json            all cells, in the order in which they are taken
  queue/STATE/MARKER    one empty file a cell; STATE is waiting, running, done or failed
  cells/CELL/status.json, cells/CELL/try-N/{report,log.txt,card.json}
  workers/WORKER.json   who works or worked: card, host, how many cells it has claimed
  jobs/                 what submitit writes

A marker moves by rename(), which exactly one of several claimants can do, and its name says who has it:

  waiting/CELL[@CARD...]   cards on which it failed or was lost
  running/CELL@CARD@WORKER touched while the worker lives; untouched for twelve beats, the claim is lost
  done/CELL@CARD, failed/CELL@CARD
"""

import collections
import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import random
import time

import fleet_plan
import whole_file

SCHEMA, VERSION = "mkbench.fleet", "1.0.0"
STATES = ("waiting", "running", "done", "failed")
BEATS = 12  # a claim is lost after this many intervals without a beat
MOST_LOST = 3  # a cell is given up after this many workers have died on it
LEAST_STALE_S = 2
MOST_NAMED = 4  # most cards in a marker's name, because a file's name has at most 255 bytes


class BadFleet(Exception):
    """A folder that cannot be used; the message names it and says what is wrong."""


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def put(path: pathlib.Path, value) -> None:
    whole_file.put(path, json.dumps(value, indent=1) + "\n")


def read(path: pathlib.Path, default=None):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default


def sha256(path: pathlib.Path) -> str:
    """The file's hash; empty if there is no such file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


@dataclasses.dataclass(frozen=True)
class Claim:
    cell: fleet_plan.Cell
    card: str
    worker: str
    number: int  # the number of the try, from 1

    @property
    def marker(self) -> str:
        return f"{self.cell.id}@{self.card}@{self.worker}"


class Folder:
    """The folder of an existing fleet; make() makes a new one."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            facts = read(path / "fleet.json")
        except ValueError as error:
            raise BadFleet(f"{path / 'fleet.json'}: no JSON: {error}") from None
        found = facts.get("schema", {}) if isinstance(facts, dict) else {}
        if found != {"id": SCHEMA, "version": VERSION}:
            raise BadFleet(f"{path}: fleet.json: schema: found {found or 'nothing'}, wanted {SCHEMA} {VERSION}")
        self.facts = facts
        self.plan = fleet_plan.plan_of(str(path / "fleet.json"), facts["plan"])
        self.cells = {row["id"]: fleet_plan.Cell(row["id"], row["model"], tuple(row["engines"]), tuple(row["depths"]),
                                                 tuple(row["n_gen"]), row["repeat"])
                      for row in read(path / "cells.json", [])}
        self.stale_s = max(LEAST_STALE_S, BEATS * self.plan.heartbeat_s)

    def queue(self, state: str) -> pathlib.Path:
        return self.path / "queue" / state

    def names(self, state: str) -> list:
        return os.listdir(self.queue(state))

    def counts(self) -> dict:
        return {state: len(self.names(state)) for state in STATES}

    def cell_folder(self, cell_id: str) -> pathlib.Path:
        return self.path / "cells" / cell_id

    def status(self, cell_id: str) -> dict:
        return read(self.cell_folder(cell_id) / "status.json", {"id": cell_id, "tries": []})

    # What a worker does.

    def claim(self, card: str, worker: str):
        """Claims a cell that has not run on this card yet; None if there is none. A cell that failed on this card is
        left to other cards at work, if one of them may take it: their result shows whether the card was the cause."""
        ran = collections.defaultdict(set)  # base of a cell -> cards that a copy of it ran on
        for state in ("running", "done", "failed") if self.plan.cards.each else ():
            for name in self.names(state):
                ran[fleet_plan.base_of(name)].add(name.split("@")[1])
        by_base, others = collections.defaultdict(list), None
        for name in self.names("waiting"):
            cell_id, *failed_on = name.split("@")
            base = fleet_plan.base_of(cell_id)
            if cell_id not in self.cells or card in ran[base]:
                continue
            if card in failed_on:
                others = self.other_live_cards(card) if others is None else others
                if others - set(failed_on) - ran[base]:
                    continue
            by_base[base].append(name)
        for base in sorted(by_base):
            copies = by_base[base]
            random.shuffle(copies)
            for name in copies:
                claim = self._take(name, card, worker)
                if claim:
                    return claim
        return None

    def _take(self, name: str, card: str, worker: str):
        cell = self.cells[name.split("@")[0]]
        running = self.queue("running") / f"{cell.id}@{card}@{worker}"
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.queue("waiting") / name)  # rename() keeps the time, which shows that the claim is alive
            os.rename(self.queue("waiting") / name, running)
            folder = self.cell_folder(cell.id)
            folder.mkdir(parents=True, exist_ok=True)
            number = 1 + max((int(p.name[4:]) for p in folder.glob("try-*")), default=0)
            (folder / f"try-{number}").mkdir()
            return Claim(cell, card, worker, number)
        return None

    def note_try(self, claim: Claim, **facts) -> None:
        """Adds facts to the try of a claim in status.json, which only the claimant writes."""
        status = self.status(claim.cell.id)
        rows = [row for row in status["tries"] if row["n"] == claim.number]
        if not rows:
            rows = [{"n": claim.number, "card": claim.card, "worker": claim.worker}]
            status["tries"].append(rows[0])
        rows[0].update(facts)
        put(self.cell_folder(claim.cell.id) / "status.json", status)

    def beat(self, claim: Claim) -> bool:
        """Touches the claim's marker; False if the claim is no longer this worker's."""
        try:
            os.utime(self.queue("running") / claim.marker)
        except FileNotFoundError:
            return False
        return True

    def end(self, claim: Claim, outcome: str, **facts) -> bool:
        """Ends a claim as done, failed or cancelled. Returns False if the claim was taken back as lost meanwhile: the
        try is kept, with the outcome late."""
        to = self._place_after(claim, outcome)
        # The result is written before the marker moves. If the worker dies in between, settle() takes the claim back as
        # lost and then finds the result.
        self.note_try(claim, outcome=outcome, ended=now(), **facts)
        try:
            os.rename(self.queue("running") / claim.marker, to)
        except FileNotFoundError:
            if outcome != "cancelled":
                self.note_try(claim, outcome="late")
            return False
        return True

    def _place_after(self, claim: Claim, outcome: str) -> pathlib.Path:
        """Where the cell's marker goes after this outcome of the claim."""
        tries = [row for row in self.status(claim.cell.id)["tries"] if row["n"] != claim.number]
        outcomes = [outcome, *(row.get("outcome") for row in tries)]
        if outcome == "done":
            return self.queue("done") / f"{claim.cell.id}@{claim.card}"
        if outcomes.count("failed") >= self.plan.tries or \
                outcome == "lost" and sum(one in ("lost", "late") for one in outcomes) >= MOST_LOST:
            return self.queue("failed") / f"{claim.cell.id}@{claim.card}"
        bad = {row["card"] for row in tries if row.get("outcome") in ("failed", "lost")}
        bad |= {claim.card} if outcome in ("failed", "lost") else set()
        return self.queue("waiting") / "@".join([claim.cell.id, *sorted(bad)[:MOST_NAMED]])

    # What other processes do for workers that died.

    def server_time(self) -> float:
        """The time by the clock that stamps the markers: the file system's."""
        path = self.path / "queue" / "clock"
        path.touch()
        return path.stat().st_mtime

    def settle(self, workers=None) -> list:
        """Takes back the claims of dead workers and returns their cells. A worker is dead if its marker was not touched
        for stale_s, or if it is one of `workers`, whose jobs are known to be over."""
        lost, time_now = [], self.server_time()
        for name in self.names("running"):
            cell_id, card, worker = name.split("@")
            path = self.queue("running") / name
            try:
                stale = time_now - path.stat().st_mtime > self.stale_s
            except FileNotFoundError:
                continue
            if (stale or (workers is not None and worker in workers)) and cell_id in self.cells:
                lost += [cell_id] if self._take_back(path, cell_id, card, worker) else []
        return lost

    def _take_back(self, path: pathlib.Path, cell_id: str, card: str, worker: str) -> bool:
        mine = [row for row in self.status(cell_id)["tries"] if row["worker"] == worker]
        last = mine[-1] if mine else {}
        claim = Claim(self.cells[cell_id], card, worker, last.get("n", 0))
        outcome = last.get("outcome", "lost")
        try:
            os.rename(path, self._place_after(claim, outcome))
        except FileNotFoundError:
            return False  # somebody else was faster
        if outcome == "lost" and claim.number:
            self.note_try(claim, outcome="lost", ended=now())
        return outcome == "lost"

    def retry_failed(self) -> None:
        """Moves failed cells back to waiting, for --resume; their earlier tries do not count any more."""
        for name in self.names("failed"):
            cell_id = name.split("@")[0]
            status = self.status(cell_id)
            for row in status["tries"]:
                if row.get("outcome") in ("failed", "lost"):
                    row["outcome"] += " before --resume"
            put(self.cell_folder(cell_id) / "status.json", status)
            os.rename(self.queue("failed") / name, self.queue("waiting") / cell_id)

    # Who works.

    def write_worker(self, worker: str, **facts) -> None:
        put(self.path / "workers" / f"{worker}.json", facts)

    def workers(self, names=None) -> dict:
        found = {}
        for path in (self.path / "workers").glob("*.json"):
            if names is None or path.stem in names:
                found[path.stem] = read(path, {})
        return found

    def other_live_cards(self, card: str) -> set:
        """Other cards on which a worker is at work."""
        time_now = self.server_time()
        found = {name.split("@")[1] for name in self.names("running")}
        found |= {w["card"] for w in self.workers().values() if not w.get("ended") and time_now - w["at"] < self.stale_s}
        return found - {card}

    @contextlib.contextmanager
    def alone(self, name: str, wait_s: float = 0):
        """Yields whether this process got the fleet's lock of this name, which is free again when its holder dies."""
        with open(self.path / "workers" / f"{name}.lock", "w", encoding="utf-8") as file:
            end = time.monotonic() + wait_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() >= end:
                        yield False
                        return
                    time.sleep(0.2)
            yield True


def make(path: pathlib.Path, plan: fleet_plan.Plan, cards: int, version: str, program: str) -> Folder:
    """A new fleet, whole or not at all: fleet.json comes last."""
    cells = fleet_plan.cells_of(plan, cards)
    try:
        path.mkdir(parents=True)
        for folder in (*(f"queue/{state}" for state in STATES), "cells", "workers", "jobs"):
            (path / folder).mkdir(parents=True)
    except FileExistsError:
        raise BadFleet(f"{path}: is there already; --resume {path} goes on with a fleet, --out names a new folder") from None
    except OSError as error:
        raise BadFleet(f"{path}: {error.strerror}: wanted a new folder that this user may write and all nodes see") from None
    for cell in cells:
        (path / "queue" / "waiting" / cell.id).touch()
    put(path / "cells.json", [dataclasses.asdict(cell) for cell in cells])
    put(path / "fleet.json", {"schema": {"id": SCHEMA, "version": VERSION}, "plan": fleet_plan.table_of(plan),
                              "cards": cards, "version": version, "program": program, "made": now()})
    return Folder(path)
