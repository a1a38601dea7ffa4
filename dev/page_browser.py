"""The Chromium that the test of the report's page looks with, and Playwright, which drives it.

  page_browser.py            says what is there
  page_browser.py --install  installs what is missing: Debian's package chromium, Playwright's wheels in the cache

MKBENCH_BROWSER names another Chromium or Chrome. Exit status: 0 both are there, 1 not.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import scripts_path  # noqa: F401
import apt_packages
import pinned_wheels

NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")


def runs(path: str) -> bool:
    """Ubuntu's chromium-browser may be a script that only asks for a snap."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "Chrom" in done.stdout


def browser() -> str:
    """A Chromium that runs; empty without one."""
    named = os.environ.get("MKBENCH_BROWSER", "")
    found = [named] if named else [path for path in map(shutil.which, NAMES) if path]
    return next((path for path in found if runs(path)), "")


def missing() -> str:
    """Why no page can be looked at; empty where one can."""
    if not browser():
        return "no Chromium that runs (dev/page_browser.py --install)"
    if not pinned_wheels.is_installed("browser"):
        return "no Playwright (dev/page_browser.py --install)"
    return ""


def is_debian() -> bool:
    try:
        return "\nID=debian\n" in "\n" + pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return False


def install_browser() -> None:
    if not is_debian():
        print("page_browser: only on Debian this installs a Chromium; Ubuntu's is a snap. Google's Chrome serves as well")
        return
    if why := apt_packages.install(["chromium"]):
        print(f"page_browser: {why}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install what is missing")
    if parser.parse_args().install:
        if not browser():
            install_browser()
        try:
            pinned_wheels.installed("browser", "Playwright (165 MB)")
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"page_browser: no Playwright: {error}")
    why = missing()
    print(why or f"{browser()}, Playwright in {pinned_wheels.folder_of('browser')}")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
