"""The page of a report as a headless Chromium shows it: charts, light and dark, a narrow window, and no request."""

from support.page_support import main, plant

from support.page_looked import WHY_NOT, LookedTest


class Looked(LookedTest):
    def test_charts_draw_in_every_window_and_scheme(self):
        path = self.page(self.example("gpu"), self.example("cpu"))
        backgrounds, pictures = set(), set()
        for width in (1240, 390):
            for scheme in ("light", "dark"):
                page = self.look(path, width, scheme)
                self.check_drawn(page, path, 18 + 5)
                self.assertTrue(page.locator("h1 .badge", has_text="PASS").first.is_visible())
                backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                pictures.add(page.locator("#chart-0").screenshot())
        self.assertEqual(len(backgrounds), 2)
        self.assertEqual(len(pictures), 4)

    def test_two_and_two_hundred_blocks(self):
        for blocks in (2, 200):
            report = self.example("gpu")
            for case in report["cases"]:
                for engine in case["engines"]:
                    engine["samples"] = [{**engine["samples"][b % 10], "block": b, "process": 2 * b // blocks}
                                         for b in range(blocks)]
            path = self.page(report)
            self.check_drawn(self.look(path), path, 18)

    def test_a_report_of_failures(self):
        report = self.example("failed")
        page = self.look(self.page(report))
        self.assertEqual(self.said, [])
        self.assertTrue(page.locator("h1 .badge", has_text="BAD_INPUT").is_visible())
        self.assertTrue(page.locator(".badge.bad", has_text="HANG").first.is_visible())
        self.assertTrue(page.get_by_text("megakernel: HANG: no progress for 10 s").first.is_visible())

    def test_parity_is_folded_away_and_opens(self):
        page = self.look(self.page(self.example("gpu")))
        row = page.locator(".parity td", has_text="capital").first
        self.assertFalse(row.is_visible())
        page.locator(".parity summary").first.click()
        self.assertTrue(row.is_visible())

    def test_the_legend_fades_the_others(self):
        page = self.look(self.page(self.example("gpu")))
        faded = "[...document.querySelectorAll('#chart-0 .mark-symbol path')].map((p) => p.getAttribute('opacity'))"
        self.assertEqual(set(page.evaluate(faded)), {"1"})
        page.locator(".legend button", has_text="eager").click()
        page.wait_for_function(f"new Set({faded}).size === 2")
        page.locator(".legend button", has_text="eager").click()
        page.wait_for_function(f"new Set({faded}).size === 1")

    def test_planted_text_is_shown_and_does_nothing(self):
        path = self.page(plant(self.example("gpu")))
        page = self.look(path)
        self.assertEqual((self.requests, self.said), ([path.as_uri()], []))
        page.locator("#chart-0 .mark-symbol path").first.hover()
        page.wait_for_selector("#vg-tooltip-element.visible")
        self.assertIn("onerror", page.locator("#vg-tooltip-element").inner_text())
        self.assertEqual(page.locator("img").count(), 0)
        self.assertIsNone(page.evaluate("window.planted ?? null"))


if __name__ == "__main__":
    main(WHY_NOT)
