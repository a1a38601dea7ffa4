"""The work of one job: claims cell after cell for its card and runs mkbench for each.

submitit calls work() in a process of the job, on this machine or on a node. A worker that is told to stop gives its cell
back before it stops mkbench; the claim of a worker that dies suddenly is taken back by other processes
(fleet_cells.Folder.settle).
"""

import ctypes
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import exit_codes
import fleet_cells
import fleet_gpus
import fleet_plan
import report_file

POLL_S = 0.2
LINGER_S = 0.5
BEFORE_END_S = 120  # a cell must end this long before its job's limit: Slurm signals a minute before it, or earlier
LOCK_BEATS = 6  # beats to wait for a card that another job of the fleet is about to leave
INTERRUPT_S = 30  # time for mkbench to write a partial report
PR_SET_PDEATHSIG = 1
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # the last two: submitit's, before a time limit


class Refused(Exception):
    """This job cannot work; the message says why."""


def ask(*command: str, limit_s: float = 120) -> subprocess.CompletedProcess:
    """Runs a command for its output; exit code 127 if it cannot be run or takes too long."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s,
                              check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def why_of(done: subprocess.CompletedProcess) -> str:
    lines = [line for line in (done.stderr.strip() or done.stdout.strip()).splitlines() if line.strip()]
    return re.sub(r"^mkbench: error: ", "", lines[-1].strip("* ")) if lines else f"exit code {done.returncode}"


def version_of(program: str) -> str:
    done = ask(program, "--version", limit_s=60)
    return done.stdout.strip() or f"none: {why_of(done)}"


def die_with_parent() -> None:
    """Called in the child: it gets SIGTERM if the worker dies, so that the card is free."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Worker:
    def __init__(self, folder: fleet_cells.Folder, name: str, card: fleet_gpus.Card, until: float, lingers: bool):
        self.folder, self.plan, self.name, self.card = folder, folder.plan, name, card
        self.until, self.lingers = until, lingers
        self.stop, self.claimed = False, 0
        self.program = self.plan.program or folder.facts["program"]

    def note(self, **more) -> None:
        self.folder.write_worker(self.name, card=self.card.id, kind=self.card.kind, stand_in=self.card.stand_in,
                                 host=fleet_gpus.host(), claimed=self.claimed, at=self.folder.server_time(), **more)

    def run(self) -> int:
        for number in STOPS:
            signal.signal(number, self.on_signal)
        found = version_of(self.program)
        if found != self.folder.facts["version"]:
            raise Refused(f"{fleet_gpus.host()}: {self.program} is '{found}', wanted '{self.folder.facts['version']}'")
        self.note()
        why = "nothing is left for this card"
        while not self.stop:
            if self.until - time.time() < 60 * self.plan.minutes + BEFORE_END_S:
                why = "the job's time ends before a cell could"
                break
            self.folder.settle()
            claim = self.folder.claim(self.card.id, self.name)
            if claim:
                self.claimed += 1
                self.note()
                self.run_cell(claim)
            elif not self.waits():
                break
        self.note(ended=fleet_cells.now(), why="told to stop" if self.stop else why)
        return self.claimed

    def on_signal(self, number, frame) -> None:
        self.stop = True

    def waits(self) -> bool:
        """Waits, and returns whether a cell may yet come: one that fails on another card is tried on this one."""
        counts = self.folder.counts()
        if not self.lingers or counts["waiting"] + counts["running"] == 0 or not self.folder.other_live_cards(self.card.id):
            return False
        self.note()
        time.sleep(LINGER_S)
        return True

    def run_cell(self, claim: fleet_cells.Claim) -> None:
        """Runs the cell of a claim. A thread touches the claim's marker meanwhile, also while nvidia-smi runs, which
        may take a minute on a faulty card."""
        over = threading.Event()
        beats = threading.Thread(target=self.beat, args=(claim, over), daemon=True)
        beats.start()

        def end_beats():
            over.set()
            beats.join()

        def give_back():  # nothing may touch the claim afterwards
            end_beats()
            self.folder.end(claim, "cancelled")

        try:
            self.try_cell(claim, give_back)
        finally:
            end_beats()

    def try_cell(self, claim: fleet_cells.Claim, give_back) -> None:
        folder = self.folder.cell_folder(claim.cell.id) / f"try-{claim.number}"
        # Paths below the folder that this job was given: the fleet's folder may have moved since it was made.
        command = [self.program, *fleet_plan.arguments_of(self.plan, claim.cell, str(folder / "report"))]
        self.folder.note_try(claim, host=fleet_gpus.host(), started=fleet_cells.now(), command=command)
        before, begun = fleet_gpus.counted(self.card), time.monotonic()
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            outcome, code = self.run_program(claim, command, log, give_back)
        fleet_cells.put(folder / "card.json", {"card": self.card.id, "kind": self.card.kind,
                                               "stand_in": self.card.stand_in, "host": fleet_gpus.host(),
                                               "before": before, "after": fleet_gpus.counted(self.card)})
        report = folder / "report" / "report.json"
        why = "" if outcome != "done" else self.problem_of(report)
        facts = {"exit_code": code, "seconds": round(time.monotonic() - begun, 2), "sha256": fleet_cells.sha256(report)}
        if why:
            outcome, facts["why"] = "failed", why
        if outcome != "cancelled":  # its claim has been given back
            self.folder.end(claim, outcome, **facts)

    def run_program(self, claim: fleet_cells.Claim, command: list, log, give_back) -> tuple:
        environment = dict(os.environ) | ({} if self.card.stand_in else {"CUDA_VISIBLE_DEVICES": self.card.id})
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True, preexec_fn=die_with_parent)
        except OSError as error:
            log.write(f"{command[0]}: {error}\n")
            return "failed", 127
        end, stopped = time.monotonic() + 60 * self.plan.minutes, ""
        while process.poll() is None:
            if self.stop and not stopped:
                stopped = "cancelled"
                give_back()
            elif time.monotonic() > end and not stopped:
                stopped = "failed"
                log.write(f"fleet: stopped after {self.plan.minutes:g} minutes, the plan's limit for a cell\n")
                log.flush()
            if stopped:
                end_process(process)
            time.sleep(POLL_S)
        if process.returncode < 0 and not stopped:
            time.sleep(POLL_S)  # if Slurm is ending the job, mkbench may die before this process gets its signal
        if self.stop and process.returncode != 0 and not stopped:
            stopped = "cancelled"
            give_back()
        if stopped == "failed":
            return stopped, exit_codes.TIMEOUT
        return stopped or ("done" if process.returncode == 0 else "failed"), process.returncode

    def beat(self, claim: fleet_cells.Claim, over: threading.Event) -> None:
        while not over.wait(self.plan.heartbeat_s):
            self.folder.beat(claim)

    def problem_of(self, report: pathlib.Path) -> str:
        """Why the report of a run that ended with 0 is not one of this card; empty if it is one."""
        try:
            uuid = report_file.gpu_of(report_file.load(report)).get("uuid", "")
        except (report_file.BadReport, *report_file.INCOMPLETE) as error:
            return f"no report: {error}"
        if self.card.stand_in or uuid == self.card.id:
            return ""
        return f"ran on card {uuid or 'none'}, wanted {self.card.id}"


