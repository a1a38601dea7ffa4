"""The files of this tree that git tracks, for the checks beside this file.

In a tree without git's index (an exported archive, a copied tree) every file counts, except what builds and
runs leave behind.
"""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_BEHIND = ("build", "mkbench-report-", ".venv", "__pycache__", ".git")


def tracked_files(root: pathlib.Path = ROOT) -> list[str]:
    """Paths relative to root, with forward slashes, sorted by bytes."""
    found = []
    if (root / ".git").exists():
        # safe.directory: the tree may belong to another user (containers, copied trees).
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached"],
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
