"""Hands a fleet's work to submitit, which starts jobs on this machine or in a Slurm array, and waits for them.

submitit and Slurm handle queues, limits and failing nodes. This file submits jobs as long as cells are missing and the
last jobs made progress, and cancels them on Ctrl-C.
"""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import fleet_cells
import fleet_gpus
import fleet_worker
from fleet_worker import ask, why_of

POLL_S = 0.5
FRUITLESS = 3  # no more jobs are submitted after this many rounds in which no cell ended
SCANCEL_S = 60
MOST_JOBS = 1000  # jobs of an array: Slurm's default limit
END_S = 40  # time for cancelled jobs to give their cells back
SCRIPTS = pathlib.Path(__file__).resolve().parent


class Stopped(Exception):
    """Ctrl-C, or a signal to end."""


def python_path() -> str:
    """PYTHONPATH of jobs, by which they find this file's neighbours and submitit."""
    return os.pathsep.join(dict.fromkeys([str(SCRIPTS), *(path for path in sys.path if path)]))


class Local:
    """One job for each card of this machine. submitit's local executor has no queue, and needs none here."""

    def __init__(self, folder: fleet_cells.Folder, cards: list):
        import submitit

        self.cards, self.folder, self.round = cards, folder, 0
        os.environ["PYTHONPATH"] = python_path()
        self.executor = submitit.LocalExecutor(folder=folder.path / "jobs")
        self.executor.update_parameters(timeout_min=10**6, gpus_per_node=0)

    def submit(self, cells: int) -> dict:
        """Submits a job for each card. Returns name of worker -> job."""
        self.round += 1
        stamp = f"{fleet_gpus.host()}-{os.getpid()}-{int(time.time())}-{self.round}"
        found = {}
        for number, card in enumerate(self.cards):
            name = f"local-{stamp}-{number}"
            found[name] = self.executor.submit(fleet_worker.work, str(self.folder.path), name, card)
        return found

    def running(self, jobs: dict) -> set:
        return {name for name, job in jobs.items() if not job.done()}

    def was_cancelled(self, jobs: dict) -> bool:
        return False

    def cancel(self, jobs: dict) -> None:
        for job in jobs.values():
            if not job.done():
                job.cancel()


class Slurm:
    """An array of jobs with a card each."""

    def __init__(self, folder: fleet_cells.Folder, cards: list):
        import submitit

        self.folder, plan = folder, folder.plan
        self.executor = submitit.SlurmExecutor(folder=folder.path / "jobs")
        wanted = plan.slurm
        parameters = {"job_name": plan.name, "time": wanted.minutes, "gres": "gpu:1", "ntasks_per_node": 1, "nodes": 1,
                      "setup": [f"export PYTHONPATH={shlex.quote(python_path())}", *wanted.setup], "signal_delay_s": 60,
                      "array_parallelism": wanted.jobs or 10000,
                      "additional_parameters": {"requeue": True} | (wanted.sbatch or {})}
        given = {"cpus_per_task": wanted.cpus, "mem": wanted.memory_gb and f"{wanted.memory_gb}GB",
                 "partition": wanted.partition, "account": wanted.account, "srun_args": list(wanted.srun)}
        self.executor.update_parameters(**parameters, **{name: one for name, one in given.items() if one})
        # Jobs inherit this environment, without these variables: they are about this machine's cards or an outer job.
        for name in ("CUDA_VISIBLE_DEVICES", *(n for n in os.environ if n.startswith("SLURM_") and n != "SLURM_CONF")):
            os.environ.pop(name, None)

    def submit(self, cells: int) -> dict:
        count = min(cells, self.folder.facts["cards"] or self.folder.plan.slurm.jobs or MOST_JOBS, MOST_JOBS)
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        try:
            with self.executor.batch():
                jobs = [self.executor.submit(fleet_worker.work, str(self.folder.path)) for _ in range(count)]
        except (FailedJobError, FailedSubmissionError, subprocess.SubprocessError, OSError) as error:
            why = " ".join(str(error).split())[-300:]
            raise fleet_cells.BadFleet(f"{self.folder.path}: Slurm took no job: {why}") from None
        return {f"slurm-{job.job_id}": job for job in jobs}

    def states(self, jobs: dict) -> dict:
        """name of worker -> state, of the jobs that Slurm still lists. Unlike sacct, squeue needs no accounting."""
        done = ask("squeue", "--noheader", "--array", "--states=all", "--format=%F %K %T",
                   "--jobs=" + ",".join(self.numbers(jobs)))
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise OSError(f"squeue: {why_of(done)}")
        rows = [line.split(None, 2) for line in done.stdout.splitlines()]
        found = {f"slurm-{number}" + ("" if task == "N/A" else f"_{task}"): state.strip() for number, task, state in rows}
        return {name: state for name, state in found.items() if name in jobs}

    def numbers(self, jobs: dict) -> list:
        return sorted({name.removeprefix("slurm-").split("_")[0] for name in jobs})

    def running(self, jobs: dict) -> set:
        over = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
                "PREEMPTED", "REVOKED"}
        try:
            return {name for name, state in self.states(jobs).items() if state not in over}
        except OSError as error:
            say(str(error))  # the controller may be away for a while; heartbeats tell what is alive
            return set(jobs)

    def was_cancelled(self, jobs: dict) -> bool:
        try:
            return "CANCELLED" in self.states(jobs).values()
        except OSError:
            return False  # running() has reported it

    def cancel(self, jobs: dict) -> None:
        numbers = self.numbers(jobs)
        done = ask("scancel", *numbers, limit_s=SCANCEL_S) if numbers else None
        if done and done.returncode != 0:
            say(f"scancel: {why_of(done)}; jobs {', '.join(numbers)} may still be running")


