"""Checks evidence of GPU runs.

  check_evidence.py reports/evidence/<gpu>/report.json   every line that the GPU check must show
  check_evidence.py                                      all committed evidence, as CI does

The first form recomputes every line from the files of that folder (scripts/evidence_lines.py), prints all of
them, and exits 1 if any fails, the source hash of this tree among them.

The second form holds each evidence.json to what it says of itself. Its state is `fresh` (measured on exactly
this code: the source hash fits) or `stale`, with the reason. Fresh evidence of other code is a failure:
measure again, or say that it is stale and why. The lines that fail must be those listed under `unmet`, and
these need a reason too. Prints one line a finding; exit 1 if there is any.
"""

import json
import pathlib
import sys

from check_lines import Lines
from evidence_lines import check_files, load_report, share_table
from source_hash import source_hash
from tracked_files import ROOT

FIELDS = {"state": str, "reason": str, "source_hash": str, "gpu": str, "files": list}


def read_evidence(folder: pathlib.Path) -> tuple[dict, list[str]]:
    """evidence.json and what is wrong with its fields."""
    name = f"{folder.name}/evidence.json"
    try:
        evidence = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, [f"{name}: cannot be read: {error}"]
    if not isinstance(evidence, dict):
        return {}, [f"{name}: wanted an object"]
    found = []
    for field, kind in FIELDS.items():
        if not isinstance(evidence.get(field), kind):
            found.append(f"{name}: {field}: found {evidence.get(field)!r}, wanted a {kind.__name__}")
    return evidence, found


def check_unmet(folder: pathlib.Path, evidence: dict) -> list[str]:
    """Fresh evidence: the lines that fail are the ones that it owns up to."""
    name = f"{folder.name}/evidence.json"
    failed, unmet = check_files(folder).failed(), evidence.get("unmet")
    if not isinstance(unmet, list):
        return [f"{name}: unmet: found {unmet!r}, wanted a list of the lines that fail"]
    found = [f"{name}: fails and is not listed as unmet: {line}" for line in failed if line not in unmet]
    found += [f"{name}: is listed as unmet and holds: {line}" for line in unmet if line not in failed]
    if unmet and not evidence["reason"].strip():
        found.append(f"{name}: lines are unmet and no reason is given")
    if evidence.get("table") != share_table(load_report(folder / "report.json")):
        found.append(f"{name}: table: is not what report.json gives")
    return found


def check_folder(folder: pathlib.Path, tree_hash: str) -> list[str]:
    """Findings about one GPU's evidence; tree_hash is the source hash of the tree it stands in."""
    name = f"{folder.name}/evidence.json"
    evidence, found = read_evidence(folder)
    if found:
        return found
    for file in evidence["files"]:
        if not (folder / file).is_file():
            found.append(f"{name}: files: {file} is not there")
    if not evidence["files"]:
        found.append(f"{name}: files: empty; evidence without a report shows nothing")
    state = evidence["state"]
    if state == "fresh" and evidence["source_hash"] != tree_hash:
        found.append(
            f"{name}: state is fresh, but it was measured on source {evidence['source_hash'][:12]} and"
            f" this tree is {tree_hash[:12]}: run scripts/gpu_check.sh again, or set stale and a reason")
    elif state == "fresh":
        found += check_unmet(folder, evidence)
    elif state == "stale" and not evidence["reason"].strip():
        found.append(f"{name}: state is stale and no reason is given")
    elif state != "stale":
        found.append(f"{name}: state: found {state!r}, wanted fresh or stale")
    return found


def check_all(root: pathlib.Path = ROOT) -> tuple[list[str], list[str]]:
    """Findings, and the GPUs that have evidence."""
    folders = sorted(p for p in (root / "reports" / "evidence").glob("*") if p.is_dir())
    tree_hash = source_hash(root)
    findings = [line for folder in folders for line in check_folder(folder, tree_hash)]
    return findings, [folder.name for folder in folders]


def check_path(folder: pathlib.Path, tree_hash: str) -> Lines:
    """Every line of one folder, and that it was measured on this code."""
    lines = check_files(folder)
    evidence, problems = read_evidence(folder)
    measured = evidence.get("source_hash", "")
    lines.add("evidence.json is whole", not problems, "; ".join(problems) or "yes")
    fresh = not problems and evidence["state"] == "fresh" and measured == tree_hash
    lines.add("measured on this code", fresh,
              f"{evidence.get('state', 'no state')}, source {str(measured)[:12]}, this tree {tree_hash[:12]}")
    return lines


def main() -> int:
    if len(sys.argv) > 2:
        print(__doc__)
        return 2
    if len(sys.argv) == 2:
        path = pathlib.Path(sys.argv[1])
        lines = check_path(path if path.is_dir() else path.parent, source_hash())
        lines.show()
        return 0 if lines.all_hold() else 1
    findings, gpus = check_all()
    for line in findings:
        print(line)
    print(f"evidence of {len(gpus)} GPUs ({', '.join(gpus) or 'none'}), {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
