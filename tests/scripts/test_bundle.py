"""scripts/bundle.sh and what set-up does with its archive: real git, apt-get, dpkg and pip, on small stand-in packages.

The stand-in project has this tree's scripts and requirements of its own. Its packages for apt lie in a folder, its
system is another folder, and cmake, ninja and torch are wheels of a few lines. The lane `bundle` of .ci/long does the
same with the real ones.
"""

import hashlib
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import zipfile

from support import ROOT
from support import page_blocks

# What an archive is made with: Debian's tools, and the distribution's own Python with venv.
TOOLS = all(map(shutil.which, ("apt-get", "dpkg-deb", "/usr/bin/python3"))) and not subprocess.run(
    ["/usr/bin/python3", "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode
WITH_TOOLS = unittest.skipUnless(TOOLS, "this is not Debian or Ubuntu with python3-venv")
# The commands of docs/offline.md: on the machine that makes the archive, there, and there once it is built.
MAKE, USE, REMOVE = page_blocks.blocks("docs/offline.md")
NINJA = """#!/bin/sh
mkdir -p "$2/harness"
printf '#!/bin/sh\\necho "mkbench $*"\\n' > "$2/harness/mkbench"
chmod +x "$2/harness/mkbench"
"""


def wheel(folder, name, version, files):
    """A wheel of these files, by their paths in it."""
    info = f"{name}-{version}.dist-info"
    files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, text)


def debian_package(folder, name, version, depends=""):
    """A package with one file, built by dpkg; its entry for the index is returned."""
    tree = folder / name
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr" / "share").mkdir(parents=True)
    (tree / "usr" / "share" / name).touch()
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: mkbench <none@none>\n"
    control += (f"Depends: {depends}\n" if depends else "") + "Description: stands in\n"
    (tree / "DEBIAN" / "control").write_text(control)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(folder / f"{name}.deb")],
                   check=True, capture_output=True)
    shutil.rmtree(tree)
    content = (folder / f"{name}.deb").read_bytes()
    return control + (f"Filename: ./{name}.deb\nSize: {len(content)}\n"
                      f"SHA256: {hashlib.sha256(content).hexdigest()}\n\n")


