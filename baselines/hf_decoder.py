"""The engine hf: Hugging Face transformers behind references/decoder.py, in bf16 with SDPA attention where the model has
it, a growing KV cache and one forward pass for each token, as a loop around a model or generate() runs it.

Where transformers computes the truth (--truth), this file also makes the two runs by which others are judged, with
transformers' eager attention: all in fp32, and in bf16 with the last product in fp32.
"""

import os
import pathlib

# Rows that are copied to a longer place in every step would leave the allocator with pieces of all lengths.
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # read when torch first uses the card
QUIET = "TRANSFORMERS_VERBOSITY" not in os.environ  # else each process tells of the same missing packages
if QUIET:
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"

try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, DynamicCache
    from transformers.utils import logging

    if int(transformers.__version__.partition(".")[0]) < 5:
        raise ImportError(f"found transformers {transformers.__version__}")
    from transformers.cache_utils import DynamicLayer
except ImportError as missing:
    error = ImportError(f"hf needs torch and transformers 5 or later (pip install torch 'transformers>=5'): {missing}")
    error.mkbench_kind = "not_built"  # the engine is skipped
    raise error from missing

logging.disable_progress_bar()

THREADS = torch.get_num_threads()
SMALL = 10_000_000  # parameters: waking a second thread takes longer than an operation of a smaller model
PREFILL_CHUNK = 512  # rows at a time: the scores of a whole long prompt would not fit
WALKED = 64  # ids in a pass that keeps the logits of all of them
CHECKED, CHECKED_FROM_HOST = 48, 12  # ids by which check_cache() compares; a pass takes long where layers come from the host


def of_kind(kind, error):
    """The error, with the kind that a host reports (scripts/host.py)."""
    error.mkbench_kind = kind
    return error


def source_of(folder, file):
    """The class and what its from_pretrained() is given: the folder; of a quantised checkpoint the values that its weights
    stand for, where stored_weights.py reads its format; and in their places those that a file states (stated_values.py)."""
    if not file and "quantization_config" not in (pathlib.Path(folder) / "config.json").read_text():
        return AutoModelForCausalLM, (folder,), {}
    from stored_weights import stored_in  # a copy of this file stands alone, with models in bf16
    stored = stored_in(folder)
    if not file and stored is None:
        return AutoModelForCausalLM, (folder,), {}
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if stored is not None:
        del config.quantization_config
    config.mkbench_stored = "engine" if file else stored.form
    if file:
        from stated_values import weights_by
        weights = weights_by(folder, file, config)
    else:
        weights = dict(stored)
    return transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], (None,), {"config": config, "state_dict": weights}


def load(folder, dtype, attention, file=""):
    """The model in `folder`; its own eager attention where its class lacks `attention`. Raises bad_input for one that
    transformers cannot load whole; weights that are no safetensors are never opened, and no code of the folder runs."""
    try:
        model_class, source, values = source_of(folder, file)
        model, found = model_class.from_pretrained(
            *source, **values, use_safetensors=True, local_files_only=True, trust_remote_code=False, output_loading_info=True,
            ignore_mismatched_sizes=True, dtype=torch.float32 if values else dtype, attn_implementation=attention)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as refusal:  # of a config that does not fit its class, anything
        if attention != "eager" and "does not support an attention implementation" in str(refusal):
            return load(folder, dtype, "eager", file)
        text = f"transformers {transformers.__version__} cannot load {folder}: {refusal}"
        raise of_kind("bad_input", ValueError(text)) from refusal
    for what in ("missing_keys", "mismatched_keys"):
        if found[what]:
            text = (f"{folder}: transformers finds {what.replace('_', ' ')} among the tensors, which it would fill with random "
                    f"numbers: {', '.join(sorted(map(str, found[what]))[:4])}")
            raise of_kind("bad_input", ValueError(text))
    model = model.requires_grad_(False).eval()
    return round_to(model, dtype) if values else model


def round_to(model, dtype):
    """A model in fp32, brought to dtype but for the weights of its products and RMS norms that dtype cannot hold, and for what its
    class keeps in fp32."""
    kept = set()
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if type(part) is torch.nn.Linear and not held(part, dtype):
                setattr(module, name, Fp32Product(part, dtype))
                kept.update(map(id, getattr(module, name).parameters()))
            elif type(part).__name__.endswith("RMSNorm") and not held(part, dtype):
                part.register_forward_hook(lambda _norm, _inputs, output: output.to(dtype))
                kept.update(map(id, part.parameters()))
    in_fp32 = getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    for name, parameter in model.named_parameters():
        if id(parameter) not in kept and not set(in_fp32).intersection(name.split(".")):
            parameter.data = parameter.data.to(dtype)
    return model


