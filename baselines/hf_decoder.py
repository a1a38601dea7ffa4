"""The engine hf: Hugging Face transformers behind references/decoder.py, in bf16 with SDPA attention, a growing KV cache
and one forward pass for each token, as a loop around a model or generate() runs it.
"""

import os

# Rows that are copied to a longer place in every step would leave the allocator with pieces of all lengths.
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # read when torch first uses the card

try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, DynamicCache
    from transformers.utils import logging

    if int(transformers.__version__.partition(".")[0]) < 5:
        raise ImportError(f"found transformers {transformers.__version__}")
except ImportError as missing:
    error = ImportError(f"hf needs torch and transformers 5 or later (pip install torch 'transformers>=5'): {missing}")
    error.mkbench_kind = "not_built"  # the engine is skipped
    raise error from missing

logging.disable_progress_bar()

THREADS = torch.get_num_threads()
SMALL = 10_000_000  # parameters: waking a second thread takes longer than an operation of a smaller model
PREFILL_CHUNK = 512  # rows at a time: the scores of a whole long prompt would not fit


class Decoder:
    name = "hf"
    precision = "bf16"

    def open(self, folder, device, max_context):
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa", local_files_only=True,
            trust_remote_code=False).to(device).eval()
        if device.type == "cpu":
            torch.set_num_threads(1 if self.model.num_parameters() < SMALL else THREADS)
        # cuDNN's attention, which SDPA takes on newer cards, gives other bits from call to call.
        self.deterministic = device.type == "cpu"
        self.indices = torch.arange(self.model.config.vocab_size, device=device)
        matmul = torch.backends.cuda.matmul
        self.settings = (
            f"transformers={transformers.__version__} torch={torch.__version__} "
            f"attention={self.model.config._attn_implementation} allow_tf32={int(matmul.allow_tf32)} "
            f"allow_bf16_reduced_precision_reduction={int(matmul.allow_bf16_reduced_precision_reduction)} "
            f"cpu_threads={torch.get_num_threads()}")

    def prefill(self, ids):
        self.cache = self.empty_cache()
        for begin in range(0, len(ids) - 1, PREFILL_CHUNK):
            self.forward(ids[begin:min(begin + PREFILL_CHUNK, len(ids) - 1)])
        self.pending = ids[-1:]

    def empty_cache(self):
        return DynamicCache()

    def decode(self, n, forced=None, logits=None):
        ids = torch.empty(n, dtype=torch.int64, device=self.pending.device)
        for step in range(n):
            row = self.forward(self.pending if forced is None else forced[step:step + 1])
            if logits is not None:
                logits[step] = row
            # torch.argmax() does not promise the lowest index among equals, which bf16 logits often are.
            ids[step] = torch.where(row == row.max(), self.indices, len(self.indices)).min()
            self.pending = ids[step:step + 1]
        return ids

    def set_pending(self, id_):
        self.pending = torch.tensor([id_], device=self.indices.device)

    def rewind(self, position):
        rows = self.cache.get_seq_length() - position
        if rows > 0:
            self.cache.crop(-rows)

    def forward(self, ids):
        """Appends rows to the cache; the logits of the last one, bf16 [vocab]."""
        output = self.model(input_ids=ids[None], past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        return output.logits[0, -1]
