"""`mkbench profile --timeline` of ring, plain and a library on a card, on the cut of the synthetic model."""

import json
import os
import pathlib
import statistics

from support import timeline_support
from support.cli_support import CliTest, main_or_skipped

NO_GPU = "no usable GPU"
LAYERS, TOKENS = 4, 16  # of the cut; of the decode
PHASES = ["qkv", "attention", "o_proj", "gate_up", "down", "lm_head"]
MOST_CLOCK_ERROR_NS = 1000  # of 99 of 100 readings of the blocks' clocks
MOST_READINGS = {"plain": TOKENS + 1, "ring": 128 * TOKENS + 1}  # that a block makes of its clock in a launch
ROLES = {"ring": {"consumers", "publisher", "loader", "statistics"}, "plain": {"block"}}


class TimelineOnCard(CliTest):
    def record(self, engine, *args):
        out = self.folder / pathlib.Path(engine).stem
        result = self.mkbench("profile", "--timeline", "--engine", engine, "--device", "cuda", "--model", "synthetic:cut",
                              "-d", "512", "-n", str(TOKENS), "--out", str(out), *args)
        if result.returncode == 6 and NO_GPU in result.stderr:
            self.skipTest(NO_GPU)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        print(result.stdout)
        [one] = json.loads((out / "profile.json").read_text())["profiles"]
        trace = json.loads((out / one["trace"]).read_text())
        self.assertEqual(timeline_support.schema_problems(trace), [])
        return one, timeline_support.read_spans(trace)[0]

    def check(self, engine):
        one, spans = self.record(engine)
        summary = one["summary"]
        self.assertEqual(summary["lost"], 0)
        self.assertEqual({span.role for span in spans}, ROLES[engine])
        self.assertEqual(timeline_support.overlaps(spans), 0)
        self.assertEqual((summary["steps"], summary["layers"]), (TOKENS, LAYERS))
        self.assertGreaterEqual(summary["blocks"], 100)
        self.assertEqual(sorted(part["phase"] for part in summary["path"]), sorted(PHASES))
        for part in summary["path"]:
            self.assertEqual(part["executions"], TOKENS * (1 if part["phase"] == "lm_head" else LAYERS))
        # The path is the decode: as long as the kernel's own clock says, but for its begin.
        recorded_us = 1000 * statistics.median(one["decodes"]["with_ms"]) / TOKENS
        self.assertAlmostEqual(summary["step_us"], recorded_us, delta=0.05 * recorded_us)
        # Readings of a clock that steps by up to 1 us lie near their line, or near what their neighbours say.
        quality = one["clock_quality"]
        self.assertLess(quality["error_99_ns"], MOST_CLOCK_ERROR_NS)
        self.assertGreater(quality["step_ns"], 0)
        # A step may be too short for all of its readings.
        self.assertGreaterEqual(quality["readings"], summary["blocks"] * (TOKENS + 1))
        self.assertLessEqual(quality["readings"], summary["blocks"] * MOST_READINGS[engine])
        self.assertLess(quality["left_out"], quality["readings"] / 2)

    def test_plain(self):
        self.check("plain")

    def test_ring(self):
        self.check("ring")

    def test_a_library_that_launches_for_each_operation(self):
        library = pathlib.Path(os.environ["PLUGINS"]) / "naive_cuda.so"
        one, spans = self.record(str(library))
        summary = one["summary"]
        self.assertEqual((summary["lost"], summary["blocks"]), (0, 1))
        self.assertEqual((summary["steps"], summary["layers"]), (TOKENS, LAYERS))
        self.assertEqual(timeline_support.overlaps(spans), 0)
        self.assertEqual(len(spans), TOKENS * (17 * LAYERS + 4))
        path = {part["phase"]: part for part in summary["path"]}
        self.assertEqual(list(path), [
            "embed", "input norm", "q", "k", "v", "norm of q", "norm of k", "rope of q", "rope of k", "row of k",
            "row of v", "attention", "o", "post norm", "gate", "up", "swiglu", "down", "final norm", "lm head", "argmax"])
        outside = {"embed", "final norm", "lm head", "argmax"}
        for phase, part in path.items():
            self.assertEqual(part["executions"], TOKENS * (1 if phase in outside else LAYERS), phase)
            self.assertGreater(part["us"]["body"], 0, phase)
        # Its one block a head goes through 512 rows, one after the other.
        self.assertGreater(path["attention"]["us"]["body"], 10 * path["gate"]["us"]["body"])
        recorded_us = 1000 * statistics.median(one["decodes"]["with_ms"]) / TOKENS
        self.assertAlmostEqual(summary["step_us"], recorded_us, delta=0.1 * recorded_us)


if __name__ == "__main__":
    main_or_skipped()
