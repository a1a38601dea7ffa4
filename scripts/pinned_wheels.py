"""Wheels of a tool that the build does not need, installed once into a folder of their own."""

import hashlib
import os
import pathlib
import subprocess
import sys

from tracked_files import ROOT


def installed(name: str, what: str) -> pathlib.Path:
    """The folder in the cache that holds the wheels of scripts/requirements/<name>.txt; installs them if needed."""
    requirements = ROOT / "scripts" / "requirements" / f"{name}.txt"
    pins = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "mkbench" / f"{name}-{pins}"
    stamp = folder / ".complete"
    if not stamp.exists():
        print(f"installing {what} in {folder}", flush=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--upgrade", "--target", str(folder), "--requirement", str(requirements)], check=True)
        stamp.touch()
    return folder
