"""What a change costs: each patch of tests/change_costs/ is an example of one kind of change.

Without arguments: checks that every patch applies to this tree, and touches as many files of the product as the table
in CONTRIBUTING says. --build FOLDER: applies all of them to a copy of the tree in FOLDER and builds that, so that
the examples are known to work. Exit 1 on any finding.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import scripts_path  # noqa: F401
from tracked_files import ROOT, tracked_files

EXAMPLES = ROOT / "tests" / "change_costs"
# | an engine | 3 | its file, ... | `engine` |
ROW = re.compile(r"^\| [^|]+ \| (\d+)[^|]* \| [^|]+ \| `(\w+)` \|$", re.MULTILINE)
# Not counted: tests, and files that programs write.
NOT_PRODUCT = ("tests/", "reports/")


def table(text: str) -> dict[str, int]:
    """Example -> the number of files that it touches, from the table "What a change costs"."""
    return {name: int(count) for count, name in ROW.findall(text.split("## What a change costs", 1)[-1].split("\n## ", 1)[0])}


def touched(patch: pathlib.Path) -> list[str]:
    """The product's files that a patch changes or adds."""
    names = re.findall(r"^\+\+\+ b/(.+)$", patch.read_text(), re.MULTILINE)
    return [name for name in names if not name.startswith(NOT_PRODUCT)]


def findings(root: pathlib.Path = ROOT, examples: pathlib.Path = EXAMPLES) -> list[str]:
    """One line for each example that does not apply or costs more or less than the table says."""
    claimed = table((root / "CONTRIBUTING.md").read_text())
    found = []
    patches = {patch.stem: patch for patch in sorted(examples.glob("*.patch"))}
    for name in sorted(claimed.keys() ^ patches.keys()):
        found.append(f"{name}: found in {'the table' if name in claimed else 'tests/change_costs'} alone, wanted in both")
    for name in sorted(claimed.keys() & patches.keys()):
        files = touched(patches[name])
        if len(files) != claimed[name]:
            found.append(f"{name}: touches {len(files)} files ({', '.join(files)}), the table says {claimed[name]}")
        applies = subprocess.run(["git", "apply", "--check", str(patches[name])], cwd=root, capture_output=True, text=True)
        if applies.returncode != 0:
            found.append(f"{name}: does not apply: {applies.stderr.strip()}")
    return found


def build(folder: pathlib.Path) -> int:
    """Applies all examples to a copy of the tree in `folder`, builds it and runs what they add."""
    folder = folder.resolve()
    tree = folder / "tree"
    for name in tracked_files(ROOT, untracked=True):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    for patch in sorted(EXAMPLES.glob("*.patch")):
        subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True,
                       env=os.environ | {"GIT_CEILING_DIRECTORIES": str(folder)})
    subprocess.run(["scripts/setup.sh", "mkbench", "trunk_probe", "host_twin_maker_exported"], cwd=tree, check=True)
    mkbench = tree / "build" / os.environ.get("MKBENCH_PRESET", "release") / "harness" / "mkbench"
    subprocess.run([mkbench, "about", "--short"], check=True)
    # A run of one block gets the verdict that one of the examples adds (ONE_SAMPLE), whose exit code is 5.
    run = subprocess.run([mkbench, "run", "--device", "cpu", "--model", "tiny", "--engine", "fp32-head", "--blocks", "1", "-n", "8",
                          "--repeats", "1", "--no-plot", "--out", folder / "report"])
    if run.returncode != 5:
        print(f"the run ended with {run.returncode}, wanted 5")
        return 1
    # The family is judged against transformers' own class of it.
    judged = '. "$1/setup.env" && "$(dirname "$cmake")/ctest" --test-dir "$1" -R "^test_gemma$" --no-tests=error --output-on-failure'
    subprocess.run(["bash", "-c", judged, "bash", mkbench.parents[1]], check=True)
    report = (folder / "report" / "report.json").read_text()
    missing = [word for word in ("fp32-head", "end_ms", "max_context", "in_range", "ONE_SAMPLE") if f'"{word}"' not in report]
    print(f"not in the report: {', '.join(missing)}" if missing else "all examples work")
    return 1 if missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", metavar="FOLDER", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.build:
        return build(arguments.build)
    found = findings()
    print("\n".join(found) if found else f"{len(list(EXAMPLES.glob('*.patch')))} examples cost what CONTRIBUTING says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
