"""Plants the four faults of docs/soak.md in the host twin and prints when each was found: soak_faults.py OUT.

Environment: MKBENCH, the program. Ends with 1 where one is not found, or by another verdict."""

import json
import os
import pathlib
import subprocess
import sys
import time

# fault, flags of the soak, verdicts that find it
SOAKS = [
    ("stops_at_2048", ["--model", "synthetic:cut", "--context", "2176"], ("FAIL_TOKEN",)),
    ("rows_late", ["--model", "tiny"], ("NONDETERMINISTIC", "FAIL_TOKEN")),
    ("words_reset", ["--model", "tiny"], ("HANG",)),
    ("counter_overflow", ["--model", "tiny"], ("HANG", "NONDETERMINISTIC", "FAIL_TOKEN")),
]


def main() -> int:
    out, mkbench = pathlib.Path(sys.argv[1]), os.environ["MKBENCH"]
    out.mkdir(parents=True, exist_ok=True)
    found_all = True
    for fault, flags, verdicts in SOAKS:
        folder = out / fault
        subprocess.run([mkbench, "soak", "--device", "cpu", "--seed", "1", "--minutes", "5", "--launches", "1000000",
                        "-q", "--timeout", "900", "--plant-fault", fault, "--out", str(folder), *flags],
                       check=False, stdout=subprocess.DEVNULL)
        told = json.loads((folder / "soak.json").read_text(encoding="utf-8"))
        first = (told["failures"] or [{"seconds": 0, "step": -1, "reason": "nothing was found"}])[0]
        found = told["verdict"] in verdicts and bool(told["failures"])
        found_all = found_all and found
        word = "found" if found else "NOT FOUND"
        print(f"{fault}: {told['verdict']}, {word} after {first['seconds']:.1f} s, at step {first['step']}: "
              f"{first['reason']}", flush=True)
    begun = time.monotonic()
    sweep = subprocess.run([mkbench, "parity", "--device", "cpu", "--model", "tiny", "--plant-fault", "stops_at_2048",
                            "-q", "--out", str(out / "sweep")], check=False, stdout=subprocess.DEVNULL)
    print(f"stops_at_2048 by the sweep of parity: exit {sweep.returncode} after {time.monotonic() - begun:.1f} s")
    return 0 if found_all and sweep.returncode == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
