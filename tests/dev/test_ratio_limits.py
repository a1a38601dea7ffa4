"""dev/ratio_limits.py: the committed files follow from what was measured, and its ratios are the judge's."""

import json
import math
import unittest

from support import ROOT

import decoder_variants
import ratio_limits

TWIN = json.loads((ROOT / "reports" / "ratchet.json").read_text())["entries"]


class Limits(unittest.TestCase):
    def test_the_committed_files_follow_from_what_was_measured(self):
        for name, text in ratio_limits.written(ratio_limits.read()).items():
            self.assertEqual((ratio_limits.FOLDER / name).read_text(), text, f"{name}: dev/ratio_limits.py tables")

    def test_so_many_decoders_stand_behind_each_class(self):
        rows = ratio_limits.read()["decoders"]
        for precision, least in (("bf16", 30), ("fp32-accumulate", 15), ("fp16", 30)):
            self.assertGreaterEqual(len({r["decoder"] for r in rows if r["class"] == precision}), least)

    def test_the_upper_point_is_that_of_the_upper_half(self):
        z = 3.0902
        even = [math.exp(0.1 * x) for x in (-2, -1, 0, 1, 2)]
        self.assertAlmostEqual(ratio_limits.upper_point(even), math.exp(z * 0.1 * math.sqrt(5 / 3)), 3)
        # What lies far below the median changes nothing.
        self.assertAlmostEqual(ratio_limits.upper_point([1e-3, *even[1:]]), ratio_limits.upper_point(even))

    def test_the_largest_of_the_models_counts(self):
        rows = [{"model": m, "r_rms": v} for m, v in [("tiny", 1.0), ("tiny-untied", 2.0)] for _ in range(ratio_limits.FEWEST)]
        self.assertEqual(ratio_limits.limit_of(rows, "rms"), (2.5, 2.0, 2.0, "tiny-untied"))
        self.assertEqual([ratio_limits.rounded_up(x) for x in (1.41, 1.5, 0.364, 7.71)], [1.5, 1.5, 0.37, 7.8])

    def test_a_fault_is_seen_from_the_size_on_from_which_all_are(self):
        rows = [{"fault": "f", "size": s, "r_rms": v} for s, v in ((1, 3.0), (2, 1.0), (4, 3.0), (8, 9.0))]
        self.assertEqual(ratio_limits.smallest_seen(rows, "f", "rms", 2), 4)
        self.assertIsNone(ratio_limits.smallest_seen(rows, "f", "rms", 10))

    def test_its_ratios_are_the_judges(self):
        """The host twin rounds K and V alone; mkbench judged it by sketches, which miss by 3 % a step."""
        judged = ratio_limits.Judged("tiny")
        found = judged.ratios("fp32-accumulate", decoder_variants.FP32_ACCUMULATE)
        twin = next(e for e in TWIN if (e["engine"], e["model"], e["card"]) == ("host-twin", "tiny", "cpu"))
        self.assertAlmostEqual(found["r_rms"] / twin["r_rms"], 1, delta=0.02)
        self.assertAlmostEqual(found["r_step"] / twin["r_step"], 1, delta=0.12)
        self.assertAlmostEqual(found["r_inf"] / twin["r_inf"], 1, delta=0.05)
        self.assertAlmostEqual(found["r_kl"] / twin["r_kl"], 1, delta=0.05)


if __name__ == "__main__":
    unittest.main()
