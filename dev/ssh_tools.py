"""The programs that the tests of remote.sh need: an OpenSSH server, to log in to on loopback, and rsync.

  ssh_tools.py            says what is missing
  ssh_tools.py --install  installs it, as Debian's packages

Debian's package starts a server, and again whenever the machine starts. So on a machine with systemd, where that would
open a port, nothing is installed unless CI is set, as it is on a machine that exists for one run. Exit status: 0 all is
there, 1 not.
"""

import argparse
import os
import pathlib
import shutil
import sys

import apt_packages

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
PACKAGES = {"sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync"}


def missing_programs() -> list[str]:
    return [name for name in PACKAGES if not shutil.which(name, path=PATH)]


def missing() -> str:
    """Why remote.sh cannot be tested; empty where it can."""
    lacking = missing_programs()
    return f"no {', '.join(lacking)} (dev/ssh_tools.py --install)" if lacking else ""


def install() -> str:
    """Why nothing was installed; empty where something was."""
    if pathlib.Path("/run/systemd/system").exists() and not os.environ.get("CI"):
        return "this machine has systemd, and the package would start a server: install it yourself, or set CI"
    return apt_packages.install([PACKAGES[name] for name in missing_programs()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install what is missing")
    if parser.parse_args().install and missing():
        why_not = install()
        if why_not:
            print(f"ssh_tools: {why_not}")
    print(missing() or f"{shutil.which('sshd', path=PATH)}, {shutil.which('ssh')}, {shutil.which('rsync')}")
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