class Progress:
    """Prints a line on stderr whenever the counts have changed."""

    def __init__(self, folder: fleet_cells.Folder, quiet: bool):
        self.folder, self.quiet, self.last = folder, quiet, None

    def settle(self, over=None) -> list:
        """Takes back claims of workers that died, as Folder.settle(), and shows what has changed."""
        lost, folder = self.folder.settle(over), self.folder
        counts = folder.counts()
        if not self.quiet and counts != self.last:
            say(f"{counts['done']} of {len(folder.cells)} cells done, {counts['running']} running, "
                f"{counts['waiting']} waiting, {counts['failed']} failed")
        self.last = counts
        return lost


def say(text: str) -> None:
    print(f"fleet: {text}", file=sys.stderr, flush=True)


def raise_stopped(number, frame) -> None:
    raise Stopped


def wait(backend, jobs: dict, progress: Progress) -> int:
    """Waits until all jobs are over. Returns the number of cells whose workers died."""
    lost = 0
    while running := backend.running(jobs):
        lost += len(progress.settle(set(jobs) - running))
        time.sleep(POLL_S)
    return lost + len(progress.settle(set(jobs)))


def run(folder: fleet_cells.Folder, backend, quiet: bool) -> str:
    """Submits until no cell is missing. Returns why cells are missing; empty where none is."""
    progress = Progress(folder, quiet)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_stopped)
    jobs, fruitless = {}, 0
    try:
        while True:
            progress.settle()
            counts = folder.counts()
            if counts["waiting"] == 0 and counts["running"] == 0:
                return ""
            if counts["waiting"] == 0:
                time.sleep(POLL_S)  # workers of an earlier call run the last cells
                continue
            try:
                jobs = backend.submit(counts["waiting"])
            except fleet_cells.BadFleet as error:
                if not jobs:
                    raise
                return str(error)  # the cells that are done stay done
            lost = wait(backend, jobs, progress)
            workers = folder.workers(set(jobs))
            for refused in sorted({w["refused"] for w in workers.values() if w.get("refused")}):
                say(refused)
            if backend.was_cancelled(jobs) and folder.counts()["waiting"]:
                return "their jobs were cancelled"
            ended = folder.counts()
            got_on = lost or ended["done"] + ended["failed"] > counts["done"] + counts["failed"]
            fruitless = 0 if got_on else fruitless + 1
            if fruitless >= FRUITLESS and ended["waiting"]:
                return f"no cell has ended in {FRUITLESS} rounds of jobs"
            if not lost and not any(w.get("claimed") for w in workers.values()) and folder.counts()["waiting"]:
                if not folder.counts()["running"]:
                    return why_no_further(folder, jobs, workers)
                while folder.counts()["running"]:  # workers of an earlier call, whose submitter died, have the cards
                    progress.settle()
                    time.sleep(POLL_S)
    except Stopped:
        stop(folder, backend, jobs)
        raise


def why_no_further(folder: fleet_cells.Folder, jobs: dict, workers: dict) -> str:
    refused = sum(bool(w.get("refused")) for w in workers.values())
    if refused:
        return f"{refused} of {len(jobs)} jobs could not work"
    if len(workers) < len(jobs):
        return (f"{len(jobs) - len(workers)} of {len(jobs)} jobs ended before they began; "
                f"{folder.path / 'jobs'} has their logs")
    return "no job got a further card, and a cell runs once on each card"


def stop(folder: fleet_cells.Folder, backend, jobs: dict) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    say("stopping: jobs are cancelled")
    backend.cancel(jobs)
    end = time.monotonic() + END_S
    while jobs and backend.running(jobs) and time.monotonic() < end:
        time.sleep(POLL_S / 4)
    folder.settle(set(jobs) - backend.running(jobs) if jobs else None)
