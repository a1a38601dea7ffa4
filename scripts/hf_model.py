"""A decoder in HF transformers, built from plain tensors and decoded step by step, for the other scripts.

The decoder runs exactly what every engine of mkbench runs: prefill of all ids but the last in chunks
of at most 512 rows, then steps of one row over the same cache, greedy, lowest index among equals.
"""

import copy
import hashlib
import math
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DynamicCache
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils import logging as hf_logging

from checkpoint_format import families, read_json, tensor_names
from hub_cache import BadInput

hf_logging.set_verbosity_error()

PREFILL_CHUNK = 512
NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
          "max_position_embeddings", "rms_norm_eps", "hidden_act")


def tensor_bytes(tensor):
    """The raw little-endian bf16 bytes of a tensor."""
    assert tensor.dtype == torch.bfloat16, tensor.dtype
    return tensor.contiguous().view(torch.uint16).numpy()


def is_tied(config):
    """Whether the LM head is the embedding; a config that may omit it is untied without it."""
    return bool(config.get("tie_word_embeddings", False))


def names_of(config, tied=None):
    """tensor_names() of a model."""
    return tensor_names(config["num_hidden_layers"], is_tied(config) if tied is None else tied, config["model_type"])


def weights_sha256(state, config):
    """The hash that identifies a model: sha256 over all tensors' bytes in tensor_names() order."""
    digest = hashlib.sha256()
    for name in names_of(config):
        digest.update(tensor_bytes(state[name]))
    return digest.hexdigest()


def shards_of(folder):
    """(index or None, safetensors files) of model.safetensors, or of the shards that its index names. Raises BadInput."""
    single, index_path = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return None, [single]
    if not index_path.is_file():
        raise BadInput(f"{folder}: holds neither {single.name} nor {index_path.name}")
    index = read_json(index_path)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(s, str) for s in weight_map.values()):
        raise BadInput(f"{index_path}: weight_map is not an object of file names")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        # A shard must lie beside the index; a path in its name could read any file of the machine.
        if "/" in shard or shard in ("", ".", ".."):
            raise BadInput(f"{index_path}: weight_map names shard '{shard}', wanted a plain file name")
    return index_path, [folder / shard for shard in shards]


def read_shards(folder):
    """(files read, tensors) of a folder's weights. Raises BadInput."""
    index, shards = shards_of(folder)
    state = {}
    for shard in shards:
        tensors = load_tensors(shard)
        if twice := sorted(set(tensors) & set(state)):
            raise BadInput(f"{shard}: another shard has {twice[:4]} too")
        state |= tensors
    return ([index] if index else []) + shards, state


