"""Hosts that crash, hang, spin, lie or are killed: each costs its own engine the verdict and nobody else anything.
The engines are copies of one library, tests/plugins/misbehaving.cpp, whose file names say what they do."""

import json
import os
import pathlib
import pty
import shutil
import signal
import time
import unittest

from support.cli_support import BINARY, CliTest, HostsTest

LIBRARY = pathlib.Path(os.environ["PLUGINS"]) / "misbehaving.so"

# Library -> verdict, exit code, and words of the reason, which begins with "the host of ./NAME.so".
DEATHS = {
    "crash": ("RUNTIME_ERROR", 1, " died by signal 11 (Segmentation fault) during 'decode'"),
    "abort": ("RUNTIME_ERROR", 1, " died by signal 6 (Aborted) during 'decode'"),
    "kill": ("RUNTIME_ERROR", 1, " died by signal 9 (Killed), killed from outside during 'decode'"),
    "exit": ("RUNTIME_ERROR", 1, " left with exit status 3 during 'decode'"),
    "orphan": ("RUNTIME_ERROR", 1, " died by signal 11 (Segmentation fault) during 'decode'"),
}
WRONG_ANSWERS = {
    "rubbish": ("RUNTIME_ERROR", 1, ": answered 'decode' with rubbish: \"What is this?"),
    "frame": ("RUNTIME_ERROR", 1, ": answered 'decode' with rubbish: type: found 12, wanted a string"),
    "close": ("RUNTIME_ERROR", 1, " left with exit status 0 during 'decode'"),
}
STANDSTILLS = {
    "hang": ("HANG", 7, ": no progress for "),
    "stop": ("HANG", 7, ": no progress for "),
    "slow": ("TIMEOUT", 7, ": still at work, killed "),
}


class MisbehavingTest(HostsTest):
    references = None

    def library(self, name):
        """A library that does what `name` says, as mkbench is given it."""
        target = self.folder / f"{name}.so"
        if not target.exists():
            shutil.copy(LIBRARY, target)
        return f"./{name}.so"

    def some_prompts(self):
        if self.references is None:
            # corpus-1 is the timed prompt: without it a live check would decode as many tokens.
            self.references = self.short_reference(prompts=("corpus-1", "other-2"))
        return ("--reference", self.references)

    def spoil(self, names, *args, model="tiny", **extra):
        """A short run of these libraries: its result and its report, after which nothing may be left."""
        self.out = self.folder / f"report-{'-'.join(names)}"
        engines = ",".join(self.library(name) for name in names)
        process = self.start("--model", model, "-n", "7", "--blocks", "3", *self.some_prompts(), "--engine", engines,
                             *args, **extra)
        stdout, stderr = process.communicate(timeout=100)
        self.assert_nothing_left()
        report = self.report()
        self.assertEqual(report["verdict"]["exit_code"], process.returncode)
        return process.returncode, report, stdout + stderr

    def check_sound(self, report, *names, samples=3):
        for name in names:
            engine = self.engine(report, name)
            self.assertEqual(engine["verdict"], "PASS", engine["reasons"])
            self.assertEqual(len(engine["samples"]), samples)
            self.assertGreater(engine["ms_per_tok"]["median"], 0)

    def check_spoiled(self, report, name, verdict, reason, samples=1):
        engine = self.engine(report, f"./{name}.so")
        self.assertEqual(engine["verdict"], verdict, engine["reasons"])
        self.assertEqual(len(engine["reasons"]), 1)
        self.assertIn(reason, engine["reasons"][0])
        self.assertIn(f"./{name}.so", engine["reasons"][0])
        self.assertEqual(len(engine["samples"]), samples)
        self.assertIsNone(engine["ms_per_tok"])
        return engine

    def check_each(self, table, *args):
        for name, (verdict, code, reason) in table.items():
            with self.subTest(name=name):
                found, report, told = self.spoil([name, "sound"], *args)
                self.assertEqual(found, code, told)
                self.check_spoiled(report, name, verdict, f"the host of ./{name}.so{reason}")
                self.check_sound(report, "eager", "./sound.so")


