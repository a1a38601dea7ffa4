"""What nvidia-smi says of the cards, and which memory on a card is this process's.

In a container nvidia-smi may list no processes, or list them by the numbers that they have outside; `memory_of` then
says so and takes what the driver counts for the whole card.
"""

import dataclasses
import re
import subprocess

LIMIT_S = 60
PROCESSES = ("--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")


@dataclasses.dataclass(frozen=True)
class Card:
    used_mib: int | None
    processes: dict[int, int | None]  # id -> MiB; None where nvidia-smi does not tell


@dataclasses.dataclass(frozen=True)
class Seen:
    card: Card | None  # the card that was asked for; None if nvidia-smi does not list it
    texts: dict[str, str]  # command -> what it printed


def ask(*arguments):
    """stdout of nvidia-smi, or why there is none. Folders of programs are cut off; columns stay aligned."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        return "nvidia-smi: not on PATH"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    text = re.sub(r"(?<!\S)/\S*/(\S+)", lambda path: path[1].ljust(len(path[0])), done.stdout)
    text = "\n".join(line.rstrip() for line in text.splitlines())
    return text + (f"\nexit code {done.returncode}" if done.returncode else "")


def rows_of(*arguments):
    """The rows of a query in CSV, as lists of texts."""
    return [[cell.strip() for cell in line.split(", ")] for line in ask(*arguments).splitlines()]


def number(text):
    return int(text) if text.strip().isdigit() else None


def cards():
    """uuid -> Card of all cards; empty where nvidia-smi cannot tell."""
    rows = rows_of("--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits")
    return {row[0]: read_card(row[0], row[1]) for row in rows if len(row) == 2 and row[0].startswith("GPU-")}


def read_card(uuid, used):
    rows = rows_of("-i", uuid, *PROCESSES)
    return Card(number(used), {int(row[0]): number(row[1]) for row in rows if len(row) >= 3 and row[0].isdigit()})


def watch(uuid):
    """What nvidia-smi says of a card while something runs on it."""
    return Seen(cards().get(uuid), {
        "nvidia-smi": ask(),
        "nvidia-smi " + " ".join(PROCESSES): ask("-i", uuid, *PROCESSES),
        "nvidia-smi --query-gpu": ask("-i", uuid, "--query-gpu=name,utilization.gpu,memory.used,power.draw,clocks.sm",
                                      "--format=csv"),
    })


def memory_of(seen, before, pid):
    """(MiB or None, how they were counted) of process `pid`, which was not on the card when `before` was asked."""
    if seen is None:
        return None, "nothing: nvidia-smi does not show the card"
    if seen.processes.get(pid):
        return seen.processes[pid], f"nvidia-smi's row of process {pid}"
    why = "names no memory of" if pid in seen.processes else "lists no"
    why = f"nvidia-smi {why} process {pid}, as in containers"
    came = {i: mib for i, mib in seen.processes.items() if before and i not in before.processes and i != pid and mib}
    if len(came) == 1:
        return next(iter(came.values())), f"the one process that came with the training, {next(iter(came))}: {why}"
    if before and None not in (seen.used_mib, before.used_mib) and seen.used_mib > before.used_mib:
        return seen.used_mib - before.used_mib, (f"the memory in use on the whole card, {before.used_mib} MiB before and "
                                                 f"{seen.used_mib} MiB during the training: {why}")
    return None, f"nothing: {why}, and the memory in use on the card is not known before and during"
