"""`mkbench profile` on the CPU, with programs in the place of nsys and ncu, and the NVTX ranges of its hosts.

The stand-ins take their options as the real tools do, run the host as their child, and leave a report. No figure below
was measured: the page of ncu is in its format, with numbers made up for this test.
"""

import json
import os
import pathlib
import stat

from support.cli_support import ROOT, HostsTest

STAND_IN = """#!/bin/bash
# In place of {tool}: the folder of this file says how it behaves, and keeps what it was given.
here={here}
if [ "$1" = --import ]; then
  printf '%s\\n' "$@" > "$here/import"
  cat "$here/page"
  exit 0
fi
printf '%s\\n' "$@" >> "$here/arguments"
[ ! -f "$here/before" ] || . "$here/before"
while [ $# -gt 0 ]; do
  case "$1" in
    --export) output="$2"; shift 2; break ;;
    --output=*) output="${{1#--output=}}"; shift; break ;;
    *) shift ;;
  esac
done
"$@"
echo "host ended with $?"
[ ! -f "$here/after" ] || . "$here/after"
echo made > "$output.{ending}"
"""

# ncu --import FILE --csv --page raw --print-units base; its format, and numbers of nobody's card.
PAGE = '''"ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:\
Msg_Type:Msg","Kernel Name","Block Size","dram__bytes_read.sum","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"\
,"gpu__time_duration.sum","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio","smsp__average_warps_issue\
_stalled_long_scoreboard_per_issue_active.ratio","smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"
"","","","","","","block","byte","%","ns","inst","inst","inst"
"0","77","mkbench-host-cuda","127.0.0.1","1  ""mkbench:host-twin d=3 block 0:int32:0:none:none:ascii:none"" ","decode(\
Params, int)","(288, 1, 1)","44,000,000","50.5","100,000","1","8","1"
'''


class ProfileTest(HostsTest):
    def setUp(self):
        super().setUp()
        self.tools = self.folder / "tools"
        self.tools.mkdir()

    def stand_in(self, tool, before="", after="", page=PAGE):
        ending = {"ncu": "ncu-rep", "nsys": "nsys-rep"}[tool]
        file = self.tools / tool
        file.write_text(STAND_IN.format(tool=tool, here=self.tools, ending=ending))
        file.chmod(stat.S_IRWXU)
        for name, text in (("before", before), ("after", after), ("page", page)):
            (self.tools / name).write_text(text)

    def profile(self, *args, **env):
        result = self.mkbench("profile", *args, env={"PATH": f"{self.tools}:/usr/bin:/bin", "TMPDIR": str(self.tmp),
                                                     "MKBENCH_DEVICE": "cpu", "MKBENCH_MODEL": "tiny"} | env)
        self.assert_nothing_left()
        return result

    def arguments(self):
        return (self.tools / "arguments").read_text().splitlines()

    def told(self):
        return json.loads((self.out / "profile.json").read_text())