class Deaths(MisbehavingTest):
    def test_each_is_its_own(self):
        self.check_each(DEATHS)

    def test_during_open_and_during_parity(self):
        code, report, told = self.spoil(["opencrash", "crash", "sound"], MISBEHAVE_AT="0")
        self.assertEqual(code, 1, told)
        at = "the host of ./{}.so died by signal 11 (Segmentation fault) during '{}'"
        self.check_spoiled(report, "opencrash", "RUNTIME_ERROR", at.format("opencrash", "open"), samples=0)
        crashed = self.check_spoiled(report, "crash", "RUNTIME_ERROR", at.format("crash", "decode"), samples=0)
        self.assertIsNone(crashed["parity"])
        self.check_sound(report, "eager", "./sound.so")

    def test_several_in_one_run(self):
        names = ["crash", "hang", "sound", "throw", "crash-2", "host-twin"]
        self.out = self.folder / "report-several"
        engines = ",".join(name if name == "host-twin" else self.library(name) for name in names)
        process = self.start("--model", "tiny", "-n", "7", "--blocks", "3", "--timeout", "4", *self.some_prompts(),
                             "--engine", engines)
        _, stderr = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 7, stderr)  # HANG outranks RUNTIME_ERROR
        self.assert_nothing_left()
        report = self.report()
        self.check_spoiled(report, "crash", "RUNTIME_ERROR", "signal 11")
        self.check_spoiled(report, "crash-2", "RUNTIME_ERROR", "signal 11")
        self.check_spoiled(report, "hang", "HANG", "no progress for")
        self.check_spoiled(report, "throw", "RUNTIME_ERROR", "it passes")
        self.check_sound(report, "eager", "./sound.so", "host-twin")


class WrongAnswers(MisbehavingTest):
    def test_each_is_its_own(self):
        self.check_each(WRONG_ANSWERS)

    def test_exceptions_through_the_interface(self):
        code, report, told = self.spoil(["throw", "sound"])
        self.assertEqual(code, 1, told)
        self.check_spoiled(report, "throw", "RUNTIME_ERROR", "./throw.so: it passes")
        self.check_sound(report, "eager", "./sound.so")

    def test_out_of_memory(self):
        code, report, told = self.spoil(["memory", "sound"])
        self.assertEqual(code, 6, told)
        self.check_spoiled(report, "memory", "ENV_UNFIT", "./memory.so: out of host memory")
        self.check_sound(report, "eager", "./sound.so")

    def test_standard_output_holds_the_results_alone(self):
        self.out = self.folder / "report-print"
        process = self.start("--model", "tiny", "-n", "7", "--blocks", "3", *self.some_prompts(), "--engine",
                             self.library("print"), "-o", "json")
        stdout, stderr = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, stderr)
        self.assertEqual(json.loads(stdout)["verdict"]["status"], "PASS")
        self.assertIn("a line on standard output", stderr)


class Standstills(MisbehavingTest):
    def test_each_is_its_own(self):
        self.check_each(STANDSTILLS, "--timeout", "4")

    def test_a_call_that_moves_has_until_the_timeout(self):
        """The limits are those of a call: a case of several slow openings is no hang."""
        code, report, told = self.spoil(["openslow", "openslow-2", "sound"], "--timeout", "4")
        self.assertEqual(code, 0, told)
        self.check_sound(report, "eager", "./openslow.so", "./openslow-2.so", "./sound.so")
        for name in ("./openslow.so", "./openslow-2.so"):
            self.assertGreater(self.engine(report, name)["process"]["open_ms"], 3000)
        self.assertLess(self.engine(report, "./sound.so")["process"]["open_ms"], 3000)

    def test_a_host_that_cannot_be_stopped(self):
        """It is ended, and the engine whose turn it was goes on."""
        code, report, told = self.spoil(["unstoppable", "sound"])
        self.assertEqual(code, 7, told)
        self.check_spoiled(report, "unstoppable", "HANG", "cannot be stopped", samples=2)
        self.check_sound(report, "eager", "./sound.so")