class Project:
    """The stand-in project, a machine with its packages, and one without."""

    def __init__(self, home):
        self.home = home
        for folder in ("bin", "archive", "wheels", "system/var/lib/dpkg", "clone", "tmp", "log"):
            (home / folder).mkdir(parents=True)
        (home / "system" / "var" / "lib" / "dpkg" / "status").touch()
        self.make_packages()
        self.make_wheels()
        self.make_clone()
        # Without root apt is called by sudo; here nothing of the machine is changed, so nothing is asked.
        (home / "bin" / "sudo").write_text('#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n')
        (home / "bin" / "sudo").chmod(0o755)

    def make_packages(self):
        # The colon of a version is %3a in the name of a file, and %253a where that name is taken for a URI.
        entries = [debian_package(self.home / "archive", *row) for row in [
            ("python3-venv", "1"), ("mkbench-standin", "1", "mkbench-standin-lib"), ("mkbench-standin-lib", "4:1+b1")]]
        (self.home / "archive" / "Packages").write_text("".join(entries))
        (self.home / "sources.list").write_text(f"deb [trusted=yes] copy:{self.home / 'archive'} ./\n")
        # The machine without a network has sources too, which must not be asked.
        (self.home / "there.list").write_text("deb [trusted=yes] copy:/nowhere ./\n")
        self.configure_apt("sources")
        self.configure_apt("there")

    def configure_apt(self, name):
        system = self.home / "system"
        (self.home / f"{name}.conf").write_text(f"""Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "{self.home}/{name}.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "{self.home}/system/var/lib/apt";
Dir::State::status "{system}/var/lib/dpkg/status";
Dir::Log "{self.home}/log";
APT::Sandbox::User "";
DPkg::Options {{ "--root={system}"; "--force-not-root"; "--force-bad-path"; "--force-script-chrootless"; }};
""")

    def make_wheels(self):
        wheels = self.home / "wheels"
        wheel(wheels, "torch", "0.1", {"torch/__init__.py": "",
                                       "torch/version.py": "__version__ = '0.1'\ncuda = '13.0'\n",
                                       "torch/share/cmake/Torch/TorchConfig.cmake": ""})
        wheel(wheels, "cmake", "0.1", {"cmake-0.1.data/scripts/cmake": "#!/bin/sh\nexit 0\n",
                                       "cmake-0.1.data/scripts/ctest": "#!/bin/sh\necho \"ctest $*\"\n"})
        wheel(wheels, "ninja", "0.1", {"ninja-0.1.data/scripts/ninja": NINJA})
        wheel(wheels, "mkbench_standin_nvcc", "0.1", {"nvidia/cu13/bin/nvcc": ""})

    def make_clone(self):
        clone = self.home / "clone"
        names = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard",
                                "scripts/*.sh", "scripts/*.py", "CMakeLists.txt"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split()
        for name in [*names, ".gitignore", "scripts/requirements/cuda_lanes.txt"]:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
        for name, text in {
                "debian": f"# packages\nmkbench-standin {self.home}/system/usr/share/mkbench-standin\n",
                "python": "cmake\nninja\n", "constraints": "cmake==0.1\nninja==0.1\n", "lane-13": "torch==0.1\n",
                "constraints-13": "mkbench-standin-nvcc==0.1\n", "compiler-13": "mkbench-standin-nvcc\n"}.items():
            (clone / "scripts" / "requirements" / f"{name}.txt").write_text(text)
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "stands in")
        # Tracked files are packed as they are; what git does not track stays.
        (clone / "CMakeLists.txt").write_text((clone / "CMakeLists.txt").read_text() + "# changed\n")
        (clone / "notes.txt").touch()

    def git(self, *arguments, folder="clone"):
        return subprocess.run(["git", "-c", "user.name=mkbench", "-c", "user.email=none@none", *arguments],
                              cwd=self.home / folder, check=True, capture_output=True, text=True).stdout.strip()

    def environment(self, **more):
        return {"PATH": f"{self.home / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.home), "LC_ALL": "C",
                "APT_CONFIG": str(self.home / "there.conf"), "https_proxy": "127.0.0.1:9", "TMPDIR": str(self.home / "tmp"), "MKBENCH_DEVICE": "cpu",
                "MKBENCH_USE_PYPI_CUDA": "1", **more}

    def bundle(self, script):
        """Runs a script in the clone, where the packages are; returns (exit code, stdout, stderr)."""
        environment = self.environment(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.home / "wheels"),
                                       APT_CONFIG=str(self.home / "sources.conf"))
        return self.call(["bash", "-ec", script], environment, "clone")

    def call(self, command, environment, folder="."):
        done = subprocess.run(command, cwd=self.home / folder, env=environment, capture_output=True, text=True,
                              timeout=100, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def setup(self, *arguments, **more):
        """Runs setup.sh of the unpacked archive, where packages come from the archive alone."""
        return self.call(["scripts/setup.sh", *arguments], self.environment(**more), "there/mkbench")


@WITH_TOOLS
class Archive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="mkbench-bundle-")
        cls.addClassCleanup(holder.cleanup)
        cls.project = Project(pathlib.Path(holder.name).resolve())
        cls.home = cls.project.home
        cls.made = cls.project.bundle(MAKE)
        (cls.home / "there").mkdir()
        if cls.made[0] == 0:
            (cls.home / "mkbench.tar").rename(cls.home / "there" / "mkbench.tar")
            subprocess.run(["bash", "-ec", USE.splitlines()[0]], cwd=cls.home / "there", check=True)

    def setUp(self):
        self.assertEqual(self.made[0], 0, self.made[2])
        self.assertIn("\nholds=debian wheels compiler\n", self.made[1])
        self.offline = self.home / "there" / "mkbench" / "offline"

    def edit(self, name, change):
        """Changes a file of the offline folder for one test."""
        path = self.offline / name
        before = path.read_bytes()
        self.addCleanup(path.write_bytes, before)
        path.write_bytes(change(before)) if change else path.unlink()

    def assert_stopped(self, answer, *words, code=1):
        """It ended with one message, which has these words."""
        self.assertEqual(answer[0], code, answer)
        self.assertEqual(answer[2].count("error: "), 1, answer[2])
        for word in words:
            self.assertIn(word, answer[2])

    def test_1_what_is_in_it(self):
        there = self.home / "there" / "mkbench"
        self.assertIn("for debian" if "debian" in platform.freedesktop_os_release()["ID"] else "for ", self.made[2])
        self.assertIn("1 tracked files differ from the commit", self.made[2])
        self.assertEqual(sorted(p.name for p in (self.offline / "wheels").iterdir()), [
            f"{name}-0.1-py3-none-any.whl" for name in ("cmake", "mkbench_standin_nvcc", "ninja", "torch")])
        self.assertIn("mkbench-standin-lib_4%3a1+b1_all.deb", [p.name for p in (self.offline / "debian").iterdir()])
        git = self.project.git
        self.assertEqual(git("rev-parse", "HEAD", folder="there/mkbench"), git("rev-parse", "HEAD"))
        self.assertEqual(git("status", "--porcelain", folder="there/mkbench"), "M  CMakeLists.txt")
        self.assertEqual(git("remote", folder="there/mkbench"), "")
        self.assertTrue((there / "CMakeLists.txt").read_text().endswith("# changed\n"))
        self.assertFalse((there / "notes.txt").exists())
        self.assertEqual([p.name for p in self.home.glob(".bundle-*")], [])

    def test_2_refusals(self):
        """What set-up says before the packages are there (tests run in the order of their names)."""
        for name, change, words in [
                ("made_for", lambda b: b.replace(b"system=", b"system=plan9 "), ["are for plan9 ", "; this is "]),
                ("made_for", lambda b: b.replace(b"debian wheels", b"wheels"), ["no packages of the kind 'debian'"]),
                ("debian/mkbench-standin_1_all.deb", lambda b: b + b"\n", ["debian/mkbench-standin_1_all.deb: FAILED"]),
                ("debian/Packages", None, ["debian/Packages: FAILED open or read"]),
                ("made_for", None, ["has no file made_for"])]:
            with self.subTest(file=name, words=words):
                self.edit(name, change)
                self.assert_stopped(self.project.setup(), *words)
                self.doCleanups()
        self.assertFalse((self.home / "system" / "usr").exists())

    def test_3_other_sources(self):
        self.assertIn(f"packages come from {self.offline}, made for ", self.project.setup("--plan")[2])
        self.assertNotIn("packages come from", self.project.setup("--plan", MKBENCH_OFFLINE="no")[2])
        self.assert_stopped(self.project.setup(MKBENCH_OFFLINE="/nowhere"), "/nowhere is no offline folder")

    def test_4_debian_packages_from_a_folder_with_a_blank(self):
        moved = self.home / "off line"
        shutil.copytree(self.offline, moved)
        status, _, said = self.project.setup("--no-such-option")
        self.assertEqual(status, 2, said)
        # Ends behind the Debian packages, at a Python that is not there.
        (moved / "made_for").write_text((moved / "made_for").read_text().replace("python=3", "python=4"))
        answer = self.project.setup(MKBENCH_OFFLINE=str(moved))
        self.assert_stopped(answer, "no Python 4.")
        self.assertNotIn("nowhere", answer[2])
        self.assertTrue((self.home / "system/usr/share/mkbench-standin-lib").exists())

    def test_5_wheels(self):
        wrong = "wheels/torch-0.1-py3-none-any.whl"
        for name, change, words in [
                (wrong, lambda b: b + b"\n", [f"{wrong}: FAILED"]),
                (wrong, None, [f"{wrong}: FAILED open or read"]),
                ("made_for", lambda b: b.replace(b"cuda=13", b"cuda=12.8"), ["is for CUDA 12.8; CUDA 13 is wanted"])]:
            with self.subTest(file=name, words=words):
                self.edit(name, change)
                self.assert_stopped(self.project.setup(MKBENCH_CUDA="13"), *words)
                self.doCleanups()

    def test_6_the_commands_of_the_page(self):
        """docs/offline.md, which has those of the README word for word."""
        readme = page_blocks.blocks("README.md")[0]
        wanted = [line.partition("#")[0].strip() for line in readme.splitlines()]
        self.assertEqual(USE.splitlines()[1:], wanted)
        answer = self.project.call(["bash", "-ec", USE + REMOVE], self.project.environment(), "there")
        self.assertEqual(answer[0], 0, answer[2])
        self.assertRegex(answer[1], f"^mkbench --compare eager\nctest --test-dir {self.offline.parent}/build/release "
                                    r"--output-on-failure --no-tests=error -j \d+ -LE slow -L light$")
        self.assertIn("installing the CUDA compiler", answer[2])
        # pip says this of an index that it cannot reach.
        self.assertNotIn("Retrying", answer[2])
        self.assertFalse(self.offline.exists())
        self.assertEqual(self.project.setup()[0], 0)

    def test_7_no_half_archive(self):
        """An interruption, and a disk that runs full."""
        before = sorted(p.name for p in self.home.iterdir())
        self.project_program("apt-get", 'case "$*" in *Dir::State=/*) touch "$HOME/tmp/begun"; sleep 60 ;; esac')
        process = subprocess.Popen(["clone/scripts/bundle.sh", "log/cut.tar"], cwd=self.home, start_new_session=True,
                                   env=self.project.environment(), stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 50
        while not (self.home / "tmp" / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=50)[1]
        self.assert_stopped((process.returncode, "", said), "interrupted; log/cut.tar was not written", code=130)
        self.project_program("df", 'echo; cat "$HOME/tmp/free"')
        (self.home / "tmp" / "free").write_text("fs x x 999999 x\n")
        self.project_program("git", 'if [ "$1" = clone ]; then echo "fs x x 7 x" > "$HOME/tmp/free"; exit 128; fi'
                             '; exec /usr/bin/git "$@"')
        self.assert_stopped(self.project.bundle("scripts/bundle.sh ../full.tar"),
                            f"the disk of {self.home} is full; ../full.tar was not written")
        (self.home / "tmp" / "free").write_text("fs x x 500 x\n")
        self.assert_stopped(self.project.bundle("scripts/bundle.sh ../full.tar"),
                            "has 500 MB free; making the archive needs 6 GB")
        self.assertEqual(sorted(p.name for p in self.home.iterdir()), before)
        self.assertEqual(list((self.home / "log").glob(".bundle*")), [])

    def project_program(self, name, script):
        path = self.home / "bin" / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        self.addCleanup(path.unlink, missing_ok=True)


class Requests(unittest.TestCase):
    """What is answered before anything is fetched, in this tree."""

    def call(self, *arguments, **more):
        done = subprocess.run([str(ROOT / "scripts" / "bundle.sh"), *arguments], capture_output=True, text=True,
                              timeout=60, env={"PATH": "/usr/bin:/bin", "HOME": "/none", **more})
        return done.returncode, done.stdout, done.stderr

    @WITH_TOOLS
    def test_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, holds, compiler in [([], "debian wheels compiler", " compiler-13.txt"),
                                               (["--without", "debian", "--without=compiler"], "wheels", ""),
                                               (["--cuda", "12.8"], "debian wheels", "")]:
                status, plan, said = self.call("--plan", *arguments, f"{folder}/my.tar")
                self.assertEqual(status, 0, said)
                lane = "12.8" if "12.8" in arguments else "13"
                self.assertIn(f"\nholds={holds}\n", plan)
                self.assertIn(f"\nwheels=python.txt lane-{lane}.txt{compiler}\n", plan)
                self.assertIn("\ndebian=python3-venv g++ git libbenchmark-dev ", plan)
                self.assertRegex(plan, r"\nsources=\d{3,}\n")
                self.assertEqual(os.listdir(folder), [])
            pathlib.Path(folder, "my.tar").touch()
            self.assertIn("my.tar is there already", self.call(f"{folder}/my.tar")[2])
            self.assertIn("no folder that can be written", self.call(f"{folder}/none/my.tar")[2])

    def test_usage(self):
        self.assertEqual(self.call("--help")[0], 0)
        self.assertIn("usage: scripts/bundle.sh", self.call("--help")[1])
        for arguments in ([], ["--frobnicate", "a.tar"], ["a.tar", "b.tar"], ["--without", "wheels", "a.tar"],
                          ["--cuda"]):
            self.assertEqual(self.call(*arguments)[0], 2, arguments)
        status, _, said = self.call("--cuda", "12.4", "a.tar")
        self.assertEqual((status, said), (2, "bundle: error: --cuda or MKBENCH_CUDA is '12.4', wanted 13 or 12.8\n"))


if __name__ == "__main__":
    unittest.main()