class Nsight(ProfileTest):
    def test_ncu_around_the_host_of_one_engine(self):
        self.stand_in("ncu")
        result = self.profile("--tool", "ncu", "-d", "3", "-n", "4", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        given = self.arguments()
        host = str(pathlib.Path(os.environ["BINARY_UNDER_TEST"]).with_name("mkbench-host-cuda"))
        self.assertEqual(given[-3:], ["--export", f"{self.out}/tiny-host-twin-d3-n4", host])
        for pair in (["--target-processes", "all"], ["--replay-mode", "kernel"], ["--launch-count", "1"],
                     ["--nvtx-include", "mkbench@host-twin d=3 block 0/"], ["--section", "WarpStateStats"]):
            self.assertIn(pair, [given[at:at + 2] for at in range(len(given))])
        # It runs once: neither the host that answers questions about the machine nor a judge is under it.
        self.assertEqual(given.count("--export"), 1)
        self.assertIn("host-twin on cpu (tiny d=3 n=4) under ncu: NOT_JUDGED, nothing was judged or timed", result.stdout)
        self.assertIn(f"report: {self.out}/tiny-host-twin-d3-n4.ncu-rep (open it with: ncu-ui ", result.stdout)
        self.assertIn("kernel: decode(Params, int)\n", result.stdout)
        self.assertIn("DRAM bytes: 0.011 GB a token, 3.871 of the 0.002842 GB of weights and KV rows that it must read\n",
                      result.stdout)
        self.assertIn("DRAM throughput: 440 GB/s over the launch; ncu: 50.5 % of its peak\n", result.stdout)
        self.assertIn("top stall: long_scoreboard, 80 % of the warps' cycles; then barrier, 10 %\n", result.stdout)
        self.assertEqual((self.tools / "import").read_text().split("\n")[:2],
                         ["--import", f"{self.out}/tiny-host-twin-d3-n4.ncu-rep"])
        told = self.told()
        [one] = told["profiles"]
        self.assertEqual((one["verdict"], one["report"], one["problem"]),
                         ("NOT_JUDGED", "tiny-host-twin-d3-n4.ncu-rep", ""))
        self.assertEqual(told["exit_code"], 0)
        self.assertNotIn("_ms", json.dumps(told["profiles"]))
        self.assertIn("host ended with 0", (self.out / "tiny-host-twin-d3-n4.log").read_text())
        self.assertEqual((self.out / "tiny-host-twin-d3-n4.csv").read_text(), PAGE)

    def test_nsys_records_the_range_of_all_blocks(self):
        self.stand_in("nsys")
        log = self.folder / "nvtx"
        result = self.profile("--tool", "nsys", "-d", "3", "-n", "4", "--blocks", "3", "--out", str(self.out),
                              NVTX_INJECTION64_PATH=os.environ["NVTX_INJECTION"], MKBENCH_NVTX_LOG=str(log))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        given = self.arguments()
        self.assertEqual(given[0], "profile")
        for word in ("--trace=cuda,nvtx", "--capture-range=nvtx", "--nvtx-capture=host-twin d=3@mkbench",
                     "--capture-range-end=stop", "--kill=none", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"):
            self.assertIn(word, given)
        self.assertIn("tiny-host-twin-d3-n4.nsys-rep", result.stdout)
        self.assertNotIn("DRAM", result.stdout)
        # What the tool sees: one range around the blocks alone; warm-up and prefill lie before it.
        lines = log.read_text().splitlines()
        self.assertEqual({line.split()[0] for line in lines}, {"mkbench-host-cuda"})
        calls = [line.split(" ", 1)[1] for line in lines]
        self.assertIn("category mkbench 1 host-twin", calls)
        begin = calls.index("push mkbench host-twin d=3")
        inside = [call for call in calls[begin + 1:] if not call.startswith("category")]
        self.assertEqual(inside, [line for block in range(3) for line in (
            f"push mkbench host-twin d=3 block {block}, payload {block}, category 1", "pop mkbench")] + ["pop mkbench"])
        self.assertEqual(calls[:begin].count("push mkbench decode"), 1)

    def test_ranges_of_tokens_for_an_engine_that_launches_for_each(self):
        self.stand_in("nsys")
        log = self.folder / "nvtx"
        engine = self.folder / "counting.py"
        engine.write_text((ROOT / "tests" / "engines" / "counting.py").read_text())
        result = self.profile("--tool", "nsys", "-n", "2", "--nvtx", "token", "--engine", str(engine), "--out",
                              str(self.out), NVTX_INJECTION64_PATH=os.environ["NVTX_INJECTION"], MKBENCH_NVTX_LOG=str(log))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertTrue(self.arguments()[-2].endswith("scripts/host.py"), self.arguments())
        calls = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
        begin = calls.index("push mkbench counting.py d=0")
        inside = [call for call in calls[begin + 1:] if not call.startswith("category")]
        self.assertEqual(inside, [
            "push mkbench counting.py d=0 block 0, payload 0, category 1",
            "push mkbench token 0, payload 0, category 1", "pop mkbench",
            "push mkbench token 1, payload 1, category 1", "pop mkbench", "pop mkbench", "pop mkbench"])

    def test_ncu_sees_one_launch_of_several(self):
        self.stand_in("ncu")
        engine = self.folder / "counting.py"
        engine.write_text((ROOT / "tests" / "engines" / "counting.py").read_text())
        result = self.profile("--tool", "ncu", "-n", "2", "--engine", str(engine), "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("DRAM bytes: 0.044 GB in this launch, which is one of several of the decode\n", result.stdout)

    def test_ncu_replays_the_launch_that_was_asked_for(self):
        self.stand_in("ncu")
        result = self.profile("--tool", "ncu", "-n", "2", "--kernel", "decode", "--launch", "7", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        given = self.arguments()
        at = given.index("--kernel-name")
        self.assertEqual(given[at:at + 4], ["--kernel-name", "decode", "--launch-skip", "7"])

    def test_a_report_of_ncu_without_the_figures(self):
        self.stand_in("ncu", page="==ERROR== cannot open the report\n")
        result = self.profile("--tool", "ncu", "-n", "2", "--out", str(self.out))
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("report: ", result.stdout)
        self.assertIn("mkbench: error: profile: host-twin: no figures: ncu: cannot open the report\n", result.stderr)


class Labels(ProfileTest):
    def test_the_timed_decodes_of_an_ordinary_run(self):
        log = self.folder / "nvtx"
        result = self.bench("--compare", "none", "-n", "2", "-d", "1", "--reference", self.short_reference(), env_more={
            "NVTX_INJECTION64_PATH": os.environ["NVTX_INJECTION"], "MKBENCH_NVTX_LOG": str(log)})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        labels = [line for line in log.read_text().splitlines() if "payload" in line]
        self.assertEqual(labels, [f"mkbench-host-cuda push mkbench host-twin d=1 block {block}, payload {block}, category 1"
                                  for block in range(2)])


class Failing(ProfileTest):
    """Tools that fail, in their own way."""

    def failing(self, code, text, tool="ncu", **stand_in):
        self.stand_in(tool, **stand_in)
        result = self.profile("--tool", tool, "-n", "2", "--out", str(self.out))
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        errors = [line for line in result.stderr.splitlines() if "error" in line]
        self.assertEqual(len(errors), 1, result.stderr)
        self.assertIn(text, errors[0])
        self.assertNotIn("report:", result.stdout)
        self.assertEqual(self.told()["exit_code"], code)
        self.assertIn(text, self.told()["profiles"][0]["problem"])

    def test_the_tool_refuses_its_options(self):
        self.failing(9, "ncu left with exit status 9: unknown section",
                     before="echo '==ERROR== unknown section'; exit 9\n")

    def test_the_tool_ends_with_an_error_after_the_host(self):
        self.failing(17, "nsys left with exit status 17: the importer is missing", tool="nsys",
                     after="echo 'the importer is missing'; exit 17\n")

    def test_the_tool_crashes_before_the_host(self):
        self.failing(1, "ncu died by signal 11 (Segmentation fault)", before="kill -SEGV $$\n")

    def test_the_tool_crashes_while_the_host_runs(self):
        self.failing(1, "ncu died by signal 9 (Killed)", before='(sleep 1; kill -KILL $$) &\n"${@: -1}" & wait\n')

    def test_no_report(self):
        self.failing(1, "ncu ended without an error and left no ", after="echo '==WARNING== No kernels'; exit 0\n")

    def test_counters_are_forbidden(self):
        self.failing(6, "ncu: ERR_NVGPUCTRPERM - no permission",
                     after="echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 0\n")


class CommandLine(ProfileTest):
    def test_print_runs_nothing(self):
        self.stand_in("nsys")
        result = self.profile("--tool", "nsys", "-d", "0,512", "--print")
        self.assertEqual(result.returncode, 0, result.stderr)
        first, second = result.stdout.splitlines()
        self.assertTrue(first.startswith(f"{self.tools}/nsys profile --trace=cuda,nvtx "), first)
        self.assertIn("'--nvtx-capture=host-twin d=512@mkbench'", second)
        self.assertTrue(second.endswith("/mkbench-host-cuda"), second)
        self.assertEqual(sorted(path.name for path in self.tools.iterdir()), ["after", "before", "nsys", "page"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["tmp", "tools"])

    def test_print_for_a_gpu_that_is_not_here(self):
        result = self.profile("--tool", "ncu", "--device", "cuda", "--model", "synthetic", "--engine", "ring,eager", "--print")
        self.assertEqual(result.returncode, 0, result.stderr)
        ring, eager = result.stdout.splitlines()
        self.assertIn("'mkbench@ring d=0 block 0/'", ring)
        self.assertTrue(eager.endswith("/mkbench-host-torch"), eager)

    def test_the_printed_command_of_the_documentation(self):
        text = (ROOT / "docs" / "profiling.md").read_text()
        asked, printed = text[text.index("$ mkbench profile"):].splitlines()[:2]
        self.stand_in("nsys")
        result = self.profile(*asked.split()[3:])
        host = str(pathlib.Path(os.environ["BINARY_UNDER_TEST"]).parent)
        self.assertEqual(result.stdout, printed.replace(".../", f"{host}/").replace("nsys ", f"{self.tools}/nsys ", 1) + "\n")

    def test_the_tool_is_not_there(self):
        for tool, product in (("nsys", "Nsight Systems"), ("ncu", "Nsight Compute")):
            result = self.profile("--tool", tool)
            if "is neither on PATH" not in result.stderr:
                self.skipTest(f"{tool} is installed here")
            self.assertEqual(result.returncode, 6)
            self.assertEqual(result.stderr, f"mkbench: error: profile: {tool} ({product}) is neither on PATH nor beside "
                                            "the CUDA toolkit\n")
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    import unittest
    unittest.main()
