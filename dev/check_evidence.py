"""Checks evidence of GPU runs.

  check_evidence.py reports/evidence/<gpu>   every line that the GPU check must show
  check_evidence.py                          all committed evidence, as CI does

The first form recomputes every line from the files of that folder (dev/evidence_lines.py), prints all lines, and
exits 1 if any fails. Two of the lines say whether the source hashes fit this tree.

The second form compares each evidence.json with its own claims. For each source hash, `speed` and `judgement`,
the file has a state: `fresh` (measured on exactly this code: the hash fits) or `stale`, with the reason. Evidence that
claims to be fresh while its hash does not fit is a failure: measure again, or set stale and say why. Among the
lines that rest on fresh hashes alone, those that fail must be the ones listed under `unmet`, with a reason.
Prints one line a finding; exit 1 if there is any.
"""

import json
import pathlib
import sys

import scripts_path  # noqa: F401
from evidence_lines import check_files, load_reports, share_table
from evidence_logs import Lines
from source_hash import KINDS, source_hashes
from tracked_files import ROOT

FIELDS = {"reason": str, "gpu": str, "files": list, **dict.fromkeys(KINDS, dict)}
HASH_FIELDS = ("state", "reason", "source_hash")


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
        elif field in KINDS:
            found += [f"{name}: {field}.{key}: found {evidence[field].get(key)!r}, wanted a str"
                      for key in HASH_FIELDS if not isinstance(evidence[field].get(key), str)]
    return evidence, found


def check_unmet(folder: pathlib.Path, evidence: dict, fresh: list[str]) -> list[str]:
    """Findings unless `unmet` lists exactly those lines that fail and rest on `fresh` hashes alone."""
    name = f"{folder.name}/evidence.json"
    lines, unmet = check_files(folder), evidence.get("unmet")
    if not isinstance(unmet, list):
        return [f"{name}: unmet: found {unmet!r}, wanted a list of the lines that fail"]
    stale = {line["what"] for line in lines.lines if not set(line["rests_on"].split()) <= set(fresh)}
    failed, unmet = ([line for line in some if line not in stale] for some in (lines.failed(), unmet))
    found = [f"{name}: fails and is not listed as unmet: {line}" for line in failed if line not in unmet]
    found += [f"{name}: is listed as unmet and holds: {line}" for line in unmet if line not in failed]
    if unmet and not evidence["reason"].strip():
        found.append(f"{name}: lines are unmet and no reason is given")
    if "speed" in fresh and evidence.get("table") != share_table(load_reports(folder)):
        found.append(f"{name}: table: is not what the reports give")
    return found


def check_folder(folder: pathlib.Path, tree: dict[str, str]) -> list[str]:
    """Findings about one GPU's evidence; `tree` holds the source hashes of the tree that the folder stands in."""
    name = f"{folder.name}/evidence.json"
    evidence, found = read_evidence(folder)
    if found:
        return found
    for file in evidence["files"]:
        if not (folder / file).is_file():
            found.append(f"{name}: files: {file} is not there")
    if not evidence["files"]:
        found.append(f"{name}: files: empty; evidence without a report shows nothing")
    for kind in KINDS:
        state, reason, measured = (evidence[kind][key] for key in HASH_FIELDS)
        if state == "fresh" and measured != tree[kind]:
            found.append(
                f"{name}: {kind}: state is fresh, but it was measured on source {measured[:12]} and this tree"
                f" is {tree[kind][:12]}: run dev/gpu_check.sh again, or set stale and a reason")
        elif state == "stale" and not reason.strip():
            found.append(f"{name}: {kind}: state is stale and no reason is given")
        elif state not in ("fresh", "stale"):
            found.append(f"{name}: {kind}: state: found {state!r}, wanted fresh or stale")
    fresh = [kind for kind in KINDS if is_fresh(evidence, kind, tree)]
    return found + (check_unmet(folder, evidence, fresh) if fresh else [])


def is_fresh(evidence: dict, kind: str, tree: dict[str, str]) -> bool:
    return evidence[kind]["state"] == "fresh" and evidence[kind]["source_hash"] == tree[kind]


def check_all(root: pathlib.Path = ROOT) -> tuple[list[str], list[str]]:
    """Findings, and the GPUs that have evidence."""
    folders = sorted(p for p in (root / "reports" / "evidence").glob("*") if p.is_dir())
    tree = source_hashes(root)
    findings = [line for folder in folders for line in check_folder(folder, tree)]
    return findings, [folder.name for folder in folders]


def check_path(folder: pathlib.Path, tree: dict[str, str]) -> Lines:
    """Every line of one folder, and whether each hash fits this code."""
    lines = check_files(folder)
    evidence, problems = read_evidence(folder)
    lines.add("evidence.json is whole", not problems, "; ".join(problems) or "yes")
    for kind in KINDS:
        own = {} if problems else evidence[kind]
        lines.add(f"{kind}: measured on this code", own and is_fresh(evidence, kind, tree),
                  f"{own.get('state', 'no state')}, source {own.get('source_hash', '')[:12]}, this tree"
                  f" {tree[kind][:12]}", kind)
    return lines


def main() -> int:
    if len(sys.argv) > 2:
        print(__doc__)
        return 2
    if len(sys.argv) == 2:
        return check_path(pathlib.Path(sys.argv[1]), source_hashes()).show()
    findings, gpus = check_all()
    for line in findings:
        print(line)
    print(f"evidence of {len(gpus)} GPUs ({', '.join(gpus) or 'none'}), {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
