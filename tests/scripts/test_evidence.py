"""`mkbench evidence`: without a GPU for real, and its control flow with a fake card.

The fake card is a fake torch and a fake train_tiny in place of the real ones, and a fake nvidia-smi on PATH; the rest of
scripts/torch_evidence.py and the parent is real.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
from unittest import mock

from support.cli_support import BINARY, ROOT, CliTest, environment

sys.path.insert(0, str(ROOT / "scripts"))

import nvidia_smi  # noqa: E402
import torch_evidence  # noqa: E402

FILES = ("env_info.txt", "torch_cuda_check.txt", "training_log.txt", "nvidia_smi.txt")
HAS_HF = all(importlib.util.find_spec(name) for name in ("torch", "transformers", "safetensors"))

# Stands in for torch and train_tiny where a script imports them. STEPS_ON is where the "GPU's" steps really run.
FAKES = '''
import os, sys, time, types

torch = types.ModuleType("torch")
torch.__version__ = "2.11.0+cu130"
torch.version = types.SimpleNamespace(cuda="13.0")
torch._C = types.SimpleNamespace(_cuda_getArchFlags=lambda: "sm_90 sm_120")
torch.get_num_threads = lambda: 4
torch.cuda = types.SimpleNamespace(
    init=lambda: None, is_available=lambda: True, device_count=lambda: 1, is_bf16_supported=lambda: True,
    get_device_name=lambda gpu: "NVIDIA Fake 1", get_device_capability=lambda gpu: (12, 0), set_device=lambda gpu: None,
    mem_get_info=lambda gpu: (31 * 2**30, 32 * 2**30), max_memory_allocated=lambda: 99 * 2**20,
    get_device_properties=lambda gpu: types.SimpleNamespace(uuid="11-22"))

class Number:
    def __init__(self, value, device):
        self.value, self.device = value, device
    def item(self):
        return self.value
    def numel(self):
        return 1000000

class Model:
    def __init__(self, device):
        self.device = device
    def parameters(self):
        return [Number(0, self.device)]

def training(config, text, seed, device):
    where = os.environ["STEPS_ON"] if device == "cuda" else "cpu"
    open(os.environ["AT_WORK"], "w").close()
    step = 0
    while True:
        step += 1
        if step == int(os.environ.get("FAILS_AT", 0)) and device == "cuda":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if step > 50:
            time.sleep(0.001)
        yield step, Number(5.5 - min(step, 60) * 0.05, where), Model(where)

tiny = types.ModuleType("train_tiny")
tiny.CONFIGS = {"tiny": {"num_hidden_layers": 4, "hidden_size": 128}}
tiny.BATCH, tiny.WINDOW, tiny.corpus, tiny.training = 12, 160, lambda: [], training
sys.modules.update(torch=torch, train_tiny=tiny)
sys.path.insert(0, os.environ["SCRIPTS"])
import doctor_python
doctor_python.check_matmul = lambda torch, device: {"device": device, "ok": True, "got": 7, "wanted": 7}
'''

# Without a card, another machine's message; with one, 4 MiB in use before the training, and 616 while it runs.
FAKE_SMI = '''#!/bin/sh
[ -e "$AT_WORK" ] && used=616 || used=4
case "$*" in
  *uuid,memory.used*) echo "GPU-11-22, $used" ;;
  *query-compute-apps*) [ "$used" = 4 ] || { %s; } ;;
  *) echo "| NVIDIA-SMI 580 |"; echo "|  0  N/A  77  C  /opt/some/python3   612MiB |" ;;
esac
'''


def open_boxes(text):
    return re.findall(r"(?m)^- \[ \] \*\*(.*?)\*\*", text)


class NoCard(CliTest):
    """The real thing: this machine's Python, with its GPUs hidden."""

    def run_evidence(self, *args, **env):
        return self.mkbench("evidence", "folder", *args, env={"CUDA_VISIBLE_DEVICES": "", **env})

    def read(self, name):
        return (self.folder / "folder" / name).read_text()

    @unittest.skipUnless(HAS_HF, "this Python has no HF transformers")
    def test_nothing_falls_back(self):
        result = self.run_evidence()
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertTrue(self.read("training_log.txt").startswith("Using device: none ("))
        self.assertNotIn("step", self.read("training_log.txt").split("\n", 1)[1])
        self.assertRegex(self.read("torch_cuda_check.txt"), r"(?m)^cuda available: False$")
        self.assertRegex(self.read("torch_cuda_check.txt"), r"(?m)^problem: \S")
        self.assertRegex(self.read("env_info.txt"), r"(?m)^source hash, speed: [0-9a-f]{64}$")
        self.assertIn("== mkbench doctor", self.read("env_info.txt"))
        self.assertRegex(self.read("env_info.txt"), r"disk .* free of .* in \.\n")
        readme = self.read("README.md")
        self.assertEqual(re.findall(r"(?m)^- \[x\] \*\*(.*?)\*\*", readme), ["files saved"])
        self.assertRegex(readme, r"(?m)^- class: \*\*(driver|image|wheel)\*\*$")
        self.assertRegex(result.stderr, r"mkbench: error: no evidence of training on the GPU: (driver|image|wheel): .*; try: ")
        for name in FILES:
            digest = hashlib.sha256((self.folder / "folder" / name).read_bytes()).hexdigest()
            self.assertIn(f"| {name} | {(self.folder / 'folder' / name).stat().st_size} | {digest} |", readme)

    def test_a_python_that_is_not_there(self):
        result = self.run_evidence(MKBENCH_PYTHON="/nowhere/python3")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("no evidence of training on the GPU: cannot run /nowhere/python3", result.stderr)

    def test_folders_that_are_refused(self):
        (self.folder / "folder").mkdir()
        (self.folder / "folder" / "kept.txt").write_text("kept")
        result = self.run_evidence()
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
        self.assertIn("evidence folder: is there already and not an empty folder", result.stderr)
        self.assertEqual([p.name for p in (self.folder / "folder").iterdir()], ["kept.txt"])
        result = self.mkbench("evidence")
        self.assertEqual(result.returncode, 2)
        self.assertIn("name the folder", result.stderr)


