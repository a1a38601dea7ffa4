"""`mkbench new-engine`: what it makes and refuses; each language builds, fails honestly empty, and passes filled in."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from support.cli_support import BINARY, ROOT, CliTest, environment
from support.page_blocks import blocks

KERNELS = ROOT / "tests" / "new_engine"
SOURCES = {"c": "engine.c", "cpp": "engine.cpp", "cuda": "engine.cu", "python": "engine.py"}
WORKFLOWS = {"c": {"cpu"}, "cpp": {"cpu"}, "cuda": {"gpu"}, "python": {"cpu", "gpu"}}
PAGE = "docs/new-engine.md"
ARCH = "sm_90"


def kernel(language):
    """The code that a test writes in the place of a person."""
    if language == "python":
        return (KERNELS / "kernel.py").read_text().split("class Kernel:\n")[1]
    if language != "cuda":
        return (ROOT / "tests" / "plugins" / "foreign_decoder.h").read_text() + (KERNELS / f"kernel.{language}").read_text()
    naive = (ROOT / "tests" / "plugins" / "naive_cuda.cu").read_text()
    begin, end = naive.index("// Returns to every thread"), naive.index("int blocks_for(")
    return ("constexpr int kThreads = 256, kArgmaxThreads = 1024;\n" + naive[begin:end]
            + (KERNELS / "kernel.cu").read_text())


def fill(source, language):
    """Puts the kernel between the two marks of a new engine's source."""
    lines = source.read_text().splitlines(keepends=True)
    [begin] = [i for i, line in enumerate(lines) if "---- Your kernel begins ---" in line]
    [end] = [i for i, line in enumerate(lines) if "---- Your kernel ends ---" in line]
    source.write_text("".join(lines[:begin + 1]) + kernel(language) + "".join(lines[end:]))


# An mkbench that only tells its flags and how it was called.
HELPFUL = """#!/bin/sh
if [ "$2" != --help ]; then echo "ran $*"
elif [ "$1" = parity ]; then printf '  --model LIST  Models.\\n  --keep-going  Goes on where run has --processes.\\n'
else printf '  --model LIST  Models.\\n  --processes N  Fresh ones.\\n  -n,--n-gen LIST  Tokens.\\n'; fi
"""


class NewEngineTest(CliTest):
    prompts = ("corpus-17", "other-2")

    def new(self, language, name="my-kernel", filled=False):
        """The new folder, in which mkbench is on PATH."""
        done = self.mkbench("new-engine", name, language)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        folder = self.folder / name
        if filled:
            fill(folder / SOURCES[language], language)
        return folder

    def references(self):
        """A folder with the prompts alone, made once."""
        folder = self.folder / "references"
        if not folder.exists():
            for model in ("tiny", "tiny-untied"):  # those of a run on a CPU that names none
                self.short_reference(model, self.prompts)
        return str(folder)

    def shell(self, folder, commands, **variables):
        """Runs commands as a person types them, on a few prompts and with short times."""
        tools = self.folder / "tools"
        if not tools.exists():
            tools.mkdir()
            (tools / "mkbench").write_text(f'#!/bin/sh\nexec "{BINARY}" "$@"\n')
            (tools / "mkbench").chmod(0o755)
        variables.setdefault("MKBENCH_REFERENCE", self.references())
        env = environment(MKBENCH_N_GEN="8", MKBENCH_BLOCKS="2", MKBENCH_PLOT="off", **variables)
        env["PATH"] = f"{tools}:{pathlib.Path(os.environ['CUDACXX']).parent}:{env['PATH']}"
        return subprocess.run(["bash", "-uo", "pipefail", "-c", commands], cwd=folder, env=env, text=True, timeout=150,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def compile(self, folder, *command):
        done = subprocess.run(command, cwd=folder, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def judge(self, folder, engine):
        """One run: exit code, and what the report says of the engine."""
        self.out = folder / "report"
        result = self.bench("--engine", str(folder / engine), "--reference", self.references(), "--compare", "none")
        return result, self.engine(self.report(), str(folder / engine))


class Folders(NewEngineTest):
    def test_each_language(self):
        for language, source in SOURCES.items():
            with self.subTest(language=language):
                folder = self.new(language, f"{language} 1")
                files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
                workflows = {f".github/workflows/mkbench-{job}.yml" for job in WORKFLOWS[language]}
                headers = {"c": {"engine_abi.h"}, "python": {"step_decoder.py"}}.get(language, {"engine_abi.h", "step_engine.h"})
                built = headers | ({"Makefile"} if language != "python" else set())
                self.assertEqual(files, {source, "README.md", "gate.sh", ".gitignore"} | workflows | built)
                texts = {file: (folder / file).read_text() for file in files}
                self.assertEqual([f for f, text in texts.items() if re.search("@[A-Z]+@", text)], [])
                self.assertIn(f'"{language}-1"', texts[source])
                self.assertIn(f"`{source}`", texts["README.md"])
                for header in headers:
                    self.assertEqual(texts[header], (ROOT / "references" / header).read_text())

    def test_it_says_what_comes_next(self):
        told = self.mkbench("new-engine", "a folder/of mine", "c")
        self.assertIn("\nnext:\ncd 'a folder/of mine'\nmake\nmkbench parity --engine ./engine.so ", told.stdout)
        self.assertEqual(self.mkbench("new-engine", "other", "c", "--quiet").stdout, "")
        (self.folder / "empty").mkdir()
        self.assertEqual(self.mkbench("new-engine", "empty", "python").returncode, 0)

    def test_refusals(self):
        (self.folder / "file").write_text("mine")
        (self.folder / "full").mkdir()
        (self.folder / "full" / "engine.c").write_text("mine")
        for args, told in [
            (("file", "c"), "file: found a file, wanted an empty folder or none"),
            (("full", "c"), "full: the folder is not empty, and nothing is overwritten"),
            (("file/below", "c"), "file/below: Not a directory"),
            (("/proc/self/new", "c"), "/proc/self/new: "),  # nobody may write there
            (("new", "rust"), "language: found 'rust', wanted one of c, cpp, cuda, python"),
            (("new",), "name a new folder and a language: DIR c|cpp|cuda|python"),
            (("", "c"), "name a new folder and a language: DIR c|cpp|cuda|python"),
        ]:
            with self.subTest(args=args):
                done = self.mkbench("new-engine", *args)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, r"\Amkbench: error: mkbench new-engine: [^\n]*\n\Z")
                self.assertIn(told, done.stderr)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["file", "full"])
        self.assertEqual([p.read_text() for p in (self.folder / "full").iterdir()], ["mine"])


