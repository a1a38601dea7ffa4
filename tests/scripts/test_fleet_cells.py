"""The folder of a fleet: claims, tries, and claims of workers that died."""

import collections
import concurrent.futures
import os
import time

from support.fleet_support import FleetTest, main

import fleet_cells
import fleet_plan


class Claims(FleetTest):
    def test_each_card_takes_each_cell_once(self):
        folder = self.fleet(copies=2, depths=[0, 512, 4096])
        taken = collections.defaultdict(list)
        for card in ("A", "A", "A", "A", "B", "B", "B", "B"):
            claim = folder.claim(card, f"w{card}")
            taken[card].append(claim and claim.cell.depths)
            if claim:
                self.assertTrue(folder.end(claim, "done"))
        self.assertEqual(taken, {"A": [(0,), (512,), (4096,), None], "B": [(0,), (512,), (4096,), None]})
        self.assertEqual(folder.counts(), {"waiting": 0, "running": 0, "done": 6, "failed": 0})

    def test_of_many_claimants_one_gets_a_cell(self):
        folder = self.fleet(1, depths=list(range(40)), cards={"each": False})
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            claims = list(pool.map(lambda i: folder.claim(f"C{i}", f"w{i}"), range(60)))
        got = [claim.cell.id for claim in claims if claim]
        self.assertEqual((len(got), len(set(got))), (40, 40))

    def test_a_failed_cell_goes_to_another_card_and_then_is_failed(self):
        folder = self.fleet(1, tries=2, cards={"each": False})
        first = folder.claim("A", "wA")
        folder.note_try(first, started="x")
        folder.end(first, "failed", exit_code=3)
        folder.write_worker("wB", card="B", at=folder.server_time())
        self.assertIsNone(folder.claim("A", "wA"))  # B is at work
        second = folder.claim("B", "wB")
        self.assertEqual((second.cell.id, second.number), (first.cell.id, 2))
        folder.end(second, "failed", exit_code=3)
        self.assertEqual(folder.counts()["failed"], 1)
        self.assertEqual([(t["card"], t["outcome"]) for t in folder.status(first.cell.id)["tries"]],
                         [("A", "failed"), ("B", "failed")])
        folder.retry_failed()
        self.assertIsNotNone(folder.claim("A", "wA"))

    def test_without_another_card_the_same_one_tries_again(self):
        folder = self.fleet(copies=1)
        folder.end(folder.claim("A", "wA"), "failed")
        folder.write_worker("wB", card="B", at=folder.server_time(), ended="x")
        self.assertEqual(folder.claim("A", "wA").number, 2)

    def test_another_card_that_has_run_the_cell_takes_no_copy_of_it(self):
        folder = self.fleet(copies=2)
        folder.write_worker("wB", card="B", at=folder.server_time())
        folder.end(folder.claim("B", "wB"), "done")
        folder.end(folder.claim("A", "wA"), "failed")
        self.assertIsNone(folder.claim("B", "wB"))
        self.assertEqual(folder.claim("A", "wA").number, 2)

    def test_a_cancelled_try_does_not_count(self):
        folder = self.fleet(copies=1, tries=1)
        for number in (1, 2, 3):
            claim = folder.claim("A", "wA")
            self.assertEqual(claim.number, number)
            folder.end(claim, "cancelled")
        folder.end(folder.claim("A", "wA"), "failed")
        self.assertEqual(folder.counts()["failed"], 1)


class Dead(FleetTest):
    def lose(self, folder, card="A"):
        """A claim whose worker never beats again."""
        claim = folder.claim(card, f"w{card}")
        folder.note_try(claim, started="x")
        old = time.time() - 10 * folder.stale_s
        os.utime(folder.queue("running") / claim.marker, (old, old))
        return claim

    def test_a_claim_without_a_beat_is_taken_back(self):
        folder = self.fleet(copies=1)
        claim = self.lose(folder)
        self.assertTrue(folder.beat(claim))
        self.assertEqual(folder.settle(), [])  # it beats
        folder.end(claim, "cancelled")
        claim = self.lose(folder)
        self.assertEqual(folder.settle(), [claim.cell.id])
        self.assertFalse(folder.beat(claim))
        self.assertEqual(folder.names("waiting"), [f"{claim.cell.id}@A"])
        # The worker was alive after all: its try is kept, and is not the cell's result.
        self.assertFalse(folder.end(claim, "done", exit_code=0))
        self.assertEqual(folder.status(claim.cell.id)["tries"][-1]["outcome"], "late")
        self.assertEqual(folder.counts()["waiting"], 1)

    def test_a_job_that_is_over_needs_no_patience(self):
        folder = self.fleet(copies=1)
        claim = folder.claim("A", "wA")
        self.assertEqual(folder.settle({"other"}), [])
        self.assertEqual(folder.settle({"wA"}), [claim.cell.id])

    def test_a_worker_that_died_between_result_and_marker(self):
        folder = self.fleet(copies=1)
        claim = self.lose(folder)
        folder.note_try(claim, outcome="done", ended="y")
        self.assertEqual(folder.settle({"wA"}), [])
        self.assertEqual(folder.counts()["done"], 1)

    def test_a_cell_that_kills_its_workers_is_given_up(self):
        folder = self.fleet(copies=1)
        for _ in range(fleet_cells.MOST_LOST):
            self.lose(folder)
            folder.settle()
        self.assertEqual(folder.counts(), {"waiting": 0, "running": 0, "done": 0, "failed": 1})

    def test_a_lock_is_free_when_its_holder_ends(self):
        folder = self.fleet()
        with folder.alone("card-A") as first:
            self.assertTrue(first)
            with folder.alone("card-A") as second:
                self.assertFalse(second)
        with folder.alone("card-A") as third:
            self.assertTrue(third)


class Folders(FleetTest):
    def test_folders_that_are_refused(self):
        folder = self.fleet()
        with self.assertRaisesRegex(fleet_cells.BadFleet, "is there already; --resume"):
            fleet_cells.make(folder.path, self.plan(), 2, "v", "p")
        with self.assertRaisesRegex(fleet_cells.BadFleet, "fleet.json: schema: found nothing"):
            fleet_cells.Folder(self.folder)
        text = (folder.path / "fleet.json").read_text()
        (folder.path / "fleet.json").write_text(text.replace('"1.0.0"', '"9.0.0"'))
        with self.assertRaisesRegex(fleet_cells.BadFleet, "schema: found .*9.0.0.*, wanted mkbench.fleet 1.0.0"):
            fleet_cells.Folder(folder.path)

    def test_names_of_markers_divide(self):
        self.assertEqual(fleet_plan.slug("a+b@c/d e"), "a_b_c_d_e")


if __name__ == "__main__":
    main()
