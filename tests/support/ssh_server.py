"""A real sshd on loopback for the tests of scripts/remote.sh: a port, host key and user key of its own.

Where root runs the tests, who logs in is a user that is made for them, whose home folder has a space in its name, and
who is removed again. Otherwise it is the user of the tests, whom the server gives such a home folder.
"""

import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE_S = 20
CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey "{folder}/host_key"
AuthorizedKeysFile "{folder}/authorized_keys"
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
"""
# The login of a user who has no home folder of the test's otherwise.
LOGIN = """#!/bin/sh
export HOME="{home}"
cd
exec "${{SHELL:-/bin/sh}}" -c "$SSH_ORIGINAL_COMMAND"
"""


def program() -> str:
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin") or ""


def key(path: pathlib.Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, as_caller=False):
        """With `as_caller` who logs in is root where root runs the tests, in root's own home folder."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_sshd_"))
        self.folder.chmod(0o755)  # sshd reads the keys as who logs in
        self.home = self.folder / "home of a user"
        caller = pwd.getpwuid(os.geteuid())
        self.made_user = os.geteuid() == 0 and not as_caller
        self.user = f"mkbench-{os.getpid()}" if self.made_user else caller.pw_name
        self.own_home = as_caller
        key(self.folder / "host_key")
        key(self.folder / "user_key")
        self.user_key = self.folder / "user_key"
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        (self.folder / "authorized_keys").chmod(0o644)
        self.known_hosts = self.folder / "known_hosts"
        self.log = self.folder / "sshd.log"
        self.process = None

    def start(self, within=()):
        """`within`: a command that runs another, before the server's."""
        self.port = free_port()
        config = CONFIG.format(port=self.port, folder=self.folder)
        if self.made_user:
            # Without a password, and not locked.
            subprocess.run(["useradd", "--create-home", "--home-dir", str(self.home), "--shell", "/bin/bash",
                            "--password", "*", self.user], check=True)
        elif not self.own_home:
            self.home.mkdir()
            login = self.folder / "login"
            login.write_text(LOGIN.format(home=self.home))
            login.chmod(0o755)
            config += f'ForceCommand "{login}"\n'
        if os.geteuid() == 0:
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        (self.folder / "config").write_text(config)
        kind, text = (self.folder / "host_key.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")
        self.process = subprocess.Popen([*within, program(), "-D", "-f", str(self.folder / "config"), "-E", str(self.log)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while "Server listening" not in (self.log.read_text() if self.log.exists() else ""):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start: {self.log.read_text()}")
            time.sleep(0.02)

    def stop(self):
        if self.process:
            self.end_sessions()
            self.process.terminate()
            self.process.wait()
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
        if self.made_user:
            subprocess.run(["userdel", "--force", self.user], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def logins(self) -> int:
        return self.log.read_text().count("Accepted publickey")

    def sessions(self) -> list[int]:
        """The process that holds each connection: the server's last descendant that is an sshd."""
        children: dict[int, list[int]] = {}
        for pid, parent in sshd_parents().items():
            children.setdefault(parent, []).append(pid)
        found, open_ends = [], children.get(self.process.pid, [])
        while open_ends:
            pid = open_ends.pop()
            open_ends += children.get(pid, [])
            if pid not in children:
                found.append(pid)
        return found

    def end_sessions(self):
        for pid in self.sessions():
            os.kill(pid, signal.SIGKILL)

    def processes(self) -> dict[int, str]:
        """What was started by logins here and is alive, without the connections themselves: pid -> command."""
        found = {}
        ours = re.compile(rb"^SSH_CONNECTION=127\.0\.0\.1 \d+ 127\.0\.0\.1 %d$" % self.port)
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if any(map(ours.match, (folder / "environ").read_bytes().split(b"\0"))):
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")[:80]
            except OSError:
                pass  # it has ended
        return found


def sshd_parents() -> dict[int, int]:
    """The parent of each process that is an sshd."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended
        if "(sshd" in stat:
            found[int(folder.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    return found
