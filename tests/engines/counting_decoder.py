"""A decoder (references/decoder.py) that computes with integers alone, for tests of scripts/torch_decoder.py."""

import json

import torch


class Decoder:
    """The next id is a mix of all ids so far, as in counting.py; a row of logits has 10 at that id."""

    name = "counting"
    precision = "lossy"
    deterministic = False

    def open(self, folder, device, max_context):
        assert device == torch.device("cpu") and max_context in (39, 40)
        self.vocab = json.loads((folder / "config.json").read_text())["vocab_size"]

    def prefill(self, ids):
        assert ids.dtype == torch.int64 and ids.dim() == 1
        *self.rows, self.pending = ids.tolist()

    def decode(self, n, forced=None, logits=None):
        assert not torch.is_grad_enabled()
        assert logits is None or (logits.isnan().all() and logits.shape == (n, self.vocab))
        ids = []
        for step in range(n):
            self.rows.append(self.pending if forced is None else int(forced[step]))
            self.pending = sum((at + 1) * (id_ + 7) for at, id_ in enumerate(self.rows)) % self.vocab
            ids.append(self.pending)
            if logits is not None:
                logits[step] = 10 * torch.nn.functional.one_hot(torch.tensor(self.pending), self.vocab)
        return torch.tensor(ids)

    def set_pending(self, id_):
        self.pending = id_

    def rewind(self, position):
        del self.rows[position:]
        self.pending = None


class Plain:
    """The same decoder with the three calls that a decoder must have, and no more."""

    def open(self, *arguments):
        self.whole = Decoder()
        self.whole.open(*arguments)

    def prefill(self, ids):
        self.whole.prefill(ids)

    def decode(self, n):
        return self.whole.decode(n).tolist()
