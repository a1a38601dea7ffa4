"""Has decoders with one planted bug each (tests/plugins/bugs.inc) judged, with logits and by ids alone, and writes what the
judge named as a page in Markdown:

    BINARY_UNDER_TEST=.../mkbench bug_matrix.py ENGINE PAGE.md [--bugs NAME,...] [--jobs N] [--device cuda] [--flags=...]

Ends with 1 if too few bugs were named, or one wrongly."""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# At least so many of the bugs that have a name and fail must be the first named, by ids one of those named.
LEAST_NAMED = {"logits": 0.9, "ids": 0.75}


@dataclasses.dataclass
class Bug:
    name: str
    model: str
    fits: list  # names of known bugs; empty: none fits
    text: str


@dataclasses.dataclass
class Judged:
    bug: Bug
    shown: str  # "logits" or "ids"
    verdict: str
    seconds: float
    names: list  # of known bugs, the best first
    text: str

    @property
    def outcome(self):
        """"named", "among" others, "none", "others", "wrong" (one alone, and not the right one) or "passed"."""
        if self.verdict == "PASS":
            return "passed"
        if not self.names:
            return "none"
        if self.names[0] in self.bug.fits:
            return "named"
        if set(self.names) & set(self.bug.fits):
            return "among"
        return "wrong" if len(set(self.names)) == 1 else "others"


def read_bugs():
    rows = re.findall(r'^BUG\((\w+), "([^"]*)", "([^"]*)", "([^"]*)"\)',
                      (ROOT / "tests" / "plugins" / "bugs.inc").read_text(encoding="utf-8"), re.MULTILINE)
    return {name: Bug(name, model, fits.split(), text) for name, model, fits, text in rows}


def judge(engine, bug, shown, *flags):
    """bug: its name "none" plants none. flags: of mkbench parity, above those that stand here."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MKBENCH_", "NAIVE_"))}
    if bug.name != "none":
        env["NAIVE_BUG"] = bug.name
    if shown == "ids":
        env["NAIVE_IDS"] = "1"
    with tempfile.TemporaryDirectory(prefix="mkbench_bug_") as made:
        out, begun = pathlib.Path(made) / "report", time.monotonic()
        run = subprocess.run([os.environ["BINARY_UNDER_TEST"], "parity", "--engine", str(engine), "--model", bug.model,
                              "--out", str(out), "-q", *flags],
                             env=env, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun
        if not (out / "report.json").exists():
            raise RuntimeError(f"{bug}: {run.stderr}")
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    engines = [case["engines"][-1] for case in report["cases"]]
    diagnosis = (engines[0]["parity"] or {}).get("diagnosis", {"names": [], "text": " ".join(engines[0]["reasons"])})
    return Judged(bug, shown, " ".join(sorted({e["verdict"] for e in engines})), seconds, diagnosis["names"], diagnosis["text"])


def judge_all(engine, bugs, flags, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(judge, engine, bug, shown, *flags) for bug in bugs for shown in LEAST_NAMED]
        for run in concurrent.futures.as_completed(runs):
            judged = run.result()
            print(f"{judged.bug.name} by {judged.shown}: {judged.verdict}, {judged.seconds:.1f} s, {judged.outcome}: "
                  f"{judged.text}", file=sys.stderr, flush=True)
        return [run.result() for run in runs]


def shortfalls(judged):
    """What is against the limits, as sentences, and a sentence about each share."""
    found, shares = [], []
    for shown, least in LEAST_NAMED.items():
        mine = [j for j in judged if j.shown == shown]
        known = [j for j in mine if j.bug.fits and j.outcome != "passed"]
        right = [j for j in known if j.outcome == "named" or (shown == "ids" and j.outcome == "among")]
        passed = [j.bug.name for j in mine if j.outcome == "passed"]
        wrong = [j.bug.name for j in mine if j.outcome == "wrong"]
        unnamed = [j for j in mine if not j.bug.fits and j.outcome != "passed"]
        shares.append(f"By {shown}: {len(right)} of {len(known)} known bugs that fail are named, {len(wrong)} wrongly "
                      f"({', '.join(wrong) or 'none'}); of {len(unnamed)} unknown ones "
                      f"{sum(j.outcome == 'wrong' for j in unnamed)}. Passed: {', '.join(passed) or 'none'}.")
        if known and len(right) < least * len(known):
            found.append(f"by {shown} {len(right)} of {len(known)} bugs were named, wanted {least:.0%}")
        found += [f"{name} was named wrongly by {shown}" for name in wrong]
        if shown == "logits":
            found += [f"{name} passed with logits shown" for name in passed]
    return found, shares


def page(engine, judged):
    """The table of bugs, and the matrix of those that did not get their own name alone."""
    source = subprocess.run([sys.executable, ROOT / "scripts" / "source_hash.py", "judgement"], capture_output=True,
                            text=True, check=True).stdout.strip()
    lines = [f"# Planted bugs, and what the judge named for {pathlib.Path(engine).name}", "",
             f"`.ci/long bugs` writes this page; seconds: wall clock of mkbench parity. Source hash `judgement`: {source[:16]}.", "",
             *shortfalls(judged)[1], "",
             "| planted | what is wrong | model | with logits | s | named | by ids alone | s | named |",
             "|:--|:--|:--|:--|--:|:--|:--|--:|:--|"]

    def named(j):
        text = ", ".join(dict.fromkeys(j.names)) or "-"
        return text if j.outcome in ("named", "passed") or (j.outcome == "none" and not j.bug.fits) else f"{text} ({j.outcome})"

    for logits, ids in zip(judged[::2], judged[1::2]):
        bug = logits.bug
        cells = [bug.name, bug.text, bug.model]
        for j in (logits, ids):
            cells += [j.verdict, f"{j.seconds:.0f}" if j.seconds else "-", named(j)]
        lines.append("| " + " | ".join(cells) + " |")
    off = [j for j in judged if j.outcome not in ("passed",) and set(j.names) - set(j.bug.fits)]
    columns = sorted({name for j in off for name in j.names})
    own = sum(bool(j.names) for j in judged) - len(off)
    lines += ["", "## Confusion matrix", "", f"{own} diagnoses name the planted bug alone. The others, by place in the "
              "list (*: the planted bug):", "",
              "| planted | by | " + " | ".join(columns) + " |", "|:--|:--|" + ":-:|" * len(columns)]
    for j in off:
        places = {name: f"{i + 1}{'*' if name in j.bug.fits else ''}" for i, name in reversed(list(enumerate(j.names)))}
        lines.append(f"| {j.bug.name} | {j.shown} | " + " | ".join(places.get(c, "") for c in columns) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--bugs", help="names, separated by commas [all that the engine has]")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--flags", default=[], type=shlex.split, help="of mkbench parity: --flags='--only corpus-17'")
    args = parser.parse_args()
    bugs = read_bugs()
    names = args.bugs.split(",") if args.bugs else bugs
    if not args.bugs and args.engine.endswith(".py"):
        names = [name for name in bugs if f'has("{name}")' in pathlib.Path(args.engine).read_text(encoding="utf-8")]
    judged = judge_all(args.engine, [bugs[name] for name in names], ["--device", args.device, *args.flags], args.jobs)
    args.page.write_text(page(args.engine, judged), encoding="utf-8")
    found, shares = shortfalls(judged)
    print("\n".join(shares + found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
