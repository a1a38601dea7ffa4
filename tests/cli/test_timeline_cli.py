"""`mkbench profile --timeline` on the CPU: the host twin's timeline and a foreign library's, end to end."""

import json
import os
import sys

from support import timeline_support
from support.cli_support import ROOT, HostsTest, main_or_skipped

for folder in ("scripts", "dev"):
    sys.path.insert(0, str(ROOT / folder))
import pinned_wheels
import tools_of_tests

LAYERS, BLOCKS = 4, 8  # of tiny, and of the host twin


class TimelineTest(HostsTest):
    def profile(self, *args):
        result = self.mkbench("profile", "--timeline", *args, "--out", str(self.out), env={
            "MKBENCH_DEVICE": "cpu", "MKBENCH_MODEL": "tiny", "TMPDIR": str(self.tmp)})
        self.assert_nothing_left()
        return result

    def told(self):
        return json.loads((self.out / "profile.json").read_text())

    def trace(self, name):
        trace = json.loads((self.out / name).read_text())
        self.assertEqual(timeline_support.schema_problems(trace), [])
        return trace

    def assert_sums(self, summary, spans, steps):
        """The summary of the report, by another way to the same numbers."""
        sums = timeline_support.phase_sums(spans, steps)
        self.assertEqual({(one["role"], one["phase"]) for one in summary["phases"]}, set(sums))
        for one in summary["phases"]:
            for kind, us in sums[one["role"], one["phase"]].items():
                self.assertAlmostEqual(one["us"][kind.replace("-", "_")], us, places=2, msg=f"{one} {kind}")
        path_us, slowest = timeline_support.critical_path(spans, summary["phases"][0]["role"], steps)
        self.assertAlmostEqual(summary["step_us"], path_us, delta=0.01 * path_us)
        self.assertEqual(summary["slowest_block"], slowest)


class Recorded(TimelineTest):
    def test_the_host_twin(self):
        result = self.profile("-d", "3", "-n", "4", "--blocks", "3")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("host-twin on cpu (tiny d=3 n=4): NOT_JUDGED, the kernel recorded what its blocks do", result.stdout)
        told = self.told()
        [one] = told["profiles"]
        self.assertEqual((one["verdict"], one["problem"], told["tool"]), ("NOT_JUDGED", "", "timeline"))
        trace = self.trace(one["trace"])
        self.assertEqual(trace["otherData"], {"title": "host-twin on cpu (tiny d=3 n=4)", "lost_events": 0,
                                              "clock": "std::chrono::steady_clock"})
        spans, frames = timeline_support.read_spans(trace)
        self.assertEqual(len(frames), 4)
        self.assertEqual({span.block for span in spans}, set(range(BLOCKS)))
        self.assertEqual(timeline_support.overlaps(spans), 0)
        # Every block runs every phase of every layer of every token once, and waits for an exchange before each but
        # the first one.
        bodies = [span[4:] for span in spans if span.kind == "body" and span.phase not in ("embed", "lm_head")]
        self.assertEqual(sorted(bodies), sorted(
            (phase, "body", token, layer) for phase in ("qkv", "attention", "o_proj", "gate_up", "down")
            for token in range(4) for layer in range(LAYERS) for _ in range(BLOCKS)))
        summary = one["summary"]
        self.assertEqual((summary["blocks"], summary["steps"], summary["layers"], summary["lost"]), (BLOCKS, 4, LAYERS, 0))
        self.assert_sums(summary, spans, 4)
        self.assertEqual([part["phase"] for part in summary["path"]],
                         ["embed", "qkv", "attention", "o_proj", "gate_up", "down", "lm_head"])
        self.assertEqual(len(one["decodes"]["with_ms"]), 3)
        text = (self.out / "report.md").read_text()
        self.assertIn(f"![one layer of every block]({one['picture']})", text)
        for line in ("critical path: ", "slowest block: ", "recorded decodes take ", "where the time goes (block): body "):
            self.assertIn(line, text)
            self.assertIn(line, result.stdout)

    def test_a_foreign_library_that_fills_the_array(self):
        library = f"{os.environ['PLUGINS']}/naive_cpu.so"
        result = self.profile("-n", "3", "--blocks", "2", "--engine", f"{library},host-twin")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        foreign, twin = self.told()["profiles"]
        self.assertEqual((foreign["resolved_name"], twin["resolved_name"]), ("naive-cpu@naive_cpu.so", "host-twin"))
        trace = self.trace(foreign["trace"])
        spans, frames = timeline_support.read_spans(trace)
        self.assertEqual(len(frames), 3)
        # Step and layer follow from the counts of spans.
        self.assertEqual([span[4:] for span in spans], [
            (phase, "body", token, layer) for token in range(3)
            for phase, layer in [(phase, layer) for layer in range(LAYERS) for phase in ("attention", "mlp")] + [("head", -1)]])
        self.assert_sums(foreign["summary"], spans, 3)
        self.assertEqual(foreign["clock"], "the library's own")

    def test_engines_without_a_timeline(self):
        engine = self.folder / "counting.py"
        engine.write_text((ROOT / "tests" / "engines" / "counting.py").read_text())
        result = self.profile("-n", "2", "--engine", f"{os.environ['PLUGINS']}/naive_cpu_bare.so,{engine}")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for name in ("naive-cpu@naive_cpu_bare.so", "counting"):
            self.assertRegex(result.stderr, f"mkbench: error: profile: .*{name}.*: it offers no timeline\n")
        self.assertEqual([one["trace"] for one in self.told()["profiles"]], ["", ""])


class Pictures(TimelineTest):
    def test_the_picture_in_a_browser(self):
        if why := tools_of_tests.no_browser():
            self.skipTest(why)
        sys.path.insert(0, str(pinned_wheels.folder_of("browser")))
        from playwright.sync_api import sync_playwright
        result = self.profile("-d", "3", "-n", "2", "--blocks", "1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        picture = self.out / self.told()["profiles"][0]["picture"]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=tools_of_tests.browser())
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.goto(picture.as_uri())
            drawn = page.evaluate("""() => {
              const box = document.documentElement.getBoundingClientRect();
              const all = (name) => [...document.querySelectorAll(name)];
              const out = (e) => { const b = e.getBoundingClientRect();
                return b.left < box.left - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1; };
              return {bars: all('rect').length, words: all('text').map((e) => e.textContent),
                      out: all('text, rect').filter(out).map((e) => e.outerHTML)};
            }""")
            if keep := os.environ.get("KEEP_PICTURE"):
                page.screenshot(path=keep)
            browser.close()
        self.assertEqual(drawn["out"], [])
        self.assertGreater(drawn["bars"], BLOCKS * 5)
        for word in ("qkv", "attention", "o_proj", "gate_up", "down", "waits for other blocks"):
            self.assertIn(word, drawn["words"])


if __name__ == "__main__":
    main_or_skipped()
