"""A real Slurm on this machine's loopback for tests: two nodes of eight stand-in cards each.

  slurm_on_loopback.py            says what is missing
  slurm_on_loopback.py --install  installs it: Debian's packages slurm-wlm and munge

It needs root (slurmd starts jobs for users), control groups (/sys/fs/cgroup), and a machine without a Slurm of its own. On a
machine with systemd the packages would start services, so nothing is installed there unless CI is set. All that a test
writes is in a folder of its own, a configuration in SLURM_CONF and a munged of its own with its own key and socket;
/etc/slurm is not touched.
"""

import argparse
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "dev"))

import tools_of_tests  # noqa: E402

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
PACKAGES = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "srun": "slurm-wlm", "munged": "munge"}
NODES, CARDS = ("n1", "n2"), 8
PATIENCE_S = 40
# The stand-ins are character devices: with regular files Slurm sets no CUDA_VISIBLE_DEVICES. config_overrides lets a node
# have more processors than the machine.
CONFIG = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port0}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
GresTypes=gpu
ReturnToService=2
MpiDefault=none
JobRequeue=1
KillWait=5
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=16 RealMemory=2000 Gres=gpu:8 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port2} CPUs=16 RealMemory=2000 Gres=gpu:8 State=UNKNOWN
PartitionName=cards Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


def missing_programs() -> list:
    return [name for name in PACKAGES if not shutil.which(name, path=PATH)]


def missing() -> str:
    """Why there can be no Slurm here; empty where it can."""
    if lacking := missing_programs():
        return f"no {', '.join(lacking)} (tests/support/slurm_on_loopback.py --install)"
    if os.geteuid() != 0:
        return "slurmd needs root"
    if not any(pathlib.Path("/sys/fs/cgroup").glob("*")):
        return "no control groups: /sys/fs/cgroup is empty"
    return ""


def install() -> str:
    """Why nothing was installed; empty where something was."""
    if pathlib.Path("/run/systemd/system").exists() and not os.environ.get("CI"):
        return "this machine has systemd, and the packages would start services: install them yourself, or set CI"
    return tools_of_tests.install(sorted(set(PACKAGES.values())))


def free_ports(count: int) -> list:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Slurm:
    """start() and stop(); environment() is for who asks it."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_slurm_"))
        self.processes = []

    def environment(self) -> dict:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": PATH}

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | self.environment(), capture_output=True, text=True, timeout=60,
                              check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def start(self) -> None:
        os.chmod(self.folder, 0o755)
        for name in ("ctld", *NODES, "cards"):
            (self.folder / name).mkdir()
        self.start_munge()
        for number in range(CARDS):
            os.mknod(self.folder / "cards" / str(number), 0o20666, os.makedev(1, 3))
        ports = free_ports(3)
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            host=socket.gethostname().split(".")[0], folder=self.folder, port0=ports[0], port1=ports[1], port2=ports[2]))
        (self.folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={self.folder}/cards/[0-7]\n")
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        self.spawn("slurmctld", "-D")
        for node in NODES:
            self.spawn("slurmd", "-D", "-N", node)
        self.until_idle()

    def start_munge(self) -> None:
        user, munge = pwd.getpwnam("munge"), self.folder / "munge"
        munge.mkdir(mode=0o755)
        (munge / "key").write_bytes(secrets.token_bytes(256))
        (munge / "key").chmod(0o400)
        for path in (munge, munge / "key"):
            os.chown(path, user.pw_uid, user.pw_gid)
        command = ["munged", "--foreground", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                   f"--log-file={munge}/log", f"--seed-file={munge}/seed"]
        self.processes.append(subprocess.Popen(command, env=os.environ | {"PATH": PATH}, user=user.pw_uid, group=user.pw_gid,
                                               extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL))
        end = time.monotonic() + PATIENCE_S
        while not (munge / "socket").exists():
            if time.monotonic() > end:
                raise RuntimeError("munged did not start: " + (munge / "log").read_text()[-500:])
            time.sleep(0.05)

    def spawn(self, *command: str) -> None:
        log = open(self.folder / f"{command[0]}.out", "a", encoding="utf-8")
        self.processes.append(subprocess.Popen(command, env=os.environ | self.environment(), stdin=subprocess.DEVNULL,
                                               stdout=log, stderr=log, cwd=self.folder))
        log.close()

    def until_idle(self) -> None:
        end, seen = time.monotonic() + PATIENCE_S, ""
        while time.monotonic() < end:
            try:
                seen = self.ask("sinfo", "--noheader", "--Node", "--partition=cards", "--format=%T")
            except RuntimeError as error:
                seen = str(error)
            if seen.split() == ["idle", "idle"]:
                return
            time.sleep(0.2)
        raise RuntimeError(f"the nodes are not idle: {seen}; " + (self.folder / "slurmctld.log").read_text()[-800:])

    def stop(self) -> None:
        try:
            self.ask("scancel", "--user=root", "--signal=KILL", "--full")
            self.ask("scancel", "--user=root")
        except RuntimeError:
            pass
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="install what is missing")
    if parser.parse_args().install and missing_programs():
        if why := install():
            print(f"slurm_on_loopback: {why}")
    print(missing() or f"{shutil.which('slurmctld', path=PATH)}, {shutil.which('munged', path=PATH)}")
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
