"""Lints .github/workflows, and the workflows that `mkbench new-engine` gives away: check-jsonschema with the GitHub
schema that it carries, then zizmor, offline. What a job runs must be scripts that run anywhere (COMMANDS), so that a
workflow does nothing that was not tried.

The wheels of requirements/workflows.txt are installed once into a folder of their own, so that building mkbench
does not fetch them. Each linter must also find a fault that is planted for it. Exit 1 on any finding.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import scripts_path  # noqa: F401
from pinned_wheels import installed
from tracked_files import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
TEMPLATES = ROOT / "scripts" / "templates" / "workflows"

# The commands of each workflow, in order.
COMMANDS = {
    "mkbench.yml": ["bash .ci/run", 'scripts/gpu_gate.sh "$REPORTS"'],
    "mkbench-cpu.yml": ["bash gate.sh cpu"],
    "mkbench-gpu.yml": ["bash gate.sh cuda"],
}

# A fault for each linter, as (text, replacement, word of the complaint): a key that does not exist, and an action
# that its owner can exchange because no hash pins it.
PLANTED = {
    "check-jsonschema": ("runs-on:", "runs_on:", "runs_on"),
    "zizmor": ("actions/checkout@", "actions/checkout@main # ", "unpinned-uses"),
}


def commands(workflow: str) -> list[str]:
    """What the steps of a workflow run, as written behind `run:`."""
    return re.findall(r"^\s*(?:- )?run:\s*(\S.*?)\s*$", workflow, re.MULTILINE)


def linters(folder: pathlib.Path) -> dict[str, list[str]]:
    """The linters' commands, each to be followed by paths of workflows."""
    return {
        "check-jsonschema": [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"],
        "zizmor": [str(folder / "bin" / "zizmor"), "--offline", "--no-progress", "--color=never"],
    }


def lint(folder: pathlib.Path, name: str, paths: list[pathlib.Path]) -> tuple[int, str]:
    """Exit status and output of one linter."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(linters(folder)[name] + [str(p) for p in paths], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def finds_planted(folder: pathlib.Path, name: str, workflow: str) -> bool:
    """Whether the linter refuses a copy of the workflow with its fault in it."""
    good, bad, word = PLANTED[name]
    assert good in workflow, f"nothing to plant in: {good}"
    with tempfile.TemporaryDirectory() as holder:
        # zizmor recognises workflows by their folder.
        path = pathlib.Path(holder) / ".github" / "workflows" / "planted.yml"
        path.parent.mkdir(parents=True)
        path.write_text(workflow.replace(good, bad), encoding="utf-8")
        status, output = lint(folder, name, [path])
        return status != 0 and word in output


def copies(sources: list[pathlib.Path], holder: pathlib.Path) -> list[pathlib.Path]:
    """Copies of workflows in the folder by which zizmor recognises them."""
    folder = holder / ".github" / "workflows"
    folder.mkdir(parents=True)
    return [pathlib.Path(shutil.copy(source, folder)) for source in sources]


def lint_all(folder: pathlib.Path, paths: list[pathlib.Path]) -> bool:
    """Prints what each linter says; whether one refuses a workflow or misses its fault."""
    failed = False
    for name in PLANTED:
        status, output = lint(folder, name, paths)
        if status != 0:
            print(output)
        seen = finds_planted(folder, name, paths[0].read_text(encoding="utf-8"))
        print(f"{name}: {len(paths)} workflow(s) {'clean' if status == 0 else 'REFUSED'}, "
              f"planted fault {'seen' if seen else 'MISSED'}")
        failed = failed or status != 0 or not seen
    return failed


def main() -> int:
    folder, failed = installed("workflows", "the workflow linters (40 MB)"), False
    sources = sorted(WORKFLOWS.glob("*.y*ml")) + sorted(TEMPLATES.glob("*.y*ml"))
    found = {path.name: commands(path.read_text(encoding="utf-8")) for path in sources}
    if found != COMMANDS:
        print(f"workflows: run {found}, wanted {COMMANDS}")
        failed = True
    with tempfile.TemporaryDirectory() as holder:
        paths = copies(sources, pathlib.Path(holder))
        failed = lint_all(folder, paths) or failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