def held(module, dtype):
    """Whether dtype holds all parameters of a module."""
    return all(torch.equal(parameter.to(dtype).float(), parameter) for parameter in module.parameters())


def require_fp32(device):
    """Switches TF32 off. Raises unless a product of fp32 matrices is one: 1e-6 off, where TF32 gives 1e-4."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    a, b = (torch.rand(256, 256, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    exact = a.double() @ b.double()
    off = float((((a.to(device) @ b.to(device)).cpu().double() - exact) / exact).abs().max())
    if not off < 1e-5:
        text = f"a product of fp32 matrices on {device} is off by {off:.1e}, wanted below 1e-5 (unset NVIDIA_TF32_OVERRIDE)"
        raise of_kind("env_unfit", RuntimeError(text))


def experts_in(text):
    """The numbers of experts that the config of a decoder states, more than one."""
    keys = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return {count for key in keys if isinstance(count := getattr(text, key, None), int) and count > 1}


class Fp32Product(torch.nn.Module):
    """A product with a matrix in fp32, computed in fp32 and rounded to dtype at its end."""

    def __init__(self, linear, dtype):
        super().__init__()
        bias, self.dtype = getattr(linear, "bias", None), dtype
        self.weight = torch.nn.Parameter(linear.weight.float(), requires_grad=False)
        self.register_buffer("bias", None if bias is None else bias.float())

    def forward(self, x):
        return torch.nn.functional.linear(x.float(), self.weight, self.bias).to(self.dtype)


class Decoder:
    name = "hf"
    precision = "bf16"

    @staticmethod
    def step_reads(folder, values):
        from step_reads import step_reads  # only the truth is asked, and a copy of this file stands alone
        if QUIET:
            logging.set_verbosity_warning()  # in the one process of a run that is asked this
        return step_reads(folder, values)

    @staticmethod
    def stated_values(folder, file, weight):
        from stated_values import stated_values
        return stated_values(folder, file, weight)

    def open(self, folder, device, max_context, precision="own", layers="device", values="", original=""):
        """precision: "own", or of a run that judges others: "fp32", "head-fp32". layers: where they are kept, on the
        "device", or on the "host", from which each comes to the device while it computes. values: a file of
        stated_values.py, or "" for the folder's own. original: a folder that stands for this one, with its own values."""
        if original:
            folder, values = original, ""
        if precision == "fp32":
            require_fp32(device)
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        # The limits of parity were measured with the rounding of eager attention.
        self.model = load(folder, dtype, "sdpa" if precision == "own" else "eager", values)
        text = self.model.config.get_text_config()
        self.layers = next((part for part in self.model.get_decoder().modules()
                            if isinstance(part, torch.nn.ModuleList) and len(part) == text.num_hidden_layers), [])
        if layers == "host":
            from host_layers import keep_on_host  # a copy of this file stands alone, where all fits on the device
            keep_on_host(self.model, self.layers, device)
        else:
            self.model = self.model.to(device)
        if precision == "head-fp32":
            self.model.set_output_embeddings(Fp32Product(self.model.get_output_embeddings(), torch.float32))
        self.shown, self.chunk, self.is_truth = {}, PREFILL_CHUNK, precision == "fp32"
        if not all(type(layer) is DynamicLayer for layer in DynamicCache(config=self.model.config).layers):
            self.rewind = None  # a window or a recurrent state has forgotten what was before
        if device.type == "cpu":
            torch.set_num_threads(1 if self.model.num_parameters() < SMALL else THREADS)
        # cuDNN's attention, which SDPA takes on newer cards, gives other bits from call to call. In a model with a router
        # these lead to other experts and other ids, so that it goes without.
        routes = bool(experts_in(text))
        torch.backends.cuda.enable_cudnn_sdp(not routes)
        self.deterministic = device.type == "cpu" or routes
        self.indices = torch.arange(text.vocab_size, device=device)
        matmul = torch.backends.cuda.matmul
        self.settings = (
            f"transformers={transformers.__version__} torch={torch.__version__} dtype={self.model.dtype} "
            f"attention={self.model.config._attn_implementation} allow_tf32={int(matmul.allow_tf32)} "
            f"allow_bf16_reduced_precision_reduction={int(matmul.allow_bf16_reduced_precision_reduction)} "
            f"cpu_threads={torch.get_num_threads()}" + " cudnn_sdp=0" * routes + f" layers={layers}" * (layers != "device"))
        if stored := getattr(self.model.config, "mkbench_stored", ""):
            self.settings += f" dequantised={stored}"
        if self.is_truth:
            self.check_cache(min(CHECKED if layers == "device" else CHECKED_FROM_HOST, max_context))

    @torch.no_grad()
    def check_cache(self, count):
        """Raises bad_input unless chunks and steps over the cache give the logits of one pass without a cache, as they
        do to 1e-6. The classes of some models keep their state elsewhere, or lose it between two chunks."""
        ids = torch.arange(1, count + 1, device=self.indices.device) * 7 % len(self.indices)
        whole = self.model(input_ids=ids[None], use_cache=False).logits[0]
        begin, self.chunk = count // 2, max(1, count // 6)
        self.prefill(ids[:begin + 1])
        self.chunk = PREFILL_CHUNK
        steps = torch.stack([self.forward(ids[at:at + 1]) for at in range(begin, count)])
        off = float((steps - whole[begin:]).abs().max() / whole.std())
        if not off < 1e-3:
            text = (f"{type(self.model).__name__} of transformers {transformers.__version__}: steps over its cache are off the pass "
                    f"over all ids by {off:.1e} of the logits' deviation, wanted below 1e-3, so it is no truth")
            raise of_kind("bad_input", ValueError(text))

    def prefill(self, ids):
        self.cache = self.empty_cache()
        for begin in range(0, len(ids) - 1, self.chunk):
            self.forward(ids[begin:min(begin + self.chunk, len(ids) - 1)])
        self.pending = ids[-1:]

    def empty_cache(self):
        return DynamicCache(config=self.model.config)

    def decode(self, n, forced=None, logits=None):
        watched = [] if logits is None else [layer.register_forward_hook(self.keep(i)) for i, layer in enumerate(self.layers)]
        try:
            if self.is_truth and forced is not None:
                return self.walk(forced, logits)
            return self.steps(n, forced, logits)
        finally:
            for handle in watched:
                handle.remove()

    def keep(self, index):
        """A hook that keeps what a layer gives for the last id."""
        def hook(_layer, _inputs, output):
            self.shown[index] = (output[0] if isinstance(output, tuple) else output)[0, -1]
        return hook

    def show(self, layer, position=None):
        if position is None:
            return self.shown.get(layer)
        held = self.cache.layers[layer]
        if type(held) is not DynamicLayer:
            return None
        return torch.cat([rows[0, :, position].flatten() for rows in (held.keys, held.values)])

    def steps(self, n, forced, logits):
        ids = torch.empty(n, dtype=torch.int64, device=self.pending.device)
        for step in range(n):
            row = self.forward(self.pending if forced is None else forced[step:step + 1])
            if logits is not None:
                logits[step] = row
            ids[step] = self.lowest(row)
            self.pending = ids[step:step + 1]
        return ids

    def lowest(self, rows):
        """The lowest index among the largest of each row, which torch.argmax() does not promise; of NaN the last id."""
        return torch.where(rows == rows.amax(-1, keepdim=True), self.indices, len(self.indices) - 1).amin(-1)

    def walk(self, ids, logits):
        """steps() along given ids in passes over many of them, as prefill() takes them."""
        found = torch.empty_like(ids)
        for begin in range(0, len(ids), WALKED):
            here = slice(begin, begin + WALKED)
            rows = self.forward(ids[here], len(ids[here]))
            found[here] = self.lowest(rows)
            if logits is not None:
                logits[here] = rows
        self.pending = found[-1:]
        return found

    def set_pending(self, id_):
        self.pending = torch.tensor([id_], device=self.indices.device)

    def rewind(self, position):
        rows = self.cache.get_seq_length() - position
        if rows > 0:
            self.cache.crop(-rows)

    def forward(self, ids, keep=None):
        """Appends rows to the cache; the logits of the last one, [vocab], or of the last `keep`, [keep, vocab]."""
        output = self.model(input_ids=ids[None], past_key_values=self.cache, use_cache=True, logits_to_keep=keep or 1)
        return output.logits[0, -1] if keep is None else output.logits[0]
