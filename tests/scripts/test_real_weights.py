"""From a model's name to a judged run: a hub cache made here, captured under a Darwin that `uname` claims, then run."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
from unittest import mock

from support import hub_server
from support.cli_support import DATA, ROOT, CliTest, environment

CAPTURE = ROOT / "scripts" / "capture_reference.py"
HAS_HF = all(importlib.util.find_spec(name) for name in ("torch", "transformers", "safetensors", "tokenizers"))
CORPUS = (DATA / "tiny_corpus.txt").read_text()
LEARNED = CORPUS[100:140]  # the tiny checkpoint knows what follows


class RealWeightsTest(CliTest):
    def setUp(self):
        super().setUp()
        self.home = self.folder / "home"
        self.data = self.folder / "data"
        self.variables = {
            "HF_HOME": str(self.home), "XDG_DATA_HOME": str(self.data), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "MKBENCH_PYTHON": sys.executable}

    def fake_uname(self, system, machine):
        """A PATH whose uname says that this is another machine."""
        folder = self.folder / f"bin-{system}-{machine}"
        folder.mkdir()
        program = folder / "uname"
        program.write_text(f'#!/bin/sh\ncase "$1" in -m) echo {machine} ;; *) echo {system} ;; esac\n')
        program.chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    def run_program(self, command, **extra):
        env = environment(**self.variables | extra)
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            env.pop(name, None)
        return subprocess.run([str(word) for word in command], cwd=self.folder, env=env, timeout=200, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def capture(self, *args):
        """capture_reference.py in this process, which has torch in memory: (exit code, stdout, stderr)."""
        import capture_reference

        out, errors = io.StringIO(), io.StringIO()
        with (mock.patch.dict(os.environ, self.variables), mock.patch.object(sys, "argv", [str(CAPTURE), *map(str, args)]),
              contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors)):
            return capture_reference.main(), out.getvalue(), errors.getvalue()

    def judged(self, model, *args, code=0):
        """A short run on `model`, its stdout and its one case."""
        shutil.rmtree(self.out, ignore_errors=True)
        done = self.mkbench("--compare", "eager", "--model", str(model), "--device", "cpu", "--n-gen", "4", "--blocks", "2",
                            "--no-plot", "--out", str(self.out), *args, env=self.variables | {"MKBENCH_PYTHON": ""})
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done.stdout, self.report()["cases"][0]


@unittest.skipUnless(HAS_HF, "this Python has no HF transformers or no tokenizers")
class FromNameToVerdict(RealWeightsTest):
    def test_two_commands(self):
        hub_server.make_cache(self.home / "hub", hub_server.sharded(DATA / "tiny"))
        script = [ROOT / "scripts" / "capture.sh", "Org/Tiny"]
        done = self.run_program([*script, "--prompt", "The capital of France is", "--prompt", LEARNED, "--steps", "12"],
                                PATH=self.fake_uname("Darwin", "arm64"))
        self.assertEqual(done.returncode, 0, done.stderr)
        path = self.data / "mkbench" / "references" / "models--Org--Tiny" / hub_server.COMMIT / "reference.json"
        self.assertIn(f"{path}: ", done.stdout)
        document = json.loads(path.read_text())
        self.check_document(document)

        table, case = self.judged("Org/Tiny", "--require-reference", "--parity-table")
        self.assertEqual(case["verdict"], "PASS")
        self.assertEqual(case["reference"]["versions"].split(",")[0].split()[0], "transformers")
        model = case["model"]
        self.assertEqual((model["rope_theta"], model["rope_theta_key"]), (1000000, "rope_parameters.rope_theta"))
        self.assertIn("tie_word_embeddings is true, and there is no lm_head.weight", model["head"])
        self.assertIn("rope_theta 1000000 (rope_parameters.rope_theta); LM head: the embedding", table)
        parity = self.engine(self.report(), "host-twin")["parity"]
        self.assertEqual(parity["steps"], 24)
        self.assertEqual(parity["text_prompt"], "The capital of France is")
        self.assertEqual(parity["text"], "".join(document["prompts"][0]["token_texts"]))
        self.assertIn(f'"The capital of France is" -> "{parity["text"]}"', table)
        learned = [row for row in parity["rows"] if row["prompt"] == "prompt-2"]
        self.assertEqual("".join(row["mk_text"] for row in learned), CORPUS[140:152])

        # A revision by its commit is the same snapshot.
        _, case = self.judged(f"Org/Tiny@{hub_server.COMMIT}", "--require-reference")
        self.assertEqual(case["verdict"], "PASS")

    def check_document(self, document):
        model, capture = document["model"], document["capture"]
        self.assertEqual((model["name"], model["revision"]), ("Org/Tiny", hub_server.COMMIT))
        self.assertEqual(model["weights_sha256"], json.loads((DATA / "tiny" / "manifest.json").read_text())["weights_sha256"])
        self.assertEqual(sorted(model["files"]), sorted(
            ["config.json", "tokenizer.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
             "model-00002-of-00002.safetensors"]))
        self.assertIn("capture_reference.py Org/Tiny --prompt 'The capital of France is'", capture["command"])
        self.assertEqual((capture["device"], capture["truth"]["dtype"]), ("cpu", "float32"))
        first, second = document["prompts"]
        self.assertEqual(first["ids"], list(b"The capital of France is"))
        self.assertEqual("".join(second["token_texts"]), CORPUS[140:152])
        self.assertEqual(second["set"], "strict")
        self.assertEqual(document["texts"]["32"], " ")
        for prompt in document["prompts"]:
            for step in prompt["steps"]:
                self.assertTrue(all(str(i) in document["texts"] for i in step["top_ids"]))

    def test_machines_that_cannot(self):
        script = [ROOT / "scripts" / "capture.sh", "Org/Tiny"]
        for system, machine, why in (("Darwin", "x86_64", "PyPI has no current torch for this Mac"),
                                     ("FreeBSD", "amd64", "this is FreeBSD")):
            done = self.run_program(script, PATH=self.fake_uname(system, machine))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)
        done = self.run_program(script)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("HF_HUB_OFFLINE is set; on a machine with a connection: hf download Org/Tiny", done.stderr)
        self.assertEqual(self.run_program(script[:1]).returncode, 2)


class CaptureEnvironment(RealWeightsTest):
    """scripts/capture.sh on a machine that has nothing but a python3, here a script that writes down what it is asked."""

    def test_it_is_made_once(self):
        shutil.copytree(ROOT / "scripts", self.folder / "clone" / "scripts")  # a clone that nobody has built
        path = self.fake_uname("Darwin", "arm64")
        log, tools = self.folder / "log", pathlib.Path(path.split(":")[0])
        python = tools / "python3"
        python.write_text(
            f'#!/bin/sh\necho "$0 $*" >> {log}\n'
            'if [ "$2" = venv ]; then mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi\n')
        python.chmod(0o755)
        cache = self.folder / "cache"
        command = [self.folder / "clone" / "scripts" / "capture.sh", "Org/Tiny", "--steps", "3"]
        for again in (False, True):
            log.write_text("")
            done = self.run_program(command, PATH=path, XDG_CACHE_HOME=str(cache), MKBENCH_PYTHON="")
            self.assertEqual(done.returncode, 0, done.stderr)
            venv = cache / "mkbench" / "capture"
            asked = [line.replace(str(self.folder / "clone"), "CLONE") for line in log.read_text().splitlines()]
            made = [f"{python} -m venv --clear {venv}", f"{venv}/bin/python -m pip install --quiet --disable-pip-version-check "
                    "--requirement CLONE/scripts/requirements/capture.txt"]
            ran = [f"{venv}/bin/python CLONE/scripts/fetch_model.py Org/Tiny",
                   f"{venv}/bin/python CLONE/scripts/capture_reference.py Org/Tiny --steps 3"]
            self.assertEqual([line for line in asked if " -c " not in line], ran if again else made + ran)

        # A folder is not fetched.
        (self.folder / "Mine").mkdir()
        log.write_text("")
        self.assertEqual(self.run_program([command[0], "./Mine"], PATH=path, XDG_CACHE_HOME=str(cache), MKBENCH_PYTHON="").returncode, 0)
        self.assertNotIn("fetch_model", log.read_text())


@unittest.skipUnless(HAS_HF, "this Python has no HF transformers or no tokenizers")
class OwnFolder(RealWeightsTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "Mine"
        self.model.mkdir()
        for name, data in hub_server.sharded(DATA / "tiny-untied", shards=3).items():
            (self.model / name).write_bytes(data)

    def test_a_reference_in_the_folder_is_used(self):
        before = self.judged(self.model)[1]
        self.assertEqual(before["verdict"], "PASS_LIVE")
        prompt = ("--prompt", LEARNED, "--steps", "8")
        code, _, errors = self.capture(self.model, *prompt)
        self.assertEqual(code, 0, errors)
        self.assertTrue((self.model / "reference.json").is_file())
        _, case = self.judged(self.model, "--require-reference")
        self.assertEqual((case["verdict"], case["reference"]["file"]), ("PASS", "reference.json"))
        self.assertIn("untied", case["model"]["head"])

        again = self.run_program([sys.executable, CAPTURE, "Mine", *prompt])
        self.assertEqual((again.returncode, again.stdout, again.stderr.count("\n")), (2, "", 1), again.stderr)
        self.assertIn("--replace REASON", again.stderr)

        # Other weights under that reference: refused, not judged.
        for name, data in hub_server.sharded(DATA / "tiny", shards=3).items():
            (self.model / name).write_bytes(data)
        _, case = self.judged(self.model, code=6)
        self.assertEqual(case["verdict"], "INVALID_REFERENCE")

    def test_prompts_of_a_file(self):
        prompts = self.folder / "prompts.json"
        prompts.write_text(json.dumps([{"name": "ids", "set": "auto", "ids": [84, 104, 101], "steps": 3},
                                       {"name": "text", "set": "auto", "text": LEARNED, "steps": 2}]))
        out = self.folder / "elsewhere" / "mine" / "reference.json"
        code, _, errors = self.capture(self.model, "--prompts", prompts, "--out", out)
        self.assertEqual(code, 0, errors)
        self.assertEqual([p["ids"] for p in json.loads(out.read_text())["prompts"]], [[84, 104, 101], list(LEARNED.encode())])
        _, case = self.judged(self.model, "--require-reference", "--reference", str(out.parent.parent))
        self.assertEqual(case["verdict"], "PASS")

    def refused(self, *args, parts=()):
        """One line on stderr, which holds `parts`, and no traceback."""
        code, out, errors = self.capture(*args)
        self.assertEqual((code, out), (2, ""), errors)
        lines = [line for line in errors.splitlines() if not line.startswith("capture: ")]
        self.assertEqual(len(lines), 1, errors)
        self.assertTrue(lines[0].startswith("capture_reference.py: error: "), lines)
        for part in parts:
            self.assertIn(part, lines[0])

    def test_what_cannot_be_captured(self):
        prompt = ("--prompt", "The", "--steps", "1")
        self.refused("/no/such/folder", *prompt, parts=["/no/such/folder: no such folder"])
        self.refused("Org/Absent", *prompt, parts=["not in the local cache", "mkbench fetch Org/Absent"])
        self.refused("synthetic:shorter", parts=["synthetic:short"])
        self.refused("tiny", *prompt, parts=["has its own prompts"])
        self.refused(self.model, "--prompt", "", parts=["gives no token"])
        self.refused(self.model, "--prompt", "The", "--steps", "5000", parts=["max_position_embeddings"])
        bad = self.folder / "bad.json"
        for text, part in (("{", "line 1 column 2"), ("[]", "wanted a list of prompts"),
                           ('[{"name": "a", "set": "auto", "ids": [259], "steps": 1}]', "out of range: [259]")):
            bad.write_text(text)
            self.refused(self.model, "--prompts", bad, parts=[part])
        self.refused(self.model, "--prompts", self.folder / "absent.json", parts=["absent.json: No such file"])

    def test_tensors_of_other_types(self):
        import hf_model
        import torch
        from safetensors.torch import load_file, save_file

        folder, wanted = self.folder / "types", load_file(DATA / "tiny" / "model.safetensors")
        folder.mkdir()
        shutil.copy(DATA / "tiny" / "config.json", folder)
        shutil.copy(self.model / "tokenizer.json", folder)
        embedding, norm = "model.embed_tokens.weight", "model.norm.weight"
        # A 1,024th of a value is less than half a step of bf16.
        fp32 = {name: tensor.float() * (1 + 2**-10) for name, tensor in wanted.items()}

        def read(state):
            save_file(state, folder / "model.safetensors")
            config, found, _, rounded = hf_model.read_folder(folder)
            self.assertEqual({tensor.dtype for tensor in found.values()}, {torch.bfloat16})
            return hf_model.weights_sha256(found, config), sorted(rounded)

        digest, rounded = read(wanted)
        self.assertEqual(rounded, [])
        self.assertEqual(read(fp32), (digest, sorted(wanted)))
        self.assertEqual(read(wanted | {norm: wanted[norm].half()}), (digest, [norm]))
        self.assertEqual(read(fp32 | {"lm_head.weight": wanted[embedding].clone()})[0], digest)

        def with_value(bits):
            tensor = fp32[norm].clone()
            tensor[7:9] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
            return fp32 | {norm: tensor}

        read(with_value(0x7f7f7fff))
        for state, parts in ((with_value(-0x00808000), ["2 values are beyond the largest value of bf16, 3.3895314e+38", "index 7: -3.396"]),
                             (fp32 | {norm: wanted[norm].double()}, ["dtype is torch.float64, wanted torch.bfloat16, torch.float16 or"])):
            with self.assertRaises(hf_model.BadInput) as refused:
                read(state)
            for part in (f"{folder}: tensor '{norm}': ", *parts):
                self.assertIn(part, str(refused.exception))

        save_file(fp32, folder / "model.safetensors")
        code, _, errors = self.capture(folder, "--prompt", "The", "--steps", "1")
        self.assertEqual((code, errors.count("types: 46 of 46 tensors rounded to bf16")), (0, 1), errors)
        self.assertEqual(json.loads((folder / "reference.json").read_text())["model"]["weights_sha256"], digest)

    def test_a_model_that_transformers_alone_computes(self):
        trained = ROOT / "tests" / "engines" / "models" / "moe"
        wanted = json.loads((trained / "reference.json").read_text())
        shutil.rmtree(self.model)
        self.model.mkdir()
        for name, data in hub_server.sharded(trained, shards=3).items():
            (self.model / name).write_bytes(data)
        prompts = self.folder / "prompts.json"
        prompts.write_text(json.dumps([{**prompt, "steps": 3} for prompt in json.loads((trained.parent / "prompts.json").read_text())[1:3]]))
        code, _, errors = self.capture(self.model, "--prompts", prompts)
        self.assertEqual(code, 0, errors)
        found = json.loads((self.model / "reference.json").read_text())
        self.assertEqual(found["model"]["weights_sha256"], wanted["model"]["weights_sha256"])
        self.assertEqual(found["model"]["config"], wanted["model"]["config"])
        self.assertEqual(len(found["model"]["files"]), 2 + 3 + (self.model / "tokenizer.json").is_file())
        for one, other in zip(found["prompts"], wanted["prompts"][1:3]):
            self.assertEqual([step["token"] for step in one["steps"]], [step["token"] for step in other["steps"][:3]])
            for step, same in zip(one["steps"], other["steps"]):
                self.assertAlmostEqual(step["margin"], same["margin"], delta=1e-3)
                self.assertGreater(step["baseline"]["error_norm"], 0)
        config = json.loads((self.model / "config.json").read_text())
        for change, part in (({"model_type": "gemma2"}, "finds missing keys among the tensors"),
                             ({"model_type": "zebra"}, "model type `zebra` but Transformers does not recognize"),
                             ({"num_experts_per_tok": "two"}, "num_experts_per_tok")):
            (self.model / "config.json").write_text(json.dumps(config | change))
            self.refused(self.model, "--prompts", prompts, "--replace", "other", parts=[part])

    def test_devices_that_are_not_there(self):
        import torch

        prompt = ("--prompt", "The", "--steps", "1")
        if not torch.cuda.is_available():
            self.refused(self.model, *prompt, "--device", "cuda", parts=["--device cuda: torch ", "no usable GPU", "--device cpu"])
        if not torch.backends.mps.is_available():
            self.refused(self.model, *prompt, "--device", "mps", parts=["--device mps: this torch sees no Apple GPU"])

    def test_defective_folders(self):
        prompt = ("--prompt", "The", "--steps", "1")
        config = (self.model / "config.json").read_text()

        def with_config(change, part):
            document = json.loads(config)
            change(document)
            (self.model / "config.json").write_text(json.dumps(document))
            self.refused(self.model, *prompt, parts=["config.json: ", part])

        with_config(lambda c: c.pop("head_dim"), "missing head_dim")
        with_config(lambda c: c.update(model_type="mistral", sliding_window=40), "sliding_window is 40, wanted null")
        with_config(lambda c: c.update(rope_theta=1, rope_parameters={"rope_theta": 2}), "rope_theta: found [1.0, 2.0]")
        (self.model / "config.json").write_text(config[:40])
        self.refused(self.model, *prompt, parts=["config.json: line"])
        tied = json.loads(config) | {"tie_word_embeddings": True}
        (self.model / "config.json").write_text(json.dumps(tied))
        self.refused(self.model, *prompt, parts=["tie_word_embeddings is true but 'lm_head.weight' differs"])
        (self.model / "config.json").write_text(config)

        (self.model / "tokenizer.json").rename(self.model / "aside.json")
        self.refused(self.model, *prompt, parts=["has no tokenizer.json"])
        (self.model / "tokenizer.json").write_text("{}")
        self.refused(self.model, *prompt, parts=["tokenizer.json: no tokenizer"])
        (self.model / "aside.json").rename(self.model / "tokenizer.json")

        shard = self.model / "model-00002-of-00003.safetensors"
        shard.write_bytes(shard.read_bytes()[:-1])
        self.refused(self.model, *prompt, parts=[shard.name])
        shard.unlink()
        self.refused(self.model, *prompt, parts=[shard.name])
        (self.model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x"}}')
        self.refused(self.model, *prompt, parts=["wanted a plain file name"])
        (self.model / "model.safetensors.index.json").unlink()
        self.refused(self.model, *prompt, parts=["holds neither model.safetensors nor model.safetensors.index.json"])


if __name__ == "__main__":
    unittest.main()
