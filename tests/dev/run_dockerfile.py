"""Carries out a container file in a plain system, without a container engine: what `docker build` and `docker run` do
with its instructions, but for the image and the volumes. As root, in a folder that holds a Debian or Ubuntu system.

usage: run_dockerfile.py [--build-arg NAME=VALUE ...] [--volume SOURCE:TARGET ...] DOCKERFILE SYSTEM [COMMAND ...]

COMMAND is run as the file's user, in its folder, with its environment and the volumes; without one the file's CMD is
printed. The parser is docker's own (scripts/requirements/containers.txt). A command that fails ends it with its exit
code. What it mounts, /proc, /dev and the volumes, goes with the mount namespace: run it under `unshare --mount`.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from pinned_wheels import installed  # noqa: E402

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Build:
    """What the instructions have set so far."""

    def __init__(self, system: pathlib.Path, arguments: dict[str, str]):
        self.system, self.given = system, arguments
        self.environment = {"PATH": PATH, "HOME": "/root"}
        self.arguments: dict[str, str] = {}
        self.shell, self.user, self.folder = ["/bin/sh", "-c"], "0", "/"
        self.command: list[str] = []

    def expand(self, word: str) -> str:
        """A word with the variables that ARG and ENV have set; one that is not set is an error."""
        values = self.arguments | self.environment
        return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], word)

    def inside(self, path: str) -> pathlib.Path:
        return self.system / path.lstrip("/")

    def run(self, command: list[str], variables: dict[str, str]) -> int:
        """A command in the system, as the user that is set."""
        settings = [f"{name}={value}" for name, value in variables.items()]
        return subprocess.run(
            ["chroot", f"--userspec={self.user}:{self.user}", "--groups=", str(self.system), "env", "-i", *settings,
             "/bin/sh", "-c", 'cd "$0" && exec "$@"', self.folder, *command],
            stdin=subprocess.DEVNULL, check=False).returncode

    def carry_out(self, name: str, values: tuple[str, ...]) -> int:
        """One instruction; the status of a RUN, else 0."""
        match name:
            case "FROM" | "VOLUME":
                pass  # the system is there; volumes are folders in it
            case "SHELL":
                self.shell = list(values)
            case "ARG":
                key, _, default = values[0].partition("=")
                self.arguments[key] = self.given.get(key, default)
            case "ENV":
                self.environment |= dict(zip(values[::2], map(self.expand, values[1::2])))
            case "COPY":
                for source in values[:-1]:
                    shutil.copy(ROOT / source, self.inside(values[-1]))
            case "USER":
                self.user = self.expand(values[0])
            case "WORKDIR":
                self.folder = self.expand(values[0])
                self.inside(self.folder).mkdir(parents=True, exist_ok=True)
            case "CMD":
                self.command = list(values)
            case "RUN":
                return self.run([*self.shell, values[0]], self.arguments | self.environment)
            case _:
                sys.exit(f"run_dockerfile: {name}: an instruction that is not known here")
        return 0


def home_of(build: Build) -> str:
    """The home of the user that is set, as an engine looks it up in the system."""
    for line in build.inside("/etc/passwd").read_text(encoding="utf-8").splitlines():
        fields = line.split(":")
        if build.user in (fields[0], fields[2]):
            return fields[5]
    sys.exit(f"run_dockerfile: USER: {build.user} is not in the system's /etc/passwd")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile")
    parser.add_argument("system", type=pathlib.Path)
    parser.add_argument("--build-arg", action="append", default=[], type=lambda word: word.split("=", 1))
    parser.add_argument("--volume", action="append", default=[], type=lambda word: word.split(":", 1))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> int:
    options = parse()
    sys.path.insert(0, str(installed("containers", "docker's parser (12 MB)")))
    import dockerfile  # from the folder above
    build = Build(options.system.resolve(), dict(options.build_arg))
    subprocess.run(["mount", "-t", "proc", "proc", str(build.inside("/proc"))], check=True)
    subprocess.run(["mount", "--rbind", "/dev", str(build.inside("/dev"))], check=True)
    for instruction in dockerfile.parse_file(options.dockerfile):
        print(f"== {instruction.original}", flush=True)
        status = build.carry_out(instruction.cmd.upper(), instruction.value)
        if status:
            print(f"run_dockerfile: line {instruction.start_line}: exit code {status}", file=sys.stderr)
            return status
    if not options.command:
        print(" ".join(build.command))
        return 0
    for source, target in options.volume:
        build.inside(target).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", source, str(build.inside(target))], check=True)
    return build.run(options.command, build.environment | {"HOME": home_of(build)})


if __name__ == "__main__":
    sys.exit(main())
