#!/usr/bin/env python3
"""The measured parts of `mkbench evidence DIR`: what the machine is, what torch sees, and a training on the GPU.

usage: torch_evidence.py environment|check|train FOLDER [--gpu N] [--seconds N] [--mkbench PROGRAM]

  environment  FOLDER/env_info.txt          the machine, the versions, and `mkbench doctor` where PROGRAM is given
  check        FOLDER/torch_cuda_check.txt  torch's view of the card, and a product on it with a known sum
  train        FOLDER/training_log.txt      50 steps of the committed tiny model on the GPU, then the same on the CPU
               FOLDER/nvidia_smi.txt        taken while the training on the GPU goes on

Each part writes everything that it prints, errors too, into its file; what stands behind a colon is read by mkbench, which
writes the README.md of the folder. Nothing falls back: without a usable GPU nothing is trained, a line `problem: ...`
says why, and the exit code is 6.
"""

import argparse
import datetime
import faulthandler
import importlib.metadata
import itertools
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import nvidia_smi
import source_hash
from doctor_python import look_at_torch, one_line

FILES = {"environment": "env_info.txt", "check": "torch_cuda_check.txt", "train": "training_log.txt"}
STEPS, WARM_UP, SEED = 50, 5, 1  # the rate is that of the steps after the warm-up
# The CPU makes the same steps, and fewer of them where it is slow.
CPU_SECONDS, CPU_LEAST = 60, 10
PACKAGES = ("torch", "transformers", "safetensors", "numpy", "triton", "bitsandbytes", "nvidia-cuda-runtime",
            "nvidia-cuda-runtime-cu12", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
             "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "OMP_NUM_THREADS", "MKBENCH_DEVICE")
MIB = 2**20


def tell(key, value):
    print(f"{key}: {value}", flush=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def git_commit():
    """The commit of this tree, with a + where tracked files differ from it; of a copy without git, GITHUB_SHA's."""
    try:
        git = ["git", "-c", "safe.directory=*", "-C", str(source_hash.ROOT)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        return commit + ("+" if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode else "")
    except (OSError, subprocess.CalledProcessError):
        given = os.environ.get("GITHUB_SHA")
        return f"{given} (by GITHUB_SHA; no git here)" if given else "unknown (no git here)"


def cpu_name():
    """As the kernel calls it."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def show_environment(args):
    """Machine, versions and sources, then the whole of `mkbench doctor`."""
    tell("date", now())
    tell("commit", git_commit())
    for kind, value in source_hash.source_hashes().items():
        tell(f"source hash, {kind}", value)
    tell("system", platform.freedesktop_os_release().get("PRETTY_NAME", "unknown"))
    tell("kernel", platform.release())
    tell("CPU", f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores for this process")
    tell("Python", platform.python_version())
    for name in PACKAGES:
        try:
            tell(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            if name in PACKAGES[:3]:
                tell(name, "not installed")
    for name in VARIABLES:
        if name in os.environ:
            tell(name, os.environ[name])
    tell("cards by nvidia-smi", nvidia_smi.ask("--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader"))
    if args.mkbench:
        done = subprocess.run([args.mkbench, "doctor", "--gpu", str(args.gpu)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        # These files are shown to others: they name no folder of a Python, nor the one that doctor was called in.
        said = re.sub(r"/\S*/bin/(python)", r"\1", done.stdout).replace(f" in {os.getcwd()}\n", " in .\n")
        print(f"\n== mkbench doctor\n{said}exit code {done.returncode}", flush=True)
    return 0


def check_torch(args):
    """What torch sees, from its version to a product on the card."""
    tell("date", now())
    facts = look_at_torch(args.gpu, True)
    import torch

    import torch_device

    tell("torch", facts["version"])
    tell("built for CUDA", facts["cuda"] or "none: a wheel for the CPU")
    tell("code for", facts["architectures"] or "no card")
    tell("cuda available", torch.cuda.is_available())
    tell("cards", facts["devices"])
    if facts["available"]:
        free, total = torch.cuda.mem_get_info(args.gpu)
        tell("card", facts["name"])
        tell("capability", ".".join(map(str, facts["capability"])))
        tell("bf16", torch.cuda.is_bf16_supported())
        tell("memory", f"{free / MIB:,.0f} MiB free of {total / MIB:,.0f}")
        tell("product on the card", facts["matmul"].get("error") or "sum {got}, wanted {wanted}".format(**facts["matmul"]))
    problem = torch_device.card_problem(args.gpu)
    tell("product right", bool(facts["available"] and facts["matmul"].get("ok")))
    return fail(problem) if problem else 0


def fail(problem):
    tell("problem", problem)
    return 6


def describe(config, model, train_tiny):
    parameters = sum(p.numel() for p in model.parameters())
    tell("model", f"Qwen3, {config['num_hidden_layers']} layers, hidden size {config['hidden_size']}, "
                  f"{parameters:,} parameters, fp32")
    tell("a step", f"AdamW, {train_tiny.BATCH} rows of {train_tiny.WINDOW} bytes of a text, seed {SEED}")
    return parameters


def timed_steps(steps, where, limit_s=None):
    """Runs STEPS of a training, or fewer after limit_s: the rate in steps/s. Losses are read when all steps are done, so
    that nothing waits for the device in between."""
    losses, rows, begun, counted_from = [], [], time.monotonic(), 0.0
    for step, loss, model in steps:
        losses.append(loss)
        rows.append({str(loss.device)} | {str(p.device) for p in model.parameters()})
        if step == WARM_UP:
            loss.item()
            counted_from = time.monotonic()
        if step == STEPS or (limit_s and step >= CPU_LEAST and time.monotonic() - begun > limit_s):
            break
    losses[-1].item()
    rate = (len(losses) - WARM_UP) / (time.monotonic() - counted_from)
    for step, (loss, devices) in enumerate(zip(losses, rows), 1):
        print(f"{where} step {step}: loss {loss.item():.4f} on {' and '.join(sorted(devices))}", flush=True)
    return rate


def go_on_while_watched(steps, uuid, before, path):
    """Trains on until nvidia-smi has answered, and writes its answer with the steps that it fell between."""
    first = last = 0
    with ThreadPoolExecutor(1) as pool:
        begun, answer = now(), None
        for step, loss, _ in steps:
            loss.item()
            if answer is None:  # one of these steps is done, so the card is at work when it is asked
                first, answer = step, pool.submit(nvidia_smi.watch, uuid)
            elif answer.done():
                last = step
                break
        seen = answer.result()
    tell("trained on while nvidia-smi answered", f"steps {first} to {last}, loss {loss.item():.4f}")
    mib, how = nvidia_smi.memory_of(seen.card, before.get(uuid), os.getpid())
    answers = "".join(f"\n== {title}\n{text}\n" for title, text in seen.texts.items())
    path.write_text(f"taken during: steps {first} to {last} of the training, from {begun} on\nour process: {os.getpid()}\n"
                    f"MiB of our process: {mib or 'unknown'}\ncounted by: {how}\n{answers}", encoding="utf-8")


def train(args):
    """The training on the GPU, what nvidia-smi says meanwhile, and the same steps on the CPU."""
    before = nvidia_smi.cards()  # this process is not on the card yet
    import torch

    import torch_device
    import train_tiny

    problem = torch_device.card_problem(args.gpu)
    if problem:
        print("Using device: none (cuda was asked for; nothing falls back to the CPU, so nothing was trained)")
        (args.folder / "nvidia_smi.txt").write_text(f"taken during: nothing, no training ran\n\n{nvidia_smi.ask()}\n")
        return fail(problem)
    print("Using device: cuda", flush=True)
    torch.cuda.set_device(args.gpu)
    tell("date", now())
    tell("card", torch.cuda.get_device_name(args.gpu))
    config, text = train_tiny.CONFIGS["tiny"], train_tiny.corpus()
    steps = train_tiny.training(config, text, SEED, "cuda")
    first = next(steps)
    parameters = describe(config, first[2], train_tiny)
    gpu_rate = timed_steps(itertools.chain([first], steps), "cuda")
    uuid = f"GPU-{torch.cuda.get_device_properties(args.gpu).uuid}"
    go_on_while_watched(steps, uuid, before, args.folder / "nvidia_smi.txt")
    # Weights, gradients and AdamW's two moments, 4 bytes each.
    tell("MiB that the training needs at least", f"{parameters * 16 / MIB:.1f}")
    tell("MiB that torch allocated on the card", f"{torch.cuda.max_memory_allocated() / MIB:.1f}")
    print(f"\nThe same steps on the CPU, with {torch.get_num_threads()} threads:", flush=True)
    cpu_rate = timed_steps(train_tiny.training(config, text, SEED, "cpu"), "cpu", CPU_SECONDS)
    tell("cuda steps/s", f"{gpu_rate:.2f}")
    tell("cpu steps/s", f"{cpu_rate:.2f}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=FILES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300, help="the part ends after this time, with the place where it was")
    parser.add_argument("--mkbench", metavar="PROGRAM")
    args = parser.parse_args()
    out = os.open(args.folder / FILES[args.part], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(out, stream)  # what libraries and the loader write goes there too
    faulthandler.dump_traceback_later(args.seconds, exit=True)
    try:
        return {"environment": show_environment, "check": check_torch, "train": train}[args.part](args)
    except Exception as error:
        traceback.print_exc()
        return fail(one_line(error))


if __name__ == "__main__":
    sys.exit(main())
