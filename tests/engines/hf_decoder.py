"""HF transformers behind references/decoder.py, as it comes: bf16, SDPA attention, a growing KV cache."""

import os

# Rows that are copied to a longer place in every step would leave the allocator with pieces of all lengths.
os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # read when torch first uses the card

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, DynamicCache  # noqa: E402
from transformers.utils import logging  # noqa: E402

logging.disable_progress_bar()

PREFILL_CHUNK = 512  # rows at a time: the scores of a whole long prompt would not fit


class Decoder:
    name = "hf"
    precision = "bf16"

    def open(self, folder, device, max_context):
        if device.type == "cpu":
            torch.set_num_threads(1)  # the models that fit a CPU are too small to share out
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa", local_files_only=True).to(device).eval()
        # cuDNN's attention, which SDPA takes on newer cards, gives other bits from call to call.
        self.deterministic = device.type == "cpu"
        self.indices = torch.arange(self.model.config.vocab_size, device=device)

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