@unittest.skipIf(shutil.which("make") is None, "there is no make on PATH")
class C(NewEngineTest):
    def test_it_compiles_without_a_warning(self):
        folder = self.new("c")
        strict = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "engine.c", "-o", "engine.so")
        self.compile(folder, "cc", "-std=c99", "-pedantic", *strict)
        self.compile(folder, os.environ["CXX"], "-x", "c++", *strict)
        folder = self.new("cpp", "cpp", filled=True)
        done = self.shell(folder, "make CXXFLAGS='-O2 -Werror'")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_empty_it_fails_with_the_place(self):
        """By the commands of docs/new-engine.md, which are those of its own README: the function is named, with its
        line."""
        begin, gate = blocks(PAGE)
        self.assertEqual(gate, "bash gate.sh cpu\n")  # see below
        done = self.shell(self.folder, begin)
        folder = self.folder / "my-kernel"
        self.assertEqual("".join(begin.splitlines(keepends=True)[2:]), blocks(folder / "README.md")[0])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        source = (folder / "engine.c").read_text().splitlines()
        places = re.findall(r"- \./engine\.so: RUNTIME_ERROR: .*: (\w+) is not written yet: engine\.c:(\d+)",
                            done.stdout)
        self.assertEqual(len(places), 4, done.stdout)  # of parity, and of run, on two models
        for function, line in places:
            self.assertIn(f'"{function} is not written yet: %s:%d", __FILE__, __LINE__', source[int(line) - 1])
            self.assertIn(f"{function} is not written yet: engine.c:{line}\n", (ROOT / PAGE).read_text())
        rows = [line for line in done.stdout.splitlines() if line.startswith("|") and "engine.so" in line]
        self.assertEqual([row for row in rows if "PASS" in row], [])

    def test_filled_in_it_passes_the_gate(self):
        """parity, then run, by the line that CI runs."""
        folder = self.new("c", filled=True)
        _, model, _, references = self.short_model(160)
        done = self.shell(folder, "bash gate.sh cpu", MKBENCH_MODEL=model, MKBENCH_REFERENCE=references)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("my-kernel@engine.so", done.stdout)
        self.assertEqual(done.stdout.count("**PASS** (exit code 0, 1 case)"), 2, done.stdout)
        for name in ("parity", "run"):
            self.assertTrue((folder / "reports" / name / "report.json").exists(), name)

    def test_the_gate_gets_mkbench(self):
        """From a git repository, at a commit; without any it ends with one line."""
        folder = self.new("c")
        repository = self.folder / "repository"
        (repository / "scripts").mkdir(parents=True)
        (repository / "scripts" / "run.sh").write_text('#!/bin/sh\necho "ran $* on ${MKBENCH_MODEL-no model}"\n')
        (repository / "scripts" / "run.sh").chmod(0o755)
        git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run(git + words, check=True)
        # Without mkbench on PATH.
        env = environment(PATH="/usr/bin:/bin")

        def gate(*args, **variables):
            done = subprocess.run(["bash", "gate.sh", *args], cwd=folder, env=env | variables, text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            return done.returncode, done.stdout, done.stderr
        at = {"GATE_MKBENCH_URL": str(repository)}
        status, out, told = gate("cpu", **at, GATE_MKBENCH_REF="HEAD")
        self.assertEqual(status, 0, told)
        self.assertEqual(re.findall("^ran (.*)$", out, re.MULTILINE), [
            f"{name} --engine ./engine.so --device cpu --out reports/{name} on no model" for name in ("parity", "run")])
        # A flag goes to the calls that have it, and to both where neither has it.
        (repository / "scripts" / "run.sh").write_text(HELPFUL)
        subprocess.run(git + ["commit", "-qam", "two"], check=True)
        status, out, told = gate("cpu", "--model", "tiny", "--processes=3", "--keep-going", "-n", "8", "--odd", "1", **at,
                                 GATE_MKBENCH_REF="HEAD")
        self.assertEqual(re.findall("^ran (?:parity|run) .*/(.*)$", out, re.MULTILINE), [
            "parity --model tiny --keep-going --odd 1", "run --model tiny --processes=3 -n 8 --odd 1"], told)
        # The engine of an earlier commit is built beside this one, and both are timed in one run.
        in_folder = ["git", "-C", str(folder), *git[3:]]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run(in_folder + words, check=True)
        for _ in range(2):  # also where the first one has left its working tree
            status, out, told = gate("cpu", **at, GATE_MKBENCH_REF="HEAD", GATE_BASE_REF="HEAD")
            self.assertEqual(status, 0, told)
            self.assertIn("ran compare .gate-base/engine.so ./engine.so --fail-on inconclusive --device cpu --out "
                          "reports/compare\n", out)
            self.assertTrue((folder / ".gate-base" / "engine.so").exists())
        for args, variables, said in [
            (("cpu",), at | {"GATE_BASE_REF": "v9", "GATE_MKBENCH_REF": "HEAD"}, "git has no commit 'v9' here"),
            (("gpu",), at, "device: found 'gpu', wanted cpu or cuda"), (("cpu",), {}, "there is no mkbench"),
            (("cpu",), at | {"GATE_MKBENCH_REF": "v9"}, "has no commit v9"),
        ]:
            status, _, told = gate(*args, **variables)
            self.assertEqual(status, 2, told)
            self.assertRegex(told.splitlines()[-1], f"^gate.sh: error: .*{said}")
        # On GitHub a failure is said beside the pull request too, and stays the gate's exit code.
        (repository / "scripts" / "run.sh").write_text(
            '#!/bin/sh\necho "ran $*"\n[ "$1" = report ] || { mkdir -p reports/$1; touch reports/$1/report.json; exit 3; }\n')
        subprocess.run(git + ["commit", "-qam", "three"], check=True)
        for github, more in (({}, []), ({"GITHUB_ACTIONS": "true"}, ["report reports/parity -o annotations"])):
            status, out, told = gate("cpu", **at, GATE_MKBENCH_REF="HEAD", **github)
            self.assertEqual((status, re.findall("^ran (.*)$", out, re.MULTILINE)),
                             (3, ["parity --engine ./engine.so --device cpu --out reports/parity", *more]), told)


@unittest.skipIf(shutil.which("make") is None, "there is no make on PATH")
class Cuda(NewEngineTest):
    def test_it_compiles(self):
        """As it is and filled in, for one architecture."""
        folder, nvcc = self.new("cuda"), os.environ["CUDACXX"]
        done = self.shell(folder, f"make ARCH={ARCH} NVCC='{nvcc}' NVCCFLAGS='-Werror all-warnings'")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        fill(folder / "engine.cu", "cuda")
        done = self.shell(folder, f"make ARCH={ARCH} NVCC='{nvcc}' NVCCFLAGS='-Werror all-warnings'")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)


