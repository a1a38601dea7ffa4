"""Lints .devcontainer: hadolint reads the container file, whose image must be a row of requirements/cuda_lanes.txt, and
devcontainer.json must agree with the container file. The linter must also find a fault that is planted for it. Exit 1
on any finding.

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
# A fault for hadolint, as (text, replacement, its rule): root as the last user.
PLANTED = ("USER ${USER_ID}", "USER root", "DL3002")


def hadolint(tools: pathlib.Path, path: pathlib.Path) -> tuple[int, str]:
    done = subprocess.run([str(tools / "bin" / "hadolint"), "--no-color", str(path)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def missed(tools: pathlib.Path, text: str) -> list[str]:
    """A finding if hadolint does not report the planted fault under its rule."""
    good, bad, rule = PLANTED
    assert good in text, f"nothing to plant in: {good}"
    with tempfile.TemporaryDirectory() as holder:
        path = pathlib.Path(holder) / "Dockerfile"
        path.write_text(text.replace(good, bad), encoding="utf-8")
        status, output = hadolint(tools, path)
    return [] if status and rule in output else [f"hadolint: missed a planted fault of {rule}"]


def check_image(text: str, lanes: str) -> list[str]:
    """Whether the container file starts from an image of the lanes' table."""
    images = [row.split()[3] for row in lanes.splitlines() if row[:1].isdigit()]
    found = FROM.findall(text)
    if len(found) == 1 and found[0] in images:
        return []
    return [f"Dockerfile: FROM: found {', '.join(found) or 'no NAME:TAG'}, wanted one of {', '.join(images)}"]


def check_devcontainer(content: str, dockerfile: str) -> list[str]:
    """Findings of devcontainer.json: what it and the container file must have in common."""
    keys, found = json.loads(content), []
    if keys["build"] != {"dockerfile": "Dockerfile", "context": ".."}:
        found.append(f"devcontainer.json: build: found {keys['build']}, wanted the Dockerfile beside it and '..'")
    for key, line in [("remoteUser", f"--uid \"$USER_ID\" {keys['remoteUser']} \\\n"),
                      ("workspaceFolder", f"WORKDIR {keys['workspaceFolder']}\n")]:
        if line not in dockerfile:
            found.append(f"devcontainer.json: {key}: {keys[key]} is not what the Dockerfile has")
    targets = {part.partition("=")[2] for mount in keys["mounts"] for part in mount.split(",")
               if part.startswith("target=")}
    volumes = set(json.loads(re.search(r"^VOLUME (.*)$", dockerfile, re.MULTILINE)[1]))
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
    print("\n".join(findings + [f".devcontainer: a fault planted, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
