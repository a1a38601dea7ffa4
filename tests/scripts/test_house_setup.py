"""What scripts/machine.sh makes of a machine: fake nvcc, nvidia-smi and python3 stand for real ones."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from support import ROOT

ALL = "80-real;86-real;89-real;90a-real;100a-real;120a-real"


class FakeMachine(unittest.TestCase):
    """A folder of fake programs, first on PATH."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="mkbench house ")  # a path with blanks
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        (self.home / "bin").mkdir()

    def program(self, name, script, folder="bin"):
        path = self.home / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def toolkit(self, folder, version, complete=True):
        self.program("nvcc", f"""case "$1" in
          --version) echo "Cuda compilation tools, release {version}, V{version}.88" ;;
          --dryrun) echo '#$ TOP={self.home / folder}/bin/..' >&2 ;;
        esac""", folder=f"{folder}/bin")
        for path in ["include/cuda_runtime.h", "include/nvtx3/nvToolsExt.h", "lib64/libcudart.so"]:
            file = self.home / folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if complete:
                file.touch()
        return str(self.home / folder)

    def gpus(self, *rows):
        self.program("nvidia-smi", "\n".join(f"echo '{row}'" for row in rows))

    def call(self, script, **environment):
        """Runs a piece of shell after machine.sh was read; returns (exit code, stdout, stderr)."""
        prelude = f"set -euo pipefail; root='{ROOT}'; . \"$root/scripts/machine.sh\"; usual_toolkit=/none wsl_lib=/none\n"
        done = subprocess.run(
            ["bash", "-c", prelude + script], capture_output=True, text=True, timeout=60,
            env={"PATH": f"{self.home / 'bin'}:/usr/bin:/bin", "HOME": str(self.home), **environment})
        return done.returncode, done.stdout.strip(), done.stderr.strip()


class Toolkit(FakeMachine):
    FIND = 'find_toolkit && echo "$toolkit" || echo "no: $toolkit_reason"'

    def test_the_lane_takes_later_ones_of_its_major_version(self):
        for lane, version, fits in [("12.8", "12.8", True), ("12.8", "12.9", True), ("12.8", "12.4", False),
                                    ("12.8", "13.0", False), ("13", "13.0", True), ("13", "13.1", True),
                                    ("13", "12.9", False), ("13", "14.0", False)]:
            home = self.toolkit(f"cuda-{version}", version)
            wanted = os.path.realpath(home) if fits else f"no: {home}/bin/nvcc is CUDA {version}"
            self.assertEqual(self.call(f"lane={lane}; {self.FIND}", CUDA_HOME=home)[1], wanted, (lane, version))

    def test_one_of_several_installed_beside_each_other(self):
        for version in ("12.8", "13.0"):
            self.toolkit(f"usual-{version}", version)
        found = self.call(f'lane=12.8; usual_toolkit="{self.home}/usual"; {self.FIND}')[1]
        self.assertEqual(found, os.path.realpath(self.home / "usual-12.8"))

    def test_the_path_leads_to_the_next_one(self):
        """Also through a wrapper, and where CUDA_HOME names one that does not fit."""
        new = self.toolkit("cuda-13.1", "13.1")
        self.program("nvcc", f"exec '{new}/bin/nvcc' \"$@\"")
        for environment in ({}, {"CUDA_HOME": self.toolkit("cuda-12.4", "12.4")}):
            self.assertEqual(self.call(f"lane=13; {self.FIND}", **environment)[1], os.path.realpath(new))

    def test_what_is_not_taken(self):
        home = self.toolkit("cuda-13.0", "13.0")
        find = f"lane=13; {self.FIND}"
        self.assertEqual(self.call(find, CUDA_HOME=home, MKBENCH_USE_PYPI_CUDA="1")[1], "no: MKBENCH_USE_PYPI_CUDA is set")
        self.assertIn("is not complete", self.call(find, CUDA_HOME=self.toolkit("less", "13.0", complete=False))[1])


