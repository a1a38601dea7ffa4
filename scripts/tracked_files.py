"""The files of this tree that git tracks, and how the checks in dev/ walk them.

In a tree without git's index (an exported archive, a copied tree) every file counts, except those that builds
and runs leave behind.
"""

import os
import pathlib
import subprocess
from collections.abc import Callable, Collection

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_BEHIND = ("build", "mkbench-report-", ".venv", "__pycache__", ".git", ".mkbench-remote")


def tracked_files(root: pathlib.Path = ROOT, untracked: bool = False) -> list[str]:
    """Paths relative to root, with forward slashes, sorted by bytes; with `untracked` also new files that git does not
    ignore."""
    found = []
    if (root / ".git").exists():
        # safe.directory: the tree may belong to another user (containers, copied trees).
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached"]
            + (["--others", "--exclude-standard"] if untracked else []),
            cwd=root, check=True, capture_output=True).stdout
        names = {os.fsdecode(name) for name in listing.split(b"\0") if name}
        # A file that is deleted but not yet committed is no part of the tree.
        found = [name for name in names if (root / name).is_file()]
    if not found:
        for folder, subfolders, files in os.walk(root):
            subfolders[:] = [s for s in subfolders if not s.startswith(LEFT_BEHIND)]
            here = pathlib.Path(folder).relative_to(root)
            found += [(here / name).as_posix() for name in files if not name.endswith(".pyc")]
    return sorted(found, key=os.fsencode)


def check_files(check: Callable[[str, str], list[str]], root: pathlib.Path = ROOT,
                suffixes: Collection[str] | None = None) -> tuple[list[str], int]:
    """The findings of check(path, text) over the tracked text files under root, and the number of files read.

    With `suffixes` only files that end in one of them are read, and each must be text. Without, files that are no
    text (weights, pictures) are left out.
    """
    findings = []
    count = 0
    for path in tracked_files(root):
        if suffixes is not None and pathlib.PurePosixPath(path).suffix not in suffixes:
            continue
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            if suffixes is not None:
                findings.append(f"{path}: not UTF-8")
            continue
        count += 1
        findings += check(path, text)
    return findings, count


def show(findings: list[str], count: int, summary: str) -> int:
    """Prints the findings, then the summary with both numbers, and returns the exit code; 1 too if nothing was read."""
    for line in findings:
        print(line)
    print(summary.format(count=count, findings=len(findings)))
    return 1 if findings or count == 0 else 0