@unittest.skipIf(shutil.which("make") is None, "there is no make on PATH")
class MoreRuns(NewEngineTest):
    def test_another_family_is_refused(self):
        folder, python = self.new("c"), self.new("python", "other")
        self.assertEqual(self.shell(folder, "make").returncode, 0)
        engines = (str(folder / "engine.so"), str(python / "engine.py"))
        result = self.bench("--engine", ",".join(engines), "--model", "tiny-llama,tiny-qwen2", "--compare", "none")
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        for case, kind in enumerate(("llama", "qwen2")):
            for engine, said in zip(engines, ("open failed (2): model: wanted a Qwen3, found no QK-norm",
                                              f"model_type: found {kind}, wanted qwen3")):
                found = self.engine(self.report(), engine, case)
                self.assertEqual(found["verdict"], "BAD_INPUT")
                self.assertIn(said, found["reasons"][0])

    def test_another_shape_is_refused(self):
        """The frame compares every weight with the model: here the source wants another one."""
        folder = self.new("c")
        source = (folder / "engine.c").read_text()
        wrong = source.replace('{"mlp.up_proj", m->intermediate,', '{"mlp.up_proj", m->intermediate + 1,')
        self.assertNotEqual(source, wrong)
        (folder / "engine.c").write_text(wrong)
        self.assertEqual(self.shell(folder, "make").returncode, 0)
        result, engine = self.judge(folder, "engine.so")
        self.assertEqual((result.returncode, engine["verdict"]), (2, "BAD_INPUT"), result.stdout + result.stderr)
        self.assertRegex(engine["reasons"][0], r"model\.layers\.0\.mlp\.up_proj\.weight: found \[\d+, \d+\] of")


