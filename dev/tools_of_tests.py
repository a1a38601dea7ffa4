"""Tools that some tests need and set-up does not install: OpenSSH's server and rsync, for logins on loopback; a browser
(Chromium) that opens the report's page, and Playwright, which drives it; help2man; what reads reports in other formats:
Google Benchmark's compare.py with SciPy, Prometheus's client and its node exporter.

  tools_of_tests.py            says what is missing
  tools_of_tests.py --install  installs it first: Debian's packages, and Playwright's wheels in the cache

MKBENCH_BROWSER names another Chromium or Chrome. Exit status: 0 all is there, 1 not.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import scripts_path  # noqa: F401
import pinned_wheels

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
LOGIN = {"sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync"}
OTHERS = {"help2man": "help2man"}
EXPORTER = {"prometheus-node-exporter": "prometheus-node-exporter"}
SERVERS = LOGIN | EXPORTER
COMPARE = pathlib.Path("/usr/share/benchmark/compare.py")  # of Google Benchmark
BROWSERS = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
HOW = "dev/tools_of_tests.py --install"


def lacking(programs: dict[str, str]) -> list[str]:
    return [name for name in programs if not shutil.which(name, path=PATH)]


def no_login() -> str:
    """Why remote.sh cannot be tested; empty where it can."""
    return f"no {', '.join(lacking(LOGIN))} ({HOW})" if lacking(LOGIN) else ""


def runs(path: str) -> bool:
    """Whether `path` is a browser: Ubuntu's chromium-browser may be a script that only asks for a snap."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "Chrom" in done.stdout


def browser() -> str:
    """A Chromium that runs; empty without one."""
    named = os.environ.get("MKBENCH_BROWSER", "")
    found = [named] if named else [path for path in map(shutil.which, BROWSERS) if path]
    return next((path for path in found if runs(path)), "")


def no_browser() -> str:
    """Why no page can be looked at; empty where one can."""
    if not browser():
        return f"no Chromium that runs ({HOW})"
    return "" if pinned_wheels.is_installed("browser") else f"no Playwright ({HOW})"


def no_readers() -> str:
    """Why no other program reads a report's formats; empty where they can."""
    missing = lacking(EXPORTER) + ([] if COMPARE.exists() else [str(COMPARE)]) + \
        ([] if pinned_wheels.is_installed("readers") else ["SciPy and prometheus-client"])
    return f"no {', '.join(missing)} ({HOW})" if missing else ""


def install(packages: list[str]) -> str:
    """Installs Debian packages. Returns why that failed; empty where it did not."""
    if not shutil.which("apt-get"):
        return "there is no apt-get"
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    why = ""
    # If `update` fails, the install may still succeed with the package lists that are there.
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run([*as_root, "apt-get", *command], env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL)
        except OSError as error:
            return str(error)
        why = f"apt-get {command[0]} ended with {done.returncode}" if done.returncode else ""
    return why


def install_servers() -> str:
    """With systemd, Debian's packages start a server at once and at every boot, which opens a port. So they are installed
    there only in CI, on a machine that exists for one run."""
    if pathlib.Path("/run/systemd/system").exists() and not os.environ.get("CI"):
        return "this machine has systemd, and a package would start a server: install it yourself, or set CI"
    return install([SERVERS[name] for name in lacking(SERVERS)])


def install_browser() -> str:
    release = pathlib.Path("/etc/os-release")
    if not release.exists() or "\nID=debian\n" not in "\n" + release.read_text(encoding="utf-8"):
        return "a Chromium is installed on Debian only (Ubuntu's is a snap); Google's Chrome works too"
    return install(["chromium"])


def install_wheels(name: str, what: str) -> str:
    try:
        pinned_wheels.installed(name, what)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no {what}: {error}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install what is missing")
    if parser.parse_args().install:
        whys = [install_servers() if lacking(SERVERS) else "", "" if browser() else install_browser(),
                install_wheels("browser", "Playwright (165 MB)"), install_wheels("readers", "SciPy (150 MB)"),
                install([OTHERS[name] for name in lacking(OTHERS)]) if lacking(OTHERS) else "",
                "" if COMPARE.exists() else install(["libbenchmark-tools"])]
        print("".join(f"tools_of_tests: {why}\n" for why in whys if why), end="")
    others = f"no {', '.join(lacking(OTHERS))}" if lacking(OTHERS) else ""
    missing = [why for why in (no_login(), no_browser(), no_readers(), others) if why]
    print("\n".join(missing) or "all is there")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
