"""What the real binary says before a run, what it keeps where files cannot be written, and its parity table."""

import collections
import importlib.util
import os
import pathlib
import pty
import re
import shutil
import subprocess
import time
import unittest

from support.cli_support import BINARY, CliTest, environment


class FullDisk(CliTest):
    """Files that cannot be written cost nothing of what was measured: it is on stdout already."""

    FLAGS = ["--device", "cpu", "--model", "tiny", "-n", "4", "--blocks", "1", "--no-plot"]

    def check(self, result, said):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("| host-twin |", result.stdout)
        self.assertIn("Parity: TRUE", result.stdout)
        self.assertIn("**PASS**", result.stdout)
        self.assertRegex(result.stderr, f"error: report: .*{said}.*the results are on standard output")
        if (self.out / "report.json").exists():  # as it was before the last case ended
            self.assertTrue(self.report()["verdict"]["interrupted"])

    def test_a_full_disk(self):
        self.out.mkdir()
        # A disk of two pages: the folder is made, and the first file does not fit.
        script = f'mount -t tmpfs -o size=8k none "{self.out}" && exec "$@"'
        space = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
        probe = subprocess.run([*space, "sh", "-c", script, "sh", "true"], stderr=subprocess.DEVNULL, check=False)
        if probe.returncode != 0:
            self.skipTest("no file system may be mounted here")
        result = subprocess.run(
            [*space, "sh", "-c", script, "sh", BINARY, *self.FLAGS, "--reference", self.short_reference(),
             "--out", str(self.out)], cwd=self.folder, env=environment(), timeout=100, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, check=False)
        self.check(result, "No space left on device")

    def test_a_file_that_cannot_be_made(self):
        process = subprocess.Popen(
            [BINARY, *self.FLAGS, "--reference", self.short_reference(), "--out", str(self.out)], cwd=self.folder,
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not (self.out / "report.json").exists() and time.monotonic() < deadline:  # it has found the folder empty
            time.sleep(0.01)
        (self.out / "report.md.partial").mkdir()
        stdout, stderr = process.communicate(timeout=100)
        self.check(subprocess.CompletedProcess([], process.returncode, stdout, stderr), "Is a directory")


def taken_by(root):
    """Bytes of memory of a process and all below it. What several of them map counts once: a share of each page of a file,
    and of the weights, which all map whole, the most that one of them has mapped."""
    children = collections.defaultdict(list)
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            children[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parent.name))
        except OSError:
            pass  # it has ended
    found, own, weights = [root], 0, 0
    for pid in found:
        found += children[pid]
        try:
            folder = pathlib.Path(f"/proc/{pid}")
            own += sum(int(x) for x in re.findall(r"^Pss_(?:Anon|File): +(\d+)", (folder / "smaps_rollup").read_text(), re.M))
            weights = max(weights, int(re.search(r"^RssShmem:\s+(\d+)", (folder / "status").read_text(), re.M)[1]))
        except (OSError, TypeError):
            pass
    return 1024 * (own + weights)


