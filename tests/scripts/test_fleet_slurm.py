"""mkbench fleet over a real Slurm on loopback: an array of jobs with a stand-in card each, and all that may go wrong there."""

import os
import signal
import unittest

from support import fleet_support
from support import slurm_on_loopback
from support.fleet_support import PROGRAM
from test_fleet import FleetCliTest

WHY_NOT = slurm_on_loopback.missing() or fleet_support.modules_missing()
slurm = slurm_on_loopback.Slurm() if not WHY_NOT else None


def setUpModule():
    unittest.addModuleCleanup(slurm.stop)
    slurm.start()


class SlurmTest(FleetCliTest):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)

    def fleet_environment(self, **faults):
        return super().fleet_environment(**faults) | slurm.environment()

    def tearDown(self):
        for node in slurm_on_loopback.NODES:
            if "drain" in slurm.ask("sinfo", "--noheader", "--nodes", node, "--format=%T"):
                slurm.ask("scontrol", "update", f"nodename={node}", "state=resume")
        self.assertEqual(slurm.ask("squeue", "--noheader"), "")

    def started(self, cards, seconds, more="", **faults):
        plan = self.write(f"[cards]\ncount = {cards}\n{more}")
        return self.start(plan, "--on", "slurm", "--out", self.out, seconds=seconds, **faults)


class Lost(SlurmTest):
    def test_killed_worker_drained_node_cancelled_array_resumed_fleet(self):
        process = self.started(4, 1.5)  # 16 cells on four cards
        self.until(lambda: len(self.running()) == 4)
        # A worker dies without a word; its program leaves the card with it.
        worker, program = self.worker_of(self.running()[0])
        os.kill(worker, signal.SIGKILL)
        self.until(lambda: program not in self.processes_of(str(PROGRAM)))
        slurm.ask("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
        self.until(lambda: self.counts()["done"] >= 3)
        slurm.ask("scancel", "--user=root")
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 5, said)
        self.assertIn("cells are missing: their jobs were cancelled", said)
        left = self.counts()
        self.assertEqual((left["running"], left["failed"], left["waiting"] + left["done"]), (0, 0, 16))
        self.assertGreater(left["waiting"], 0)

        done = self.fleet("--resume", self.out, "--on", "slurm")  # on the node that is left
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.counts(), {"waiting": 0, "running": 0, "done": 16, "failed": 0})
        outcomes = [row["outcome"] for row in self.tries()]
        self.assertEqual(outcomes.count("done"), 16)
        self.assertTrue({"lost", "cancelled"} <= {word.split(" ")[0] for word in outcomes}, outcomes)
        ran = fleet_support.rows(self.out, "SELECT c.base, t.card FROM tries t JOIN cells c USING (cell) WHERE outcome = 'done'")
        self.assertEqual(len(ran), len(set(ran)))


class Cancelled(SlurmTest):
    def test_ctrl_c_cancels_the_jobs(self):
        process = self.started(2, 20)
        self.until(lambda: len(self.running()) == 2)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertEqual(self.counts()["waiting"], 8)
        self.until(lambda: not slurm.ask("squeue", "--noheader"))


class Refused(SlurmTest):
    def refused(self, said, more, **faults):
        done = self.fleet(self.write(more), "--on", "slurm", "--out", self.out, **faults)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, said)
        self.assertFalse(self.out.exists())

    def test_refused_before_anything_is_submitted(self):
        self.refused("node n2: .*stand_in_mkbench.py is 'mkbench 9', wanted 'mkbench 0.1.0 .stand-in.'", "[cards]\ncount = 2\n",
                     version={"n2": "mkbench 9"})

    def test_what_sbatch_refuses(self):
        done = self.fleet(self.write("[cards]\ncount = 2\n[slurm]\nsbatch = {time = \"2-00:00:00\", bogus = 1}\n"), "--on", "slurm",
                          "--out", self.out)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, "fleet: Slurm took no job: .*bogus")
        self.assertEqual(self.counts()["waiting"], 8)

    def test_a_node_that_was_busy_when_versions_were_asked(self):
        slurm.ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
        process = self.started(16, 0.5, version={"n2": "mkbench 9"})
        self.until(lambda: len(self.running()) == 8)
        slurm.ask("scontrol", "update", "nodename=n2", "state=resume")
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 5, said)
        self.assertIn("fleet: n2: ", said)
        self.assertIn("could not work", said)


if __name__ == "__main__":
    fleet_support.main(WHY_NOT)
