"""scripts/evidence_timing.py: each line of the GPU check's part `timing` can fail."""

import copy
import unittest

from gpu_folder import ROOT, GpuFolder, evidence_timing


class Timing(GpuFolder):
    def test_timing(self):
        ring = ("cases", 0, "engines", 1)
        for path, keys, value, line in (
                ("table/report.json", (*ring, "verdict"), "HANG", "table, depth 0: eager, ring, plain pass"),
                ("table/report.json", (*ring, "ms_per_tok", "processes"), 4, "table, depth 0: processes"),
                ("table/report.json", (*ring, "share_ci", "low"), 0.94, "table, depth 0: the share of ring"),
                ("table/report.json", ("cases", 1, "engines", 2, "share_ci"), None, "depth 128: the share of plain"),
                ("blocks/report.json", ("cases", 1, "engines", 1, "verdict"), "INTEGRITY", "blocks of 8 tokens"),
                ("blocks/report.json", ("cases", 0, "axes", "n_gen"), 2, "blocks of 1 tokens"),
                ("telemetry/report.json", ("cases", 0, "engines", 0, "card", "watching_costs"), 0.0011, "telemetry costs"),
                ("telemetry/report.json", ("cases", 0, "engines", 0, "card", "watching_costs"), None, "telemetry costs"),
                ("energy/report.json", ("cases", 0, "engines", 0, "card", "energy_j"), None, "energy of a token"),
                ("clock.json", ("rows", 1, "excluding_one"), 22, "A/A: intervals miss 1"),
                ("clock.json", ("rows", 2, "faster_or_slower"), 22, "A/A: intervals miss 1"),
                ("clock.json", ("rows", 2, "processes"), 15, "A/A: a row of 30 processes"),
                ("clock.json", ("rows",), [], "A/A: intervals miss 1"),
                ("clock.json", ("live",), 9, "A/A end to end"),
                ("clock.json", ("live_excluding_one",), 3, "A/A end to end"),
                ("clock.json", ("live",), None, "clock.json is complete"),
                ("audit/audit.json", ("cases", 0, "engines", 0, "verdict"), "INTEGRITY", "audit: ring and plain")):
            with self.subTest(path=path, keys=keys):
                changed = copy.deepcopy(self.timing[path])
                holder = changed
                for key in keys[:-1]:
                    holder = holder[key]
                holder[keys[-1]] = value
                self.put(path, changed)
                failed = self.failed()
                self.assertTrue(any(line in f for f in failed), failed)
                self.assertEqual(len(failed), 3 if value == [] else 1, failed)
                self.put(path, self.timing[path])
        # Three processes may be too few on a card.
        changed = copy.deepcopy(self.timing["clock.json"])
        changed["rows"][0]["excluding_one"] = 29
        self.put("clock.json", changed)
        self.assertEqual(self.failed(), [])
        # They then show no power.
        for row in changed["rows"][1:]:
            row["power"][0]["seen"] = 0.89
        self.put("clock.json", changed)
        self.expect_failure("1 % more is seen")
        changed = copy.deepcopy(self.timing["clock.json"])
        for row in changed["rows"]:
            row["power"][0]["rescaled"] = 0.89
        self.put("clock.json", changed)
        self.expect_failure("1 % more is seen")

    def test_the_script_runs_what_the_lines_ask_for(self):
        script = (ROOT / "scripts" / "gpu_check.sh").read_text()
        for option, values in (("n-depth", evidence_timing.TABLE_DEPTHS), ("n-gen", evidence_timing.BLOCK_TOKENS)):
            self.assertIn(f"--{option} {','.join(map(str, values))} ", script)


if __name__ == "__main__":
    unittest.main()
