"""A machine's calibration of the clock, as runs read it: margin and source stand in the report, and a file that does
not fit is named and not used. Measuring one is `mkbench selftest --timing --calibrate`, in a lane of .ci/long."""

import json
import unittest

from support.cli_support import CliTest

HALF_WIDTHS = {3: 0.02, 5: 0.008}  # by processes


class Clock(CliTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        self.references = self.short_reference()

    def run_mkbench(self, number, *args, compare="none"):
        """The report of a short run, and what the run has said."""
        self.out = self.folder / f"report-{number}"
        result = self.bench("--reference", self.references, "--compare", compare, *args,
                            env_more={"XDG_DATA_HOME": str(self.data)})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return self.report(), result.stderr

    def write(self, report, **changes):
        """Writes a calibration of this machine, named as mkbench names it."""
        rows = [{"processes": processes, "splits": 200, "excluding_one": 10, "most_allowed": 21,
                 "faster_or_slower": 0, "half_width": half, "margin": max(0.005, 1.5 * half), "power": []}
                for processes, half in HALF_WIDTHS.items()]
        cpu = report["env"]["cpu"]
        calibration = {
            "schema": "mkbench.clock", "date": "2026-11-23T10:00:00Z",
            "machine": {"device": cpu["name"], "uuid": "", "driver": cpu["kernel"]}, "build": "a build",
            "engine": "naive_cpu", "alpha": 0.05, "seed": 1, "processes": 60, "blocks": 24, "rows": rows, "whole": [],
            "live": 10, "live_excluding_one": 0, "live_faster_or_slower": 0}
        folder = self.data / "mkbench" / "calibration"
        folder.mkdir(parents=True, exist_ok=True)
        name = "-".join("".join(c if c.isascii() and (c.isalnum() or c in "._") else " " for c in cpu["name"]).split())
        (folder / f"{name}.json").write_text(json.dumps({**calibration, **changes}))

    def test_runs_read_it(self):
        bare, said = self.run_mkbench(1)
        self.assertEqual(bare["calibration"]["clock"], {"margin": 0.01, "source": "no calibration of this machine"})
        self.assertNotIn("calibration", said)

        self.write(bare)
        report, said = self.run_mkbench(2, "--processes", "5", "--blocks", "5")
        clock = report["calibration"]["clock"]
        self.assertAlmostEqual(clock["margin"], 0.012)
        self.assertEqual(clock["half_width"], HALF_WIDTHS[5])
        self.assertEqual(clock["date"], "2026-11-23T10:00:00Z")
        self.assertEqual(clock["source"], "A/A of 60 processes, 2026-11-23T10:00:00Z")
        self.assertNotIn("warning: " + str(self.data), said)

        # Two engines are compared by that margin.
        pair, _ = self.run_mkbench(3, "--engine", "host-twin", "--processes", "3", "--blocks", "3", compare="eager")
        comparison = pair["cases"][0]["comparisons"][0]
        self.assertAlmostEqual(comparison["margin"], 0.03)
        self.assertEqual(comparison["margin_source"], "A/A of 60 processes, 2026-11-23T10:00:00Z")

        self.write(bare, machine={"device": bare["env"]["cpu"]["name"], "uuid": "", "driver": "Linux 0.1"})
        other, said = self.run_mkbench(4)
        self.assertEqual(other["calibration"]["clock"]["margin"], 0.01)
        self.assertIn("machine.driver: found 'Linux 0.1', wanted", other["calibration"]["clock"]["reason"])
        self.assertIn("machine.driver: found 'Linux 0.1', wanted", said)

    def test_calibrate_goes_with_timing(self):
        for flags in (("--calibrate",), ("--faults", "--calibrate")):
            result = self.mkbench("selftest", *flags)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertIn("--", result.stderr)
        self.assertIn("--calibrate goes with --timing", result.stderr)


if __name__ == "__main__":
    unittest.main()