class FakeCard(CliTest):
    """What is done and said with a card, by the fakes above."""

    def run_evidence(self, rows="true", steps_on="cuda:0", smi=True, **env):
        fakes, programs = self.folder / "fakes", self.folder / "programs"
        fakes.mkdir()
        programs.mkdir()
        (fakes / "sitecustomize.py").write_text(FAKES)
        if smi:
            (programs / "nvidia-smi").write_text(FAKE_SMI % rows)
            (programs / "nvidia-smi").chmod(0o755)
        return self.mkbench("evidence", "folder", env={
            "PYTHONPATH": str(fakes), "PATH": f"{programs}:/usr/bin:/bin", "SCRIPTS": str(ROOT / "scripts"),
            "STEPS_ON": steps_on, "AT_WORK": str(self.folder / "at_work"), "MKBENCH_PYTHON": sys.executable, **env})

    def read(self, name):
        return (self.folder / "folder" / name).read_text()

    def open_boxes(self):
        return open_boxes(self.read("README.md"))

    def test_a_whole_folder(self):
        result = self.run_evidence('echo "$PPID, 612, /opt/some/python3"')
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertEqual(self.open_boxes(), [])
        self.assertIn("8 of 8 boxes hold.", result.stdout)
        log = self.read("training_log.txt").splitlines()
        self.assertEqual(log[0], "Using device: cuda")
        self.assertEqual(sum(line.startswith("cuda step ") for line in log), 50)
        self.assertEqual(sum(line.startswith("cpu step ") for line in log), 50)
        self.assertRegex(self.read("nvidia_smi.txt"), r"^taken during: steps 51 to \d+ of the training")
        self.assertRegex(self.read("nvidia_smi.txt"), r"(?m)^MiB of our process: 612\ncounted by: nvidia-smi's row of process \d+$")
        self.assertNotIn("/opt", self.read("nvidia_smi.txt"))
        self.assertIn("|  0  N/A  77  C  python3             612MiB |", self.read("nvidia_smi.txt"))
        self.assertIn("the card by name**: NVIDIA Fake 1\n", self.read("README.md"))

    def test_a_container_that_hides_processes(self):
        result = self.run_evidence("true")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("MiB of our process: 612\n", self.read("nvidia_smi.txt"))
        self.assertRegex(self.read("README.md"), r"612 MiB by the memory in use on the whole card, 4 MiB before and 616 MiB "
                                                 r"during the training: nvidia-smi lists no process \d+")

    def test_no_nvidia_smi(self):
        result = self.run_evidence(smi=False)
        self.assertEqual(result.returncode, 6)
        self.assertEqual(self.open_boxes(), ["memory allocated"])
        self.assertIn("nvidia-smi: not on PATH", self.read("nvidia_smi.txt"))

    def test_steps_that_ran_on_the_cpu(self):
        result = self.run_evidence(steps_on="cpu")
        self.assertEqual(result.returncode, 6)
        self.assertEqual(self.open_boxes(), ["no fallback"])

    def test_a_training_that_fails(self):
        result = self.run_evidence(FAILS_AT="20")
        self.assertEqual(result.returncode, 6)
        self.assertIn("class: **memory**", self.read("README.md"))
        self.assertIn("problem: RuntimeError: CUDA out of memory.", self.read("training_log.txt"))
        self.assertEqual(self.open_boxes(), ["training on cuda", "same result as the CPU", "memory allocated", "files saved",
                                             "no fallback"])


