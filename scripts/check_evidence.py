"""Checks the committed evidence: reports/evidence/<gpu>/evidence.json.

Its state is `fresh` (measured on exactly this code: the source hash fits) or `stale`, with the reason.
Fresh evidence of other code is a failure: measure again, or say that it is stale and why.
Prints one line a finding; exit 1 if there is any.
"""

import json
import pathlib
import sys

from source_hash import source_hash
from tracked_files import ROOT

FIELDS = {"state": str, "reason": str, "source_hash": str, "gpu": str, "files": list}


def check_folder(folder: pathlib.Path, tree_hash: str) -> list[str]:
    """Findings about one GPU's evidence; tree_hash is the source hash of the tree it stands in."""
    path = folder / "evidence.json"
    name = f"{folder.name}/evidence.json"
    try:
        evidence = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [f"{name}: cannot be read: {error}"]
    found = []
    for field, kind in FIELDS.items():
        if not isinstance(evidence.get(field), kind):
            found.append(f"{name}: {field}: found {evidence.get(field)!r}, wanted a {kind.__name__}")
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
    elif state == "stale" and not evidence["reason"].strip():
        found.append(f"{name}: state is stale and no reason is given")
    elif state not in ("fresh", "stale"):
        found.append(f"{name}: state: found {state!r}, wanted fresh or stale")
    return found


def check_all(root: pathlib.Path = ROOT) -> tuple[list[str], list[str]]:
    """Findings, and the GPUs that have evidence."""
    folders = sorted(p for p in (root / "reports" / "evidence").glob("*") if p.is_dir())
    tree_hash = source_hash(root)
    findings = [line for folder in folders for line in check_folder(folder, tree_hash)]
    return findings, [folder.name for folder in folders]


def main() -> int:
    findings, gpus = check_all()
    for line in findings:
        print(line)
    print(f"evidence of {len(gpus)} GPUs ({', '.join(gpus) or 'none'}), {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