def load_tensors(path):
    """The tensors of one safetensors file. Raises BadInput."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path}: {error}") from None


def check_config(config, path):
    """Raises BadInput for another kind of model, and for a missing key: class defaults describe another model."""
    if not isinstance(config, dict):
        raise BadInput(f"{path}: wanted an object")
    family = families().get(config.get("model_type"))
    if family is None:
        raise BadInput(f"{path}: model_type is {config.get('model_type')!r}, supported: {', '.join(sorted(families()))}")
    if config.get("quantization_config"):
        raise BadInput(f"{path}: quantization_config is present: quantised checkpoints are unsupported")
    needed = [*NEEDED, *(() if family.may_omit_tie else ("tie_word_embeddings",)),
              *(() if family.may_omit_head_dim else ("head_dim",)),
              *(() if family.may_omit_kv_heads else ("num_key_value_heads",))]
    missing = [key for key in needed if config.get(key) is None]
    if missing:
        raise BadInput(f"{path}: missing {', '.join(missing)} (nothing is filled in from defaults)")
    value = config.get(family.null_key, "absent") if family.null_key else None
    if value is not None and not (isinstance(value, int) and value >= config["max_position_embeddings"]):
        raise BadInput(f"{path}: {family.null_key} is {value}, wanted null")
    try:
        rope_theta(config)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{path}: {error}") from None


def of_decoder(config, state):
    """The decoder's tensors by their usual names. mkbench's loader refuses what may not be left out."""
    embedding, head = "embed_tokens.weight", "lm_head.weight"
    if embedding in state:
        state = {name if name == head else "model." + name: t for name, t in state.items()}
    elif "model.model." + embedding in state:
        state = {name.removeprefix("model.") if name.startswith("model.model.") else name: t for name, t in state.items()}
    return {name: state[name] for name in names_of(config, tied=False) if name in state}


def check_tensors(config, state, folder):
    """Raises BadInput unless the tensors fit the config and a tied head equals the embedding."""
    tied, head = is_tied(config), state.get("lm_head.weight")
    wanted = set(names_of(config, tied=False))
    missing = sorted(wanted - set(state) - ({"lm_head.weight"} if tied else set()))
    if missing:
        raise BadInput(f"{folder}: {len(missing)} tensors missing {missing[:4]}")
    if tied and head is not None and not torch.equal(head, state["model.embed_tokens.weight"]):
        raise BadInput(f"{folder}: tie_word_embeddings is true but 'lm_head.weight' differs from 'model.embed_tokens.weight'")


def to_bf16(state, folder):
    """The tensors, those of fp16 and fp32 rounded to bf16. Raises BadInput for other types, and for values that bf16 lacks."""
    done = {}
    for name, tensor in state.items():
        where = f"{folder}: tensor '{name}': "
        if tensor.dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise BadInput(f"{where}dtype is {tensor.dtype}, wanted torch.bfloat16, torch.float16 or torch.float32")
        done[name] = tensor.to(torch.bfloat16)
        lost = (done[name].isinf() & tensor.isfinite()).flatten().nonzero()
        if len(lost):
            raise BadInput(f"{where}{len(lost)} values are beyond the largest value of bf16, {torch.finfo(torch.bfloat16).max:.7e}, "
                           f"the first at index {int(lost[0])}: {float(tensor.flatten()[lost[0]])}")
    return done


def read_folder(folder):
    """(config.json as a dict, tensors as bf16, files read, names of the rounded tensors) of a checkpoint in one file or in
    shards. Raises BadInput."""
    folder = pathlib.Path(folder)
    config_path = folder / "config.json"
    config = read_json(config_path)
    check_config(config, config_path)
    files, state = read_shards(folder)
    state = of_decoder(config, state)
    rounded = [name for name, tensor in state.items() if tensor.dtype != torch.bfloat16]
    state = to_bf16(state, folder)
    check_tensors(config, state, folder)
    return config, state, [config_path, *files], rounded


def rope_theta(config):
    """rope_theta wherever transformers 4.x or 5.x wrote it; two different values are an error."""
    found = [
        (config.get("rope_parameters") or {}).get("rope_theta"),
        config.get("rope_theta"),
        (config.get("rope_scaling") or {}).get("rope_theta"),
    ]
    found = {float(x) for x in found if x is not None}
    if len(found) != 1:
        raise ValueError(f"rope_theta: found {sorted(found)}, wanted exactly one value")
    return found.pop()


def exact_inv_freq(config):
    """The fp32 inverse frequencies, in the one order of operations that all of mkbench uses."""
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 1.0 / (rope_theta(config) ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))


def config_of(config):
    """transformers' own config of a model. It adds keys to the RoPE objects that it is given, so it gets copies."""
    return CONFIG_MAPPING[config["model_type"]].from_dict(
        {k: copy.deepcopy(v) for k, v in config.items() if k not in ("dtype", "torch_dtype")})


