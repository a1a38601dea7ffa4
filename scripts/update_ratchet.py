#!/usr/bin/env python3
"""Writes the ratios of a passing report into reports/ratchet.json, the values that no later kernel may exceed by far.

    scripts/update_ratchet.py REPORT.json [--ratchet FILE] [--reason TEXT]

Only candidates whose parity is PASS against a committed reference are taken. A value is never raised without --reason,
which then stands in the entry; a lower value replaces a higher one. A report of `mkbench parity` also gives the hash of
the logits of two short prompts; a hash that differs from the committed one needs a reason too. Exit code 2 for a report
that gives no value.
"""
import argparse
import json
import pathlib
import sys

from report_file import INCOMPLETE, BadReport, load, refuse_incomplete

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMA = "mkbench.ratchet"
KEY = ("engine", "card", "model", "lagset", "reference_sha256")
RATIOS = ("r_rms", "r_step", "r_inf", "r_kl")
BITS = "repeats_sha256"


class Refused(Exception):
    pass


def measured(path):
    """{key: values of an entry} of a report's candidates; Refused where one of them has not passed."""
    found = {}
    for case in load(path)["cases"]:
        for engine in case["engines"]:
            if engine["role"] != "candidate":
                continue
            parity, who = engine["parity"], f"{path}: {engine['resolved_name']} in case '{case['name']}'"
            if parity is None or engine["verdict"] != "PASS" or parity["verdict"] != "PASS":
                raise Refused(f"{who}: verdict {engine['verdict']}, wanted PASS")
            if parity.get("precision") == "lossy":
                raise Refused(f"{who}: of class lossy, whose ratios are not judged")
            checks = {check["name"]: check["value"] for check in parity["checks"]}
            if any(checks.get(name) is None for name in RATIOS) or not parity["reference_sha256"]:
                raise Refused(f"{who}: no ratios against a committed reference")
            # Parity is judged on the lag set `short`, whichever set is timed.
            synthetic = case["model"]["name"].startswith("synthetic")
            name = "synthetic" if synthetic else pathlib.PurePath(case["model"]["name"].rstrip("/")).name
            card = engine["device"].split(" ", 1)[-1]
            # A reference of published ids, which gives no ratios, has its hash after that of one with logits.
            reference = parity["reference_sha256"].split(", ")[0]
            key = (engine["resolved_name"], card, name, "short" if synthetic else "", reference)
            values = found.setdefault(key, {})
            for ratio in RATIOS:
                values[ratio] = max(values.get(ratio, 0), float(f"{checks[ratio]:.4g}"))
            if parity.get(BITS):
                values[BITS] = parity[BITS]
    if not found:
        raise Refused(f"{path}: no candidate was judged")
    return found


def updated(ratchet, values, reason):
    """The ratchet with `values` in it, and a line for each change. Raises Refused if a value rises or the bits differ
    and no reason is given."""
    entries = {tuple(e[k] for k in KEY): dict(e) for e in ratchet["entries"]}
    lines = []
    for key, new in sorted(values.items()):
        who = " ".join(part for part in key[:4] if part)
        if not all(new[ratio] > 0 for ratio in RATIOS):
            raise Refused(f"{who}: {', '.join(f'{r} {new[r]}' for r in RATIOS)}, wanted over 0")
        old = entries.get(key, {})
        changed = [name for name, value in new.items() if old.get(name) != value]
        worse = [name for name in changed if name in old and (name == BITS or new[name] > old[name])]
        if worse and not reason:
            raise Refused(f"{who}: {', '.join(f'{n} {new[n]} against the committed {old[n]}' for n in worse)}; "
                          "--reason REASON accepts this and records why")
        if not changed:
            continue
        entries[key] = {**dict(zip(KEY, key)), **{n: old[n] for n in (BITS,) if n in old}, **new}
        if worse:
            entries[key]["reason"] = reason
        lines.append(f"{who}: " + ", ".join(f"{n} {old.get(n, 'new')} -> {new[n]}" for n in changed))
    return {"schema": SCHEMA, "entries": [entries[k] for k in sorted(entries)]}, lines


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--ratchet", type=pathlib.Path, default=ROOT / "reports" / "ratchet.json")
    parser.add_argument("--reason", default="")
    args = parser.parse_args(argv)
    try:
        ratchet = json.loads(args.ratchet.read_text()) if args.ratchet.exists() else {"schema": SCHEMA, "entries": []}
        if ratchet.get("schema") != SCHEMA:
            raise Refused(f"{args.ratchet}: schema: wanted {SCHEMA}")
        after, lines = updated(ratchet, measured(args.report), args.reason)
    except (Refused, BadReport, OSError) as problem:
        print(f"update_ratchet: {problem}", file=sys.stderr)
        return 2
    except INCOMPLETE as problem:
        return refuse_incomplete("update_ratchet", [args.report], problem)
    rows = ",\n".join("    " + json.dumps(e) for e in after["entries"])
    args.ratchet.write_text(f'{{\n  "schema": "{SCHEMA}",\n  "entries": [\n{rows}\n  ]\n}}\n')
    print("\n".join(lines) if lines else "nothing changes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
