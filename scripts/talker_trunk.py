#!/usr/bin/env python3
"""Judges engines on the trunk of Qwen3-TTS's talker, by hidden vector and by id, against HF transformers.

usage: talker_trunk.py --probe build/release/tests/trunk_probe [--layers N] [--weights random|SET] [--engine NAME]...
                       [--cuda]

The weights have the shape of the shape table's talker, random or analytic (a lag set: none, short), as a cut of N
layers [4]; --layers 0 takes all 28. They are written as a folder of Qwen3-TTS, which the probe loads. transformers has
no Qwen3-TTS; its Qwen3VLTextModel has the same modules with the same interleaved mRoPE, and runs here on the CPU with
the talker's config, inputs_embeds and three equal rows of positions. The truth is that model in fp32. The unit of an
engine's error is the error of the same model in bf16, its head in fp32. --engine takes a name of the probe (oracle,
truth, eager, host-twin; plain with --cuda) or a library's path. Prints a line for each engine and kind of input; exit
status 1 where one fails, 77 where --cuda finds no GPU.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from safetensors.torch import save_file
from transformers.models.qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

import checkpoint_format
import hf_model
import shape_table
import synthetic_checkpoint as synthetic

SHAPE = shape_table.ROWS["qwen3-tts-talker"]
SECTIONS = [24, 20, 20]
NAMES = {"model.embed_tokens.weight": "talker.model.codec_embedding.weight", "lm_head.weight": "talker.codec_head.weight"}
# Limits for the relative errors of logits and hidden vectors. FP32_LIMIT bounds the error of an engine in fp32 (2e-6
# was measured). The others bound an engine's error divided by the error of HF in bf16. On a CPU, with 4 and with 28
# layers, this ratio was 0.98 to 1.14 for eager and 0.03 to 0.19 for host-twin. ACCUMULATE_LIMIT is the limit that
# parity has for engines that accumulate in fp32.
FP32_ENGINES, FP32_LIMIT = ("oracle", "truth"), 1e-4
EAGER_LIMIT, ACCUMULATE_LIMIT = 1.5, 0.35
ON_CPU, ON_CUDA = ("oracle", "truth", "eager", "host-twin"), ("eager", "plain")
NO_GPU = 77


def random_state(shape, seed=1):
    """Tensors by their names in Qwen3; every part of a layer moves the residual stream by a similar amount."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"q_proj": (shape.heads * shape.head_dim, shape.hidden), "k_proj": (shape.kv_heads * shape.head_dim, shape.hidden),
             "v_proj": (shape.kv_heads * shape.head_dim, shape.hidden), "o_proj": (shape.hidden, shape.heads * shape.head_dim),
             "gate_proj": (shape.intermediate, shape.hidden), "up_proj": (shape.intermediate, shape.hidden),
             "down_proj": (shape.hidden, shape.intermediate), "q_norm": (shape.head_dim,), "k_norm": (shape.head_dim,),
             "embed_tokens": (shape.vocab, shape.hidden), "lm_head": (shape.vocab, shape.hidden)}
    state = {}
    for name in checkpoint_format.tensor_names(shape.layers, shape.tied):
        part = name.split(".")[-2]
        size = sizes.get(part, (shape.hidden,))
        values = torch.randn(size, generator=generator)
        if len(size) == 1:
            values = 1 + 0.1 * values
        elif part != "embed_tokens":
            values /= size[1] ** 0.5
        state[name] = values.to(torch.bfloat16)
    return state


def write_folder(folder, shape, state, names=None, theta=None):
    """A folder of Qwen3-TTS with these tensors. `names` and `theta` replace NAMES and the shape's theta in tests that
    plant wrong ones."""
    names = names or NAMES
    tensors = {names.get(name, f"talker.{name}"): tensor.contiguous() for name, tensor in state.items()}
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    inner = {key: value for key, value in shape.config().items()
             if key not in ("architectures", "model_type", "rope_parameters", "tie_word_embeddings")}
    inner |= {"rope_theta": theta or shape.theta,
              "rope_scaling": {"rope_type": "default", "interleaved": True, "mrope_section": SECTIONS}}
    (folder / "config.json").write_text(json.dumps({
        "model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"], "talker_config": inner}))
    return folder


