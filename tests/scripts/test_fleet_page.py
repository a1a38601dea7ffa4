"""The page of a fleet as a headless Chromium shows it: findings, charts, matrix and history, and no request."""

from support import page_looked
from support.fleet_support import UUIDS, FleetTest, finish, main, modules_missing, report_of
from support.page_support import PLANTED

import fleet_cards
import fleet_page
import fleet_store

DEPTHS = (0, 512)


class Looked(page_looked.LookedTest, FleetTest):
    def fleet_page(self, cards, change=lambda report: None, failed=True, **more):
        """The page of a fleet whose cards have what report_of() is to be told for each."""
        def report_for(card, told):
            report = report_of(card, DEPTHS, **told)
            change(report)
            return report

        folder = self.fleet(copies=len(cards), depths=[list(DEPTHS)], engines=[["ring", "plain"]], **more)
        if failed:
            claim = folder.claim(next(iter(cards)), "w0")
            folder.note_try(claim, started="2026-11-24T12:00:00Z", host="node")
            folder.end(claim, "failed", exit_code=3, why=PLANTED)
        for card, told in cards.items():
            finish(folder, card, lambda cell: report_for(card, told))
        done = fleet_store.merge(folder.path)
        self.addCleanup(done.base.close)
        fleet_page.write(folder.path, done.base, fleet_cards.facts_of(done.base), done.refused)
        return folder.path / fleet_page.NAME

    def test_a_fleet_with_a_slow_card(self):
        path = self.fleet_page({uuid: {} for uuid in UUIDS[:4]} | {UUIDS[4]: {"read": 0.9}})
        for width in (1240, 390):
            for scheme in ("light", "dark"):
                page = self.look(path, width, scheme)
                self.check_drawn(page, path, 2 + 2 * 3 + 1)
                self.assertTrue(page.get_by_text("GPU-44444444: read rate 10.0 % less than on its four neighbours").is_visible())
        self.assertEqual(page.locator("#cards tbody tr").count(), 5)
        self.assertEqual(page.locator("#matrix .badge.good").count(), 5)
        self.assertEqual(page.locator("#matrix .badge.bad").count(), 1)
        self.assertEqual(page.locator("#history tbody tr").count(), 1)
        page.locator(".legend button", has_text="ring").click()
        faded = "[...document.querySelectorAll('#chart-1 .mark-symbol path')].map((p) => p.getAttribute('opacity'))"
        page.wait_for_function(f"new Set({faded}).size === 2")

    def test_planted_text_is_shown_and_does_nothing(self):
        def change(report):
            report["env"]["gpu"]["name"] = PLANTED
            for case in report["cases"]:
                case["name"] += PLANTED
                case["model"]["name"] += PLANTED
                for engine in case["engines"]:
                    engine["resolved_name"] += PLANTED

        path = self.fleet_page({UUIDS[0]: {}, UUIDS[1]: {}}, change)
        page = self.look(path)
        self.check_drawn(page, path, 2 + 2 * 3 + 1)
        self.assertEqual(page.locator("img").count(), 0)
        self.assertIsNone(page.evaluate("window.planted ?? null"))
        self.assertIn("planted.invalid", page.locator("#cards").inner_text())

    def test_nothing_has_run_yet(self):
        path = self.fleet_page({}, failed=False)
        page = self.look(path)
        self.assertEqual(self.said, [])
        self.assertTrue(page.locator("h1 .badge", has_text="INCOMPLETE").is_visible())


if __name__ == "__main__":
    main(page_looked.WHY_NOT or modules_missing())
