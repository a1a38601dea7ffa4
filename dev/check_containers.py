"""Lints .devcontainer: hadolint reads the container file, whose image must be a row of requirements/cuda_lanes.txt, and
devcontainer.json must hold known keys and agree with the container file. The linter must also find faults that are
planted for it. Exit 1 on any finding.

The wheels of requirements/containers.txt are installed once into a folder of their own. No container engine is needed,
and none is used: tests/dev/run_dockerfile.py runs the file's commands.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import scripts_path  # noqa: F401
from pinned_wheels import installed
from tracked_files import ROOT

FOLDER = ROOT / ".devcontainer"
FROM = re.compile(r"^FROM ([^\s:@]+:[^\s:@]+)(?:@\S+)?$", re.MULTILINE)
LANES = ROOT / "scripts" / "requirements" / "cuda_lanes.txt"
# (text, replacement, hadolint's rule against it): a tag that moves, root as the last user, a pipe whose failure is
# lost, a cache that stays in the image.
PLANTED = [
    (r"^FROM ([^:@\s]+)\S*", r"FROM \1:latest", "DL3007"),
    (r"USER \$\{USER_ID\}", "USER root", "DL3002"),
    (r'SHELL \["/bin/bash", "-o", "pipefail", "-c"\]', "", "DL4006"),
    (r"    && rm -rf /var/lib/apt/lists/\* /tmp/debian.txt\n", r"    && true\n", "DL3009"),
]
# The keys of devcontainer.json that this project uses, and their types; REQUIRED ones must be there.
REQUIRED = {"name": str, "build": dict, "workspaceMount": str, "workspaceFolder": str, "mounts": list,
            "remoteUser": str}
OPTIONAL = {"hostRequirements": dict, "postCreateCommand": str}


def hadolint(tools: pathlib.Path, path: pathlib.Path) -> tuple[int, str]:
    done = subprocess.run([str(tools / "bin" / "hadolint"), "--no-color", str(path)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def missed(tools: pathlib.Path, text: str) -> list[str]:
    """The planted faults that hadolint does not report under their rule."""
    found = []
    with tempfile.TemporaryDirectory() as holder:
        path = pathlib.Path(holder) / "Dockerfile"
        for good, bad, rule in PLANTED:
            planted, times = re.subn(good, bad, text, flags=re.MULTILINE)
            assert times > 0, f"nothing to plant in: {good}"
            path.write_text(planted, encoding="utf-8")
            status, output = hadolint(tools, path)
            if status == 0 or rule not in output:
                found.append(f"hadolint: missed a planted fault of {rule}: {bad.strip() or 'no ' + good}")
    return found


def check_image(text: str, lanes: str) -> list[str]:
    """Whether the container file starts from an image of the lanes' table."""
    images = [row.split()[3] for row in lanes.splitlines() if row[:1].isdigit()]
    found = FROM.findall(text)
    if len(found) == 1 and found[0] in images:
        return []
    return [f"Dockerfile: FROM: found {', '.join(found) or 'no NAME:TAG'}, wanted one of {', '.join(images)}"]


def check_devcontainer(content: str, dockerfile: str) -> list[str]:
    """Findings of devcontainer.json: its keys, and what it and the container file must have in common."""
    try:
        keys = json.loads(content)
    except ValueError as failure:
        return [f"devcontainer.json: not JSON: {failure}"]
    if not isinstance(keys, dict):
        return ["devcontainer.json: found no object"]
    known = REQUIRED | OPTIONAL
    found = [f"devcontainer.json: {key}: missing" for key in REQUIRED if key not in keys]
    found += [f"devcontainer.json: {key}: unknown" for key in keys if key not in known]
    found += [f"devcontainer.json: {key}: found {type(keys[key]).__name__}, wanted {kind.__name__}"
              for key, kind in known.items() if key in keys and not isinstance(keys[key], kind)]
    if found:
        return found
    if keys["build"] != {"dockerfile": "Dockerfile", "context": ".."}:
        found.append(f"devcontainer.json: build: found {keys['build']}, wanted the Dockerfile beside it and '..'")
    for key, line in [("remoteUser", f"--uid \"$USER_ID\" {keys['remoteUser']} \\\n"),
                      ("workspaceFolder", f"WORKDIR {keys['workspaceFolder']}\n")]:
        if line not in dockerfile:
            found.append(f"devcontainer.json: {key}: {keys[key]} is not what the Dockerfile has")
    targets = {part.partition("=")[2] for mount in keys["mounts"] for part in str(mount).split(",")
               if part.startswith("target=")}
    volumes = set(json.loads(next((line.partition(" ")[2] for line in dockerfile.splitlines()
                                   if line.startswith("VOLUME ")), "[]")))
    if targets != volumes:
        found.append(f"devcontainer.json: mounts: found {sorted(targets)}, wanted the VOLUMEs {sorted(volumes)}")
    if f"target={keys['workspaceFolder']}," not in keys["workspaceMount"] + ",":
        found.append(f"devcontainer.json: workspaceMount: its target is not {keys['workspaceFolder']}")
    return found


def main() -> int:
    tools = installed("containers", "the linter of container files (12 MB)")
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    status, output = hadolint(tools, FOLDER / "Dockerfile")
    findings = output.splitlines() if status else []
    findings += missed(tools, text)
    findings += check_image(text, LANES.read_text(encoding="utf-8"))
    findings += check_devcontainer((FOLDER / "devcontainer.json").read_text(encoding="utf-8"), text)
    print("\n".join(findings + [f".devcontainer: {len(PLANTED)} faults planted, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