def without_tensors(hf_config):
    """The model on the meta device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(hf_config)


def use_device(device):
    """Switches TF32 off. Raises BadInput if torch cannot use the device, or its fp32 products are not fp32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    # cuBLAS obeys this variable whatever torch is set to.
    if os.environ.get("NVIDIA_TF32_OVERRIDE", "0") != "0":
        raise BadInput("NVIDIA_TF32_OVERRIDE is set and may turn TF32 on, but fp32 is needed: unset it or set it to 0")
    if device == "cpu":
        return
    if device == "mps" and not torch.backends.mps.is_available():
        raise BadInput("--device mps: this torch sees no Apple GPU; --device cpu runs everywhere")
    if device == "cuda" and not torch.cuda.is_available():
        try:
            torch.zeros(1, device="cuda")
            why = "no card"
        except Exception as error:
            why = str(error).splitlines()[0]
        raise BadInput(f"--device cuda: torch {torch.__version__} sees no usable GPU: {why}; --device cpu runs everywhere")
    a, b = (torch.rand(256, 256, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
    exact = a.double() @ b.double()
    error = float((((a.to(device) @ b.to(device)).cpu().double() - exact) / exact).abs().max())
    if not error < 1e-5:  # fp32: about 1e-6; TF32 or bf16: 1e-4 and more
        raise BadInput(f"--device {device}: a product of fp32 matrices is off by {error:.1e}, wanted below 1e-5: not fp32")


def build(config, state, dtype, device="cpu", attention="eager"):
    """An HF model in `dtype` with the given tensors. Rotary inverse frequencies stay fp32, asserted."""
    hf_config = config_of(config)
    hf_config._attn_implementation = attention
    model = without_tensors(hf_config)
    tensors = {name: t.to(device=device, dtype=dtype) for name, t in state.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    tied = is_tied(config)
    if unexpected or set(missing) - ({"lm_head.weight"} if tied else set()):
        raise ValueError(f"tensors: missing {missing}, unexpected {unexpected}")
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    # The table was made on the meta device with the rest, and a cast of the whole model would make it bf16.
    model.model.rotary_emb = type(model.model.rotary_emb)(hf_config).to(device)
    embedding = model.model.embed_tokens
    if hasattr(embedding, "scalar_embed_scale"):  # a buffer, which was made there too
        embedding.embed_scale = torch.tensor(embedding.scalar_embed_scale, device=device)
    check_rotary(model, config)
    return model.requires_grad_(False).eval()


def check_rotary(model, config):
    """Raises unless the model rotates in fp32 by this config's theta and transformers' scaling of it."""
    table, hf_config = model.model.rotary_emb.inv_freq, model.config
    scaling, theta = hf_config.rope_parameters["rope_type"], hf_config.rope_parameters["rope_theta"]
    if theta != rope_theta(config):
        raise ValueError(f"rotary inv_freq: transformers took theta {theta}, config.json has {rope_theta(config)}")
    wanted = exact_inv_freq(config) if scaling == "default" else ROPE_INIT_FUNCTIONS[scaling](hf_config, "cpu")[0]
    if table.dtype != torch.float32 or not torch.equal(table.cpu(), wanted):
        raise ValueError("rotary inv_freq: not the fp32 table of this config's theta and head_dim")


class Decoder:
    """Decoding of sequences of one length side by side, one row of each at a time."""

    def __init__(self, model):
        self.model = model
        self.device = model.lm_head.weight.device
        # The denominator of error ratios is the bf16 model with only its last matmul in fp32.
        self.head_fp32 = model.lm_head.weight.float()
        self.reset()

    def reset(self):
        """Forgets the sequences."""
        self.cache = DynamicCache()
        self.position = 0

    @torch.no_grad()
    def forward(self, rows):
        """Appends a list of ids to each sequence, all of one length; the normed hidden states, [rows, ids, hidden]."""
        ids = torch.tensor(rows, device=self.device)
        positions = torch.arange(self.position, self.position + ids.shape[1], device=self.device)
        out = self.model.model(
            input_ids=ids, position_ids=positions[None], past_key_values=self.cache, use_cache=True
        )
        self.position += ids.shape[1]
        return out.last_hidden_state

    def prefill(self, prompts):
        """KV rows for all ids of each prompt but the last, which the first step takes."""
        for begin in range(0, len(prompts[0]) - 1, PREFILL_CHUNK):
            end = min(begin + PREFILL_CHUNK, len(prompts[0]) - 1)
            self.forward([ids[begin:end] for ids in prompts])

    @torch.no_grad()
    def step(self, tokens):
        """Appends one id to each sequence: (the model's own logits as fp32, logits through an fp32 head), both
        [sequences, vocab] on the model's device."""
        hidden = self.forward([[token] for token in tokens])
        logits = self.model.lm_head(hidden)[:, 0].float()
        return logits, hidden[:, 0].float() @ self.head_fp32.T


def argmax_lowest(logits):
    """The lowest index among the largest values (torch.argmax does not promise which)."""
    return int((logits == logits.max()).nonzero()[0])


def greedy_together(decoder, prompts, n):
    """n greedy ids after each of several prompts of one length: a list of (ids, fp32 logits [n, vocab])."""
    decoder.reset()
    decoder.prefill(prompts)
    paths, rows, tokens = [[] for _ in prompts], [], [p[-1] for p in prompts]
    for _ in range(n):
        rows.append(decoder.step(tokens)[0])
        tokens = [argmax_lowest(logits) for logits in rows[-1]]
        for path, token in zip(paths, tokens):
            path.append(token)
    return [(path, torch.stack([r[i] for r in rows])) for i, path in enumerate(paths)]


def greedy(decoder, prompt, n):
    """n greedy ids after `prompt` and the fp32 logits of each step, [n, vocab]."""
    return greedy_together(decoder, [prompt], n)[0]


def teacher_forced(decoder, prompts, paths):
    """The steps of greedy_together() with the ids of `paths` as inputs instead of the model's own: a list of
    (the model's logits, logits through an fp32 head), both [n, vocab]."""
    decoder.reset()
    decoder.prefill(prompts)
    inputs = [p[-1:] + path[:-1] for p, path in zip(prompts, paths)]
    steps = [decoder.step(list(tokens)) for tokens in zip(*inputs)]
    return [tuple(torch.stack([s[which][i] for s in steps]) for which in (0, 1)) for i in range(len(prompts))]


def bf16_step(x):
    """The distance between bf16 neighbours at |x|: 2^(exponent - 7)."""
    return math.ldexp(1.0, math.frexp(x)[1] - 8) if x > 0 else 0.0


def pairwise_error(truth, other, top=32):
    """Largest |(other_i - other_j) - (truth_i - truth_j)| over truth's top ids; rows are steps, [n]."""
    ids = truth.topk(min(top, truth.shape[-1]), -1).indices
    error = other.gather(-1, ids).double() - truth.gather(-1, ids).double()
    return error.max(-1).values - error.min(-1).values