class Python(NewEngineTest):
    prompts = ("corpus-1", "corpus-17", "corpus-64", "other-2")  # R_KL of the two alone is over its limit: few logits

    def test_empty_it_fails_with_the_place_and_filled_in_it_passes(self):
        """All in one run, which judges the baseline once. Of wrong ones that show their states the layer is named."""
        empty = self.new("python", "empty") / "engine.py"
        filled = self.new("python", "filled", filled=True) / "engine.py"
        wrong, silent = (self.new("python", name, filled=True) / "engine.py" for name in ("wrong", "silent"))
        deep = '            hidden = hidden + gated @ layer["down_proj"]'
        text = wrong.read_text()
        self.assertEqual(text.count(deep), 1)
        wrong.write_text(text.replace(deep, f"            gated = -gated if len(self.shown) == 2 else gated\n{deep}"))
        silent.write_text(wrong.read_text().replace("def show(", "def unshown("))
        result = self.bench("--engine", f"{empty},{filled},{wrong},{silent}", "--reference", self.references(),
                            "--compare", "none")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        report = self.report()
        engine = self.engine(report, str(empty))
        self.assertEqual(engine["verdict"], "RUNTIME_ERROR")
        place = re.search(r"(step) is not written yet \(engine\.py, line (\d+)\)", engine["reasons"][0])
        self.assertTrue(place, engine["reasons"])
        line = empty.read_text().splitlines()[int(place[2]) - 1]
        self.assertIn(f'NotImplementedError("{place[1]} is not', line)
        engine = self.engine(report, str(filled))
        self.assertEqual((engine["verdict"], engine["resolved_name"]), ("PASS", "filled@engine.py"), engine["reasons"])
        self.assertEqual(engine["parity"]["error_by_position"], [])
        parity = self.engine(report, str(wrong))["parity"]
        for words in ("layer 2 is the first whose hidden state leaves", "K and V of layer 2 in band", "it shows too: the V head"):
            self.assertIn(words, parity["localised"])
        by_layer = parity["failed_step"]["error_by_layer"]
        self.assertEqual([e["error"] > e["limit"] for e in by_layer], [False, False, True, True])
        of_prompt = [row["pos"] for row in parity["rows"] if row["prompt"] == parity["failed_step"]["prompt"]]
        self.assertEqual([e["at"] for e in parity["error_by_position"]], of_prompt)
        for words in (parity["localised"], f"again: `{parity['failed_step']['command']}`"):
            self.assertIn(words, result.stdout)
            self.assertIn(words, (self.out / "report.md").read_text())
        parity = self.engine(report, str(silent))["parity"]
        self.assertIn("offer show() (engine_abi.h; in Python step_decoder.py)", parity["localised"])
        self.assertEqual(parity["failed_step"]["error_by_layer"], [])


if __name__ == "__main__":
    unittest.main()