class Neighbours(MisbehavingTest):
    def test_children_are_ended(self):
        """A child in the host's process group, and one that has left the group."""
        code, report, told = self.spoil(["child", "daemon", "sound"])
        self.assertEqual(code, 0, told)
        self.check_sound(report, "eager", "./child.so", "./daemon.so", "./sound.so")
        strays = [text for text in report["meta"]["warnings"] if "in a session of its own" in text]
        self.assertRegex("\n".join(strays), r"^the host of \./daemon\.so has process \d+ [^\n]*$")
        self.assertIn(strays[0], told)

    def test_what_every_decode_leaves_behind(self):
        """It is named in `parity`; a pool that is made once is nothing of the kind."""
        kinds = {"children": "processes", "daemons": "processes", "threads": "threads", "leak": "memory"}
        result = self.mkbench("parity", *self.short_model(96), "--device", "cpu", "--out", str(self.out), "--engine",
                              ",".join(self.library(name) for name in (*kinds, "pool")), env={"TMPDIR": str(self.tmp)})
        self.assert_nothing_left()
        self.assertEqual(result.returncode, 8, result.stdout + result.stderr)
        for name, kind in kinds.items():
            with self.subTest(name=name):
                engine = self.engine(self.report(), f"./{name}.so")
                self.assertEqual(engine["verdict"], "INTEGRITY", engine["reasons"])
                self.assertRegex(engine["reasons"][0], rf"^engine \./{name}\.so: its calls leave {kind} behind: ")
        self.assertEqual(self.engine(self.report(), "./pool.so")["verdict"], "PASS")

    def test_a_reset_that_keeps_the_position(self):
        code, report, told = self.spoil(["keeps"])
        self.assertEqual(code, 3, told)
        self.assertRegex(self.engine(report, "./keeps.so")["parity"]["localised"],
                         "^reset\\(\\) keeps the position: a new engine is right on prompt 'corpus-1', and after a reset ")

    def test_spinning_threads_slow_nobody(self):
        """Eight threads spin from the fifth block on: they are stopped while others are timed. What that does to times is
        held by `selftest --timing`."""
        self.out = self.folder / "report-spin"
        process = self.start(
            "--model", "tiny", "-n", "128", "--blocks", "12", *self.some_prompts(), "--engine",
            ",".join(self.library(name) for name in ("spin", "sound")), MISBEHAVE_TOKENS="128", MISBEHAVE_AT="6")
        self.wait_for(process, "timing ")
        seen = []
        while process.poll() is None:
            hosts = {pid: state for pid, (name, state) in self.left_processes().items() if "mkbench-host" in name}
            seen.append(sum(state == "T" for state in hosts.values()) == len(hosts) - 1 > 0)
            time.sleep(0.01)
        _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, stderr)
        # The rest of the time is taken by prefills between the samples and by the end of the run; if nobody is
        # stopped, it is none of the times.
        self.assertGreater(sum(seen), len(seen) / 8, f"{sum(seen)} of {len(seen)} times all others were stopped")
        for name in ("eager", "./sound.so"):
            self.assertEqual(len(self.engine(self.report(), name)["samples"]), 12)

    def test_killed_from_outside(self):
        """Also while the host is stopped, which is when nobody waits for its answer."""
        self.out = self.folder / "report-killed"
        process = self.start("--model", "tiny", "-n", "7", "--blocks", "300", *self.some_prompts(), "--engine",
                             self.library("sound") + ",host-twin")
        self.wait_for(process, "timing ")
        time.sleep(0.5)  # by now the host of the judge's runs is closed
        torch = [pid for pid, (name, _) in self.left_processes().items() if name.endswith("mkbench-host-torch")]
        self.assertEqual(len(torch), 1)
        os.kill(torch[0], signal.SIGKILL)
        _, stderr = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 1, stderr)
        self.assert_nothing_left()
        report = self.report()
        eager = self.engine(report, "eager")
        self.assertEqual(eager["verdict"], "RUNTIME_ERROR")
        self.assertRegex(eager["reasons"][0], r"the host of eager died by signal 9 \(Killed\)")
        self.assertLess(len(eager["samples"]), 300)
        self.check_sound(report, "./sound.so", "host-twin", samples=300)


