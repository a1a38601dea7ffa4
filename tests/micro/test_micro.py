"""mkbench_micro's command line without a GPU: its list, and why each benchmark is skipped."""

import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

BINARY = os.environ["MICRO_UNDER_TEST"]

PATTERNS = ("2x16KiB", "3x16KiB", "4x16KiB", "6x16KiB", "4x8KiB", "12x4KiB")
RING_CONTEXTS = ("0", "512", "4096")
ABLATIONS = ("", "/no_waits", "/no_loads")
NAMES = {
    "read/plain",
    *(f"read/bulk/{pattern}/gap_ns:{gap}" for pattern, gap in itertools.product(PATTERNS, (0, 400))),
    *(f"ring/layers/context:{context}{ablation}"
      for context, ablation in itertools.product(RING_CONTEXTS, ABLATIONS)),
    "ring/lm_head",
    *(f"ceiling/depth:{depth}" for depth in (0, 4096)),
}


def micro(*args: str) -> subprocess.CompletedProcess:
    """Runs the binary where it sees no GPU, even on a machine that has one."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([BINARY, *args], env=environment, capture_output=True, text=True, timeout=50)


def plain_name(name: str) -> str:
    """The name without what Google Benchmark appends."""
    return name.removesuffix("/manual_time").removesuffix("/iterations:9")


class CommandLine(unittest.TestCase):
    def test_lists_every_benchmark(self):
        listed = micro("--benchmark_list_tests")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        names = [plain_name(line) for line in listed.stdout.split()]
        self.assertEqual(len(names), len(set(names)), "a name twice")
        self.assertEqual(set(names), NAMES)

    def test_without_a_gpu_each_is_skipped_with_the_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "micro.json"
            result = micro("--benchmark_min_time=0.01", f"--benchmark_out={out}")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("every benchmark is skipped: no usable GPU: ", result.stderr)
            report = json.loads(out.read_text())
        self.assertEqual(report["context"]["gpu"], "none")
        self.assertEqual({plain_name(b["name"]) for b in report["benchmarks"]}, NAMES)
        for benchmark in report["benchmarks"]:
            with self.subTest(benchmark["name"]):
                self.assertTrue(benchmark["error_occurred"])
                self.assertTrue(benchmark["error_message"].startswith("no usable GPU: "))
                self.assertNotIn("GB/s", benchmark)

    def test_filter(self):
        listed = micro("--benchmark_list_tests", "--benchmark_filter=^ring/layers")
        self.assertEqual({plain_name(line) for line in listed.stdout.split()},
                         {name for name in NAMES if name.startswith("ring/layers")})

    def test_usage_errors_exit_two(self):
        for args, text in ((["--no-such-flag"], "--no-such-flag"),
                           (["--benchmark_min_time=soon"], "--benchmark_min_time"),
                           (["--benchmark_filter=^no-such$"], "no-such")):
            with self.subTest(args=args):
                result = micro(*args)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
