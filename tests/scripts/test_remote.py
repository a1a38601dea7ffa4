"""scripts/remote.sh against a real sshd, in the home folder of another user."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support import page_blocks
from support import remote_support
from support import ssh_server
from support.remote_support import MKBENCH, ROOT, RemoteTest

import tools_of_tests

TIMES = r"remote: sync (\d+\.\d) s, build (\d+\.\d) s, run (\d+\.\d) s(?:, fetch (\d+\.\d) s)?; (\d+\.\d) s in all\n"


def setUpModule():
    remote_support.server = ssh_server.Server()
    unittest.addModuleCleanup(remote_support.server.stop)
    remote_support.server.start()


def server():
    return remote_support.server


class Rounds(RemoteTest):
    def test_first_and_second_run(self):
        words = ("--compare", "a b", "it's", "$HOME", "--device=cpu")
        self.assert_ends(0, "--env", "MKBENCH_JOBS=3", "--", *words)
        self.assertEqual(self.out.read_text(), f"[--compare][a b][it's][$HOME][--device=cpu] in {self.there}\n")
        said = r"^setup: building\nremote: the report is in mkbench-report-\S+\n" + TIMES + "$"
        self.assertRegex(self.stderr(), said)
        self.assertEqual(list(self.reports().values()), ["whole"])
        self.assertEqual(self.calls(), ["setup mkbench device=cpu jobs=3", "compiled"])
        sha = subprocess.run(["git", "-C", self.tree, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
        self.assertEqual((self.there / ".mkbench-remote" / "commit").read_text(), f"{sha.strip()} false\n")

        logins, begun = server().logins(), time.monotonic()
        self.assert_ends(0, "--version")
        whole = time.monotonic() - begun
        self.assertEqual(server().logins(), logins)  # the connection was kept
        self.assertEqual(self.calls()[2:], ["setup mkbench device=auto jobs="])  # and so was the build
        self.assertEqual(len(self.reports()), 1)
        self.assertLess(whole, remote_support.LOOP_LIMIT_S)
        print(f"a loop without changes took {whole:.2f} s")
        self.assert_nothing_left_there()

    def test_exit_code_comes_back(self):
        for code in (3, 8, 130):
            self.assert_ends(code, "--version", "--exit", str(code))
            self.assertEqual(self.errors(), [])

    def test_files_follow(self):
        self.write("old/deep/file.cu", "old")
        self.write("file", "becomes a folder")
        self.write("folder/file", "becomes a file")
        committed = self.write("mkbench.sh", MKBENCH, 0o755)
        self.write("name with 'quote' and \n", "odd")
        self.assert_ends(0, "--version")
        self.assertEqual((self.there / "old/deep/file.cu").read_text(), "old")
        (self.there / "old/deep/notes").write_text("made there")
        (self.there / "build/cache").write_text("made there")

        shutil.rmtree(self.tree / "old")
        for name in ("file", "folder/file", "name with 'quote' and \n"):
            (self.tree / name).unlink()
        (self.tree / "folder").rmdir()
        self.write("file/inside", "a folder now")
        self.write("folder", "a file now")
        self.write("build/ignored", "ignored")
        (self.tree / "link").symlink_to("folder")
        # A change whose time lies before the last build, as after a restored backup or with a slow clock.
        committed.write_text(MKBENCH.replace("[%s]", "<%s>"))
        os.utime(committed, (1_600_000_000, 1_600_000_000))
        self.assert_ends(0, "--version")
        self.assertTrue(self.out.read_text().startswith("<--version>"), self.out.read_text())
        self.assertEqual(self.calls().count("compiled"), 2)
        self.assertEqual((self.there / ".mkbench-remote/commit").read_text().split()[1], "true")
        self.assertEqual((self.there / "file/inside").read_text(), "a folder now")
        self.assertEqual((self.there / "folder").read_text(), "a file now")
        self.assertEqual(os.readlink(self.there / "link"), "folder")
        self.assertEqual(sorted(p.name for p in self.there.iterdir() if p.name.startswith(("old", "name"))), ["old"])
        self.assertEqual([p.name for p in (self.there / "old/deep").iterdir()], ["notes"])
        self.assertTrue((self.there / "build/cache").exists())
        self.assertFalse((self.there / "build/ignored").exists())

    def test_reports_never_overwrite(self):
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (self.tree / "deep").mkdir()
        self.assert_ends(0, "--out", "report", cwd=elsewhere)
        self.assertEqual(self.reports(elsewhere), {"report": "whole"})
        (elsewhere / "report" / "report.json").write_text("mine")
        shutil.rmtree(self.there / "report")
        self.assert_ends(5, "--out=x", "--out", "report", "--exit", "5", cwd=elsewhere)
        self.assertEqual(self.reports(elsewhere), {"report": "mine", "report-2": "whole"})
        self.assertIn("remote: the report is in report-2\n", self.stderr())
        # In a folder of the tree mkbench runs in that folder.
        self.assert_ends(0, "--out", "../out", cwd=self.tree / "deep")
        self.assertIn(f" in {self.there}/deep\n", self.out.read_text())
        self.assertEqual(self.reports(), {"out": "whole"})
        # It is not sent back, and a new file beside it is.
        self.write("out/report.json", "mine")
        self.write("out/figures/note", "mine")
        self.write("out-of-report", "new")
        self.assert_ends(0, "--version")
        self.assertEqual((self.there / "out/report.json").read_text(), "whole")
        self.assertFalse((self.there / "out/figures").exists())
        self.assertEqual((self.there / "out-of-report").read_text(), "new")

    def test_before(self):
        self.write("kernel.cu", "kernel")
        copy = "echo told; cp kernel.cu 'kernel of mine.so'"
        self.assert_ends(0, "--before", copy, "--dir", "other place", "--version")
        self.assertEqual((server().home / "other place" / "kernel of mine.so").read_text(), "kernel")
        self.assertIn("told\n", self.stderr())
        self.assert_ends(104, "--before", "echo no nvcc >&2; false", "--version")
        self.assertIn("no nvcc\n", self.stderr())

    def test_watch(self):
        process = self.start("--watch", "--version")
        self.wait_for_output("waiting for a file to be saved")
        self.write("mkbench.sh", MKBENCH.replace("[%s]", "<%s>"), 0o755)
        self.wait_for_output("<--version>")
        self.write("broken", "")
        self.wait_for_output("exit code 104; waiting")
        (self.tree / "broken").unlink()
        self.wait_until(lambda: self.stderr().count("exit code 0; waiting") == 3, "the round after the mended file")
        self.assertIsNone(process.poll())
        self.interrupt(process)
        self.assertEqual(process.wait(10), 106, self.stderr())
        self.assertEqual(self.errors()[1:], ["ended by Ctrl-C"])
        self.assert_nothing_left_there()


class Failures(RemoteTest):
    def test_failing_build(self):
        self.write("broken", "")
        self.assert_ends(104, "--version")
        self.assertIn("kernel.cu:7: error: expected ';'\n", self.stderr())
        self.assert_one_error("set-up or build failed on")
        self.assert_nothing_left_there()

    def start_long_run(self, *args, **options):
        process = self.start("--sleep", *args, **options)
        self.wait_for_output("running\n")
        self.wait_until(lambda: any("sleep 600" in command for command in self.jobs().values()), "sleep 600")
        return process

    def test_dying_connection(self):
        process = self.start_long_run()
        server().end_sessions()
        self.assertEqual(process.wait(20), 102, self.stderr())
        self.assert_one_error("the connection to .* broke")
        self.assertEqual(self.stderr().count("\n"), 2, self.stderr())  # set-up's line is the other one
        self.assert_nothing_left_there()
        self.assert_ends(0, "--version")  # over a new connection

    def test_connection_dies_while_files_are_sent_or_fetched(self):
        for direction, wanted in [("sent", "the files could not be sent to"),
                                  ("fetched", "the report could not be fetched")]:
            self.assert_ends(0, "--version")
            (session,) = server().sessions()
            shot = f'kill -KILL {session}; while kill -0 {session}; do sleep 0.02; done 2> /dev/null'
            last = "./" if direction == "sent" else "report/"
            tools = self.tool("rsync", f'case "${{@: -1}}" in *{last}) {shot} ;; esac\n'
                                       f'exec {shutil.which("rsync")} "$@"')
            self.assert_ends(102, "--out", "report", tools=tools)
            self.assert_one_error(wanted)
            self.assertEqual(self.reports(), {})

    def test_ctrl_c_while_files_are_sent(self):
        tools = self.tool("rsync", f'[ "$1" != --version ] || exec {shutil.which("rsync")} "$@"; '
                                   f': > "{self.folder}/sending"; exec sleep 600')
        process = self.start("--version", tools=tools)
        self.wait_until((self.folder / "sending").exists, "rsync")
        self.interrupt(process)
        self.assertEqual(process.wait(20), 106, self.stderr())
        self.assert_one_error("ended by Ctrl-C")
        self.assert_nothing_left_there()

    def test_connection_without_a_word(self):
        process = self.start_long_run(patience_s=2)
        (session,) = server().sessions()
        os.kill(session, signal.SIGSTOP)  # no end of file, and nothing comes
        try:
            self.assert_nothing_left_there()
            self.assertEqual(process.wait(20), 102, self.stderr())
        finally:
            os.kill(session, signal.SIGKILL)
        self.assert_one_error("the connection to .* broke")

    def test_killed_here(self):
        process = self.start_long_run()
        process.kill()
        self.assert_nothing_left_there()
        process = self.start_long_run()
        process.terminate()
        self.assertEqual(process.wait(20), 143)
        self.assert_nothing_left_there()

    def test_ctrl_c_leaves_a_partial_report(self):
        process = self.start_long_run()
        self.interrupt(process)
        self.assertEqual(process.wait(20), 130, self.stderr())
        self.assertEqual(list(self.reports().values()), ["partial"])
        self.assertEqual(self.errors(), [])
        self.assertRegex(self.stderr(), TIMES)
        self.assert_nothing_left_there()

    def test_ctrl_c_twice_ends_what_does_not_listen(self):
        process = self.start_long_run("--stubborn")
        self.interrupt(process)
        time.sleep(0.5)
        self.assertIsNone(process.poll())
        self.interrupt(process)
        self.assertEqual(process.wait(20), 106, self.stderr())
        self.assert_one_error("ended by Ctrl-C; nothing is left running on")
        self.assertEqual(self.jobs(), {})

    def test_ctrl_c_in_the_build(self):
        self.write("slow", "")
        process = self.start("--version")
        self.wait_until((self.there / "build" / "slow").exists, "the build")
        self.interrupt(process)
        self.assertEqual(process.wait(20), 106, self.stderr())
        self.assert_one_error("ended by Ctrl-C")
        self.assert_nothing_left_there()

    def test_next_call_waits_for_its_turn(self):
        first = self.start_long_run()
        out, said = self.out, self.said
        self.out, self.said = self.folder / "out2", self.folder / "said2"
        second = self.start("--version")
        self.wait_for_output("waiting for it")
        self.interrupt(first)
        self.assertEqual((first.wait(20), second.wait(20)), (130, 0), said.read_text() + self.stderr())
        self.assertIn("running", out.read_text())

    def test_bad_host(self):
        self.assert_ends(100, "--version", target=f"{server().user}@127.0.0.1:{ssh_server.free_port()}")
        self.assert_one_error("127.0.0.1 cannot be reached: .*refused")
        self.assertEqual(self.stderr().count("\n"), 1, self.stderr())
        self.assert_ends(100, "--version", target="no-such-host.invalid")
        self.assert_one_error("no-such-host.invalid cannot be reached")

    def test_bad_key(self):
        ssh_server.key(self.folder / "other_key")
        self.assert_ends(101, "--version", key=self.folder / "other_key")
        self.assert_one_error(r"refuses the login: .*Permission denied \(publickey\)")

    def test_bad_host_key(self):
        known = self.folder / "known"
        kind, text = (self.folder / server().user_key).with_suffix(".pub").read_text().split()[:2]
        known.write_text(f"[127.0.0.1]:{server().port} {kind} {text}\n")
        self.assert_ends(101, "--version", known_hosts=known)
        self.assert_one_error("refuses the login: Host key verification failed")
        self.assertEqual(self.stderr().count("\n"), 1, self.stderr())

    def test_full_disk(self):
        if not server().made_user:
            self.skipTest("a small disk can be mounted by root alone")
        small = server().home / "small disk"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "mkbench", small], capture_output=True)
        if mounted.returncode:
            self.skipTest(f"no small disk can be mounted: {mounted.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", small], check=True)
        shutil.chown(small, server().user)
        big = self.write("big", "")
        big.write_bytes(os.urandom(2_000_000))
        self.assert_ends(103, "--dir", "small disk/tree", "--version")
        self.assert_one_error("a disk on .* is full: .*No space left on device")
        big.unlink()
        self.write("huge", "")
        self.assert_ends(103, "--dir", "small disk/tree", "--version")
        self.assert_one_error("a disk on .* is full: set-up or build failed")
        (self.tree / "huge").unlink()
        (small / "tree" / "build" / "huge").unlink()
        self.assert_ends(0, "--dir", "small disk/tree", "--version")

    def test_folder_of_somebody_else(self):
        mine = server().home / f"mine-{self.tree.name}"
        mine.mkdir()
        (mine / "thesis").write_text("mine")
        self.assert_ends(107, "--dir", mine.name, "--version")
        self.assert_one_error("is not empty and was not made by remote.sh: choose another one with --dir")
        self.assertEqual([p.name for p in mine.iterdir()], ["thesis"])

    def test_folder_of_connections_that_is_not_this_users_alone(self):
        number = f"test-{os.getpid()}"  # of the user, in the folder's name
        tools, sockets = self.tool("id", f"echo {number}"), pathlib.Path(f"/tmp/mkbench-ssh-{number}")
        self.addCleanup(shutil.rmtree, sockets, ignore_errors=True)
        for mode, owner in ((0o755, os.getuid()), (0o710, os.getuid()), (0o700, 1))[:3 if os.getuid() == 0 else 2]:
            with self.subTest(mode=mode, owner=owner):
                sockets.mkdir(exist_ok=True)
                sockets.chmod(mode)
                os.chown(sockets, owner, -1)
                self.assert_ends(107, "--version", tools=tools)
                self.assert_one_error(f"^{sockets} is there and is not a folder of this user's alone$")
        sockets.rmdir()
        sockets.symlink_to(self.folder)  # which is this user's alone
        self.addCleanup(sockets.unlink)
        self.assert_ends(107, "--version", tools=tools)

    def test_missing_programs(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("bash", "dirname", "git", "ssh", "cat", "basename", "id", "mkdir"):
            (tools / name).symlink_to(shutil.which(name))
        environment = {"PATH": str(tools), "HOME": str(self.folder)}
        here = subprocess.run(self.command("--version"), env=environment, capture_output=True, text=True)
        self.assertEqual((here.returncode, here.stderr),
                         (105, "remote: error: this machine has no rsync (apt-get or brew install rsync)\n"))
        # The part that runs there, on a machine without it.
        there = subprocess.run(["bash", self.tree / "scripts" / "remote_job.sh", "prepare", "folder", "sha false", "0"],
                               env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual((there.returncode, there.stderr),
                         (105, "it has no rsync (apt-get install rsync util-linux)\n"))

    def test_list_that_was_cut_short_removes_nothing(self):
        self.assert_ends(0, "--version")
        cut = subprocess.run(["bash", self.tree / "scripts" / "remote_job.sh", "prepare", self.there, "sha false", "99"],
                             input="mkbench.sh\0", capture_output=True, text=True)
        self.assertEqual((cut.returncode, cut.stderr), (107, "the list of files came incomplete\n"))
        self.assertTrue((self.there / "scripts" / "run.sh").exists())

    def test_command_line(self):
        for args, wanted in [([], "the host comes first, found 'nothing'"), (["--dir", "x"], "the host comes first"),
                             (["h:x"], "the port is 'x', wanted a number"), (["u@:22"], "the host is empty"),
                             (["h", "--dir"], "--dir has no value"), (["h", "--env", "=1"], "wanted NAME=VALUE")]:
            done = subprocess.run([self.tree / "scripts" / "remote.sh", *args], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf"^remote: error: .*{wanted}.*\n$")

    def test_no_option_hides_one_of_mkbench(self):
        sources = "".join(path.read_text() for path in sorted((ROOT / "harness").rglob("*.[ch]*")))
        theirs = {name for flag in re.findall(r'\bflag\(\s*"([a-z,-]+)', sources) for name in flag.split(",")}
        self.assertGreater(len(theirs), 50)
        done = subprocess.run([self.tree / "scripts" / "remote.sh", "--help"], capture_output=True, text=True)
        ours = set(re.findall(r"^  --?([a-z]+)", done.stdout, re.MULTILINE))
        self.assertGreaterEqual(ours, {"dir", "i", "ssh", "watch"})
        self.assertEqual(ours & theirs, set())


class Page(RemoteTest):
    """docs/remote.md: its commands run as they stand there, with an ssh that takes the page's hosts for this server."""
    PAGE = (ROOT / "docs" / "remote.md").read_text()
    BLOCKS = page_blocks.blocks("docs/remote.md")
    SSH = """previous="" words=()
for word in "$@"; do
  case "$previous $word" in
    *" root@203.0.113."[78] | *" ubuntu@203.0.113."[78]) word=@USER@@127.0.0.1 ;;
    "-l root" | "-l ubuntu") word=@USER@ ;;
    *" "203.0.113.[78]) word=127.0.0.1 ;;
  esac
  words+=("$word") previous="$word"
done
exec @SSH@ -F none -i @KEY@ -o IdentitiesOnly=yes -o UserKnownHostsFile=@HOSTS@ -o Port=@PORT@ "${words[@]}" """

    def setUp(self):
        super().setUp()
        for name in ("tests/plugins/naive_cpu.cpp", "references/engine_abi.h"):
            self.write(name, (ROOT / name).read_text())
        script = self.SSH
        for name, value in {"USER": server().user, "KEY": server().user_key, "HOSTS": server().known_hosts,
                            "PORT": server().port, "SSH": shutil.which("ssh")}.items():
            script = script.replace(f"@{name}@", str(value))
        self.tools = self.tool("ssh", script)

    def start_block(self, block):
        environment = os.environ | {"PATH": f"{self.tools}:{os.environ['PATH']}"}
        with self.out.open("w") as out, self.said.open("w") as said:
            process = subprocess.Popen(["bash", "-euc", block], cwd=self.tree, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=said, start_new_session=True)
        self.addCleanup(process.kill)
        return process

    def test_commands(self):
        ended, there = [], server().home / "mkbench-remote"
        # The page's folder may be somebody's own on this machine.
        chosen = f"/var/tmp/mkbench-test-{os.getpid()}"
        self.addCleanup(shutil.rmtree, chosen, ignore_errors=True)
        self.addCleanup(server().end_sessions)  # each of the page's hosts has a connection of its own
        for block in self.BLOCKS:
            process = self.start_block(block.replace("/var/tmp/mkbench", chosen))
            if "--watch" in block:
                self.wait_for_output("waiting for a file to be saved")
                self.assertTrue((there / self.tree.name / "mine" / "engine.so").exists(), self.stderr())
                self.interrupt(process)
            ended.append((block.split("\n")[0], process.wait(60)))
        watch = next(i for i, block in enumerate(self.BLOCKS) if "--watch" in block)
        self.assertEqual([code for _, code in ended], [106 if i == watch else 0 for i in range(len(self.BLOCKS))], ended)
        self.assertEqual(len(self.BLOCKS), 7)
        self.assertEqual({name for name in self.reports() if not name.startswith("mkbench-report-")},
                         {"report-h100", "report-5090"})
        self.assertFalse(there.exists())

    def test_exit_codes_are_those_of_the_help(self):
        usage = subprocess.run([self.tree / "scripts" / "remote.sh", "--help"], capture_output=True, text=True).stdout
        codes = re.findall(r"^ +(2|10\d)  ", usage, re.MULTILINE)
        self.assertEqual(len(codes), 9)
        self.assertEqual(re.findall(r"^\| (\d+) \|", self.PAGE, re.MULTILINE), codes)


class KeptConnection(RemoteTest):
    def test_close_ends_it(self):
        self.assert_ends(0, "--version")
        self.assertEqual(len(server().sessions()), 1)
        self.assert_ends(0, "--close")
        self.wait_until(lambda: not server().sessions(), "the end of the connection")

    def test_a_dead_one_is_replaced(self):
        self.assert_ends(0, "--close")
        self.assert_ends(0, "--version", patience_s=2)
        (session,) = server().sessions()
        os.kill(session, signal.SIGSTOP)  # as after a night in which the laptop slept
        try:
            self.assert_ends(0, "--version", patience_s=2)
        finally:
            os.kill(session, signal.SIGKILL)
        self.assertEqual(self.errors(), [])


if __name__ == "__main__":
    why_not = tools_of_tests.no_login()
    if why_not:
        print(f"skipped: {why_not}")
        sys.exit(77)
    unittest.main()
