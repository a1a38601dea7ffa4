"""What a decode step of a model reads, found by running transformers' own class on tensors without memory (torch's
device meta) and noting each operation on a parameter. It takes seconds and no weights, whatever the model's size.

Embedding rows and the experts of a token count as they are chosen, a tensor that no step touches (another head, a vision
tower) does not, and a tied head counts once. Everything counts as bf16; parameters that are stored in fewer bits count
as stored.
"""

import collections
import json
import pathlib
import struct

import torch
from hf_decoder import experts_in
from stated_values import HEAD, declared_bits, table_of
from stored_weights import files_of, stored_in
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, cache_utils

# Whose rows and states are known to be all that a step reads.
CACHES = ("DynamicLayer", "DynamicSlidingWindowLayer", "LinearAttentionLayer", "LinearAttentionAndFullAttentionLayer",
          "LinearAttentionAndSlidingWindowAttentionLayer")
# A config that states one of these may mask rows that its cache still holds.
MASKS = ("attention_types", "attention_chunk_size", "window_size", "index_topk")
CHOOSES_ROWS = ("aten::embedding", "aten::index", "aten::index_select")


class Unknown(Exception):
    """Why it is not known what a step reads."""


class ParameterReads(TorchDispatchMode):
    """For each parameter, the elements that operations have read so far."""

    def __init__(self, model, experts):
        super().__init__()
        self.names = {p.untyped_storage()._cdata: (name, p) for name, p in model.named_parameters()}
        self.experts = experts  # numbers of experts in a layer
        self.parts = collections.defaultdict(dict)  # by name: {a key for each part that was read: its elements}

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if any(to.alias_info is not None and not to.alias_info.is_write for to in function._schema.returns):
            return result  # a view
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata in self.names:
                self.note(function._schema.name, tensor, result)
        return result

    def note(self, operation, tensor, result):
        name, parameter = self.names[tensor.untyped_storage()._cdata]
        parts = self.parts[name]
        if operation in CHOOSES_ROWS:
            parts[len(parts)] = result.numel()
        elif parameter.dim() > 2 and tensor.numel() == parameter.numel() and parameter.shape[0] in self.experts:
            raise Unknown(f"{operation} takes all experts of {name}, so which ones a step needs is not seen")
        else:
            parts[tensor.storage_offset(), tensor.numel()] = tensor.numel()

    def elements(self):
        """[(name, elements read)]; a parameter that is read twice counts once."""
        sizes = {name: parameter.numel() for name, parameter in self.names.values()}
        return [(name, min(sizes[name], sum(parts.values()))) for name, parts in self.parts.items()]


def stored_bits(folder):
    """{weight: bits} of the folder's safetensors with scales and zero points; MXFP4 stores a tensor as its blocks and its
    scales."""
    bits, stored = collections.Counter(), stored_in(folder)
    for path in files_of(pathlib.Path(folder)):
        with path.open("rb") as file:
            header = json.loads(file.read(*struct.unpack("<Q", file.read(8))))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            module, part = stored.owner(name) if stored is not None else (name.removesuffix("_blocks").removesuffix("_scales"), "")
            if not part or part in stored.reader.PARTS:
                bits[f"{module}.weight" if part else module] += 8 * (end - begin)
    return bits


def parameter_bytes(folder, model, reads, declared):
    """Bytes of the parameters that a step reads; declared: {weight: bits} of those that an engine has quantised itself."""
    quantised = any(getattr(c, "quantization_config", None) for c in (model.config, model.config.get_text_config()))
    bits = (stored_bits(folder) if quantised else {}) | declared
    total, sizes = 0, {name: parameter.numel() for name, parameter in model.named_parameters()}
    if fused := sorted(set(declared) - {HEAD, *sizes}):
        raise Unknown(f"transformers' class has no parameter {fused[0]}, which the engine says how it keeps")
    if HEAD in declared and HEAD not in sizes:  # tied: a step reads a row of the table, and all of it as the head
        bits[table_of(sizes)] = declared[HEAD]
    for name, elements in reads.elements():
        if quantised and name not in bits:
            raise Unknown(f"the model is quantised, and no stored tensor is called {name}")
        total += elements * min(16.0, bits[name] / sizes[name] if name in bits else 16.0) / 8
    return round(total)


def cache_reads(cache, text):
    """What the cache makes a step read: bytes of states; and bytes of a position, by the number of positions that the
    layers read, 0 for all."""
    states, rows = 0, collections.Counter()
    windows = [getattr(layer, "sliding_window", None) for layer in cache.layers]
    masks = [key for key in MASKS if getattr(text, key, None)]
    if masks and not any(windows):
        raise Unknown(f"its config states {masks[0]}, and its cache holds all rows")
    # Keys and values of all heads may be computed from one vector, which an engine keeps instead.
    rank = getattr(text, "kv_lora_rank", None)
    latent = 2 * (rank + text.qk_rope_head_dim) if rank else None
    for layer, window in zip(cache.layers, windows):
        if type(layer) not in [getattr(cache_utils, name, None) for name in CACHES]:
            raise Unknown(f"its cache has layers of another kind, {type(layer).__name__}")
        tensors = [t for t in tree_leaves(vars(layer)) if isinstance(t, torch.Tensor) and t.is_floating_point()]
        states += sum(t.nbytes for t in tensors)
        if isinstance(getattr(layer, "keys", None), torch.Tensor) and layer.keys.dim() == 4:
            of_rows = layer.keys.nbytes + layer.values.nbytes
            row = of_rows // layer.keys.shape[-2]
            rows[max(1, window - 1) if window else 0] += min(row, latent or row)
            states -= of_rows
    return states, dict(rows)


@torch.no_grad()
def step_reads(folder, values=""):
    """The fields of StepReads (references/model/architecture.h). values: a file of stated_values.py, whose engine says how it
    keeps its weights; "" for the folder's own."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        text = config.get_text_config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="eager").eval()
        experts = experts_in(text)
        if experts and model._can_set_experts_implementation():
            model.set_experts_implementation("batched_mm")  # takes the experts of a token by an index
        if getattr(text, "num_experts_per_tok", None) and not experts:
            raise Unknown("its config does not state how many experts a layer has")
        model.config.pad_token_id = text.pad_token_id = None  # for which some classes look through the ids
        cache = DynamicCache(config=model.config)

        def forward(count):
            ids = torch.zeros(1, count, dtype=torch.int64, device="meta")
            model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

        forward(2)
        with ParameterReads(model, experts) as reads:
            forward(1)
        states, rows = cache_reads(cache, text)
        if not reads.parts or not (states or rows):
            raise Unknown("its class keeps no state in transformers' cache")
        return {"fixed": parameter_bytes(folder, model, reads, declared_bits(values) if values else {}) + states,
                "rows": [{"bytes": size, "most": most} for most, size in sorted(rows.items())], "unknown": ""}
    except Unknown as reason:
        why = str(reason)
    except Exception as refusal:  # of code that needs the numbers themselves, anything
        why = f"transformers' class does not run without memory: {type(refusal).__name__}: {str(refusal).partition(chr(10))[0]}"
    return {"fixed": 0, "rows": [], "unknown": why}
