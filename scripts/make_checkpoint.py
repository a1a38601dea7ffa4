#!/usr/bin/env python3
"""Trains a Qwen3-0.6B from scratch until it has memorised a text, and captures the HF reference of it.

usage: make_checkpoint.py FOLDER [--tiny] [--device auto|cuda|cpu] [--seed N] [--max-steps N] [--run COMMAND ...]

FOLDER (new or empty) gets config.json, model.safetensors (bf16) and reference/, for --reference. The text is
random tokens, so only the weights can give it. A strict prompt is the beginning of one of its sequences; every
step after it is decided by a wide margin, so every legitimate decoder must give all of these tokens. --tiny
trains the shape of the committed tiny checkpoints, in seconds on a CPU. The first line says on which device: auto
takes the GPU where one can be used, and cuda never falls back (exit code 6).

--run takes the rest of the line, appends --model, --reference and --require-reference, runs it and ends with its
exit code: make_checkpoint.py FOLDER --run build/release/harness/mkbench parity --engine ring,plain
"""

import argparse
import contextlib
import dataclasses
import pathlib
import shlex
import subprocess
import sys
import time

import torch

import capture_reference
import hf_model as hf
import synthetic_checkpoint
import train_tiny


@dataclasses.dataclass(frozen=True)
class Lane:
    """Shape of the model, amount of text, strict prompts and settings of the training."""

    config: dict
    rows: int  # sequences
    length: int  # tokens of a sequence
    alphabet: int  # ids below this one occur in the text
    prompt: int  # ids of a strict prompt
    steps: int  # tokens generated after a strict prompt
    rate: float  # learning rate of AdamW after the warm-up
    warm_up: int
    check_every: int  # training steps between two tests of the stopping rule
    loss: float  # the stopping rule is not tested above this loss

    @property
    def decided(self):
        """Strict steps of all sequences together."""
        return self.rows * self.steps


def reaching(config, positions):
    """A config with no more positions than training used, so that a sweep of cache lengths ends there."""
    return config | {"max_position_embeddings": positions}


FULL = Lane(reaching(synthetic_checkpoint.CONFIG, 256), 16, 192, 151643, 64, 96, 2e-4, 10, 20, 2e-3)
TINY = Lane(reaching(train_tiny.CONFIGS["tiny"], 128), 8, 64, 256, 16, 40, 4e-3, 10, 10, 0.1)
# A reference is refused with D above largest_d() or a strict margin below 2 tau; training goes on until both limits
# are kept with room to spare.
ENOUGH_D, ENOUGH_MARGIN = 0.9 * capture_reference.largest_d(0), 3.0