def end_process(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(INTERRUPT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def own_card(folder: fleet_cells.Folder) -> fleet_gpus.Card:
    """The card that Slurm has given to this job."""
    if folder.plan.device == "cpu":
        return fleet_gpus.stand_in(re.sub(r"\W+", "_", os.environ.get("CUDA_VISIBLE_DEVICES") or "0"))
    cards, why = fleet_gpus.visible_cards()
    if len(cards) != 1:
        raise Refused(f"{fleet_gpus.host()}: " + (why or f"found {len(cards)} cards, wanted one for a job"))
    return cards[0]


def slurm_name() -> str:
    job, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"slurm-{job}_{task}" if job else f"slurm-{os.environ['SLURM_JOB_ID']}"


def work(path: str, name: str = "", card: fleet_gpus.Card | None = None) -> str:
    """A job's whole work; returns the text for the job's result. Without a name the job is one of Slurm's."""
    folder = fleet_cells.Folder(pathlib.Path(path))
    name = name or slurm_name()
    folder.settle({name})  # if Slurm has restarted this job, its old claims end
    lingers = card is not None
    limit = time.time() + 60 * folder.plan.slurm.minutes
    end = math.inf if lingers else float(os.environ.get("SLURM_JOB_END_TIME") or limit)
    try:
        card = card or own_card(folder)
        if not folder.plan.cards.takes(card.id):
            raise Refused(f"{fleet_gpus.host()}: {card.id} is none of cards.only")
        with folder.alone(f"card-{card.id}", LOCK_BEATS * folder.plan.heartbeat_s) as alone:
            if not alone:
                raise Refused(f"{fleet_gpus.host()}: another job of this fleet works on {card.id}")
            claimed = Worker(folder, name, card, end, lingers).run()
    except Refused as error:
        folder.write_worker(name, card=card.id if card else "", host=fleet_gpus.host(), claimed=0, at=folder.server_time(),
                            ended=fleet_cells.now(), refused=str(error))
        print(f"fleet: {error}", file=sys.stderr)
        return f"refused: {error}"
    return f"{claimed} cells"
