"""mkbench fleet on this machine: stand-in cards, workers and submitters that die, cells that fail, plans that cannot run."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from support import fleet_support
from support import page_blocks
from support.cli_support import BINARY, CliTest, environment
from support.fleet_support import PROGRAM

import fleet_cells

PLAN = """
models = ["synthetic"]
depths = [0, 512]
engines = ["ring", "plain"]
device = "cpu"
heartbeat_s = 0.25
program = "{program}"
"""


class FleetCliTest(CliTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "fleet"

    def write(self, more="", plan=PLAN):
        path = self.folder / "plan.toml"
        path.write_text(plan.format(program=PROGRAM) + more)
        return str(path)

    def fleet_environment(self, **faults):
        return environment(MKBENCH_PYTHON=sys.executable, FLEET_FAULTS=json.dumps(faults), **fleet_support.python_path())

    def fleet(self, *words, timeout=100, **faults):
        return subprocess.run([BINARY, "fleet", *map(str, words)], cwd=self.folder, env=self.fleet_environment(**faults),
                              text=True, capture_output=True, timeout=timeout, check=False)

    def start(self, *words, **faults):
        """A fleet at work, in a group of its own."""
        process = subprocess.Popen([BINARY, "fleet", *map(str, words)], cwd=self.folder, env=self.fleet_environment(**faults),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        return process

    def until(self, what, limit_s=30):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            found = what()
            if found:
                return found
            time.sleep(0.05)
        self.fail("it did not come")

    def counts(self):
        return {state: len(os.listdir(self.out / "queue" / state)) for state in fleet_cells.STATES}

    def running(self):
        try:
            return os.listdir(self.out / "queue" / "running")
        except FileNotFoundError:
            return []

    def tries(self):
        return [row for path in sorted(self.out.glob("cells/*/status.json")) for row in json.loads(path.read_text())["tries"]]

    def processes_of(self, word):
        """Ids of processes with this word in their command."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if word in (path / "cmdline").read_bytes().decode().split("\0"):
                    found.append(int(path.name))
            except (OSError, UnicodeDecodeError):
                pass
        return found

    def worker_of(self, marker):
        """The process that runs mkbench for a claim, and its child."""
        cell = marker.split("@")[0]
        out = str(self.out / "cells" / cell / "try-1" / "report")
        programs = self.until(lambda: self.processes_of(f"--out={out}"))
        status = pathlib.Path(f"/proc/{programs[0]}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1]), programs[0]

    def check_whole(self, cells, outcomes=("done",)):
        """Nothing is lost: every cell is done, has one good report in the store, and no process is left."""
        self.assertEqual(self.counts(), {"waiting": 0, "running": 0, "done": cells, "failed": 0})
        done = fleet_support.rows(self.out, "SELECT cell FROM tries WHERE outcome = 'done' AND report IS NOT NULL")
        self.assertEqual(len({cell for cell, in done}), cells)
        self.assertEqual(len(done), cells)
        self.assertEqual({row["outcome"] for row in self.tries()}, set(outcomes))


class Local(FleetCliTest):
    def test_every_cell_runs_on_every_stand_in(self):
        done = self.fleet(self.write("[cards]\nstand_ins = 3\n"), "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_whole(12)
        self.assertEqual(len(fleet_support.rows(self.out, "SELECT card FROM cards WHERE stand_in = 1")), 3)
        self.assertEqual(len(set(fleet_support.rows(self.out, "SELECT c.base, t.card FROM tries t JOIN cells c USING (cell)"))), 12)
        self.assertIn("three cards: too few to tell an outlier", done.stdout)
        self.assertIn("12 of 12 cells done", done.stderr)
        self.assertTrue((self.out / "fleet.html").stat().st_size > 500_000)
        self.assertEqual(sorted(p.stem for p in (self.out / "parquet").iterdir()),
                         ["cards", "cells", "checks", "reports", "results", "samples", "tries"])

        again = self.fleet("merge", self.out)
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)
        self.assertIn("0 reports added, 12 already in the store, 0 refused", again.stderr)
        self.check_whole(12)

    def test_a_cell_that_fails_on_one_card_runs_on_another(self):
        host = fleet_support.fleet_worker.fleet_gpus.host()
        done = self.fleet(self.write("tries = 2\n[cards]\nstand_ins = 2\neach = false\n"), "--out", self.out, seconds=0.3,
                          fails=[f"stand-in-{host}-1"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_whole(4, ("done", "failed"))
        for row in self.tries():
            self.assertEqual(row["outcome"], "failed" if row["card"].endswith("-1") else "done")

    def test_a_plan_is_only_looked_at(self):
        plan = self.write("[cards]\nstand_ins = 2\n")
        done = self.fleet(plan, "--out", self.out, "--dry-run")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 8), done.stderr)
        done = self.fleet(plan, "--on", "workflow")
        matrix = json.loads(done.stdout)["include"]
        self.assertEqual((done.returncode, len(matrix), set(matrix[0])), (0, 4, {"cell", "arguments"}))
        self.assertEqual(os.listdir(self.folder), ["plan.toml"])

    def test_cells_of_a_workflow_are_merged(self):
        for entry in json.loads(self.fleet(self.write(), "--on", "workflow").stdout)["include"]:
            out = self.folder / "cells" / entry["cell"]
            out.mkdir(parents=True)
            (out / "status.json").write_text(json.dumps({"tries": [{"card": "x"}]}))  # what the stand-in reads
            subprocess.run([PROGRAM, *entry["arguments"]], cwd=self.folder, env=self.fleet_environment(), check=True)
            (out / "status.json").unlink()
        done = self.fleet("merge", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("4 reports added", done.stderr)
        cards = "SELECT DISTINCT card FROM tries"
        found = fleet_support.rows(self.folder, cards)
        self.assertEqual(self.fleet("merge", self.folder).returncode, 0)
        self.assertEqual((fleet_support.rows(self.folder, cards), len(found)), (found, 1))

    def test_the_example_of_the_page_on_the_cpu_engines(self):
        [block] = page_blocks.blocks("docs/fleet.md", "Without a GPU")
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "mkbench").symlink_to(BINARY)
        done = subprocess.run(["bash", "-ec", block], cwd=self.folder, capture_output=True, text=True, timeout=250, check=False,
                              env=self.fleet_environment() | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.out = self.folder / "stand-ins"
        self.check_whole(2)
        self.assertIn("stand-in: ", done.stdout)
        self.assertIn("two cards: too few to tell an outlier", done.stdout)
        engines = "SELECT engine, parity, count(DISTINCT logits_sha256), length(logits_sha256) FROM results GROUP BY 1, 2, 4"
        self.assertEqual(fleet_support.rows(self.out, engines), [("eager", "PASS", 1, 64), ("host-twin", "PASS", 1, 64)])


class Cards(FleetCliTest):
    """Cards that an nvidia-smi of the test shows, and the stand-in program on them."""

    def setUp(self):
        super().setUp()
        smi = self.folder / "bin" / "nvidia-smi"
        smi.parent.mkdir()
        cards = "\n".join(f"{uuid}, NVIDIA H100 80GB HBM3" for uuid in fleet_support.UUIDS[:3])
        smi.write_text(f"""#!/bin/sh
case "$*" in *uuid,name*) echo "{cards}" ;; *ecc*) echo "51, 200.5, 1980, 2619, 3, 0, [N/A], 0" ;; *) exit 9 ;; esac
""")
        smi.chmod(0o755)

    def cuda(self, more="", depths="[0, 512]", engines='["ring", "plain"]'):
        return self.write(more, PLAN.replace('"cpu"', '"cuda"').replace("[0, 512]", depths).replace('["ring", "plain"]', engines))

    def fleet_environment(self, **faults):
        visible = faults.pop("visible", None)
        found = super().fleet_environment(**faults) | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        return found | ({"CUDA_VISIBLE_DEVICES": visible} if visible is not None else {})

    def test_a_job_for_each_visible_card(self):
        done = self.fleet(self.cuda(), "--out", self.out, visible="2,0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_whole(8)
        self.assertEqual(fleet_support.rows(self.out, "SELECT card, kind, ecc_corrected, ecc_new FROM cards ORDER BY 1"),
                         [(uuid, "NVIDIA H100 80GB HBM3", 3, 0) for uuid in (fleet_support.UUIDS[0], fleet_support.UUIDS[2])])
        self.assertIn("GPU-00000000", done.stdout)

    def test_a_report_of_another_card_is_no_result(self):
        done = self.fleet(self.cuda("[cards]\ncount = 1\n"), "--out", self.out, uuid="GPU-other")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual({row["why"] for row in self.tries()}, {f"ran on card GPU-other, wanted {fleet_support.UUIDS[0]}"})

    def test_a_slow_nvidia_smi_loses_no_claim(self):
        smi = self.folder / "bin" / "nvidia-smi"
        smi.write_text(smi.read_text().replace('*ecc*) echo', '*ecc*) sleep 3.5; echo'))  # longer than twelve beats
        done = self.fleet(self.cuda("[cards]\ncount = 1\n", "[0]", '["ring"]'), "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_whole(1)


class Dies(FleetCliTest):
    def test_a_killed_worker(self):
        flag = self.folder / "once"
        process = self.start(self.write("[cards]\nstand_ins = 2\n"), "--out", self.out, slow_once=str(flag))
        # The other worker is through with what it may take.
        self.until(lambda: flag.exists() and self.counts()["done"] == 4 and len(self.running()) == 1)
        worker, program = self.worker_of(self.running()[0])
        os.kill(worker, signal.SIGKILL)
        # mkbench leaves the card with its worker.
        self.until(lambda: program not in self.processes_of(str(PROGRAM)))
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, said)
        self.check_whole(8, ("done", "lost"))

    def test_a_killed_submitter(self):
        process = self.start(self.write("[cards]\nstand_ins = 2\n"), "--out", self.out, seconds=3)
        self.until(lambda: len(self.running()) == 2)
        second = self.fleet("--resume", self.out)
        self.assertEqual(second.returncode, 2)
        self.assertIn("another mkbench fleet is at work on it", second.stderr)
        process.kill()
        process.communicate()
        # The workers went on, and hold their cards for longer than new ones wait for these.
        done = self.fleet("--resume", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_whole(8)
        self.until(lambda: not self.processes_of(str(PROGRAM)))

    def test_ctrl_c_and_resume(self):
        process = self.start(self.write("[cards]\nstand_ins = 2\n"), "--out", self.out, seconds=20)
        self.until(lambda: len(self.running()) == 2)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("--resume", said)
        self.assertEqual(self.counts()["waiting"], 8)
        self.until(lambda: not self.processes_of(str(PROGRAM)))
        done = self.fleet("--resume", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_whole(8, ("cancelled", "done"))


class Refused(FleetCliTest):
    def refused(self, said, *words, plan=None, more=""):
        done = self.fleet(self.write(more) if plan is None else plan, "--out", self.out, *words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, said)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertFalse(self.out.exists())

    def replaced(self, old, new):
        path = pathlib.Path(self.write())
        path.write_text(path.read_text().replace(old, new))
        return str(path)

    def test_refused_before_anything_is_submitted(self):
        self.refused("plan.toml: pace: unknown key", more="pace = 3\n")
        self.refused("models: 'nosuch': --model 'nosuch': no such model", plan=self.replaced('"synthetic"', '"nosuch"'))
        self.refused("program: .*: none: ", plan=self.replaced(str(PROGRAM), "/nosuch/mkbench"))
        self.refused("--on slurm: sinfo: ", "--on", "slurm", more="[cards]\ncount = 2\n")

    def test_no_permission(self):
        if os.geteuid() == 0:
            self.out = pathlib.Path("/proc/fleet/fleet")
            self.refused("no permission|No such file|not permitted")
            return
        locked = self.folder / "locked"
        locked.mkdir(mode=0o500)
        self.out = locked / "fleet"
        self.refused("no permission to write")

    def test_words_of_the_command(self):
        for words, said in ((["a", "b"], "name one plan"), ([], "name one plan"), (["merge"], "name one folder"),
                            (["a", "--resume", "b"], "wanted no plan"), (["--resume", "b", "--out", "c"], "--out does not go"),
                            (["a", "--on", "moon"], "--on: 'moon' is not one of local, slurm, workflow")):
            done = self.fleet(*words)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, said)
        done = self.fleet("merge", self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no fleet's folder", done.stderr)
        done = self.mkbench("fleet", "merge", "x", env={"MKBENCH_PYTHON": "/no/python"})
        self.assertEqual((done.returncode, done.stderr),
                         (1, "mkbench: error: mkbench fleet: cannot run /no/python: No such file or directory\n"))


class Slow(FleetCliTest):
    def test_a_cell_that_fails_everywhere_decides_the_exit_code(self):
        host = fleet_support.fleet_worker.fleet_gpus.host()
        done = self.fleet(self.write("[cards]\nstand_ins = 1\n"), "--out", self.out, fails=[f"stand-in-{host}-0"])
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(self.counts()["failed"], 4)
        self.assertEqual(len(self.tries()), 8)
        self.assertIn("planted failure", next(self.out.glob("cells/*/try-1/log.txt")).read_text())
        mended = self.fleet("--resume", self.out)
        self.assertEqual(mended.returncode, 0, mended.stderr)
        self.assertEqual(self.counts()["done"], 4)

    def test_another_version_goes_on_with_no_fleet(self):
        self.assertEqual(self.fleet(self.write(), "--out", self.out).returncode, 0)
        done = self.fleet("--resume", self.out, version={"": "mkbench 9"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("fleet.json: version: found 'mkbench 0.1.0 (stand-in)', wanted 'mkbench 9'", done.stderr)


if __name__ == "__main__":
    fleet_support.main(fleet_support.modules_missing())
