"""Tells `mkbench doctor` what a Python has for engines in Python: torch and its wheel, transformers.

Prints facts as JSON, one object a line, and judges nothing: harness/device/doctor_python.cpp does. Before each part comes
a line {"stage": NAME}, which shows where a Python died. A part that fails has a field `error` in place of its facts.
Exit code 0; SIGALRM ends the program if it takes longer than --seconds.

  python  version, executable
  torch   version ("2.9.1+cu128"), cuda (None for a CPU wheel), architectures (of its code), available, devices (number),
          init_error (why CUDA did not start), name and capability of the card, matmul {device, ok, got, wanted | error}
  transformers   version
"""

import argparse
import importlib.util
import json
import signal
import sys
import warnings


def tell(name: str, facts) -> None:
    print(json.dumps({name: facts}), flush=True)


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:600]


def check_matmul(torch, device: str) -> dict:
    """A bf16 product of small integers, exact in every order of its sums: bf16 holds every integer up to 256."""
    m, n, k = 512, 768, 256
    rows, columns, depth = (torch.arange(size) for size in (m, n, k))
    a = (rows[:, None] * 7 + depth[None, :] * 3) % 3 - 1
    b = (depth[:, None] * 5 + columns[None, :]) % 3 - 1
    b += (depth[:, None] + columns[None, :]) % 2 * (b == 0)  # so that the columns' sums differ
    wanted = a @ b
    found = (a.to(device, torch.bfloat16) @ b.to(device, torch.bfloat16)).cpu().long()
    return {"device": device, "ok": bool((found == wanted).all()), "got": int(found.sum()), "wanted": int(wanted.sum())}


def look_at_torch(gpu: int, work: bool) -> dict:
    import torch

    facts = {"version": torch.__version__, "cuda": torch.version.cuda,
             "architectures": (torch._C._cuda_getArchFlags() or "") if hasattr(torch._C, "_cuda_getArchFlags") else "",
             "available": False, "devices": 0}
    if not work:
        return facts
    if torch.version.cuda:
        try:
            torch.cuda.init()
            facts["devices"] = torch.cuda.device_count()
            facts["available"] = torch.cuda.is_available() and gpu < facts["devices"]
        except Exception as error:
            facts["init_error"] = one_line(error)
    if facts["available"]:
        facts["name"] = torch.cuda.get_device_name(gpu)
        facts["capability"] = list(torch.cuda.get_device_capability(gpu))
    device = f"cuda:{gpu}" if facts["available"] else "cpu"
    try:
        facts["matmul"] = check_matmul(torch, device)
    except Exception as error:
        facts["matmul"] = {"device": device, "error": one_line(error)}
    return facts


def look_at_transformers(*_) -> dict:
    import transformers

    return {"version": transformers.__version__}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=180, help="time limit for all checks together")
    parser.add_argument("--architectures", action="store_true", help="look at torch alone, and start no CUDA")
    options = parser.parse_args()
    signal.alarm(options.seconds)
    warnings.simplefilter("ignore")
    tell("python", {"version": sys.version.split()[0], "executable": sys.executable})
    parts = {"torch": look_at_torch}
    if not options.architectures:
        parts["transformers"] = look_at_transformers
    for name, look in parts.items():
        tell("stage", name)
        try:
            facts = look(options.gpu, not options.architectures)
        except (Exception, SystemExit) as error:
            facts = {"error": one_line(error), "missing": importlib.util.find_spec(name) is None}
        tell(name, facts)
    tell("stage", "end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