def build(shape, state, dtype):
    """transformers' trunk with interleaved mRoPE."""
    config = Qwen3VLTextConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, hidden_act="silu", max_position_embeddings=shape.max_positions, rms_norm_eps=1e-6,
        attention_bias=False, rope_parameters={"rope_type": "default", "rope_theta": shape.theta, "mrope_section": SECTIONS})
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = Qwen3VLTextModel(config)
    own = {name.removeprefix("model."): tensor.to(dtype) for name, tensor in state.items() if name != "lm_head.weight"}
    model.load_state_dict(own, strict=True, assign=True)
    # The table was made on the meta device with the rest.
    model.rotary_emb = type(model.rotary_emb)(config)
    if not torch.equal(model.rotary_emb.inv_freq, hf_model.exact_inv_freq(shape.config())):
        raise ValueError("rotary inv_freq: not the fp32 table of this theta and head_dim")
    return model.requires_grad_(False).eval()


@dataclasses.dataclass
class Run:
    """What n steps give: logits (n, vocab), and hidden vectors (n, hidden) after the final norm."""

    logits: torch.Tensor
    hidden: torch.Tensor


@torch.inference_mode()
def run_hf(shape, state, vectors, dtype, rows=None):
    """Runs transformers on all vectors in one pass. `rows`: positions (3, n) instead of three equal rows."""
    model = build(shape, state, dtype)
    n = vectors.shape[0]
    positions = torch.arange(n).expand(3, n) if rows is None else rows
    hidden = model(inputs_embeds=vectors[None].to(dtype), position_ids=positions[:, None]).last_hidden_state[0]
    head = state["lm_head.weight"].float()
    return Run(hidden.float() @ head.T, hidden.float())


class Refused(Exception):
    """The probe's engine refused or failed; the message is its own."""


def run_engine(probe, engine, folder, inputs, shape, cuda=False, rows=None):
    """Runs a probe's engine. `inputs`: vectors (n, hidden) or ids (n); `rows`: positions (3, n). Raises Refused."""
    by_vector = inputs.dim() == 2
    with tempfile.TemporaryDirectory() as scratch:
        source, answer, positions = (pathlib.Path(scratch) / name for name in ("in", "out", "positions"))
        bits = inputs.to(torch.bfloat16).view(torch.uint16) if by_vector else inputs.to(torch.int32)
        source.write_bytes(bits.numpy().tobytes())
        more = ["--cuda"] if cuda else []
        if rows is not None:
            positions.write_bytes(rows.to(torch.int32).contiguous().numpy().tobytes())
            more += ["--positions", positions]
        done = subprocess.run([probe, engine, folder, source, answer, "vectors" if by_vector else "ids", *more],
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"exit {done.returncode}: {done.stderr.strip()}")
        values = torch.from_numpy(numpy.fromfile(answer, numpy.float32))
    n = inputs.shape[0]
    logits, hidden = values.split([n * shape.vocab, n * shape.hidden])
    return Run(logits.view(n, shape.vocab), hidden.view(n, shape.hidden))


def centred(logits):
    return logits - logits.mean(dim=1, keepdim=True)


def errors(run, truth):
    """Relative errors of logits, each less its mean, and of hidden vectors."""
    def relative(a, b):
        return float(torch.linalg.vector_norm((a - b).double()) / torch.linalg.vector_norm(b.double()))
    return {"logits": relative(centred(run.logits), centred(truth.logits)), "hidden": relative(run.hidden, truth.hidden)}


def failures(engine, run, truth, baseline):
    """What is wrong with an engine's run; empty where it passes."""
    found, own, usual = [], errors(run, truth), errors(baseline, truth)
    for name, error in own.items():
        factor = EAGER_LIMIT if engine == "eager" else ACCUMULATE_LIMIT
        limit = FP32_LIMIT if engine in FP32_ENGINES else factor * usual[name]
        if not error <= limit:
            found.append(f"{name}: error {error:.3g}, wanted at most {limit:.3g}")
    top = truth.logits.topk(2, dim=1)
    margins = top.values[:, 0] - top.values[:, 1]
    # Decided steps: the margin is over twice HF's bf16 error in a difference of two top logits.
    decided = margins > 2 * hf_model.pairwise_error(truth.logits, baseline.logits).max()
    wrong = (run.logits.argmax(dim=1) != top.indices[:, 0]) & decided
    if wrong.any():
        found.append(f"ids: {int(wrong.sum())} of {int(decided.sum())} decided steps differ")
    return found


