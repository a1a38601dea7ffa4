#!/usr/bin/env python3
"""`mkbench evidence DIR`: what the machine is, what torch sees, a training on the GPU, and a README.md that judges them.

usage: torch_evidence.py all|environment|check|train FOLDER [--gpu N] [--seconds N] [--mkbench PROGRAM] [--quiet]

  environment  FOLDER/env_info.txt          the machine, the versions, and `mkbench doctor` where PROGRAM is given
  check        FOLDER/torch_cuda_check.txt  torch's view of the card, and a product on it with a known sum
  train        FOLDER/training_log.txt      50 steps of the committed tiny model on the GPU, then the same on the CPU
               FOLDER/nvidia_smi.txt        taken while the training on the GPU goes on
  all          the three, each in a process of its own, and FOLDER/README.md: boxes computed from the files alone

Each part writes everything that it prints, errors too, into its file. Nothing falls back: without a usable GPU nothing is
trained, a line `problem: ...` says why, and the exit code is 6.
"""

import argparse
import datetime
import faulthandler
import hashlib
import importlib.metadata
import itertools
import json
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
SMI_FILE = "nvidia_smi.txt"
TOLD = {"environment": "what this machine has", "check": "what torch sees of the card",
        "train": "50 steps on the card, then on the CPU"}