class Gpus(FakeMachine):
    ASK = 'judge_machine; echo "$architectures"'

    def test_the_cards_here_decide_unless_others_are_asked_for(self):
        t4, h100 = "580.1, 7.5, Tesla T4", "580.1, 9.0, NVIDIA H100"
        old = ["'Tesla T4' has compute capability 7.5", "MKBENCH_DEVICE=cpu"]
        for rows, asked, wanted, words in [
                *((["580.95.05, %s, NVIDIA Card" % capability], None, architecture, []) for capability, architecture in [
                    ("8.0", "80-real"), ("8.9", "89-real"), ("9.0", "90a-real"), ("10.0", "100a-real"), ("12.0", "120a-real")]),
                ([h100, h100, "580.1, 8.6, NVIDIA A10"], None, "90a-real;86-real", []),
                (["580.1, 10.3, NVIDIA B300"], None, "103-real", ["10.3 is not among those"]),
                ([t4], None, None, old), ([t4, h100], None, "90a-real", []),
                ([h100], "86-real", "86-real", []), ([h100], "all", ALL, [])]:
            with self.subTest(rows=rows, asked=asked):
                self.gpus(*rows)
                status, found, said = self.call(self.ASK, **({"MKBENCH_CUDA_ARCHITECTURES": asked} if asked else {}))
                self.assertEqual((status, found), (0, wanted) if wanted else (1, ""), said)
                for word in words:
                    self.assertIn(word, said)

    def test_no_working_driver_builds_for_one_and_says_so(self):
        self.program("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
        status, architectures, said = self.call(self.ASK)
        self.assertEqual((status, architectures), (0, "90a-real"))
        self.assertIn("NVIDIA-SMI has failed", said)
        self.assertIn("the build is for 90a-real alone (MKBENCH_CUDA_ARCHITECTURES=all", said)
        self.assertEqual(self.call(self.ASK, MKBENCH_CUDA_ARCHITECTURES="all")[1], ALL)

    def test_under_wsl2_windows_nvidia_smi_is_asked(self):
        """Also where PATH lacks it, or has the one of a driver for Linux first."""
        self.program("nvidia-smi", "echo '581.29, 12.0, NVIDIA GeForce RTX 5090'", folder="wsl")
        ask = f"wsl_lib='{self.home / 'wsl'}'; {self.ASK}"
        self.assertEqual(self.call(ask)[1], "120a-real")
        self.program("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
        self.assertEqual(self.call(ask)[1], "120a-real")

    def test_set_up_installs_no_driver(self):
        """Under WSL2 a driver for Linux would hide Windows'; elsewhere it is the machine's own matter."""
        packages = re.findall(r"^([a-z][^ ]*) ", (ROOT / "scripts/requirements/debian.txt").read_text(), re.MULTILINE)
        self.assertIn("g++", packages)
        self.assertEqual([name for name in packages if re.search("nvidia|cuda|driver", name)], [])
        script = (ROOT / "scripts" / "setup.sh").read_text()
        self.assertEqual(re.findall(r"^.*install_packages .*$", script, re.MULTILINE), [
            "    ! python_package_helps || install_packages python3-venv", "  install_packages $missing_packages"])


class Lanes(FakeMachine):
    """Which CUDA is built with, for each kind of machine. tests/device/test_cuda_lanes.cpp has the same drivers."""
    ASK = 'judge_machine; echo "$lane $architectures ${toolkit:-PyPI}"'
    BY_DRIVER = [("581.57", "13"), ("580.65.06", "13"), ("575.57.08", "12.8"), ("570.86", "12.8"), ("569.99", None)]
    CARDS = [("12.0", "120a-real"), ("9.0", "90a-real")]

    def machine(self, nvcc=None, driver=None, card="9.0"):
        """A machine with that toolkit, driver and card; returns the folder of the toolkit."""
        for name in ("nvidia-smi", "nvcc"):
            (self.home / "bin" / name).unlink(missing_ok=True)
        if driver:
            self.gpus(f"{driver}, {card}, NVIDIA Card")
        if not nvcc:
            return None
        home = self.toolkit(f"cuda-{nvcc}", nvcc)
        self.program("nvcc", f"exec '{home}/bin/nvcc' \"$@\"")
        return os.path.realpath(home)

    def test_every_driver_card_and_toolkit(self):
        for driver, lane in self.BY_DRIVER:
            for nvcc in ("12.4", "12.8", "12.9", "13.0", None):
                for card, architecture in self.CARDS:
                    home = self.machine(nvcc, driver, card)
                    status, answer, said = self.call(self.ASK)
                    with self.subTest(driver=driver, nvcc=nvcc, card=card, answer=answer, said=said):
                        if lane is None:
                            self.assert_stopped(status, said, f"the driver {driver} of 'NVIDIA Card' is too old for "
                                                "CUDA 12.8 (needs 570 or newer)", "update", "MKBENCH_DEVICE=cpu")
                        elif lane == "13":
                            wanted = home if nvcc == "13.0" else "PyPI"
                            self.assertEqual((status, answer), (0, f"13 {architecture} {wanted}"))
                            self.assertIn(f"CUDA 13 (the driver {driver} runs CUDA 13), torch 2.11.0", said)
                        elif nvcc in ("12.8", "12.9"):
                            self.assertEqual((status, answer), (0, f"12.8 {architecture} {home}"))
                            self.assertIn(f"CUDA 12.8 (the driver {driver} runs CUDA 12.8), torch 2.9.1", said)
                        else:
                            found = f"nvcc is CUDA {nvcc}" if nvcc else "this machine has no nvcc"
                            self.assert_stopped(status, said, "CUDA 12.8 needs a toolkit", found, "cuda-toolkit-12-8",
                                                "nvidia/cuda:12.8.1-devel-ubuntu24.04", "driver to 580 or newer")

    def assert_stopped(self, status, said, *words):
        """It ended with one message, which has all these words."""
        self.assertEqual(status, 1)
        self.assertEqual(said.count("setup: error: "), 1)
        for word in words:
            self.assertIn(word, said)

    def test_without_a_gpu_it_is_the_newest(self):
        for nvcc in ("12.4", "12.8", "13.0", None):
            home = self.machine(nvcc)
            status, answer, said = self.call(self.ASK)
            wanted = home if nvcc == "13.0" else "PyPI"
            self.assertEqual((status, answer), (0, f"13 90a-real {wanted}"), said)
            self.assertIn("CUDA 13 (no GPU is used), torch 2.11.0", said)

    def test_by_request(self):
        home = self.machine("12.8", "581.57", "12.0")
        _, answer, said = self.call(self.ASK, MKBENCH_CUDA="12.8")
        self.assertEqual(answer, f"12.8 120a-real {home}")
        self.assertIn("CUDA 12.8 (asked for), torch 2.9.1", said)
        self.machine("12.8")
        self.assertEqual(self.call(self.ASK, MKBENCH_CUDA="12.8")[1], f"12.8 90a-real {home}")
        self.assertEqual(self.call(self.ASK, MKBENCH_CUDA="13")[1], "13 90a-real PyPI")

    def test_a_request_that_the_driver_does_not_run(self):
        self.machine("13.0", "575.57", "12.0")
        status, _, said = self.call(self.ASK, MKBENCH_CUDA="13")
        self.assert_stopped(status, said, "575.57 of 'NVIDIA Card' is too old for CUDA 13 (needs 580", "--cuda 12.8")

    def test_a_request_without_its_toolkit(self):
        for driver in (None, "581.57"):
            self.machine("13.0", driver)
            status, _, said = self.call(self.ASK, MKBENCH_CUDA="12.8")
            self.assert_stopped(status, said, "cuda-toolkit-12-8", "or build for CUDA 13, whose compiler PyPI has")
            self.assertNotIn("driver to 580", said)

    def test_a_request_that_is_no_lane(self):
        self.machine()
        status, _, said = self.call(self.ASK, MKBENCH_CUDA="12.4")
        self.assertEqual((status, said), (2, "setup: error: --cuda or MKBENCH_CUDA is '12.4', wanted 13 or 12.8"))

    def test_on_the_cpu_an_unfit_machine_is_no_obstacle(self):
        for driver, nvcc in [("550.54.15", None), ("570.86", None), ("570.86", "12.4")]:
            self.machine(nvcc, driver)
            status, answer, said = self.call(self.ASK, MKBENCH_DEVICE="cpu")
            self.assertEqual((status, answer), (0, "13 90a-real PyPI"), said)
        home = self.machine("12.8", "570.86", "12.0")
        self.assertEqual(self.call(self.ASK, MKBENCH_DEVICE="cpu")[1], f"12.8 120a-real {home}")

    def test_forward_compatibility(self):
        # nvidia-smi's first lines show the CUDA of the libcuda that programs load.
        for banner, lane in [("CUDA Version: 13.0", "13"), ("CUDA UMD Version: 13.1", "13"), ("CUDA Version: N/A", "12.8"),
                             ("CUDA Version: 12.8", "12.8")]:
            self.machine("12.8")
            self.program("nvidia-smi", f"""case "$1" in --query-gpu=*) echo '570.86, 9.0, NVIDIA H100' ;;
              *) echo '| NVIDIA-SMI 570.86.10   Driver Version: 570.86.10   {banner}  |' ;; esac""")
            self.assertEqual(self.call(self.ASK)[1].split()[0], lane, banner)

    def test_every_lane_has_its_files(self):
        rows = [row.split() for row in self.call("lane_rows")[1].splitlines()]
        self.assertEqual([row[0] for row in rows], ["13", "12.8"])
        for lane, _, toolkit, _, disk in rows:
            self.assertGreater(int(disk), 5)
            files = ROOT / "scripts" / "requirements"
            self.assertRegex((files / f"lane-{lane}.txt").read_text(), r"(?m)^torch==\d")
            self.assertTrue((files / f"constraints-{lane}.txt").exists())
            self.assertEqual((files / f"compiler-{lane}.txt").exists(), toolkit == "pypi", lane)


class Programs(FakeMachine):
    def test_old_python_is_passed_over_or_explained(self):
        self.program("python3", "case $1 in -V) echo Python 3.9.2 ;; *) exit 1 ;; esac")
        script = 'find_base_python && echo "$base_python" || echo "none: $rejected_pythons"'
        found = self.call(script)[1]
        self.assertNotIn(str(self.home / "bin"), found.split("none:")[0])

    def test_old_compiler(self):
        self.program("oldcxx", "case $1 in -dumpversion) echo 11.4.0 ;; *) echo 'g++ 11.4.0' ;; esac")
        status, _, said = self.call("find_cxx", CXX="oldcxx")
        self.assertEqual(status, 1)
        self.assertIn("is GCC 11; C++20 needs 12", said)

    def test_one_host_compiler(self):
        self.program("other", "echo 14.0.0")
        status, cxx, said = self.call('find_cxx; echo "$cxx"', CUDAHOSTCXX="other")
        self.assertEqual((status, os.path.basename(cxx)), (0, "g++"))
        self.assertIn("CUDAHOSTCXX=other is not used", said)

    def test_another_torch_is_not_used(self):
        for lane, version, cuda, reason in [("13", "2.9.1", "12.8", "has torch 2.9.1, not 2.11.0"),
                                            ("12.8", "2.9.1", "13.0", "built on CUDA 13.0, not 12.8"),
                                            ("12.8", "2.9.1", "none", "built on CUDA none, not 12.8")]:
            self.program("python3", f"printf '%s\\n' version={version} cuda={cuda} cmake=/x site=/y")
            status, _, said = self.call(f"lane={lane}; find_machine_python")
            self.assertEqual(status, 1)
            self.assertIn(reason, said)

    def test_versions(self):
        for have, want, result in [("3.28", "3.28", 0), ("4.4.4", "3.28", 0), ("3.9", "3.28", 1),
                                   ("12.10", "12.8", 0), ("12.4", "12.8", 1)]:
            self.assertEqual(self.call(f"at_least {have} {want}")[0], result, (have, want))


class Progress(FakeMachine):
    """A fake ninja: what a log is told each minute, here each second."""
    SCRIPT = """. "$root/scripts/progress.sh"; progress_every_s=1; log="$HOME/build.log"
                fake() { echo '[1/12] Building CXX object a/b.cpp.o' > "$log"; sleep 1.5
                         echo '[7/12] Building CUDA object a/kernel.cu.o' >> "$log"; sleep 2.5; return 3; }
                : > "$log"; with_progress "building mkbench" "$log" fake || echo "exit $?" """

    def test_lines_say_what_how_much_and_how_long(self):
        status, said_last, said = self.call(self.SCRIPT)
        self.assertEqual((status, said_last), (0, "exit 3"))
        self.assertRegex(said, r"setup: building mkbench, 1 of 12 objects \(last: b\.cpp\.o\), 0:0\d min")
        self.assertRegex(said, r"setup: building mkbench, 7 of 12 objects \(last: kernel\.cu\.o\), 0:0\d min")
        self.assertNotIn("\r", said)

    def test_bar(self):
        script = """. "$root/scripts/progress.sh"; echo '[6/12] x' > "$HOME/log"; progress_bar "$HOME/log" """
        self.assertEqual(self.call(script)[1], "[" + "#" * 12 + " " * 12 + "]")


class BasePython(FakeMachine):
    HELPS = 'python_package_helps && echo yes || echo no'

    def test_a_system_without_any_gets_one(self):
        self.assertEqual(self.call('PATH="$HOME/bin"; ' + self.HELPS)[1], "yes")

    def test_one_of_the_users_own_is_left_alone(self):
        self.program("python3", "echo 3.12.1")
        self.assertEqual(self.call(self.HELPS)[1], "no")


class Setup(FakeMachine):
    def test_plan_changes_nothing(self):
        done = subprocess.run(
            [str(ROOT / "scripts" / "setup.sh"), "--plan"], capture_output=True, text=True, timeout=60,
            env={"PATH": f"{self.home / 'bin'}:/usr/bin:/bin", "HOME": str(self.home),
                 "MKBENCH_DEVICE": "cpu", "MKBENCH_VENV": str(self.home / "venv")})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"python={self.home}/venv/bin/python", done.stdout)
        self.assertEqual(sorted(p.name for p in self.home.iterdir()), ["bin"])

    def test_unknown_option(self):
        done = subprocess.run([str(ROOT / "scripts" / "setup.sh"), "--frobnicate"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: scripts/setup.sh", done.stderr)


    def test_git_leaves_line_ends_alone(self):
        """Also where core.autocrlf asks for "\\r\\n", on which bash stumbles."""
        if not (ROOT / ".git").exists():
            self.skipTest("these sources are no git repository")
        files = ["scripts/setup.sh", "references/data/tiny/config.json"]
        done = subprocess.run(["git", "-c", "core.autocrlf=true", "archive", "--worktree-attributes", "HEAD", *files],
                              cwd=ROOT, stdout=subprocess.PIPE, check=True)
        self.assertIn(b"set -euo pipefail\n", done.stdout)
        self.assertNotIn(b"\r\n", done.stdout)

    def test_a_folder_that_can_be_written(self):
        """As root only trying tells: /proc is writable by its mode. A complete environment needs no writing."""
        house, fallback = str(self.home), f"{ROOT}/build/cache"
        for environment, wanted, said in [
                ({"HOME": house}, f"{house}/.cache/mkbench", ""),
                ({"HOME": house, "XDG_CACHE_HOME": f"{house}/xdg"}, f"{house}/xdg/mkbench", ""),
                ({"HOME": house, "XDG_CACHE_HOME": "relative"}, f"{house}/.cache/mkbench", ""),
                ({"HOME": ""}, fallback, "neither HOME nor XDG_CACHE_HOME is set: what is fetched goes to"),
                ({"HOME": "/proc"}, fallback, "cannot write to /proc: what is fetched goes to")]:
            with self.subTest(**environment):
                status, found, told = self.call('unset XDG; [ -n "$HOME" ] || unset HOME; find_cache venv; echo "$cache"',
                                                **environment)
                self.assertEqual((status, found), (0, wanted), told)
                self.assertEqual(told.partition(" " + fallback)[0], "setup: " + said if said else "")
        complete = self.home / ".cache" / "mkbench" / "venv"
        complete.mkdir(parents=True)
        (complete / ".mkbench-complete").touch()
        read_only = "can_write() { false; }; find_cache venv; echo $cache"
        self.assertEqual(self.call(read_only)[1].replace(f"{house}/.cache/mkbench", "ours"), "ours")
        (complete / ".mkbench-complete").unlink()
        self.assertEqual(self.call(read_only)[1], fallback)
        self.assertEqual([name.name for name in self.home.iterdir() if name.name.startswith(".mkbench-")], [])

    def test_nothing_is_written_where_nothing_can_be(self):
        done = subprocess.run([str(ROOT / "scripts" / "setup.sh")], capture_output=True, text=True, timeout=60,
                              env={"PATH": f"{self.home / 'bin'}:/usr/bin:/bin", "MKBENCH_VENV": "/proc/venv/here"})
        self.assertEqual((done.returncode, done.stderr.splitlines()[-2:]), (
            1, ["setup: error: cannot write to /proc", "       set MKBENCH_VENV to a folder that you can write"]))

    def test_compile_jobs_fit_into_the_memory_of_the_container(self):
        """The smallest limit counts, of this group and of those around it, in both versions of control groups."""
        self.program("nproc", "echo 64")
        groups = self.home / "groups"
        for folder in ("a/b", "memory/m"):
            (groups / folder).mkdir(parents=True)
        (groups / "own").write_text("4:memory:/m\n1:cpu:/x\n0::/a/b\n")
        ask = f"cgroups='{groups}' own_cgroups='{groups}/own'; jobs"
        free = int(self.call(ask)[1])
        for path, none in [("memory/m/memory.limit_in_bytes", 9223372036854771712), ("a/b/memory.max", "max"),
                           ("a/memory.max", "max"), ("memory.max", "max")]:
            for limit, wanted in [(none, free), (4 << 30, 2), ((4 << 30) - 1, 1), (1 << 20, 1), (none, free)]:
                with self.subTest(path=path, limit=limit):
                    (groups / path).write_text(f"{limit}\n")
                    self.assertEqual(int(self.call(ask)[1]), min(wanted, free))
        self.assertEqual(self.call(ask, MKBENCH_JOBS="7")[1], "7")


class Packages(FakeMachine):
    """scripts/packages.sh: other programs that use apt, and settings of the user's for pip."""
    HELD = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 71 (unattended-upgr)"

    def install(self, apt, **environment):
        self.program("apt-get", f'echo "$1" >> "{self.home}/calls"; {apt}')
        status, _, said = self.call(f""". "$root/scripts/packages.sh"; id() {{ echo 0; }}; apt_every_s=1 apt_patience_s=2 offline=
                                        install_packages g++""", **environment)
        return status, said, (self.home / "calls").read_text().split()

    def test_a_lock_is_waited_for(self):
        free = f"[ $(wc -l < '{self.home}/calls') -gt 2 ] || {{ echo '{self.HELD}'; exit 100; }}"
        status, said, calls = self.install(free)
        self.assertEqual((status, calls), (0, ["update"] * 3 + ["install"]), said)
        self.assertEqual(said.count("unattended-upgr): waiting for it"), 1)

    def test_one_that_stays_is_named_in_the_end(self):
        status, said, calls = self.install(f"echo '{self.HELD}'; exit 100")
        self.assertEqual((status, calls), (1, ["update"] * 3 + ["install"] * 3), said)
        self.assertRegex(said, r"error: apt-get could not install: g\+\+\n +Could not get lock .*unattended-upgr\)$")
        self.assertNotIn("network", said)

    def test_without_a_lock_nothing_is_tried_again(self):
        status, said, calls = self.install("echo 'E: Unable to locate package g++'; exit 100")
        self.assertEqual((status, calls), (1, ["update", "install"]))
        self.assertRegex(said, "Unable to locate package g[+][+]\n(?s:.*)is there a network")

    def test_pip_keeps_the_sources_of_the_users_settings_alone(self):
        config = self.home / "pip.conf"
        config.write_text("[global]\nuser = true\ntarget = /nowhere\nretries = 1\n"
                          "find-links =\n    /a\n    /b\n[install]\nprefix = /nowhere\n")
        self.program("python", f'exec {sys.executable} "$@"', folder="venv/bin")
        status, found, said = self.call(
            f""". "$root/scripts/packages.sh"; venv='{self.home}/venv'; find_pip_sources; printf '%s\n' "${{pip_sources[@]}}" """,
            PIP_CONFIG_FILE=str(config), PIP_USER="1", PIP_RETRIES="2")
        self.assertEqual((status, [word for word in found.split() if "cert" not in word]), (0, [
            "--retries=1", "--find-links=/a", "--find-links=/b", "--retries=2"]), said)


class LongLanes(unittest.TestCase):
    def long(self, *args):
        return subprocess.run(["bash", str(ROOT / ".ci" / "long"), *args], capture_output=True, text=True, timeout=60)

    def test_lanes_are_listed_with_their_limits(self):
        listed = self.long("--list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for lane in ("files", "sanitizers", "slow", "mutants", "cuda128"):
            self.assertRegex(listed.stdout, rf"(?m)^  {lane} +\d+ s at most: ")

    def test_a_lane_that_is_not_there_runs_nothing(self):
        self.assertEqual(self.long("files", "no-such-lane").returncode, 2)


if __name__ == "__main__":
    unittest.main()
