"""Wheels of a tool that the build does not need, installed once into a folder of their own."""

import hashlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

STAMP = ".complete"


def requirements_of(name: str) -> pathlib.Path:
    return ROOT / "scripts" / "requirements" / f"{name}.txt"


def cache() -> pathlib.Path:
    """mkbench's folder in the user's cache."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "mkbench"


def folder_of(name: str) -> pathlib.Path:
    """Where the wheels of scripts/requirements/<name>.txt lie once they are installed."""
    pins = hashlib.sha256(requirements_of(name).read_bytes()).hexdigest()[:12]
    return cache() / f"{name}-{pins}"


def is_installed(name: str) -> bool:
    return (folder_of(name) / STAMP).exists()


def installed(name: str, what: str) -> pathlib.Path:
    """The folder in the cache that holds the wheels of scripts/requirements/<name>.txt; installs them if needed."""
    folder = folder_of(name)
    if not is_installed(name):
        print(f"installing {what} in {folder}", file=sys.stderr, flush=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--upgrade", "--target", str(folder), "--requirement", str(requirements_of(name))], check=True)
        (folder / STAMP).touch()
    return folder