KNOWN_ERRORS = source_hash.ROOT / "harness" / "report" / "known_errors.json"
UNFIT = 6  # the exit code ENV_UNFIT (harness/report/verdict.h)
STEPS, WARM_UP, SEED = 50, 5, 1  # the rate counts the steps after the warm-up
# The CPU runs the same steps, and fewer of them if it is slow.
CPU_SECONDS, CPU_LEAST = 60, 10
PACKAGES = ("torch", "transformers", "safetensors", "numpy", "triton", "bitsandbytes", "nvidia-cuda-runtime",
            "nvidia-cuda-runtime-cu12", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
             "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "OMP_NUM_THREADS", "MKBENCH_DEVICE")
MIB = 2**20

ENDS = 5  # steps at either end whose mean losses are compared
FALLEN = 0.8  # the loss must fall by a fifth at least; in fp32 it falls by half
# Upper bound for the difference between the card's and the CPU's loss of the first step, both in fp32 from the same
# weights and ids, so that only the order of sums differs.
SAME_LOSS = 0.001


def tell(key, value):
    print(f"{key}: {value}", flush=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def git_commit():
    """The commit of this tree, with a + if tracked files differ from it; GITHUB_SHA for a copy without git."""
    try:
        git = ["git", "-c", "safe.directory=*", "-C", str(source_hash.ROOT)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        return commit + ("+" if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode else "")
    except (OSError, subprocess.CalledProcessError):
        given = os.environ.get("GITHUB_SHA")
        return f"{given} (by GITHUB_SHA; no git here)" if given else "unknown (no git here)"


def cpu_name():
    """The CPU's name in /proc/cpuinfo."""
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
        # These files are shown to others, so Python's folder and the current one are removed from them.
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
    return UNFIT


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
    """Trains on until nvidia-smi has answered, and writes its answer with the steps before and after it."""
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
        (args.folder / SMI_FILE).write_text(f"taken during: nothing, no training ran\n\n{nvidia_smi.ask()}\n")
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
    go_on_while_watched(steps, uuid, before, args.folder / SMI_FILE)
    # Weights, gradients and AdamW's two moments, 4 bytes each.
    tell("MiB that the training needs at least", f"{parameters * 16 / MIB:.1f}")
    tell("MiB that torch allocated on the card", f"{torch.cuda.max_memory_allocated() / MIB:.1f}")
    print(f"\nThe same steps on the CPU, with {torch.get_num_threads()} threads:", flush=True)
    cpu_rate = timed_steps(train_tiny.training(config, text, SEED, "cpu"), "cpu", CPU_SECONDS)
    tell("cuda steps/s", f"{gpu_rate:.2f}")
    tell("cpu steps/s", f"{cpu_rate:.2f}")
    return 0


def value_of(text, key):
    """The text after `key: ` in the first line that begins with it; empty if no line does."""
    found = re.search(rf"^{re.escape(key)}: (.*)", text, re.MULTILINE)
    return found[1] if found else ""


def number_of(text, key):
    """The number that a value begins with; 0 where it begins with none."""
    found = re.match(r"[\d.]+", value_of(text, key))
    return float(found[0]) if found else 0.0


def steps_of(log, where):
    """Losses and places of the lines `cuda step 7: loss 4.8123 on cuda:0`, in order; a step out of order ends the list."""
    steps = []
    for index, loss, place in re.findall(rf"^{where} step (\d+): loss (\S+) on (.*)", log, re.MULTILINE):
        if int(index) != len(steps) + 1:
            break
        steps.append((float(loss), place))
    return steps


def training_box(cuda):
    if len(cuda) < STEPS:
        return False, f"{len(cuda)} of {STEPS} steps in the log"
    before, after = (sum(loss for loss, _ in end) / ENDS for end in (cuda[:ENDS], cuda[-ENDS:]))
    return after <= FALLEN * before, (f"{len(cuda)} steps; the mean loss of {ENDS} steps went from {before:.3f} to "
                                      f"{after:.3f}")


def same_result_box(cuda, cpu):
    if not cuda or not cpu:
        return False, "the log lacks the steps of the card or of the CPU"
    last = min(len(cuda), len(cpu)) - 1
    return abs(cuda[0][0] - cpu[0][0]) <= SAME_LOSS, (
        f"loss of step 1: {cuda[0][0]:.4f} on the card, {cpu[0][0]:.4f} on the CPU; of step {last + 1}: "
        f"{cuda[last][0]:.4f} and {cpu[last][0]:.4f}")


def memory_box(log, smi):
    during = value_of(smi, "taken during")
    if not during.startswith("steps "):
        return False, "no training was watched"
    return number_of(smi, "MiB of our process") > 0, (
        f"{value_of(smi, 'MiB of our process')} MiB by {value_of(smi, 'counted by')}; taken during {during}; torch itself "
        f"counts {value_of(log, 'MiB that torch allocated on the card')} MiB")


def fallback_box(log, cuda):
    first = log.partition("\n")[0]
    if not cuda:
        return False, first
    needed, taken, gpu_rate, cpu_rate = (number_of(log, key) for key in (
        "MiB that the training needs at least", "MiB that torch allocated on the card", "cuda steps/s", "cpu steps/s"))
    all_on_card = all(re.fullmatch(r"cuda:\S+", place) for _, place in cuda)
    holds = first == "Using device: cuda" and all_on_card and 0 < needed <= taken and gpu_rate > 0 and cpu_rate > 0
    return holds, (f'the log begins with "{first}"; losses and parameters of {len(cuda)} steps on the card: '
                   f"{'all' if all_on_card else 'NOT all'}; {taken:.1f} MiB allocated there of {needed:.1f} that the training "
                   f"needs at least; {gpu_rate:.2f} steps/s on the card, {cpu_rate:.2f} on the CPU")


def boxes_of(texts):
    """The definition of done: the name of each box, and whether it holds with what the files say. `texts`: file -> text."""
    check, log, smi = texts[FILES["check"]], texts[FILES["train"]], texts[SMI_FILE]
    cuda, cpu = steps_of(log, "cuda"), steps_of(log, "cpu")
    told = {key: value_of(check, key) or "none"
            for key in ("torch", "built for CUDA", "cards", "card", "capability", "product on the card")}
    missing = [name for name, text in texts.items() if not text]
    return {
        "cuda available": (value_of(check, "cuda available") == "True",
                           "torch {torch}, built for CUDA {built for CUDA}, sees {cards} card(s)".format(**told)),
        "the card by name": (told["card"] != "none", told["card"]),
        "capability": (told["capability"] != "none" and value_of(check, "product right") == "True",
                       f"{told['capability']}; a product on the card: {told['product on the card']}"),
        "training on cuda": training_box(cuda),
        "same result as the CPU": same_result_box(cuda, cpu),
        "memory allocated": memory_box(log, smi),
        "files saved": (not missing, f"missing or empty: {', '.join(missing)}" if missing else ", ".join(texts)),
        "no fallback": fallback_box(log, cuda),
    }


def known_error(*texts):
    """The first known error of the table in the first text that has one, by the rule of find_known_error()."""
    rows = json.loads(KNOWN_ERRORS.read_text(encoding="utf-8"))
    return next((row for text in texts for row in rows for part in row["parts"]
                 if re.search(rf"(?<![a-z0-9]){re.escape(part)}", text, re.IGNORECASE)), None)


def failure_of(texts):
    """The section about what failed, and what to do in one line."""
    check, log = texts[FILES["check"]], texts[FILES["train"]]
    problem = next(filter(None, (value_of(text, "problem") for text in (
        check, log, texts[SMI_FILE], texts[FILES["environment"]]))), "")
    section = "\n## What failed\n\n"
    if not problem:
        return section + "The open boxes say what is missing; no error was told.\n", "not every box holds"
    section += f"- message: `{problem}`\n"
    # The problem's line may be less exact than what libraries wrote above it.
    known = known_error(problem, log, check)
    if known is None:
        return section + "- class: unknown; `mkbench doctor` may say more\n", problem
    return section + "- class: **{error_class}**\n- cause: {cause}\n- command: `{command}`\n".format(**known), (
        "{error_class}: {cause}; try: {command}".format(**known))


def judge(texts):
    """The sections of README.md about the boxes and what failed, and what to do in one line; empty where all boxes hold."""
    boxes = boxes_of(texts)
    section = "## Definition of done\n\n" + "".join(
        f"- [{'x' if holds else ' '}] **{name}**: {found}\n" for name, (holds, found) in boxes.items())
    held = sum(holds for holds, _ in boxes.values())
    section += f"\n{held} of {len(boxes)} boxes hold.\n"
    failure, advice = ("", "") if held == len(boxes) else failure_of(texts)
    return section + failure, advice


def run_part(part, args):
    """Runs a part in its own process. If it fails without a line `problem: ...`, its file gets one about its end."""
    if not args.quiet:
        print(f"mkbench: evidence: {TOLD[part]}", file=sys.stderr, flush=True)
    command = [sys.executable, __file__, part, str(args.folder), "--gpu", str(args.gpu), "--seconds", str(args.seconds)]
    code = subprocess.run(command + (["--mkbench", args.mkbench] if args.mkbench else []), check=False).returncode
    path = args.folder / FILES[part]
    if code and not re.search(r"^problem: ", read_text(path), re.MULTILINE):
        ended = f"died by signal {-code}" if code < 0 else f"ended with exit code {code}"
        with path.open("a", encoding="utf-8") as file:
            file.write(f"problem: torch_evidence.py {ended}\n")


def read_text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def make_all(args):
    for part in FILES:
        run_part(part, args)
    texts = {name: read_text(args.folder / name) for name in (*FILES.values(), SMI_FILE)}
    boxes, advice = judge(texts)
    version = subprocess.run([args.mkbench, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    rows = "".join(f"| {path.name} | {path.stat().st_size} | {hashlib.sha256(path.read_bytes()).hexdigest()} |\n"
                   for path in (args.folder / name for name in texts) if path.exists())
    (args.folder / "README.md").write_text(
        f"# Evidence: training on the GPU\n\n`mkbench evidence` has computed these boxes from the files beside them, {now()}, "
        f"{version}.\n\n{boxes}\n## Files\n\n| file | bytes | sha256 |\n|---|--:|---|\n{rows}", encoding="utf-8")
    print(f"{boxes}\nevidence: {args.folder}", flush=True)
    if advice:
        print(f"mkbench: error: no evidence of training on the GPU: {advice}", file=sys.stderr)
        return UNFIT
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("all", *FILES))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300, help="the part ends after this time, with the place where it was")
    parser.add_argument("--mkbench", metavar="PROGRAM")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    if args.part == "all":
        return make_all(args)
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
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