class Foretold(CliTest):
    """Runs alone: a page of a library that other processes map too counts in part.

    A late id at a near tie starts a run with an fp32 head after the timing, and late ids are random. The memory that is
    told has room for that run; it decides what is told only where timing meets more cache lengths than judging does.
    """

    def test_time_and_memory_are_told_first_and_checked_last(self):
        result = self.bench("--reference", self.short_reference(), "-n", "64", "--blocks", "8", timeout=180)
        self.assertEqual(result.returncode, 0, result.stderr)
        # A warning that the machine is busy may stand before both.
        first, *_, last = [line for line in result.stderr.splitlines()
                           if not line.endswith("the pace") and "not fit for a verdict" not in line]
        self.assertRegex(first, r"1 case: about [\d.]+ s, [\d,]+ MB of memory \([\d,]+ MB are free\)")
        self.assertRegex(last, r"took [\d.]+ s, [\d.]+ s predicted; at most [\d,]+ MB of memory, [\d,]+ MB predicted")
        told = self.report()["meta"]["outlook"]
        self.assertLess(abs(told["bytes_predicted"] / told["bytes_taken"] - 1), 0.1, told)

    def check_peak_of_a_cut(self, engines):
        """Looks at the processes from outside, during the calls of engines too."""
        process = subprocess.Popen(
            [BINARY, "--device", "cpu", "--model", "synthetic:cut", "--engine", engines, "--compare", "none", "-n", "4",
             "--blocks", "1", "--no-plot", "--out", str(self.out)], cwd=self.folder, env=environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        peak = before = 0
        while process.poll() is None:
            now = taken_by(process.pid)
            # A page can move from one process to the other while they are read, but hardly twice.
            peak, before = max(peak, min(now, before)), now
            time.sleep(0.05)
        told = self.report()["meta"]["outlook"]
        self.assertLess(abs(told["bytes_predicted"] / peak - 1), 0.1, (told, peak))

    def test_memory_of_four_layers(self):
        self.check_peak_of_a_cut("host-twin")

    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
    def test_memory_of_four_layers_with_an_engine_in_python(self):
        self.check_peak_of_a_cut("host-twin,hf")


class Told(CliTest):
    """What a run says of itself before it begins, and what it says once."""

    def test_what_cannot_fit_is_refused_before_it_runs(self):
        slow = pathlib.Path(os.environ["PLUGINS"]) / "slowed-cpu" / "pace_6.so"  # 24 seconds, whatever the machine does
        for flags, code, said in (
                (["--time-budget", "0.1"], 5, "judging host-twin takes about"),
                (["--engine", slow, "--timeout", "15", "-n", "4000"], 7, "a decode of 4000 tokens by")):
            with self.subTest(flags=flags):
                result = self.mkbench("--dry-run", "--device", "cpu", "--model", "tiny", *flags)
                self.assertEqual(result.returncode, code, result.stdout + result.stderr)
                self.assertIn(said, result.stderr)
                self.assertIn("it would end as", result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_reason_for_the_cpu_is_told_once_on_a_terminal(self):
        reason = self.mkbench("list", "devices").stdout.partition("no usable GPU: ")[2].strip()
        if not reason:
            self.skipTest("this machine has a usable GPU")
        flags = ["--model", "tiny", "-n", "4", "--blocks", "1", "--no-plot", "--reference", self.short_reference()]
        piped = self.mkbench(*flags, "--out", str(self.out))
        self.assertIn(reason, piped.stdout)
        self.assertIn(reason, piped.stderr)
        ours, theirs = pty.openpty()
        process = subprocess.Popen([BINARY, *flags, "--out", str(self.folder / "second")], cwd=self.folder,
                                   env=environment(), stdout=theirs, stderr=theirs)
        self.addCleanup(process.kill)
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(ours)
        self.assertEqual(process.wait(timeout=100), 0)
        self.assertEqual(shown.decode().count(reason), 1, shown.decode())
        self.assertIn(reason, (self.folder / "second" / "report.md").read_text())


class ParityTable(CliTest):
    def shown(self, *flags, locale="C.UTF-8"):
        result = self.bench("--reference", self.short_reference(), "--compare", "none", *flags,
                            env_more={"LC_ALL": locale})
        shutil.rmtree(self.folder / "references")
        shutil.rmtree(self.out, ignore_errors=True)
        return result.stdout

    def test_short_unless_whole_is_asked_for(self):
        brief = self.shown()
        self.assertIn("Parity: TRUE \u2713 112 of 112 tokens match", brief)
        self.assertIn("4 of 112 rows; --parity-table prints all, report.json has them", brief)
        self.assertRegex(brief, r'\| " " +\| " " +\| \u2713')
        whole = self.shown("--parity-table", locale="C")
        self.assertEqual(whole.count("EXACT |"), 2 * 112)  # eager's too
        self.assertIn("Parity: TRUE 112 of 112 tokens match", whole)
        failed = self.shown("--plant-fault", "rope_interleaved")
        self.assertRegex(failed, r"Parity: FALSE \u2717 first at prompt \S+, position \d+")
        self.assertEqual(len(re.findall(r"^\| (?:corpus|other)-", failed, re.M)), 10)
        whole = self.shown("--plant-fault", "rope_interleaved", "--parity-table")
        self.assertEqual(whole.count("| corpus-17 "), 2 * 64)  # eager's too

    def test_only_a_prompt_is_judged(self):
        result = self.mkbench("parity", "--device", "cpu", "--model", "tiny", "--only", "other-2", "--out", str(self.out),
                              env={"LC_ALL": "C.UTF-8"})
        self.assertEqual(result.returncode, 0, result.stderr)
        parity = self.engine(self.report(), "host-twin")["parity"]
        self.assertEqual({row["prompt"] for row in parity["rows"]}, {"other-2"})
        self.assertEqual((parity["steps"], len(parity["rows"])), (48, 48))
        checks = {c["name"]: c for c in parity["checks"]}
        self.assertEqual(checks["r_rms"]["detail"], "one prompt alone is judged")
        self.assertNotIn("sweep", {name for name, c in checks.items() if c["status"] == "passed"})
        self.assertIn("48 of 48 tokens match", result.stdout)
        unknown = self.mkbench("parity", "--device", "cpu", "--model", "tiny", "--only", "nobody")
        self.assertEqual(unknown.returncode, 2, unknown.stderr)
        self.assertIn("found no prompt 'nobody', wanted one of the prompts and positions 'corpus-1' 0-127", unknown.stderr)


if __name__ == "__main__":
    unittest.main()
