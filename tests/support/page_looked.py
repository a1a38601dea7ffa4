"""What the tests that look at pages in a headless Chromium share."""

import sys

from support.page_support import ROOT, Pages

sys.path.insert(0, str(ROOT / "dev"))
import pinned_wheels
import tools_of_tests

WHY_NOT = tools_of_tests.no_browser()
if not WHY_NOT:
    sys.path.insert(0, str(pinned_wheels.folder_of("browser")))
    from playwright.sync_api import sync_playwright

# Marks of a chart that have an extent on the page, and words on its axes.
DRAWN = """() => [...document.querySelectorAll('.chart')].map((chart) => {
  const inside = chart.getBoundingClientRect();
  const marks = [...chart.querySelectorAll('svg .role-mark path, svg .role-mark line, svg .role-mark text')]
      .map((mark) => mark.getBoundingClientRect()).filter((box) => box.width + box.height > 0);
  const out = [...chart.querySelectorAll('svg text')].filter((text) => text.textContent).map((text) => {
    const box = text.getBoundingClientRect();
    return box.left < inside.left - 1 || box.right > inside.right + 1 ? text.textContent : '';
  }).filter(Boolean);
  return {id: chart.id, marks: marks.length, out, titles: chart.querySelectorAll('svg .role-axis-title text').length};
})"""


class LookedTest(Pages):
    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=tools_of_tests.browser())

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()

    def look(self, path, width=1240, scheme="light"):
        """A page that has drawn its charts. self.requests and self.said are what it asked for, and its console."""
        page = self.browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.addCleanup(page.close)
        self.requests, self.said = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.charts === 'drawn'", timeout=60000)
        return page

    def check_drawn(self, page, path, charts):
        self.assertEqual(self.requests, [path.as_uri()])
        self.assertEqual(self.said, [])
        drawn = page.evaluate(DRAWN)
        self.assertEqual(len(drawn), charts)
        for chart in drawn:
            self.assertGreaterEqual(chart["marks"], 2, chart)
            self.assertGreaterEqual(chart["titles"], 1, chart)
            self.assertEqual(chart["out"], [], chart)
        self.assertEqual(page.evaluate("document.documentElement.scrollWidth - innerWidth"), 0)
