"""What `mkbench report` makes for other programs, read by them: Google Benchmark's compare.py, Prometheus's client and its
node exporter, and the grammar of a GitHub runner's commands."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

from support.cli_support import ROOT, CliTest

sys.path.insert(0, str(ROOT / "dev"))
import tools_of_tests
import pinned_wheels

EVIDENCE = ROOT / "reports" / "evidence"
H100, H200 = (str(EVIDENCE / card / "report.json") for card in ("nvidia-h100", "nvidia-h200"))
READERS = pinned_wheels.folder_of("readers")


def times(report):
    """ms/token by case and engine, from the report itself."""
    return {(case["name"], engine["name"]): engine["ms_per_tok"]["mean"]
            for case in json.loads(pathlib.Path(report).read_text())["cases"] for engine in case["engines"] if engine["ms_per_tok"]}


@unittest.skipIf(tools_of_tests.no_readers(), tools_of_tests.no_readers())
class Read(CliTest):
    def made(self, report, form):
        file = self.folder / f"{pathlib.Path(report).parent.name}.{form}"
        done = self.mkbench("report", report, "-o", form, "--out", str(file))
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return file

    def test_google_benchmarks_compare_finds_the_same_ratios(self):
        old, new = times(H100), times(H200)
        done = subprocess.run(
            [sys.executable, tools_of_tests.COMPARE, "--no-color", "benchmarks", self.made(H100, "benchmark"), self.made(H200, "benchmark")],
            env={**os.environ, "PYTHONPATH": str(READERS)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = dict(re.findall(r"^(\S.*\S) +([+-][0-9.]+) +[+-]", done.stdout, re.MULTILINE))
        found.pop("OVERALL_GEOMEAN", None)
        both = old.keys() & new.keys()
        self.assertGreater(len(both), 10)
        self.assertEqual(found, {f"{case}/{engine}": f"{new[case, engine] / old[case, engine] - 1:+.4f}" for case, engine in both})

    def test_prometheus_reads_both_of_its_formats_alike(self):
        sys.path.insert(0, str(READERS))
        self.addCleanup(sys.path.remove, str(READERS))
        from prometheus_client import parser
        from prometheus_client.openmetrics import parser as openmetrics

        text = self.made(H200, "openmetrics").read_text()
        for read in (openmetrics, parser):
            families = {family.name: family for family in read.text_string_to_metric_families(text)}
            self.assertEqual({family.type for family in families.values()}, {"gauge"})
            found = {(s.labels["case"], s.labels["engine"]): 1000 * s.value for s in families["mkbench_token_seconds"].samples}
            for key, ms in times(H200).items():
                self.assertAlmostEqual(found.pop(key), ms, places=9)
            self.assertEqual(found, {})

    def test_a_node_exporter_serves_the_file(self):
        self.made(H200, "openmetrics").rename(self.folder / "mkbench.prom")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        program, = tools_of_tests.EXPORTER
        process = subprocess.Popen(
            [program, "--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={self.folder}",
             f"--web.listen-address={address}"], env={**os.environ, "PATH": tools_of_tests.PATH},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        served = ""
        deadline = time.monotonic() + 60
        while not served and time.monotonic() < deadline and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                    served = answer.read().decode()
            except OSError:  # it does not listen yet
                time.sleep(0.05)
        self.assertIn("\nnode_textfile_scrape_error 0\n", served)
        self.assertEqual(served.count("\nmkbench_token_seconds{"), len(times(H200)))


def command_of(line):
    """A line as a GitHub runner takes it: command, properties and message, unescaped."""
    def plain(text, codes):
        for code in codes:
            text = text.replace(code, bytes.fromhex(code[1:]).decode())
        return text.replace("%25", "%")

    head, message = re.fullmatch(r"::(.*?)::(.*)", line).groups()
    command, _, rest = head.partition(" ")
    properties = dict(part.split("=", 1) for part in rest.split(","))
    return command, {key: plain(value, ("%0D", "%0A", "%3A", "%2C")) for key, value in properties.items()}, \
        plain(message, ("%0D", "%0A"))


class Annotated(CliTest):
    def test_a_wrong_token_is_an_error_on_the_engines_file(self):
        engine = pathlib.Path(os.environ["PLUGINS"]) / "naive_cpu_theta.so"
        done = self.bench("parity", "--engine", str(engine), "--only", "corpus-17", "-o", "annotations")
        self.assertEqual(done.returncode, 3, done.stderr)
        again = self.mkbench("report", str(self.out), "-o", "annotations")
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout))
        (command, properties, message), = map(command_of, done.stdout.splitlines())
        self.assertEqual((command, properties["file"]), ("error", str(engine)))
        self.assertRegex(properties["title"], r"^mkbench FAIL_TOKEN: tiny .* / .*naive_cpu_theta\.so")
        self.assertRegex(message, r"^FAIL_TOKEN: .*position \d+")


if __name__ == "__main__":
    unittest.main()