class Boxes(unittest.TestCase):
    """All hold on a good folder, and each change of a file opens the boxes that rest on it and no other."""

    GOOD = {
        "env_info.txt": "date: 2026-01-01T00:00:00Z\n",
        "torch_cuda_check.txt":
            "torch: 2.11.0+cu130\nbuilt for CUDA: 13.0\ncuda available: True\ncards: 1\n"
            "card: NVIDIA H100 80GB HBM3\ncapability: 9.0\nproduct on the card: sum 5, wanted 5\nproduct right: True\n",
        "training_log.txt": "".join([
            "Using device: cuda\n",
            *(f"cuda step {step}: loss {5.5 - step * 0.05:.4f} on cuda:0\n" for step in range(1, 51)),
            "MiB that the training needs at least: 16.5\nMiB that torch allocated on the card: 80.1\n",
            *(f"cpu step {step}: loss {5.5 - step * 0.05:.4f} on cpu\n" for step in range(1, 13)),
            "cuda steps/s: 91.20\ncpu steps/s: 8.40\n"]),
        "nvidia_smi.txt":
            "taken during: steps 51 to 93 of the training, from 2026-01-01T00:00:09Z on\n"
            "our process: 77\nMiB of our process: 612\ncounted by: nvidia-smi's row of process 77\n"}
    EMPTY = dict.fromkeys(FILES, "")

    def test_a_good_folder(self):
        text, advice = torch_evidence.judge(self.GOOD)
        self.assertEqual((open_boxes(text), advice), ([], ""))
        for part in ("- [x] **the card by name**: NVIDIA H100 80GB HBM3\n", "8 of 8 boxes hold.\n",
                     "612 MiB by nvidia-smi's row of process 77; taken during steps 51 to 93", "went from 5.350 to 3.100"):
            self.assertIn(part, text)
        self.assertNotIn("What failed", text)

    def test_each_change_opens_its_boxes(self):
        check, log, smi = FILES[1:]
        step7, on_cuda, fallback = "cuda step 7: loss 5.1500 on cuda:0", "training on cuda", "no fallback"
        for file, old, new, *opens in [
                (check, "cuda available: True", "cuda available: False", "cuda available"),
                (check, "card: NVIDIA H100 80GB HBM3\n", "", "the card by name"),
                (check, "capability: 9.0\n", "", "capability"),
                (check, "product right: True", "product right: False", "capability"),
                (log, "Using device: cuda\n", "Using device: cpu\n", fallback),
                (log, "Using device: cuda\n", "Using device: cuda (or not)\n", fallback),
                (log, "cuda step 50: loss 3.0000 on cuda:0\n", "", on_cuda),
                (log, "cuda step 9: ", "cuda step 8: ", on_cuda),
                (log, "cuda step 50: loss 3.0000", "cuda step 50: loss 99.0", on_cuda),
                (log, "cuda step 50: loss 3.0000", "cuda step 50: loss 11.0", on_cuda),
                (log, "cuda step 50: loss 3.0000", "cuda step 50: loss nan", on_cuda),
                (log, step7, step7.replace("cuda:0", "cpu"), fallback),
                (log, step7, step7.replace("cuda:0", "cpu and cuda:0"), fallback),
                (log, step7, step7.replace("cuda:0", "cuda:0 and cpu"), fallback),
                (log, "cuda step 1: loss 5.4500", "cuda step 1: loss 5.4515", "same result as the CPU"),
                (log, "cuda step 1: loss 5.4500", "cuda step 1: loss nan", on_cuda, "same result as the CPU"),
                (log, "on the card: 80.1", "on the card: 16.4", fallback),
                (log, "cuda steps/s: 91.20\n", "", fallback),
                (log, "cpu steps/s: 8.40\n", "", fallback),
                (smi, "MiB of our process: 612", "MiB of our process: unknown", "memory allocated"),
                (smi, "steps 51 to 93", "nothing, no training ran", "memory allocated"),
                (smi, self.GOOD[smi], "", "memory allocated", "files saved")]:
            with self.subTest(old=old, new=new):
                self.assertEqual(self.GOOD[file].count(old), 1)
                text, advice = torch_evidence.judge(self.GOOD | {file: self.GOOD[file].replace(old, new)})
                self.assertEqual(open_boxes(text), opens)
                self.assertTrue(advice)

    def test_missing_files_are_named(self):
        text, advice = torch_evidence.judge(self.GOOD | {FILES[0]: "", FILES[3]: ""})
        self.assertIn("missing or empty: env_info.txt, nvidia_smi.txt", text)
        text, advice = torch_evidence.judge(self.EMPTY)
        self.assertEqual((len(open_boxes(text)), advice), (8, "not every box holds"))

    def test_the_class_of_a_failure(self):
        for problem, error_class in {
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution": "wheel",
                "RuntimeError: Found no NVIDIA driver on your system.": "driver",
                "torch.cuda.is_available() is False": "image",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "memory",
                "ImportError: libcudart.so.13: cannot open shared object file": "CUDA"}.items():
            text, advice = torch_evidence.judge(self.EMPTY | {FILES[1]: f"torch: 2.11.0\nproblem: {problem}\n",
                                                              FILES[2]: "Using device: none\nproblem: another\n"})
            self.assertIn(f"- message: `{problem}`\n- class: **{error_class}**\n", text)
            self.assertTrue(advice.startswith(f"{error_class}: "), advice)
        # The line that a library wrote above a problem that no row fits.
        text, _ = torch_evidence.judge(self.EMPTY | {
            FILES[2]: "CUDA error: device busy or unavailable\nproblem: ended with exit code 1\n"})
        self.assertIn("- class: **driver**", text)
        text, advice = torch_evidence.judge(self.EMPTY | {FILES[2]: "problem: ended with exit code 1\n"})
        self.assertIn("- class: unknown", text)
        self.assertEqual(advice, "ended with exit code 1")

    def test_each_row_is_found_by_its_message(self):
        """The rule of find_known_error() in C++, whose rows tests/report/test_known_errors.cpp holds to real messages."""
        for row in json.loads(torch_evidence.KNOWN_ERRORS.read_text()):
            self.assertEqual(torch_evidence.known_error(row["message"]), row)
        self.assertEqual(torch_evidence.known_error("OutOfMemoryError of another kind"), None)


