"""Machines on which libraries or programs are missing or broken, and narrow containers: what needs them says so, and
everything else works."""

import os
import pathlib
import shutil
import subprocess
import time
import unittest

from support.cli_support import BINARY, HostsTest

BUILD = pathlib.Path(BINARY).parent
PROGRAMS = ("mkbench", "mkbench-host-cuda", "mkbench-host-torch")
TORCH_FOLDER = b"/torch/lib"  # in the RUNPATH of mkbench-host-torch
RUN = ("--device", "cpu", "--model", "tiny", "-n", "4", "--blocks", "1", "--no-plot")
REPAIR = "scripts/setup.sh"


def run_in(folder, *command, timeout=100, env=None):
    return subprocess.run(command, cwd=folder, env=env, timeout=timeout, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)


class CopyTest(HostsTest):
    """Copies of the programs, which a test may break."""

    def setUp(self):
        super().setUp()
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        for name in PROGRAMS:
            shutil.copy(BUILD / name, self.programs / name)
        self.libraries = self.folder / "lib"  # searched before the RUNPATH
        self.libraries.mkdir()

    def call(self, *args):
        return run_in(self.folder, str(self.programs / "mkbench"), *args,
                      env=self.own(LD_LIBRARY_PATH=str(self.libraries)))

    def rename_in(self, program, old, new):
        """Changes a name inside a program to another of equal length."""
        self.assertEqual(len(old), len(new))
        path = self.programs / program
        content = path.read_bytes()
        self.assertIn(old, content)
        path.write_bytes(content.replace(old, new))

    def empty_library(self, name, code=""):
        """A library that exports nothing of what its users look for."""
        source = self.folder / "empty.cpp"
        source.write_text(code)
        subprocess.run([os.environ["CXX"], "-shared", "-fPIC", str(source), "-o", str(self.libraries / name)], check=True)

    def check_what_needs_no_host(self):
        seconds = []
        for _ in range(5):
            begin = time.monotonic()
            result = self.call("--help")
            seconds.append(time.monotonic() - begin)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(min(seconds), 0.1)
        self.assertIn("--n-gen", result.stdout)
        listed = self.call("list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for word in ("host-twin", "eager", "tiny-untied", "cpu "):
            self.assertIn(word, listed.stdout)
        return listed.stdout

    def check_doctor(self, *words):
        """The doctor says these words, and what to do."""
        doctor = self.call("doctor", "--python", "none")
        self.assertEqual(doctor.returncode, 0, doctor.stderr)
        for word in words:
            self.assertIn(word, doctor.stdout)
        problem = next(i for i, line in enumerate(doctor.stdout.splitlines()) if words[0] in line)
        self.assertIn(f"-> {REPAIR}", doctor.stdout.splitlines()[problem + 1])
        self.assertIn("verdict: nothing can be judged", doctor.stdout)
        self.assertEqual(doctor.stdout.splitlines()[-1].split(), ["next:", REPAIR])
        self.assertEqual(self.call("doctor", "--python", "none", "--device", "cuda").returncode, 6)

    def check_run(self, unfit, skipped, *words):
        """A run ends with ENV_UNFIT on `unfit`; returns its report."""
        for number, args in enumerate((("--compare", "eager"), ("--engine", "host-twin", "--compare", "none"))):
            self.out = self.folder / f"report{number}"
            result = self.call(*RUN, *args, "--out", str(self.out))
            self.assertEqual(result.returncode, 6, result.stdout + result.stderr)
            last = result.stderr.strip().splitlines()[-1]
            for word in ("ENV_UNFIT (exit code 6)", unfit, "cannot start: ", *words):
                self.assertIn(word, last)
            report = self.report()
            self.assertEqual(self.engine(report, unfit)["verdict"], "ENV_UNFIT")
            if skipped:
                self.assertEqual(self.engine(report, skipped)["verdict"], "SKIPPED")
            self.assert_nothing_left()
        return report

    def check_no_torch(self, *words):
        self.check_what_needs_no_host()
        self.check_doctor("libtorch ", "mkbench-host-torch cannot start: ", *words)
        self.check_run("eager", "host-twin", *words)


class Parent(CopyTest):
    def test_links_neither_torch_nor_cuda(self):
        linked = run_in(self.folder, "ldd", str(self.programs / "mkbench")).stdout
        self.assertIn("libc.so", linked)
        self.assertNotRegex(linked, r"torch|libc10|cuda|cudart|cublas|nvidia|nvrtc")
        self.assertIn("libtorch", run_in(self.folder, "ldd", str(self.programs / "mkbench-host-torch")).stdout)

    def test_is_there_at_once(self):
        self.check_what_needs_no_host()


class Torch(CopyTest):
    def test_missing(self):
        self.rename_in("mkbench-host-torch", TORCH_FOLDER, b"/t0rch/lib")
        self.check_no_torch("libtorch.so: cannot open shared object file")

    def test_of_another_architecture(self):
        self.rename_in("mkbench-host-torch", TORCH_FOLDER, b"/t0rch/lib")
        elf32 = bytearray((self.programs / "mkbench").read_bytes()[:4096])
        elf32[4] = 1  # EI_CLASS
        (self.libraries / "libtorch.so").write_bytes(elf32)
        self.check_no_torch("libtorch.so: wrong ELF class: ELFCLASS32")

    def test_that_is_no_library(self):
        (self.libraries / "libtorch.so").write_text("not a library\n" * 100)
        self.check_no_torch("libtorch.so: invalid ELF header")

    def test_with_an_unresolved_symbol(self):
        self.empty_library("libtorch_cpu.so")
        self.check_no_torch("undefined symbol: ")


class Hosts(CopyTest):
    def test_not_there(self):
        (self.programs / "mkbench-host-torch").unlink()
        self.check_no_torch("No such file or directory")

    def test_not_executable(self):
        (self.programs / "mkbench-host-torch").chmod(0o644)
        self.check_no_torch("Permission denied")

    def test_one_that_ends_at_once(self):
        source = self.folder / "other.cpp"
        source.write_text("int main() { return 4; }")
        subprocess.run([os.environ["CXX"], str(source), "-o", str(self.programs / "mkbench-host-torch")], check=True)
        self.check_no_torch("left with exit status 4")

    def test_one_that_never_says_hello_can_be_interrupted(self):
        source = self.folder / "silent.cpp"
        source.write_text("#include <unistd.h>\nint main() { for (;;) pause(); }")
        subprocess.run([os.environ["CXX"], str(source), "-o", str(self.programs / "mkbench-host-torch")], check=True)
        process = subprocess.Popen([str(self.programs / "mkbench"), *RUN, "--out", str(self.out)], cwd=self.folder,
                                   env=self.own(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        time.sleep(1.5)
        self.assertIsNone(process.poll())
        process.terminate()
        time.sleep(0.3)
        process.terminate()
        _, stderr = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130, stderr)
        self.assert_nothing_left()
        self.assertEqual([c["verdict"] for c in self.report()["cases"]], ["SKIPPED"])


class Cuda(CopyTest):
    def test_no_runtime(self):
        """Eager needs no host of CUDA engines on a CPU, and is judged and timed."""
        self.rename_in("mkbench-host-cuda", b"libcudart.so.13\0", b"libcudart.so.99\0")
        words = ("cannot start: ", "libcudart.so.99: cannot open shared object file")
        self.assertIn("no usable GPU: ", self.check_what_needs_no_host())
        self.check_doctor("CUDA engines", "mkbench-host-cuda", *words)
        report = self.check_run("host-twin", "", *words)
        eager = self.engine(report, "eager")
        self.assertEqual(eager["verdict"], "PASS", eager["reasons"])

    def test_drivers_that_cannot_be_loaded(self):
        """There is no GPU then, and the CPU's run passes."""
        def text(name):
            (self.libraries / name).write_text("not a library\n" * 100)

        for make in (text, self.empty_library):
            with self.subTest(make=make.__name__):
                for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                    make(name)
                self.assertIn("no usable GPU: ", self.check_what_needs_no_host())
                doctor = self.call("doctor", "--python", "none")
                self.assertEqual(doctor.returncode, 0, doctor.stderr)
                self.assertRegex(doctor.stdout, r"problem  driver .*\n +-> ")
                self.out = self.folder / f"report-{make.__name__}"
                result = self.call(*RUN, "--out", str(self.out))
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assert_nothing_left()

    def test_a_driver_that_crashes(self):
        """libtorch loads it too, so nothing can be judged."""
        self.empty_library("libcuda.so.1",
                           "#include <csignal>\n[[gnu::constructor]] void at_load() { std::raise(SIGSEGV); }")
        self.check_no_torch("died by signal 11 (Segmentation fault)")


class NarrowContainer(HostsTest):
    def test_small_shared_memory_and_read_only_home(self):
        """The README's command, with 64 MB of /dev/shm, a home that cannot be written, and only TMPDIR to write to."""
        if run_in(self.folder, "unshare", "-m", "true").returncode != 0:
            self.skipTest("this user may not make a mount namespace")
        home = self.folder / "home"
        home.mkdir()
        script = (f"mount -t tmpfs -o size=64m tmpfs /dev/shm && mount -t tmpfs -o ro tmpfs {home} || exit 77\n"
                  f"touch {home}/x 2>/dev/null && exit 78\n"
                  f"cd {self.tmp} && {BINARY} --compare eager --device cpu --no-plot --out {self.tmp}/report || exit\n"
                  "ls -A /dev/shm\n")
        result = run_in(self.folder, "unshare", "-m", "bash", "-c", script, env=self.own(HOME=str(home)), timeout=150)
        if result.returncode == 77:
            self.skipTest("this user may not mount")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.strip().splitlines()[-1], f"report: {self.tmp}/report/report.md")  # ls printed nothing
        self.out = self.tmp / "report"
        self.assertEqual([c["verdict"] for c in self.report()["cases"]], ["PASS", "PASS"])
        self.assertEqual([p.name for p in self.tmp.iterdir()], ["report"])


if __name__ == "__main__":
    unittest.main()
