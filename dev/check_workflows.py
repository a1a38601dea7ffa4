"""Lints .github/workflows, and the workflows that `mkbench new-engine` writes: with check-jsonschema and the GitHub
schema that it ships, then with zizmor, offline. A job may run only the scripts of COMMANDS, which run anywhere, so that
all that a workflow does can be tried outside GitHub.

The wheels of requirements/workflows.txt are installed once into a folder of their own, so that building mkbench
does not fetch them. Each linter must also find a fault that is planted for it. Exit 1 on any finding.
"""

import os
import pathlib
import re
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


def lint(folder: pathlib.Path, name: str, workflows: dict[str, str]) -> tuple[int, str]:
    """Exit status and output of one linter, whose wheels are in `folder`, over workflows by file name."""
    command = {
        "check-jsonschema": [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"],
        "zizmor": [str(folder / "bin" / "zizmor"), "--offline", "--no-progress", "--color=never"],
    }[name]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as holder:
        # zizmor recognises workflows by their folder.
        place = pathlib.Path(holder) / ".github" / "workflows"
        place.mkdir(parents=True)
        for file, text in workflows.items():
            (place / file).write_text(text, encoding="utf-8")
        done = subprocess.run(command + [str(place / file) for file in workflows], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def main() -> int:
    folder, failed = installed("workflows", "the workflow linters (40 MB)"), False
    sources = sorted(WORKFLOWS.glob("*.y*ml")) + sorted(TEMPLATES.glob("*.y*ml"))
    workflows = {path.name: path.read_text(encoding="utf-8") for path in sources}
    found = {name: commands(text) for name, text in workflows.items()}
    if found != COMMANDS:
        print(f"workflows: run {found}, wanted {COMMANDS}")
        failed = True
    first = workflows[sources[0].name]
    for name, (good, bad, word) in PLANTED.items():
        status, output = lint(folder, name, workflows)
        if status != 0:
            print(output)
        assert good in first, f"nothing to plant in: {good}"
        planted, said = lint(folder, name, {"planted.yml": first.replace(good, bad)})
        seen = planted != 0 and word in said
        print(f"{name}: {len(workflows)} workflow(s) {'clean' if status == 0 else 'REFUSED'}, "
              f"planted fault {'seen' if seen else 'MISSED'}")
        failed = failed or status != 0 or not seen
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