class Parts(CliTest):
    """What a part of its own process leaves where it is ended."""

    def test_a_part_that_dies(self):
        script = self.folder / "torch_evidence.py"
        script.write_text("import os\nos.kill(os.getpid(), 11)\n")
        (self.folder / "training_log.txt").write_text("Using device: cuda\n")
        args = argparse.Namespace(folder=self.folder, gpu=0, seconds=9, mkbench=None, quiet=True)
        with mock.patch.object(torch_evidence, "__file__", str(script)):
            torch_evidence.run_part("train", args)
        self.assertEqual((self.folder / "training_log.txt").read_text(),
                         "Using device: cuda\nproblem: torch_evidence.py died by signal 11\n")


class Memory(unittest.TestCase):
    """Which memory counts as that of the process."""

    def test_memory_of(self):
        card = nvidia_smi.Card
        before = card(400, {5: 396})
        for seen, earlier, mib, how in [
            (card(1000, {5: 396, 77: 600}), before, 600, "row of process 77"),
            (card(1000, {77: 600}), None, 600, "row of process 77"),
            (card(1000, {5: 396, 4242: 600}), before, 600, "came with the training, 4242: nvidia-smi lists no process 77"),
            (card(1000, {5: 396}), before, 600, "400 MiB before and 1000 MiB during the training: nvidia-smi lists no"),
            (card(1000, {5: 396, 77: None}), before, 600, "whole card, 400 MiB before .* nvidia-smi names no memory of process 77"),
            (card(1000, {5: 396, 8: 300, 9: 304}), before, 600, "whole card"),
            (card(1000, {5: 396}), None, None, "nothing"),
            (card(400, {5: 396}), before, None, "nothing"),
            (card(None, {}), before, None, "nothing"),
            (None, before, None, "nothing: nvidia-smi does not show the card"),
        ]:
            with self.subTest(seen=seen, before=earlier):
                found = nvidia_smi.memory_of(seen, earlier, 77)
                self.assertEqual(found[0], mib)
                self.assertRegex(found[1], how)


