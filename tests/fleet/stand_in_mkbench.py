#!/usr/bin/env python3
"""In mkbench's place, for tests of a fleet's way through its states: reports in a moment, and faults on request.

FLEET_FAULTS is a JSON object: seconds of a run, "version" by node, "fails": cards on
which every run fails, "uuid": another card in the reports, "slow_once": a file that the first run makes and then takes a minute.
"""

import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FAULTS = json.loads(os.environ.get("FLEET_FAULTS", "{}"))


def main() -> int:
    words = sys.argv[1:]
    flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if words == ["--version"]:
        print(FAULTS.get("version", {}).get(os.environ.get("SLURMD_NODENAME", ""), "mkbench 0.1.0 (stand-in)"))
        return 0
    if words[0] == "inspect":
        if words[1] in ("tiny", "synthetic"):
            return 0
        print(f"mkbench: error: --model '{words[1]}': no such model", file=sys.stderr)
        return 2
    unknown = [name for name in flags["engine"].split(",") if name not in ("ring", "plain", "host-twin")]
    if unknown:
        print(f"mkbench: error: --engine: '{unknown[0]}' is unknown", file=sys.stderr)
        return 2
    if "--list-devices" in words or "--dry-run" in words:
        return 0
    return run(flags)


def run(flags: dict) -> int:
    once = FAULTS.get("slow_once")
    if once and not os.path.exists(once):
        pathlib.Path(once).touch()
        time.sleep(60)
    time.sleep(FAULTS.get("seconds", 0))
    card = json.loads((pathlib.Path(flags["out"]).parent.parent / "status.json").read_text())["tries"][-1]["card"]
    if card in FAULTS.get("fails", []):
        print("planted failure")
        return 3
    sys.path.insert(0, str(HERE.parent / "support"))
    import fleet_support

    report = fleet_support.report_of(
        FAULTS.get("uuid", card), [int(d) for d in flags["n-depth"].split(",")], flags["engine"].split(","), flags["out"],
        stand_in=flags["device"] == "cpu")
    out = pathlib.Path(flags["out"])
    out.mkdir(parents=True)
    (out / "report.json").write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
