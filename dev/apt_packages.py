"""Debian packages that some tests need and set-up does not install.

  apt_packages.py NAME ...   installs those whose program of that name is not on PATH; says why where it cannot
"""

import os
import shutil
import subprocess
import sys


def install(packages: list[str]) -> str:
    """Why the packages could not be installed; empty where they were."""
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    why = ""
    # The lists that are there may do where they cannot be fetched anew.
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run([*as_root, "apt-get", *command], env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL)
        except OSError as error:
            return str(error)
        why = f"apt-get {command[0]} ended with {done.returncode}" if done.returncode else ""
    return why


def main() -> int:
    lacking = [name for name in sys.argv[1:] if not shutil.which(name)]
    why = install(lacking) if lacking else ""
    if why:
        print(f"apt_packages: no {', '.join(lacking)}: {why}")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