class Interrupts(MisbehavingTest):
    CASES = ["tiny d=0 n=7", "tiny-untied d=0 n=7"]

    def begin(self, *args, blocks="1000", engine="host-twin", model="tiny,tiny-untied"):
        self.out = self.folder / f"report-{len(list(self.folder.iterdir()))}"
        return self.start("--model", model, "-n", "7", "--blocks", blocks, "--engine", engine, *args)

    def check_interrupted(self, process, seconds, done=()):
        """The report after Ctrl-C: whole, and with all cases."""
        begin = time.monotonic()
        _, stderr = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, seconds)
        self.assertEqual(process.returncode, 130, stderr)
        self.assert_nothing_left()
        report = self.report()
        self.assertEqual({k: report["verdict"][k] for k in ("status", "exit_code", "interrupted")},
                         {"status": "INTERRUPTED", "exit_code": 130, "interrupted": True})
        self.assertEqual([c["name"] for c in report["cases"]], self.CASES)
        for case in report["cases"]:
            if case["name"] in done:
                continue
            self.assertEqual(case["verdict"], "SKIPPED")
            for engine in case["engines"]:
                self.assertEqual((engine["verdict"], engine["samples"]), ("SKIPPED", []))
                self.assertIn("interrupted", engine["reasons"][0])
        return report

    def test_during_the_start(self):
        for delay in (0.05, 0.1, 0.2, 0.4):
            with self.subTest(delay=delay):
                process = self.begin()
                time.sleep(delay)
                send = time.monotonic()
                process.send_signal(signal.SIGINT)
                self.check_interrupted(process, 20)
                self.assertLess(time.monotonic() - send, 20)

    def test_loading_and_parity(self):
        for stage in ("loading tiny", "parity"):
            with self.subTest(stage=stage):
                process = self.begin()
                self.wait_for(process, stage)
                process.send_signal(signal.SIGINT)
                self.check_interrupted(process, 20)

    def test_timing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                process = self.begin(*self.some_prompts())
                self.wait_for(process, "timing ")
                process.send_signal(number)
                report = self.check_interrupted(process, 20, done=self.CASES[:1])
                self.assertLess(len(self.engine(report, "eager")["samples"]), 1000)

    def test_a_terminal_that_is_closed(self):
        command = [BINARY, "--device", "cpu", "--no-plot", "--out", str(self.out), "-v", "--model", "tiny", "-n", "7",
                   "--blocks", "1000", *self.some_prompts()]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(BINARY, command, self.own())
        told = b""
        while b"timing " not in told:
            told += os.read(terminal, 4096)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 130)
        self.assert_nothing_left()
        self.assertEqual(self.report()["verdict"]["status"], "INTERRUPTED")

    def test_the_second_one_ends_a_call_that_hangs(self):
        self.some_prompts()
        process = self.begin("--reference", self.references, engine=self.library("hang"), model="tiny")
        self.CASES = Interrupts.CASES[:1]
        self.wait_for(process, "timing ./hang.so")
        time.sleep(2)  # the second block hangs
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        self.assertIsNone(process.poll(), "the first one lets the running call end")
        process.send_signal(signal.SIGINT)
        self.check_interrupted(process, 10, done=self.CASES)

    def test_hosts_die_with_their_parent(self):
        process = self.begin(*self.some_prompts(), engine=self.library("hang"), model="tiny")
        self.wait_for(process, "timing ./hang.so")
        time.sleep(1)
        self.assertGreaterEqual(len(self.left_processes()), 3)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        self.assert_nothing_left()

    def test_the_next_run_removes_what_a_killed_one_left(self):
        process = self.begin(model="synthetic")
        deadline = time.monotonic() + 30
        while not list(self.tmp.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        self.assert_nothing_left(files=False)
        self.assertEqual([p.name.split("-")[:2] for p in self.tmp.iterdir()], [["mkbench", str(process.pid)]])
        process = self.begin(*self.some_prompts(), blocks="1", model="tiny")
        _, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, stderr)
        self.assert_nothing_left()