def text_of(lane, seed):
    """The text, [rows, length]: random ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(lane.alphabet, (lane.rows, lane.length), generator=generator)


@torch.no_grad()
def judge(lane, state, text, device):
    """(D, smallest margin / tau, steps whose id is not the text's) of the bf16 cast over the strict steps. Whole rows
    are computed at once here; the capture then goes step by step."""
    cast = {name: t.detach().to(torch.bfloat16) for name, t in state.items()}
    truth = hf.build(lane.config, cast, torch.float32, device)
    base = hf.build(lane.config, cast, torch.bfloat16, device)
    head = base.lm_head.weight.float()
    first, d, off_text, margins = lane.prompt - 1, 0.0, 0, []
    for row in text.to(device):
        ids, wanted = row[None, : first + lane.steps], row[lane.prompt : lane.prompt + lane.steps]
        logits = truth(input_ids=ids, use_cache=False).logits[0, first:]
        exact = base.model(input_ids=ids, use_cache=False).last_hidden_state[0, first:].float() @ head.T
        d = max(d, float(hf.pairwise_error(logits, exact).max()))
        off_text += int((logits.argmax(-1) != wanted).sum())
        top = logits.topk(2, -1).values
        margins += zip((top[:, 0] - top[:, 1]).tolist(), logits.abs().amax(-1).tolist())
    return d, min(m / (d + hf.bf16_step(z)) for m, z in margins), off_text


def train(lane, text, seed, max_steps, device, report):
    """The bf16 tensors (on the CPU) of a model that gives the text, and the figures of its last test."""
    generator = torch.Generator(device).manual_seed(seed)
    state = train_tiny.initial_state(lane.config, generator)
    model = hf.build(lane.config, state, torch.float32, device, attention="sdpa").requires_grad_(True).train()
    cuda = device == "cuda"
    optimiser = torch.optim.AdamW(model.parameters(), lr=lane.rate, weight_decay=0.0, fused=cuda)
    cast = torch.autocast("cuda", torch.bfloat16) if cuda else contextlib.nullcontext()
    ids = text.to(device)
    for step in range(1, max_steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = lane.rate * min(1.0, step / lane.warm_up)
        with cast:
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % lane.check_every == 0 and loss.item() > lane.loss:
            report(f"step {step}: loss {loss.item():.5f}")
        elif step % lane.check_every == 0:
            d, ratio, off_text = judge(lane, dict(model.named_parameters()), text, device)
            report(f"step {step}: loss {loss.item():.5f}, D {d:.3f}, margin/tau {ratio:.2f}, {off_text} wrong steps")
            if d <= ENOUGH_D and ratio >= ENOUGH_MARGIN and off_text == 0:
                tensors = {k: v.detach().to(torch.bfloat16).cpu().contiguous() for k, v in model.named_parameters()}
                return tensors, {"steps": step, "loss": loss.item(), "D": d, "smallest_margin_over_tau": ratio}
    raise SystemExit(f"the text is not memorised after {max_steps} steps; --max-steps allows more")


def strict_prompts(lane, text):
    """The beginning of every row."""
    rows = text[:, : lane.prompt].tolist()
    return [{"name": f"row-{i}", "set": "strict", "ids": ids, "steps": lane.steps, "text": ""} for i, ids in enumerate(rows)]


def capture(lane, folder, text, device):
    """Writes the reference and returns its summary. Raises SystemExit unless the reference's ids are the text."""
    prompts = strict_prompts(lane, text)
    entry, done, summary = capture_reference.capture(str(folder), prompts, device, batch=lane.rows)
    found = [[step["token"] for step in p["steps"]] for p in done]
    if found != text[:, lane.prompt : lane.prompt + lane.steps].tolist():
        raise SystemExit("HF in fp32, decoding step by step, does not give the text")
    made = capture_reference.provenance(device, None, batch=lane.rows)
    made["sketch"] = {"seed": capture_reference.SKETCH_SEED, "projections": capture_reference.PROJECTIONS}
    # mkbench looks for <folder of references>/<name of the model in lower case>.
    path = folder / "reference" / folder.resolve().name.lower() / "reference.json"
    document = {"schema": capture_reference.SCHEMA, "token_only": False, "model": entry, "capture": made}
    path.parent.mkdir(parents=True)
    (path.parent / "manifest.json").write_text('{"files": {}}\n')
    capture_reference.write(path, {**document, "summary": summary, "prompts": done})
    return summary


def command_of(folder, start):
    """The user's command with the arguments that name the new checkpoint and its reference."""
    # A plain name could be the name of a model; with a slash it is a folder. A relative folder stays relative, so
    # that a report names no folder of this machine.
    name = str(folder) if folder.is_absolute() else f"./{folder}"
    return [*start, "--model", name, "--reference", f"{name}/reference", "--require-reference"]


def device_of(asked):
    """"cuda" or "cpu", which it prints as the first line; auto takes the CPU where torch sees no GPU. Ends the script with 6,
    the exit code ENV_UNFIT of mkbench, if the device cannot be used."""
    device = "cuda" if asked == "cuda" or asked == "auto" and torch.cuda.is_available() else "cpu"
    try:
        hf.use_device(device)
    except (hf.BadInput, RuntimeError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(6) from None
    why = " (--device auto: torch sees no GPU)" if (asked, device) == ("auto", "cpu") else ""
    print(f"Using device: {device}{why}", flush=True)
    return device


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--run", nargs=argparse.REMAINDER, metavar="COMMAND")
    args = parser.parse_args()
    folder, lane = args.folder, TINY if args.tiny else FULL
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder}: is there already and not empty")
    if args.tiny:
        torch.set_num_threads(1)  # waking a second thread takes longer than an operation of this model
    device = device_of(args.device)
    begun = time.monotonic()
    report = lambda line: print(f"{time.monotonic() - begun:6.1f} s  {line}", flush=True)
    text = text_of(lane, args.seed)
    tensors, measured = train(lane, text, args.seed, args.max_steps, device, report)
    training = measured | {"seed": args.seed, "torch": torch.__version__, "device": device}
    training["seconds"] = round(time.monotonic() - begun, 1)
    train_tiny.write_checkpoint(folder, lane.config, tensors, "scripts/make_checkpoint.py", training=training)
    report("weights written")
    summary = capture(lane, folder, text, device)
    report(f"reference written: {lane.decided} decided steps, D {summary['D']:.3f}, "
           f"smallest margin {summary['smallest_strict_margin']:.2f}")
    print("judge engines by it:", shlex.join(command_of(folder, ["mkbench", "parity"])), flush=True)
    if device == "cuda":
        torch.cuda.empty_cache()  # the command needs the memory
    if args.run:
        raise SystemExit(subprocess.run(command_of(folder, args.run), check=False).returncode)


if __name__ == "__main__":
    main()
