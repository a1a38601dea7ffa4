"""Usage, exit codes and formats of the real binary."""

import json
import os
import shutil
import statistics
import subprocess
import unittest
import xml.etree.ElementTree

from support.cli_support import BINARY, CliTest, DATA, environment

# arguments, exit code, what stderr must say
USAGE = [
    (["--no-such-flag"], 2, "--no-such-flag"),
    (["--junit", "nowhere/x.xml", "--device", "cpu"], 2, "there is no folder nowhere"),
    (["--model", "no-such-model", "--device", "cpu"], 2, "no-such-model"),
    (["--model", "synthetic:odd", "--device", "cpu"], 2, "short"),
    (["--model", "tiny", "--device", "cpu", "-d", "4090", "-n", "7"], 2, "4097"),
    (["report", "no-such-folder"], 2, "no-such-folder"),
]


class Usage(CliTest):
    def test_errors_exit_two_and_name_the_flag(self):
        for args, code, text in USAGE:
            with self.subTest(args=args):
                result = self.mkbench(*args)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(text, result.stderr)
                self.assertEqual(result.stdout, "")
                self.assertEqual(list(self.folder.iterdir()), [], "a usage error left files")

    def test_help_version_list(self):
        self.assertIn("--n-gen", self.mkbench("--help").stdout)
        self.assertRegex(self.mkbench("--version").stdout, r"^mkbench \d+\.\d+\.\d+ ")
        listed = self.mkbench("list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for word in ("host-twin", "eager", "tiny-untied", "synthetic:deep", "cpu "):
            self.assertIn(word, listed.stdout)
        listed = self.mkbench("list", "engines", "-v").stdout
        self.assertRegex(listed, r"eager .*\n +in libtorch; precision bf16; TF32 off")
        self.assertRegex(listed, r"hf .*\(cpu, cuda\)\n +in Python; precision bf16; SDPA attention")
        self.assertRegex(listed, r"ring .*\n +in CUDA and C\+\+; precision fp32-accumulate\n")

    def test_unknown_variable_of_ours_is_told(self):
        result = self.mkbench("--version", env={"MKBENCH_N_GENN": "3"})
        self.assertEqual(result.returncode, 0)
        result = self.mkbench("list", "engines", env={"MKBENCH_N_GENN": "3"})
        self.assertIn("MKBENCH_N_GENN", result.stderr)

    def test_existing_folder_is_never_overwritten(self):
        self.out.mkdir()
        (self.out / "mine.txt").write_text("kept")
        result = self.bench()
        self.assertEqual(result.returncode, 2)
        self.assertIn("never overwritten", result.stderr)
        self.assertEqual([p.name for p in self.out.iterdir()], ["mine.txt"])

    def test_cuda_without_a_gpu_says_what_to_do(self):
        listed = self.mkbench("list", "devices").stdout
        if "no usable GPU" not in listed:
            self.skipTest("this machine has a usable GPU")
        result = self.mkbench("--compare", "eager", "--device", "cuda")
        self.assertEqual(result.returncode, 6)
        self.assertIn("--device cpu", result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        result = self.mkbench("--device", "cuda", "--out", str(self.out))
        self.assertEqual(result.returncode, 6)
        self.assertEqual(self.report()["verdict"]["status"], "UNSUPPORTED_DEVICE")
        self.assertIn("ring", self.mkbench("list", "engines").stdout)
        tune = self.mkbench("tune")
        self.assertEqual(tune.returncode, 6, tune.stderr)
        self.assertEqual(tune.stdout, "")
        self.assertNotIn("--device", tune.stderr)  # tune does not take this flag
        self.assertIn("mkbench doctor", tune.stderr)
        doctor = self.mkbench("doctor", "--python", "none", "--device", "cuda")
        self.assertEqual(doctor.returncode, 6, doctor.stderr)
        self.assertEqual(self.mkbench("doctor", "--python", "none").returncode, 0)

    def test_dry_run_runs_nothing(self):
        result = self.mkbench("--dry-run", "--device", "cpu", "-n", "8,16", "-d", "0,4")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("MB needed"), 8)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_dry_run_says_where_memory_does_not_suffice(self):
        folder = self.folder / "long"
        folder.mkdir()
        config = json.loads((DATA / "tiny" / "config.json").read_text())
        config.update(max_position_embeddings=16_000_000, num_hidden_layers=400)  # 6 TB of KV rows
        (folder / "config.json").write_text(json.dumps(config))
        shutil.copy(DATA / "tiny" / "model.safetensors", folder / "model.safetensors")
        result = self.mkbench("--dry-run", "--device", "cpu", "--model", str(folder), "-d", "0,15000000")
        self.assertEqual(result.returncode, 6, result.stdout + result.stderr)
        self.assertEqual(result.stdout.count("MB needed"), 2)
        self.assertEqual(result.stderr.count("what would fit: "), 1)

    def test_a_model_named_twice_runs_once(self):
        result = self.mkbench("--dry-run", "--device", "cpu", "--model", "tiny,tiny-untied,tiny")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("case tiny "), 1)
        self.assertIn("given twice", result.stderr)

    def test_results_that_nobody_can_read_are_no_success(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        run = ["--device", "cpu", "--model", "tiny", "-n", "4", "--blocks", "1", "--no-plot", "--out", str(self.out)]
        for words in (run, ["verify", str(self.out)], ["gate", str(self.out), str(self.out)], ["list", "engines"], ["help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([BINARY, *words], cwd=self.folder, env=environment(), timeout=100,
                                        stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("cannot write", result.stderr)
        self.assertEqual(self.report()["verdict"]["exit_code"], 0)  # the report files are complete


class MainJob(CliTest):
    def test_other_families(self):
        result = self.bench("--model", "tiny-llama,tiny-qwen2", "-n", "16", "--blocks", "3", "--no-plot")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        self.assertEqual([c["verdict"] for c in report["cases"]], ["PASS", "PASS"])
        self.assertEqual([c["model"]["rope_scaling"] for c in report["cases"]],
                         ["llama3, factor 8, low_freq_factor 1, high_freq_factor 4, "
                          "original_max_position_embeddings 512", ""])

    def test_formats_and_tables(self):
        junit = self.folder / "junit.xml"
        result = self.bench("--parity-table", "--model", "tiny,tiny-untied", "--junit", str(junit))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        self.assertEqual([c["verdict"] for c in report["cases"]], ["PASS", "PASS"])
        for case in range(2):
            for name in ("eager", "host-twin"):
                engine = self.engine(report, name, case)
                parity = engine["parity"]
                self.assertEqual(parity["strict_matched"], parity["strict_steps"])
                self.assertGreater(parity["strict_steps"], 300)
                self.assertGreater(engine["tok_per_s"], 0)
                self.assertEqual(engine["receipts_wrong"], 0)
        self.assertRegex(result.stdout, r"(\d+) of \1 tokens match HF")
        self.assertIn("ref_text", result.stdout)
        self.assertIn("- host-twin: launches not run: no GPU", result.stdout)
        self.assertEqual(report["meta"]["options"]["n-gen"], {"value": "8", "source": "environment"})
        self.assertEqual(junit.read_bytes(), (self.out / "junit.xml").read_bytes())
        suites = {suite.get("name"): suite for suite in xml.etree.ElementTree.parse(junit).getroot()}
        cases = [case.get("name") for case in suites["tiny d=0 n=8 / host-twin"]]
        self.assertIn("prompt corpus-17 (strict)", cases)
        self.assertEqual([len(list(suite.iter(e))) for suite in suites.values() for e in ("failure", "error")], [0] * 8)

    def test_another_format_of_stdout(self):
        result = self.bench("-o", "jsonl", "--reference", self.short_reference(), "--blocks", "1", "-n", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([row["engine"] for row in rows], ["eager", "host-twin"])
        for form in ("jsonl", "json"):  # as the run printed and wrote it
            again = self.mkbench("report", str(self.out), "-o", form)
            self.assertEqual((again.returncode, again.stderr), (0, ""))
            self.assertEqual(again.stdout, result.stdout if form == "jsonl" else (self.out / "report.json").read_text())

    def test_kernels_never_fall_back_to_a_cpu(self):
        result = self.bench("--engine", "megakernel,ring", "--reference", self.short_reference())
        self.assertEqual(result.returncode, 6, result.stderr)
        report = self.report()
        plain = self.engine(report, "plain")
        self.assertEqual((plain["name"], plain["verdict"]), ("megakernel", "UNSUPPORTED_DEVICE"))
        self.assertIn("host-twin", plain["reasons"][0])
        self.assertEqual(self.engine(report, "ring")["verdict"], "UNSUPPORTED_DEVICE")

    def test_a_baseline_that_only_judges(self):
        result = self.bench("--compare", "none", "-d", "0,5", "--ablations", "--reference", self.short_reference())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        first, second = report["cases"]
        for case in (first, second):
            eager, kernel = case["engines"]
            self.assertEqual((eager["verdict"], eager["timed"], eager["samples"]), ("PASS", False, []))
            self.assertIsNone(eager["ms_per_tok"])
            self.assertGreater(kernel["tok_per_s"], 0)
            self.assertIsNone(case["comparisons"][0]["speedup"])
            self.assertIn("not timed", case["comparisons"][0]["speedup_reason"])
            self.assertIsNone(kernel["profile"])
            self.assertIn("no ablations", kernel["profile_reason"])
        # Parity is judged once a run, and every case says where.
        self.assertEqual([e["parity"]["judged_in"] for e in first["engines"]], ["", ""])
        self.assertEqual([e["parity"]["judged_in"] for e in second["engines"]], [first["name"]] * 2)
        self.assertEqual(first["engines"][1]["parity"]["strict_steps"],
                         second["engines"][1]["parity"]["strict_steps"])
        self.assertNotIn("| eager", result.stdout)

    def test_parity_alone(self):
        result = self.mkbench("parity", "--device", "cpu", *self.short_model(160), "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        case, = self.report()["cases"]
        eager, kernel = case["engines"]
        self.assertIn("tiny-160 parity", case["name"])
        self.assertEqual((eager["samples"], kernel["samples"]), ([], []))
        checks = {c["name"]: c for c in kernel["parity"]["checks"]}
        for name in ("ran", "finite", "r_rms", "r_step", "r_inf", "r_kl", "decided", "flips", "self", "strict",
                     "same", "repeats", "sweep", "isolation"):
            self.assertEqual(checks[name]["status"], "passed", checks[name])
        # The prompts differ from those of the committed value, so there is nothing to compare with.
        self.assertEqual(checks["ratchet"]["status"], "not_applicable")
        self.assertIn("update_ratchet", checks["ratchet"]["detail"])
        self.assertIn("checks passed", result.stdout)

    def test_parity_sees_a_fault_and_says_where(self):
        result = self.mkbench("parity", "--device", "cpu", *self.short_model(160), "--plant-fault", "swap_gate_up",
                              "--keep-going", "--out", str(self.out))
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        parity = self.engine(self.report(), "host-twin")["parity"]
        failed = {c["name"] for c in parity["checks"] if c["status"] == "failed"}
        self.assertTrue({"r_rms", "r_step", "decided", "sweep"} <= failed, failed)
        self.assertFalse({"ran", "self", "repeats", "isolation", "same"} & failed, failed)
        self.assertIn("layer 0 is the first whose hidden state leaves the band", parity["localised"])
        self.assertTrue(parity["facts"])
        told = result.stdout + result.stderr
        for line in (*parity["facts"], parity["reason"][:60]):
            self.assertEqual(told.count(line), 1, line)
        # One bug is named, and takes the place of where the failure begins.
        self.assertEqual(parity["diagnosis"]["names"], ["swap_gate_up"])
        self.assertIn(f"bug: {parity['diagnosis']['text']}\n", result.stdout)
        self.assertNotIn(parity["localised"], told)

    def test_depth_and_prefill_are_checked_live(self):
        result = self.bench("-d", "9", "-p", "12", "--reference", self.short_reference())
        report = self.report()
        self.assertEqual([c["reference"]["timed_check"] for c in report["cases"]],
                         ["late ids, scored by the truth"] * 2, result.stderr)
        for engine in report["cases"][0]["engines"]:
            self.assertGreater(engine["ttft_ms"], engine["prefill_ms"])
            for sample in engine["samples"]:
                self.assertEqual(sample["times"]["host_ms"] > sample["prefill_ms"] > 0, True)
        self.assertEqual([c["axes"]["n_prompt"] for c in report["cases"]], [12, 0])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class References(CliTest):
    def user_model(self, name="mine"):
        """Makes a user's snapshot folder: the tiny checkpoint under another name, without references."""
        folder = self.folder / name
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(DATA / "tiny" / name, folder / name)
        return str(folder)

    def test_model_without_reference_is_judged_live(self):
        result = self.mkbench("--device", "cpu", "--model", self.user_model(), "-n", "4", "--blocks", "1",
                              "--no-plot", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(self.report()["cases"][0]["verdict"], "PASS_LIVE")
        self.assertIn("PASS_LIVE", result.stdout)

    def test_a_folder_is_judged_by_what_it_is_and_not_by_its_name(self):
        result = self.mkbench("--device", "cpu", "--model", self.user_model("Qwen3-0.6B"), "-n", "4", "--blocks", "1",
                              "--no-plot", "--out", str(self.out))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = self.report()
        self.assertEqual(report["cases"][0]["reference"]["file"], "live")
        rows = self.engine(report, "host-twin")["parity"]["rows"]
        self.assertEqual({row["prompt"].split()[0] for row in rows}, {"live"})

    def test_required_reference(self):
        result = self.mkbench("--device", "cpu", "--model", self.user_model(), "--require-reference", "--no-plot",
                              "--out", str(self.out))
        self.assertEqual(result.returncode, 6)
        self.assertIn(f"scripts/capture_reference.py {self.folder / 'mine'} --prompt", result.stderr)
        self.assertEqual(self.report()["cases"][0]["verdict"], "INVALID_REFERENCE")

    def test_missing_reference_of_our_own_model(self):
        empty = self.folder / "empty"
        empty.mkdir()
        result = self.bench("--reference", str(empty))
        self.assertEqual(result.returncode, 6)
        self.assertEqual(self.report()["cases"][0]["verdict"], "INVALID_REFERENCE")

    def test_reference_of_other_weights(self):
        def other_weights(reference):
            reference["model"]["weights_sha256"] = "0" * 64

        result = self.bench("--reference", self.short_reference(change=other_weights))
        self.assertEqual(result.returncode, 6)
        report = self.report()
        self.assertEqual(report["cases"][0]["verdict"], "INVALID_REFERENCE")
        self.assertEqual(self.engine(report, "host-twin")["verdict"], "NOT_JUDGED")
        self.assertIn("weights_sha256", result.stderr)


class Replication(CliTest):
    def replicated(self, *args, blocks="5", **env):
        result = self.bench("--blocks", blocks, "--reference", self.short_reference(), *args, env_more=env)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout, self.report()["cases"][0]

    def test_every_process_of_an_engine_is_another_one(self):
        text, case = self.replicated("--processes", "3")
        pids = []
        for engine in case["engines"]:
            self.assertEqual([s["process"] for s in engine["samples"]], [0, 0, 1, 1, 2])
            self.assertEqual([s["block"] for s in engine["samples"]], [0, 1, 2, 3, 4])
            self.assertEqual(len(engine["timed_processes"]), 3)
            pids += [process["pid"] for process in engine["timed_processes"]]
            self.assertGreater(min(process["open_ms"] for process in engine["timed_processes"]), 0)
            times = [[s["times"]["host_ms"] / s["tokens"] for s in engine["samples"] if s["process"] == p]
                     for p in range(3)]
            summary = engine["ms_per_tok"]
            self.assertEqual((summary["count"], summary["processes"]), (5, 3))
            self.assertAlmostEqual(summary["mean"] / statistics.mean(map(statistics.mean, times)), 1, places=9)
            self.assertAlmostEqual(engine["tok_per_s"] * summary["mean"], 1000, places=6)
        self.assertEqual(len(set(pids)), 6)
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))
        ratio = case["comparisons"][0]
        self.assertEqual((ratio["processes"], ratio["blocks"], ratio["margin"]), (3, 5, 0.01))
        self.assertGreater(ratio["speedup"], 0)
        self.assertIn("no calibration", ratio["margin_source"])
        self.assertIn("nothing of a GPU", ratio["caveat"])
        self.assertIn("5 blocks in 3 processes of each engine", text)

    def test_by_the_environment_and_with_one_engine_open_at_a_time(self):
        _, case = self.replicated("--resident", "one", blocks="2", MKBENCH_PROCESSES="2")
        for engine in case["engines"]:
            self.assertEqual([s["process"] for s in engine["samples"]], [0, 1])
            self.assertEqual(len({process["pid"] for process in engine["timed_processes"]}), 2)

    def test_one_process_gives_a_ratio_and_no_verdict(self):
        text, case = self.replicated(blocks="8")
        ratio = case["comparisons"][0]
        self.assertGreater(ratio["speedup"], 0)
        self.assertIsNotNone(ratio["ci"])
        self.assertEqual(ratio["verdict"], "INCONCLUSIVE")
        self.assertIn("one process gives no verdict", text)
        self.assertIn("8 blocks in one process", text)


if __name__ == "__main__":
    unittest.main()
