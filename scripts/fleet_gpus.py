"""The cards that a process may use, and nvidia-smi's readings of a card: temperature, power, errors of its memory."""

import dataclasses
import os
import socket
import subprocess

SMI_LIMIT_S = 60
COUNTED = ("temperature.gpu", "power.draw", "clocks.sm", "clocks.mem", "ecc.errors.corrected.volatile.total",
           "ecc.errors.uncorrected.volatile.total", "ecc.errors.corrected.aggregate.total",
           "ecc.errors.uncorrected.aggregate.total")


@dataclasses.dataclass(frozen=True)
class Card:
    id: str  # its uuid; for a stand-in, host and number
    kind: str  # cards of one kind are compared
    stand_in: bool = False


def host() -> str:
    """Slurm's name of the node, which may differ from the machine's host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def stand_in(number: str) -> Card:
    """The CPU in place of a card, to try a fleet without GPUs; its times say nothing about a card."""
    return Card(f"stand-in-{host()}-{number}", "stand-in (CPU)", True)


def rows_of(*arguments: str) -> list:
    """The rows of a query of nvidia-smi in CSV, as lists of texts. If it cannot be run, a row that says why."""
    try:
        text = subprocess.run(["nvidia-smi", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=SMI_LIMIT_S, check=False).stdout
    except FileNotFoundError:
        text = "nvidia-smi: not on PATH"
    except (OSError, subprocess.TimeoutExpired) as error:
        text = f"nvidia-smi: {error}"
    return [[cell.strip() for cell in line.split(", ")] for line in text.splitlines()]


def all_cards() -> tuple:
    """([Card], why there is none)."""
    rows = rows_of("--query-gpu=uuid,name", "--format=csv,noheader")
    cards = [Card(row[0], ", ".join(row[1:])) for row in rows if len(row) > 1 and row[0].startswith("GPU-")]
    return cards, "" if cards else f"nvidia-smi shows no card: {', '.join(rows[0]) if rows else 'it printed nothing'}"


def visible_cards() -> tuple:
    """([Card], why there is none): the cards that CUDA_VISIBLE_DEVICES leaves, in its order."""
    cards, why = all_cards()
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not cards or wanted is None:
        return cards, why
    found = []
    for word in wanted.split(","):
        word = word.strip()
        named = [card for card in cards if word.startswith("GPU-") and card.id.startswith(word)]
        if word.isdigit() and int(word) < len(cards):
            named = [cards[int(word)]]
        if len(named) != 1:
            break  # CUDA shows no card from the first bad name on
        found += named
    return found, "" if found else f"CUDA_VISIBLE_DEVICES={wanted} leaves none of {len(cards)} cards"


def counted(card: Card) -> dict:
    """nvidia-smi's readings of the card now; a field without a number is None."""
    if card.stand_in:
        return {}
    rows = rows_of("-i", card.id, f"--query-gpu={','.join(COUNTED)}", "--format=csv,noheader,nounits")
    words = rows[0] if rows else []
    if len(words) != len(COUNTED):
        return {"problem": ", ".join(words)[:200]}
    return {name: number(word) for name, word in zip(COUNTED, words)}


def number(text: str):
    try:
        return float(text)
    except ValueError:
        return None
