"""The device that a script trains on: chosen by --device, tried, and printed in the script's first line.

A GPU that was asked for is never replaced by the CPU: the script ends with UNUSABLE. `auto` says why it takes the CPU.
"""

import sys

import torch

from doctor_python import check_matmul, one_line

CHOICES = ("auto", "cuda", "cpu")
UNUSABLE = 6  # the exit code where no GPU can be used, mkbench's own (harness/report/verdict.h)


def card_problem():
    """Why torch cannot compute on the first card, in one line; empty where a product of two matrices came out right."""
    if not torch.version.cuda:
        return f"Torch not compiled with CUDA enabled: torch {torch.__version__} is a wheel for the CPU"
    try:
        torch.cuda.init()  # raises with the reason; is_available() only returns False
        if not torch.cuda.is_available():
            return "torch.cuda.is_available() is False"
        check = check_matmul(torch, "cuda:0")
    except Exception as error:
        return one_line(error)
    return "" if check["ok"] else f"a product on the card is wrong: its sum is {check['got']}, wanted {check['wanted']}"


def choose(asked):
    """"cuda" or "cpu", which it prints as the first line. Ends the script where cuda was asked for and cannot be used."""
    problem = "" if asked == "cpu" else card_problem()
    if problem and asked == "cuda":
        print(f"--device cuda: no GPU can be used: {problem}", file=sys.stderr)
        raise SystemExit(UNUSABLE)
    device = "cpu" if problem or asked == "cpu" else "cuda"
    print(f"Using device: {device}" + (f" (--device auto; no GPU can be used: {problem})" if problem else ""), flush=True)
    return device
