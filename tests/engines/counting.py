"""An engine that computes with integers alone, for tests of scripts/host.py."""

import json


class Refused(Exception):
    mkbench_kind = "bad_input"


class Changed(Exception):
    mkbench_kind = "integrity"


class Counting:
    """The next id is a mix of all ids so far; a row of logits has 10 at that id and small numbers elsewhere."""

    settings = "integers=1"

    def __init__(self, folder, request):
        self.vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        self.max_context = request["max_context"]
        self.ids, self.saved, self.launches, self.audits = [], [], 0, 0

    def capabilities(self):
        return {"name": "counting", "device": "cpu", "max_context": self.max_context}

    def mix(self):
        return sum((at + 1) * (id_ + 7) for at, id_ in enumerate(self.ids)) % self.vocab

    def reset(self):
        self.ids = []

    def poison(self):
        pass

    def prefill(self, ids):
        if any(not 0 <= id_ < self.vocab for id_ in ids):
            raise Refused(f"an id of {list(map(int, ids))} is outside the vocabulary of {self.vocab}")
        self.ids += map(int, ids)

    def decode(self, n, forced, logits):
        self.launches += 1
        out = []
        for step in range(n):
            if step > 0 and forced is not None:
                self.ids[-1] = int(forced[step])
            out.append(self.mix())
            if logits is not None:
                logits[step] = [0.01 * (at % 16) for at in range(self.vocab)]
                logits[step, out[-1]] = 10
            self.ids.append(out[-1])
        return out

    def set_pending(self, id_):
        self.ids[-1] = id_

    def save(self):
        self.saved.append(list(self.ids))
        return {"position": self.position(), "pending": self.ids[-1], "kv_checksum": len(self.saved)}

    def restore(self, snapshot):
        number = snapshot["kv_checksum"]
        if not 0 < number <= len(self.saved):
            raise Changed(f"there is no snapshot {number}")
        self.ids = list(self.saved[number - 1])

    def position(self):
        return max(len(self.ids) - 1, 0)

    def launch_count(self):
        return self.launches

    def last_times(self):
        return {"host_ms": 0.5, "per_token_ms": [0.25, 0.25]}

    def audit(self):
        self.audits += 1

    def hidden(self, layer):
        return [layer, self.position(), self.audits]

    def kv_row(self, layer, position):
        return [layer, self.ids[position]] if position < self.position() else None

    def skip_to(self, position):
        self.ids = [0] * (position + 1)
        return True

    def progress(self):
        return self.position(), 3, "counting"


make_engine = Counting
