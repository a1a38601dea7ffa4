"""Models of no family of mkbench's, judged by transformers: small random ones of seven architectures, right engines, wrong
engines, and models that transformers refuses."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

from support.cli_support import DATA, ROOT, HostsTest

ENGINES = ROOT / "tests" / "engines"
PLUGINS = pathlib.Path(os.environ["PLUGINS"])
MAKE = """
import pathlib, sys, torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

for name, keys in {models}.items():
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[name](**keys), dtype=torch.bfloat16)
    for name_, tensor in model.state_dict().items():
        if name_.endswith((".gate.weight", ".router.weight")):
            tensor.mul_(20)  # experts of random weights are chosen by odds that are nearly equal
        if name_.endswith("in_proj_qkv.weight"):
            tensor[-64:].mul_(2 ** 27)  # values, so that a recurrent state exceeds fp16; a norm follows
        if name_.endswith(".bias"):
            tensor.normal_(0, 0.02)
    model.save_pretrained(pathlib.Path(sys.argv[1]) / name)
"""
SMALL = dict(vocab_size=259, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             intermediate_size=128, max_position_embeddings=96, tie_word_embeddings=True, bos_token_id=256, eos_token_id=257,
             pad_token_id=258)
EXPERTS = dict(moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2)
LINEAR = dict(layer_types=["linear_attention", "full_attention"], linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4)
# A window of 16 rows is shorter than the prompts of 17 and 64 ids.
MODELS = {
    "llama": SMALL,
    "qwen2": SMALL,
    "qwen3_moe": SMALL | EXPERTS,
    "qwen3_5_text": SMALL | LINEAR,
    "qwen3_5_moe_text": SMALL | LINEAR | EXPERTS | dict(shared_expert_intermediate_size=32),
    "gpt_oss": SMALL | dict(num_local_experts=8, num_experts_per_tok=2, sliding_window=16),
    "gemma3_text": SMALL | dict(sliding_window=16, layer_types=["sliding_attention", "full_attention"]),
}
OTHERS = {"mamba": dict(vocab_size=259, hidden_size=64, num_hidden_layers=2, state_size=8, max_position_embeddings=96),
          "gpt2": dict(vocab_size=259, n_embd=64, n_layer=2, n_head=4, n_positions=96, bos_token_id=256, eos_token_id=257)}
TRAINED = ENGINES / "models"  # dev/train_examples.py
# Bugs of tests/engines/hybrid_decoder.py, the verdicts on the trained hybrid, and words of the reasons.
BUGS = {
    "weakest_expert_dropped": ("FAIL_TOKEN", "first prompt 'corpus-33' position 38: found 111 ('o'), wanted 104 ('h')"),
    "expert_weights_swapped": ("FAIL_TOKEN", "first prompt 'corpus-1' position 2: found 104 ('h'), wanted 115 ('s')"),
    "shared_expert_missing": ("FAIL_TOKEN", "first prompt 'corpus-1' position 8: found 32 (' '), wanted 109 ('m')"),
    "state_not_reset": ("NONDETERMINISTIC", "equal free runs differ from the first"),
    # Which of the three depends on the ids that a run draws for its first steps.
    "state_not_saved": ("NONDETERMINISTIC|INTEGRITY|FAIL_TOKEN", "state receipt: "),
}


class TruthTest(HostsTest):
    def models(self, *names):
        """Makes models; their folders, as --model takes them."""
        text = MAKE.format(models={name: (MODELS | OTHERS)[name] for name in names})
        subprocess.run([sys.executable, "-c", text, self.folder], check=True, capture_output=True)
        return ",".join(str(self.folder / name) for name in names)

    def buggy(self, bug, example="hybrid_decoder"):
        """An example with a bug."""
        file = self.folder / f"{bug}.py"
        file.write_text(f"import os, sys\nsys.path.insert(0, {str(ENGINES)!r})\nos.environ['DECODER_BUG'] = {bug!r}\n"
                        f"from {example} import Decoder\n")
        return str(file)

    def judged(self, *args, command=()):
        done = self.mkbench(*command, "--device", "cpu", "--no-plot", "--out", str(self.out), "-v", *args, timeout=280)
        report = self.report()
        self.assertEqual(report["verdict"]["exit_code"], done.returncode)
        return done.returncode, report, done.stdout + done.stderr

    def changed(self, name, **keys):
        """The model, made once, with other values in its config.json; None leaves a key out."""
        file = self.folder / name / "config.json"
        if not file.exists():
            self.models(name)
            shutil.copy(file, self.folder / "config.json")
        config = json.loads((self.folder / "config.json").read_text()) | keys
        file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
        return str(file.parent)


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Right(TruthTest):
    def test_right_engines_of_all_architectures_pass(self):
        code, report, told = self.judged("--truth", "transformers", "--model", self.models(*MODELS), "--engine", "hf-static",
                                         "--compare", "hf", "-n", "4", "-d", "20", "--blocks", "1")
        self.assertEqual(code, 0, told)
        self.assertEqual(told.count("`chunk_gated_delta_rule` is falling back"), 1, told)
        for case, model in zip(report["cases"], MODELS):
            with self.subTest(model=model):
                engines = {engine["name"]: engine for engine in case["engines"]}
                self.assertEqual({name: engine["verdict"] for name, engine in engines.items()},
                                 {"hf": "PASS_LIVE", "hf-static": "PASS_LIVE"})
                self.assertEqual(engines["hf-static"]["receipts_wrong"], 0)
                self.assertGreater(engines["hf-static"]["parity"]["r_rms"], 0)  # it is not the truth itself
                self.assertIn("hf-fp32: transformers=", case["reference"]["versions"])
                self.assertIn("dtype=torch.float32", case["reference"]["versions"])
                self.assertIn("attention=eager allow_tf32=0", case["reference"]["versions"])

    def test_an_interrupted_run_goes_on(self):
        process = self.start("--model", self.models("qwen3_5_text"), "--engine", str(ENGINES / "hybrid_decoder.py"),
                             "--compare", "none", "-n", "4", "-d", "0,20", "--blocks", "2")
        self.wait_for(process, "case 2/2")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        first = self.report()["cases"][0]
        done = self.mkbench("--resume", str(self.out), "--no-plot", env={"TMPDIR": str(self.tmp)})
        self.assertEqual(done.returncode, 0, done.stderr)
        cases = self.report()["cases"]
        self.assertEqual([case["verdict"] for case in cases], ["PASS_LIVE"] * 2)
        self.assertEqual(cases[0]["engines"], first["engines"])

    def test_both_truths_judge_alike(self):
        """Of a model of mkbench's own: the same engine at the same prompts, by eager's truth and by transformers'."""
        folder = self.folder / "mine"
        folder.mkdir()
        config = json.loads((DATA / "tiny-llama" / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 160}))
        (folder / "model.safetensors").symlink_to(DATA / "tiny-llama" / "model.safetensors")
        of_truth = {}
        for truth in ("mkbench", "transformers"):
            self.out = self.folder / truth
            code, report, told = self.judged("--truth", truth, "--model", str(folder), "--seed", "1", "--engine", "host-twin",
                                             command=("parity",))
            self.assertEqual(code, 0, told)
            of_truth[truth] = self.engine(report, "host-twin")["parity"]
        own, theirs = of_truth.values()
        self.assertEqual([(row["pos"], row["ref_id"], row["mk_id"]) for row in own["rows"]],
                         [(row["pos"], row["ref_id"], row["mk_id"]) for row in theirs["rows"]])
        self.assertLess(abs(own["r_rms"] / theirs["r_rms"] - 1), 0.05)


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Libraries(TruthTest):
    def test_a_right_one_passes_and_its_bug_is_seen(self):
        """LayerNorm's epsilon changes no token; a library for families refuses the model."""
        files = [str(PLUGINS / f"{name}.so") for name in ("gpt2_cpu", "gpt2_cpu_epsilon", "naive_cpu")]
        code, report, told = self.judged("--model", self.models("gpt2"), "--engine", ",".join(files), command=("parity",))
        right, wrong, refused = (self.engine(report, file) for file in files)
        self.assertEqual([right["verdict"], wrong["verdict"], refused["verdict"]], ["PASS_LIVE", "FAIL_FIDELITY", "BAD_INPUT"], told)
        self.assertLess(right["parity"]["r_rms"], 0.1)
        self.assertIn("R_rms", " ".join(wrong["reasons"]))
        self.assertIn("the fault lies after the last layer; no KV rows are shown", told)
        self.assertIn("wanted a family that mkbench_model describes, found another", " ".join(refused["reasons"]))


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Trained(TruthTest):
    """The examples on models whose steps are decided, by committed answers."""

    def test_the_mixture_passes(self):
        code, report, told = self.judged("--model", str(TRAINED / "moe"), "--engine", str(ENGINES / "moe_decoder.py"),
                                         "--require-reference", "-n", "4", "-d", "20", "--blocks", "1")
        self.assertEqual(code, 0, told)
        case = report["cases"][0]
        self.assertEqual([engine["verdict"] for engine in case["engines"]], ["PASS"] * 2)
        self.assertEqual(case["reference"]["file"], "reference.json")
        parity = case["engines"][1]["parity"]
        self.assertEqual((parity["strict_steps"], parity["strict_matched"], parity["exact"]), (136, 136, 160))

    def test_the_hybrid_passes_and_its_bugs_are_seen(self):
        files = {"right": str(ENGINES / "hybrid_decoder.py"), **{bug: self.buggy(bug) for bug in BUGS}}
        code, report, told = self.judged("--model", str(TRAINED / "hybrid"), "--engine", ",".join(files.values()),
                                         "--compare", "none", "-n", "4", "-d", "20", "--blocks", "2")
        self.assertIn(code, (3, 8), told)  # of BUGS
        for name, (verdict, reason) in {"right": ("PASS", ""), **BUGS}.items():
            with self.subTest(engine=name):
                engine = self.engine(report, files[name])
                self.assertRegex(engine["verdict"], f"^({verdict})$", engine["reasons"])
                self.assertIn(reason, " ".join(engine["reasons"]))
                if "found" in reason:
                    self.assertIn("R_rms", " ".join(engine["reasons"]))
                    self.assertIn("layer 0 is the first whose hidden state leaves the band", told)
        again = self.engine(report, files["shared_expert_missing"])["parity"]["failed_step"]["command"]
        done = self.mkbench(*again.replace("'", "").split()[1:], "--no-plot", "--out", str(self.folder / "again"))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("position 8: found 32, wanted 109", done.stdout)

    def test_answers_of_other_weights_judge_nothing(self):
        folder = self.folder / "other"
        shutil.copytree(TRAINED / "moe", folder)
        (folder / "manifest.json").unlink()
        with open(folder / "model.safetensors", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        code, report, told = self.judged("--model", str(folder), "--engine", "hf-static", command=("parity",))
        self.assertEqual(code, 6, told)
        self.assertIn("reference.json: weights_sha256: found ", told)
        (folder / "reference.json").unlink()
        self.out = self.folder / "none"
        code, report, told = self.judged("--model", str(folder), "--engine", "hf-static", "--require-reference", command=("parity",))
        self.assertEqual(code, 6, told)
        self.assertIn(f"make one with: python3 scripts/capture_reference.py {folder}", told)


# For each format of tests/support/quantised_model.py the bugs of quantised_decoder.py that exist in it, planted in one
# weight of 28, and the bits of its weights with scales and zero points.
SCALES = ("scale_of_next_row", "scale_of_next_group", "groups_along_outputs")
FORMATS = {
    "fp8": (SCALES, 8 + 32 / 32 ** 2),
    "int8": (("scale_of_next_row",), None),  # a scale a row, and rows of three lengths
    "int4": ((*SCALES, "nibbles_swapped", "zero_point_off_by_one"), 4 + 32 / 16),
    "awq": ((*SCALES, "nibbles_swapped", "zero_point_off_by_one"), 4 + 20 / 32),
    "gptq": ((*SCALES, "nibbles_swapped", "zero_point_off_by_one"), 4 + 20 / 32),
    "nf4": ((*SCALES, "nibbles_swapped"), 4 + 32 / 64),
}


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Quantised(TruthTest):
    """tiny in fewer bits, judged by what its weights stand for: a bug in one weight of 28 is over R_rms's limit."""

    def quantised(self, form):
        folder = self.folder / form
        subprocess.run([sys.executable, ROOT / "tests" / "support" / "quantised_model.py", DATA / "tiny", folder, form], check=True)
        return folder

    def test_every_format(self):
        for form, (bugs, bits) in FORMATS.items():
            with self.subTest(form=form):
                self.out = self.folder / f"out-{form}"
                files = [str(ENGINES / "quantised_decoder.py"), *(self.buggy(bug, "quantised_decoder") for bug in bugs)]
                code, report, told = self.judged("--model", str(self.quantised(form)), "--engine", ",".join(files), "--compare", "hf",
                                                 "--seed", "1", "-n", "4", "-d", "20", "--blocks", "1")
                self.assertEqual(code, 3, told)
                case = report["cases"][0]
                for file in ("hf", files[0]):
                    self.assertEqual(self.engine(report, file)["verdict"], "PASS_LIVE", told)
                    self.assertLess(self.engine(report, file)["parity"]["r_rms"], 1.1)
                for file in files[1:]:
                    engine = self.engine(report, file)
                    self.assertIn(engine["verdict"], ("FAIL_FIDELITY", "FAIL_TOKEN"), file)
                    self.assertGreater(engine["parity"]["r_rms"], 1.5, file)
                self.assertIn(" dequantised=", case["reference"]["versions"])
                values = 4 * (128 * 128 * (4 + 2 + 2 + 4) + 3 * 128 * 384)  # of four layers; norms and head are bf16
                stored = values * bits / 8 if bits else values + 4 * 4 * 128 * (4 + 2 + 2 + 1 + 2 * 3 + 1)
                self.assertEqual(case["model"]["reads"]["fixed"], stored + 2 * (259 * 128 + 4 * (2 * 128 + 2 * 128) + 128))

    def test_what_is_not_read_is_bad_input(self):
        folder = self.quantised("fp8")
        shutil.copy(folder / "config.json", self.folder / "config.json")
        code, report, told = self.judged("--engine", "hf-static", "--model", self.changed("fp8", quantization_config={"quant_method": "fp8"}))
        self.assertEqual((code, self.engine(report, "hf")["verdict"]), (2, "BAD_INPUT"), told)
        self.assertIn("weight_block_size is None, wanted two sizes of a block", told)


class Said(TruthTest):
    """--truth dequantised: judged by what the engine says that its weights stand for."""

    def said(self, engine, model="tiny", *flags):
        self.out = self.folder / f"out-{pathlib.Path(engine).stem}-{len(flags)}"
        code, report, told = self.judged("--truth", "dequantised", "--model", str(model), "--engine", engine, "--compare", "none",
                                         "--seed", "2", "-n", "4", "-d", "20", "--blocks", "1", *flags)
        return code, self.engine(report, engine), report, told


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Dequantised(Said):
    def test_a_library(self):
        engine = str(PLUGINS / "coarse_cpu.so")
        code, found, report, told = self.said(engine)
        self.assertEqual((code, found["verdict"], found["own_weights"]), (0, "PASS_LIVE", True), told)
        self.assertLess(found["parity"]["r_rms"], 0.37)

    def test_what_is_refused_before_anything_runs(self):
        for flags, words in ((["--engine", "host-twin,hf-static"], "--truth dequantised: found --engine host-twin,hf-static, wanted one engine"),
                             (["--engine", "host-twin", "--compare", "graph"], "found --engine host-twin and --compare graph, wanted one engine"),
                             (["--engine", "host-twin", "--require-reference"], "--require-reference: not with --model tiny"),
                             (["--engine", "host-twin", "--model", "synthetic:cut"], "--truth dequantised: --model synthetic:cut is made in memory")):
            done = self.mkbench("--device", "cpu", "--truth", "dequantised", "--out", str(self.out), "--model", "tiny", *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class DequantisedInPython(Said):
    def test_an_engine_that_keeps_four_bits_of_a_bf16_model(self):
        engine = str(ENGINES / "coarse_decoder.py")
        code, found, report, told = self.said(engine, "tiny", "-d", "20,24")
        self.assertEqual((code, found["verdict"], found["own_weights"]), (0, "PASS_LIVE", True), told)
        self.assertLess(found["parity"]["r_rms"], 1.1)
        self.assertEqual([e["own_weights"] for e in report["cases"][1]["engines"]], [False, True])
        self.assertIn(" dequantised=engine", report["cases"][0]["reference"]["versions"])
        self.assertIn("\nQuantised engines, ranked with none of the others:", told)
        # Its bytes a token are those that it declares: the projections at four bits with a scale in fp32 for 32 of them.
        values = 4 * (128 * 128 * (4 + 2 + 2 + 4) + 3 * 128 * 384)
        case = report["cases"][0]
        self.assertEqual([e["declared_bytes"] for e in case["engines"]], [False, True])
        self.assertEqual(case["model"]["reads"]["fixed"], values * 5 / 8 + 2 * (259 * 128 + 4 * (2 * 128 + 2 * 128) + 128))
        self.assertEqual(self.mkbench("verify", str(self.out)).returncode, 0)
        # What four bits cost is a figure, and a gate where that is asked for.
        cost = case["format_cost"]
        self.assertEqual((cost["original"], cost["limit"], cost["perplexity"]), ("tiny", 0, None))
        self.assertGreater(cost["kl"], 0.001)
        self.assertGreater(1, cost["same_top"])
        self.assertIn("the format costs, against tiny, over ", told)
        # By the model's own weights it is wrong, and so is one that only says that it uses them.
        self.out = self.folder / "by-the-model"
        code, report, told = self.judged("--model", "tiny", "--engine", engine, command=("parity",))
        self.assertIn(self.engine(report, engine)["verdict"], ("FAIL_FIDELITY", "FAIL_TOKEN"), told)
        liar = self.buggy("says_what_it_was_given", "coarse_decoder")
        code, found, report, told = self.said(liar)
        self.assertIn(found["verdict"], ("FAIL_FIDELITY", "FAIL_TOKEN"), told)
        self.assertGreater(found["parity"]["r_rms"], 2)
        step = json.loads((self.out / "failures" / "1.json").read_text())
        self.assertEqual(step["truth"], "dequantised")
        done = self.mkbench("parity", "--only", str(self.out / "failures" / "1.json"), "--no-plot", "--out", str(self.folder / "again"))
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_what_it_says_cannot_be_so(self):
        """Scales in bf16 where the checkpoint has them in fp32: its errors are too small to be seen, its values are not."""
        folder = self.folder / "int4"
        subprocess.run([sys.executable, ROOT / "tests" / "support" / "quantised_model.py", DATA / "tiny", folder, "int4"], check=True)
        code, found, report, told = self.said(self.buggy("scales_in_bf16", "quantised_decoder"), folder)
        self.assertEqual((code, found["verdict"]), (3, "FAIL_FIDELITY"), told)
        self.assertIn("dequantised('model.layers.2.mlp.down_proj.weight'): 37,", " ".join(found["reasons"]))
        self.assertIn("of 49,152 values are not what the checkpoint's stored ones stand for, nor these in bf16 or fp16: [", told)
        self.assertIn(": dequantised(", told.splitlines()[-1])
        for bug, words in (("one_weight_in_bf16", "down_proj.weight'): storage() declares 4 bits a value, and the block of row 0 and column 0 holds "),
                           ("declares_no_scales", "storage() declares 24,576 bytes, and 30,720 for its values, scales and zero points")):
            code, found, report, told = self.said(self.buggy(bug, "coarse_decoder"))
            self.assertEqual((code, found["verdict"]), (3, "FAIL_FIDELITY"), told)
            self.assertIn(words, " ".join(found["reasons"]))
        for bug, words in (("says_nothing", "--truth dequantised: dequantised() gives the values of no weight"),
                           ("declares_a_strange_type", "storage('model.layers.0.mlp.down_proj.weight'): KeyError: 'int5'; found {"),
                           ("says_another_shape", "dequantised('model.layers.0.mlp.down_proj.weight'): found the shape [127, 384], wanted [128, 384]")):
            code, found, report, told = self.said(self.buggy(bug, "coarse_decoder"))
            self.assertEqual((code, found["verdict"]), (2, "BAD_INPUT"), told)
            self.assertIn(words, " ".join(found["reasons"]))


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class Wrong(TruthTest):
    def test_a_state_in_fp16_is_seen(self):
        """Live, on random weights whose recurrent state exceeds fp16."""
        files = [str(ENGINES / "hybrid_decoder.py"), self.buggy("state_in_fp16")]
        code, report, told = self.judged("--model", self.models("qwen3_5_moe_text"), "--engine", ",".join(files),
                                         "--compare", "none", "-n", "4", "-d", "20", "--blocks", "1")
        self.assertEqual(code, 3, told)
        right, wrong = (self.engine(report, file) for file in files)
        self.assertEqual((right["verdict"], wrong["verdict"]), ("PASS_LIVE", "FAIL_FIDELITY"))
        self.assertIn("NaN or Inf in the hidden state of layer 0", " ".join(wrong["reasons"]))
        self.assertEqual(report["cases"][0]["model"]["reads"]["rows"], [{"bytes": 128, "most": 0}])  # one layer of attention
        step = next(check for check in right["parity"]["checks"] if check["name"] == "r_step")
        self.assertEqual((step["status"], step["detail"]), ("not_applicable", "reported, not judged: at a near tie of its "
                                                            "routers a right engine takes another expert"))

    def test_a_class_that_loses_its_state_between_steps_is_no_truth(self):
        """Mamba's forward() takes no cache by the name that all others take it by."""
        code, report, told = self.judged("--model", self.models("mamba"), "--engine", "hf-static", command=("parity",))
        self.assertEqual((code, self.engine(report, "hf")["verdict"]), (2, "BAD_INPUT"), told)
        self.assertIn("steps over its cache are off the pass over all ids by", told)

    def test_what_transformers_does_not_load_whole_is_bad_input(self):
        for keys, words in (({"model_type": "zebra"}, "cannot load"), ({"intermediate_size": 130}, "finds mismatched keys"),
                            ({"num_hidden_layers": 3, "layer_types": None}, "finds missing keys")):
            with self.subTest(keys=keys):
                self.out = self.folder / next(iter(keys))
                code, report, told = self.judged("--engine", "hf-static", "-n", "4", "--blocks", "1", "--model",
                                                 self.changed("qwen3_5_text", **keys))
                self.assertEqual(code, 2, told)
                self.assertEqual(self.engine(report, "hf")["verdict"], "BAD_INPUT")
                self.assertIn(words, " ".join(self.engine(report, "hf")["reasons"]))

    def test_what_is_refused_before_anything_runs(self):
        for keys, flags, words in (({"vocab_size": None}, [], "missing vocab_size"),
                                   ({"hidden_size": "64"}, [], "hidden_size is '64', wanted an integer from 1"),
                                   ({}, ["--in-process"], "--in-process: not with --model"),
                                   ({}, ["--engine", "host-twin"], "engine host-twin does not run it"),
                                   ({}, ["--reference", "."], "--reference: not with --model"),
                                   ({}, ["--truth", "mkbench"], "transformers alone computes it, and is its truth in `mkbench run`")):
            done = self.mkbench("--device", "cpu", "--out", str(self.out), "--model", self.changed("gemma3_text", **keys), *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
        for command in (["soak"], ["audit"], ["profile", "--timeline"]):
            done = self.mkbench(*command, "--device", "cpu", "--engine", "hf-static", "--model",
                                str(self.folder / "gemma3_text"))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("is its truth in `mkbench run` and `mkbench parity`", done.stderr)
        (self.folder / "gemma3_text" / "adapter_config.json").write_text("{}")
        done = self.mkbench("--device", "cpu", "--out", str(self.out), "--model", self.changed("gemma3_text"))
        self.assertIn("holds adapter_config.json", done.stderr)
        done = self.mkbench("--device", "cpu", "--out", str(self.out), "--model", "synthetic:cut", "--truth", "transformers")
        self.assertIn("--truth transformers: --model synthetic:cut is made in memory", done.stderr)
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