@unittest.skipUnless(HAS_HF, "this Python has no HF transformers")
class RealSteps(unittest.TestCase):
    """The steps of the real training, on the CPU."""

    PROGRAM = ("import itertools, torch, torch_evidence, train_tiny; torch.set_num_threads(1); torch_evidence.STEPS = 8;"
               "steps = train_tiny.training(train_tiny.CONFIGS['tiny'], train_tiny.corpus(), 1, 'cpu');"
               "print('rate', torch_evidence.timed_steps(itertools.chain([next(steps)], steps), 'cuda'), next(steps)[0])")

    def test_losses_and_where_they_lay(self):
        done = subprocess.run([sys.executable, "-c", self.PROGRAM], cwd=ROOT / "scripts", env=environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150, check=True)
        steps = re.findall(r"(?m)^cuda step (\d+): loss ([\d.]+) on (\S+)$", done.stdout)
        self.assertEqual([int(s[0]) for s in steps], list(range(1, 9)), done.stdout)
        self.assertEqual({s[2] for s in steps}, {"cpu"}, "what is said of the place is read from the tensors")
        losses = [float(s[1]) for s in steps]
        self.assertAlmostEqual(losses[0], 5.56, delta=0.1)  # the logarithm of 259 ids
        self.assertLess(losses[-1], losses[0] - 0.1)
        self.assertRegex(done.stdout, r"rate [\d.]+ 9")


if __name__ == "__main__":
    unittest.main()