@dataclasses.dataclass
class Case:
    """Weights, the vectors that go in, and HF's answers."""

    shape: shape_table.Shape
    state: dict
    vectors: torch.Tensor
    truth: Run
    baseline: Run
    ids: torch.Tensor = None  # `vectors` are the embedding's rows of these ids; None for other vectors
    continued: list = dataclasses.field(default_factory=list)  # the closed form's ids after the last steps

    def entries(self):
        return {"vector": self.vectors} | ({} if self.ids is None else {"id": self.ids})

    def failures(self, engine, run):
        found = failures(engine, run, self.truth, self.baseline)
        if self.continued and run.logits.argmax(dim=1)[-len(self.continued):].tolist() != self.continued:
            found.append("ids: not those of the closed form")
        return found


def make_case(layers, weights, steps):
    """`layers`: 0 for all; `weights`: "random" or a lag set of the analytic checkpoint."""
    shape = dataclasses.replace(SHAPE, layers=layers or SHAPE.layers)
    ids, continued = None, []
    if weights == "random":
        state = random_state(shape)
        embedding = state["model.embed_tokens.weight"].float()
        order = torch.randint(shape.vocab, (2, steps), generator=torch.Generator().manual_seed(7))
        # Sums of two rows, as the talker adds rows of codes and text: not rows of the embedding.
        vectors = (embedding[order[0]] + 0.5 * embedding[order[1]]).to(torch.bfloat16).float()
    else:
        state = synthetic.build(weights, shape)
        prompt = synthetic.prompt(steps // 2, 1, shape.vocab)
        continued = list(synthetic.continuation(prompt, weights, steps - len(prompt) + 1, shape.vocab))
        ids = torch.tensor([*prompt, *continued[:-1]])
        vectors = state["model.embed_tokens.weight"].float()[ids]
    return Case(shape, state, vectors, run_hf(shape, state, vectors, torch.float32),
                run_hf(shape, state, vectors, torch.bfloat16), ids, continued)


def judge(case, probe, engine, folder, cuda):
    """Prints a line for each kind of input, vector or id; returns whether all of them pass."""
    passes = True
    for entry, inputs in case.entries().items():
        begin = time.monotonic()
        try:
            run = run_engine(probe, engine, folder, inputs, case.shape, cuda)
            own, found = errors(run, case.truth), case.failures(engine, run)
            figures = f"logits {own['logits']:.3g}, hidden {own['hidden']:.3g}, {time.monotonic() - begin:.0f} s"
        except Refused as refused:
            figures, found = "no answer", [str(refused)]
        print(f"  {engine} by {entry}: {figures}: {'; '.join(found) or 'passes'}", flush=True)
        passes = passes and not found
    return passes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", required=True, metavar="PROGRAM")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--weights", action="append", metavar="random|SET", help="[random and none]")
    parser.add_argument("--steps", type=int, default=24, metavar="N")
    parser.add_argument("--engine", action="append")
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    if args.cuda and not torch.cuda.is_available():
        print("no GPU")
        sys.exit(NO_GPU)
    passes = True
    for weights in args.weights or ["random", "none"]:
        case = make_case(args.layers, weights, args.steps)
        usual = errors(case.baseline, case.truth)
        print(f"{case.shape.layers} layers, {weights}, {args.steps} steps: HF bf16 against HF fp32: "
              f"logits {usual['logits']:.3g}, hidden {usual['hidden']:.3g}", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            folder = write_folder(pathlib.Path(scratch) / "tts", case.shape, case.state)
            for engine in args.engine or (ON_CUDA if args.cuda else ON_CPU):
                passes = judge(case, args.probe, engine, folder, args.cuda) and passes
    sys.exit(not passes)


if __name__ == "__main__":
    main()