class InProcess(MisbehavingTest):
    def ids(self, report):
        return {e["name"]: [s["ids"] for s in e["samples"]] for e in report["cases"][0]["engines"]}

    def test_one_process_gives_what_hosts_give(self):
        reports = []
        for args in ((), ("--in-process",)):
            self.out = self.folder / f"report{len(args)}"
            process = self.start("--model", "tiny", "-n", "7", "--blocks", "2", *self.some_prompts(), "--engine",
                                 f"host-twin,{self.library('sound')}", *args)
            _, stderr = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 0, stderr)
            reports.append(self.report())
        hosts, one = reports
        for report in reports:  # each block has a late id of its own, so the runs emit other ids
            for engine in report["cases"][0]["engines"]:
                self.assertEqual((engine["receipts_checked"], engine["receipts_wrong"]), (14, 0))
                self.assertEqual(len({s["late_id"] for s in engine["samples"]}), 2)
        self.assertEqual({name: len(samples) for name, samples in self.ids(one).items()},
                         {"eager": 2, "host-twin": 2, "./sound.so": 2})
        for name in self.ids(hosts):
            with self.subTest(name=name):
                a, b = self.engine(hosts, name), self.engine(one, name)
                self.assertEqual((a["verdict"], b["verdict"]), ("PASS", "PASS"))
                for field in ("strict_matched", "strict_steps", "decided_steps"):
                    self.assertEqual(a["parity"][field], b["parity"][field])
                program = "mkbench-host-torch" if name == "eager" else "mkbench-host-cuda"
                self.assertEqual(a["process"]["program"], program)
                for field in ("start_ms", "open_ms", "crossing_us"):
                    self.assertGreater(a["process"][field], 0)
                self.assertLess(a["process"]["crossing_us"], 20_000)
        pids = [[e["process"]["pid"] for e in report["cases"][0]["engines"]] for report in reports]
        self.assertEqual(len(set(pids[0])), 3, "each engine has a process of its own")
        self.assertEqual(len(set(pids[1])), 1)


class Selftest(CliTest):
    def test_it_is_faults_or_timing(self):
        for flags in ((), ("--faults", "--timing")):
            result = self.mkbench("selftest", *flags)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn("one of --faults and --timing", result.stderr)

    def test_a_library_of_timing_that_is_not_there_ends_it_before_the_first_row(self):
        for folder in ("timing-cpu", "slowed-cpu"):
            shutil.copytree(LIBRARY.parent / folder, self.folder / folder, copy_function=os.symlink)
        # The engine beside all rows, the last row, and the clock's, which come after them.
        for name in ("timing-cpu/sound.so", "timing-cpu/slow_logits.so", "slowed-cpu/slow_5.so"):
            library = self.folder / name
            library.rename(self.folder / "away")
            result = self.mkbench("selftest", "--timing", "--device", "cpu", "--libraries", str(self.folder))
            self.assertEqual((result.returncode, result.stdout), (2, ""), name)
            self.assertIn(f"no library {library}: build it by scripts/setup.sh, or name", result.stderr)
            (self.folder / "away").rename(library)

    def test_a_row_of_timing_by_itself(self):
        result = self.mkbench("selftest", "--timing", "--device", "cpu", "--rows", "T8", "-q")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "1 rows of the faults of timing: 0 not as wanted, 0 open")
        self.assertRegex(result.stdout, r"T8 +cpu +the same by mkbench audit +part_of_the_head +INTEGRITY +INTEGRITY +- ok")

    def test_lanes_of_some_rows(self):
        result = self.mkbench("selftest", "--faults", "--device", "cpu", "--rows", "27,52,c8")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "faults seen 4 of 4, controls passed 4 of 4")
        self.assertIn("weights", result.stdout)

    def test_models_of_faults_have_a_name(self):
        result = self.mkbench("selftest", "--faults", "--device", "cpu", "--model", "tinny")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("mkbench selftest: --model: found 'tinny', wanted synthetic:SHAPE", result.stderr)
        result = self.mkbench("selftest", "--timing", "--model", "synthetic:qwen3-1.7b")
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("--model goes with --faults", result.stderr)

    def test_a_row_that_is_not_there(self):
        result = self.mkbench("selftest", "--faults", "--device", "cpu", "--rows", "no-such-row")
        self.assertEqual(result.returncode, 2, result.stdout)


if __name__ == "__main__":
    unittest.main()
