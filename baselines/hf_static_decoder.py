"""The engine hf-static: hf_decoder.py with transformers' static KV cache, on a card one CUDA graph a token.

Attention reads all max_context rows in every step and masks those that are not written, as this cache does.
"""

import hf_decoder
import torch
from transformers import StaticCache

WARM_UP = 3  # steps before the capture: what libraries allocate at their first use must not fall into it


def skipped(text):
    return hf_decoder.of_kind("not_built", ImportError(text))


class Decoder(hf_decoder.Decoder):
    name = "hf-static"

    def open(self, folder, device, max_context, values=""):
        super().open(folder, device, max_context, values=values)
        self.cache = StaticCache(config=self.model.config, max_cache_len=max_context)
        kinds = {type(layer).__name__ for layer in self.cache.layers}
        if not all(hasattr(layer, "cumulative_length") or type(layer).__name__ == "LinearAttentionLayer"
                   for layer in self.cache.layers):
            raise skipped("hf-static needs transformers 5.6 or later (pip install 'transformers>=5.6')")
        self.counts = kinds == {"StaticLayer"}
        self.rewind = self.count if self.counts else None
        self.graph = None
        self.try_static()
        # A window keeps its place in Python, where a graph does not find it.
        if device.type == "cuda" and kinds <= {"StaticLayer", "LinearAttentionLayer"} and max_context > WARM_UP:
            self.capture(device)
        self.settings += f" cuda_graph={int(self.graph is not None)}"

    @torch.no_grad()
    def try_static(self):
        """Not every class takes this cache."""
        try:
            self.prefill(self.indices[:2])
            self.forward(self.pending)
            self.empty_cache()
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as refusal:
            if isinstance(refusal, torch.OutOfMemoryError):
                raise
            raise skipped(f"{type(self.model).__name__} does not take transformers' static cache: {refusal}") from refusal

    @torch.no_grad()
    def capture(self, device):
        """Records a step over self.id, which writes its row at the cache's own count and its logits to self.row."""
        self.id = torch.zeros(1, dtype=torch.int64, device=device)
        for _ in range(WARM_UP):
            super().forward(self.id)
            if self.counts:
                self.count(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.row = super().forward(self.id)
        self.empty_cache()
        self.graph = graph

    def empty_cache(self):
        if self.counts:
            self.count(0)
        else:
            self.cache.reset()
        return self.cache

    def show(self, layer, position=None):
        return None  # a graph's memory holds what its last kernel left there

    def count(self, position):
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(position)

    def forward(self, ids):
        if self.graph is None or len(ids) > 1:
            return super().forward(ids)
        self.id.copy_(ids)
        self.graph.replay()
        return self.row
