"""Adapts a decoder (references/decoder.py) to scripts/host.py, as harness/plugin/engine.cpp adapts a library: checks
ids and abilities, and prefills again in place of calls that the decoder lacks.
"""

import ctypes
import gc
import inspect
import operator
import pathlib
import re
import sys

import torch
from __main__ import HostError, vocab_size  # host.py

PRECISIONS = ("bf16", "fp32-accumulate", "lossy", "fp16")  # in the order of references/engine.h
# Passes over a buffer of twice L2, as in harness/device/l2_flush.cu.
FLUSH_PASSES = 2
BITS = {"bf16": 16, "fp16": 16, "fp32": 32, "fp8-e4m3": 8, "int8": 8, "uint8": 8, "int4": 4}
SLOTS = 4  # MKBENCH_SLOTS of references/engine_abi.h
EMPTY = (None, [], None)


class DecoderFile:
    """Gives a file that defines only a Decoder make_engine() and the other functions that host.py calls."""

    def __init__(self, path: str, decoder):
        self.path, self.decoder = path, decoder
        self.flushed = {}  # GPU -> buffer

    def make_engine(self, folder: pathlib.Path, request: dict):
        return TorchEngine(self.path, self.decoder(), folder, request)

    def step_reads(self, folder: str, values: str) -> dict:
        return self.decoder.step_reads(folder, values)

    def stated_values(self, folder: str, file: str, weight: str) -> dict:
        return self.decoder.stated_values(folder, file, weight)

    def finish(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def device_bytes(self) -> int:
        """What all programs have taken of the current GPU."""
        free, total = torch.cuda.mem_get_info() if torch.cuda.is_initialized() else (0, 0)
        return total - free

    def flush_l2(self, gpu: int) -> None:
        """Reads a buffer and writes none, so that L2 holds no dirty lines afterwards."""
        if gpu not in self.flushed:
            int64s = 2 * torch.cuda.get_device_properties(gpu).L2_cache_size // 8
            self.flushed[gpu] = torch.zeros(int64s, dtype=torch.int64, device=f"cuda:{gpu}")
        failed = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()
        if failed:
            raise HostError("runtime", f"cuCtxResetPersistingL2Cache: CUDA error {failed}")
        for _ in range(FLUSH_PASSES):
            self.flushed[gpu].sum()
        torch.cuda.synchronize(gpu)


def attribute(who: str, decoder, name: str, default, wanted: str, suits):
    value = getattr(decoder, name, default)
    if not suits(value):
        raise HostError("bad_input", f"{who}: {name}: found {value!r}, wanted {wanted}")
    return value


class TorchEngine:
    """A decoder as an engine of host.py."""

    def __init__(self, path: str, decoder, folder: pathlib.Path, request: dict):
        self.who, self.decoder = f"engine {path}", decoder
        for name in ("open", "prefill", "decode"):
            if not callable(getattr(decoder, name, None)):
                raise HostError("bad_input", f"{self.who}: its Decoder has no {name}() (references/decoder.py)")
        self.limit = attribute(self.who, decoder, "context_limit", 0, "a number of positions",
                               lambda value: type(value) is int and value >= 0)
        self.max_context = min(request["max_context"], self.limit or request["max_context"])
        self.vocab = vocab_size(folder)
        self.device, shown, self.events = torch.device("cpu"), "cpu", []
        self.cuda = request["cuda"]
        if self.cuda:
            if not torch.cuda.is_available():
                raise HostError("env_unfit", f"torch {torch.__version__} of {sys.executable} finds no usable GPU")
            torch.cuda.set_device(request["gpu"])
            self.device = torch.device("cuda", request["gpu"])
            shown = f"{self.device} {torch.cuda.get_device_name(self.device)}"
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.consumed = []  # ids whose KV rows are written
        self.pending = None  # the next input that mkbench has asked for
        self.own_pending = None  # the next input that the decoder assumes
        # Slot -> checksum, consumed ids and own_pending of the state in it; the least recently used slot first.
        self.saved = dict.fromkeys(range(SLOTS), EMPTY)
        self.event_ms, self.decodes = 0.0, 0
        self.replays = False  # `consumed` grows within the call
        # Only hf is asked for the runs by which others are judged, and has settings: lines of hf_settings().
        run = {} if request["precision"] == "own" else {"precision": request["precision"]}
        run.update(line.split("=", 1) for line in request["settings"].splitlines())
        decoder.open(folder, self.device, self.max_context, **run)
        self.settings = attribute(self.who, decoder, "settings", "", "text", lambda value: isinstance(value, str))
        self.able = self.abilities(pathlib.Path(path), shown)

    def abilities(self, path: pathlib.Path, device: str) -> dict:
        takes = inspect.signature(self.decoder.decode).parameters
        self.forces, self.sets = "forced" in takes, hasattr(self.decoder, "set_pending")
        name = attribute(self.who, self.decoder, "name", "decoder", "up to 40 of letters, digits, '.', '_', '-'",
                         lambda value: isinstance(value, str) and re.fullmatch(r"[\w.-]{1,40}", value, re.ASCII))
        return {
            "name": f"{name}@{path.name}", "device": device, "max_context": self.max_context,
            "context_limit": self.limit,
            "logits": "logits" in takes, "forced": True, "poison": False, "counted": False,
            "snapshots": all(callable(getattr(self.decoder, name, None)) for name in ("save", "restore")),
            "late_id": self.sets or self.forces,
            "rewind": callable(getattr(self.decoder, "rewind", None)) and (self.sets or self.forces),
            "precision": attribute(self.who, self.decoder, "precision", "bf16", f"one of {', '.join(PRECISIONS)}",
                                   lambda value: value in PRECISIONS),
            "deterministic": attribute(self.who, self.decoder, "deterministic", True, "True or False",
                                       lambda value: isinstance(value, bool)),
        }

    def capabilities(self) -> dict:
        return self.able

    def close(self) -> None:
        """Gives the device's memory back, which torch would keep for later tensors."""
        self.decoder = None
        gc.collect()  # a model's parts refer to each other
        if self.cuda:
            torch.cuda.empty_cache()

    def reset(self) -> None:
        self.consumed, self.pending, self.own_pending = [], None, None

    def poison(self) -> None:
        """Outputs are poisoned at each call; the decoder's own memory is out of reach."""

    def position(self) -> int:
        return len(self.consumed)

    def progress(self):
        return getattr(self.decoder, "position", len(self.consumed) if self.replays else -1), -1, ""

    def launch_count(self) -> int:
        return self.decodes

    def last_times(self) -> dict:
        return {"event_ms": self.event_ms}

    def prefill(self, ids) -> None:
        ids = ids.tolist()
        if not ids:
            raise HostError("bad_input", f"{self.who}: prefill: no ids")
        self.check_ids(ids)
        whole = self.consumed + ([] if self.pending is None else [self.pending]) + ids
        self.check_room(len(whole) - 1)
        self.feed(whole)

    def set_pending(self, id_: int) -> None:
        self.check_ids([id_])
        self.pending = id_

    def rewind(self, position: int) -> None:
        if not self.able["rewind"]:
            raise HostError("runtime", f"{self.who}: it cannot go back")
        if not 0 <= position <= len(self.consumed):
            raise HostError("bad_input", f"{self.who}: rewind: position {position} is not in [0, {len(self.consumed)}]")
        self.decoder.rewind(position)
        del self.consumed[position:]
        self.pending = self.own_pending = None

    def save(self) -> dict:
        """Snapshots are named as in harness/plugin/slots.h: by position and checksum."""
        if not self.able["snapshots"]:
            raise HostError("runtime", f"{self.who}: it has no snapshots")
        slot = next(iter(self.saved))
        self.saved[slot] = EMPTY  # what it held is lost even if the call fails
        self.put(slot, (self.keep(slot), list(self.consumed), self.own_pending))
        return {"position": self.position(), "pending": -1 if self.pending is None else self.pending,
                "kv_checksum": self.saved[slot][0]}

    def restore(self, snapshot: dict) -> None:
        """Saves the state again after going back to it: equal checksums show that it is the same."""
        position, wanted = snapshot["position"], snapshot["kv_checksum"]
        found = [slot for slot, (checksum, ids, _) in self.saved.items() if (len(ids), checksum) == (position, wanted)]
        if not found:
            raise HostError("runtime", f"{self.who}: restore: found no saved state of position {position} with this "
                                       f"checksum; the last {SLOTS} are kept")
        slot, state = found[0], self.saved[found[0]]
        self.decoder.restore(slot)
        self.consumed, self.own_pending = list(state[1]), state[2]
        self.pending = None if snapshot["pending"] < 0 else snapshot["pending"]
        self.put(slot, state)
        checksum = self.keep(slot)
        if checksum != wanted:
            raise HostError("integrity", f"{self.who}: restore: found checksum {checksum:016x} of the state of position "
                                         f"{position}, wanted {wanted:016x} as when it was saved")

    def keep(self, slot: int) -> int:
        return operator.index(self.decoder.save(slot)) % 2 ** 64

    def put(self, slot: int, state: tuple) -> None:
        del self.saved[slot]
        self.saved[slot] = state

    def show(self, layer: int, position=None):
        state = self.decoder.show(layer, position) if hasattr(self.decoder, "show") else None
        return None if state is None else torch.as_tensor(state).detach().float().cpu().numpy()
    hidden = kv_row = show

    def dequantised(self, weight: dict, file: str) -> tuple:
        """Appends the values of a weight to a file; the fields of WeightTaken (harness/wire/value_calls.h)."""
        values = self.decoder.dequantised(weight["name"]) if hasattr(self.decoder, "dequantised") else None
        if values is None:
            return False, None
        values = torch.as_tensor(values).detach()
        if list(values.shape) != weight["shape"]:
            raise HostError("bad_input", f"{self.who}: dequantised('{weight['name']}'): found the shape {list(values.shape)}, wanted "
                                         f"{weight['shape']}")
        with open(file, "ab") as end:
            end.write(values.float().cpu().contiguous().numpy())
        return True, self.storage(weight["name"])

    def storage(self, name: str):
        """The fields of WeightStorage (references/weight_storage.h); None where the decoder does not say."""
        told = self.decoder.storage(name) if hasattr(self.decoder, "storage") else None
        if told is None:
            return None
        try:
            block = [operator.index(size) for size in told.get("scale_block") or (0, 0)]
            bits = [0 if told.get(key) is None else BITS[told[key]] for key in ("scale_dtype", "zero_dtype")]
            if len(block) != 2 or (min(block) > 0) != (bits[0] > 0):
                raise ValueError(f"scale_block is {told.get('scale_block')} and scale_dtype {told.get('scale_dtype')}")
            return {"bits": BITS[told["dtype"]], "scale_bits": bits[0], "zero_bits": bits[1], "block_out": block[0], "block_in": block[1],
                    "bytes": operator.index(told["bytes"])}
        except (AttributeError, KeyError, TypeError, ValueError) as wrong:
            raise HostError("bad_input", f"{self.who}: storage('{name}'): {type(wrong).__name__}: {wrong}; found {told!r}, wanted what "
                                         f"references/decoder.py says, with types among {', '.join(BITS)}")

    @torch.no_grad()
    def decode(self, n: int, forced, logits):
        if self.pending is None:
            raise HostError("bad_input", f"{self.who}: decode: no pending id, call prefill first")
        if logits is not None and not self.able["logits"]:
            raise HostError("runtime", f"{self.who}: decode: it has no logits, and they were asked for")
        later = [] if forced is None else forced[1:].tolist()
        self.check_ids(later)
        self.check_room(len(self.consumed) + n)
        self.event_ms = 0.0
        if self.agreed() and forced is None:
            return self.run(n, None, logits)
        if not self.forces:
            return self.replay(n, later, logits)
        if forced is not None:
            return self.run(n, [self.pending, *later], logits)
        # The first id is forced; the decoder chooses all later ones.
        ids = self.run(1, [self.pending], logits)
        if n > 1 and ids:
            ids += self.run(n - 1, None, None if logits is None else logits[1:])
        return ids

    def agreed(self) -> bool:
        """Tells the decoder the pending id if it has set_pending(); returns whether that id is its next input."""
        if self.pending != self.own_pending and self.sets:
            self.decoder.set_pending(self.pending)
            self.own_pending = self.pending
        return self.pending == self.own_pending

    def replay(self, n: int, later: list, logits) -> list:
        """Decodes with a decoder that takes no forced ids: wherever the input differs from its own choice, the sequence
        so far is prefilled again with that id at its end."""
        ids = []
        self.replays = True
        try:
            for step in range(n):
                if step > 0 and later:
                    self.pending = later[step - 1]
                if not self.agreed():
                    self.feed([*self.consumed, self.pending])
                ids += self.run(1, None, None if logits is None else logits[step:])
        finally:
            self.replays = False
        return ids

    @torch.no_grad()
    def feed(self, ids: list) -> None:
        self.reset()
        self.decoder.prefill(torch.tensor(ids, dtype=torch.int64, device=self.device))
        self.consumed, self.pending, self.own_pending = ids[:-1], ids[-1], ids[-1]

    def run(self, n: int, inputs, logits) -> list:
        """One call of the decoder's decode(); `logits` may have more rows than the n that are filled."""
        self.decodes += 1
        given, rows = {}, None
        if inputs is not None:
            given["forced"] = torch.tensor(inputs, dtype=torch.int64, device=self.device)
        if logits is not None:
            given["logits"] = rows = torch.full((n, self.vocab), torch.nan, dtype=torch.float32, device=self.device)
        if self.cuda:
            self.events[0].record()
        ids = torch.as_tensor(self.decoder.decode(n, **given))
        if self.cuda:
            self.events[1].record()
            torch.cuda.synchronize()
            self.event_ms += self.events[0].elapsed_time(self.events[1])
        if ids.is_floating_point() or ids.dtype == torch.bool:
            raise TypeError(f"decode: found ids of {ids.dtype}, wanted an integer tensor")
        ids = ids.reshape(-1).tolist()
        if rows is not None:
            logits[:n] = rows.cpu().numpy()
        self.consumed += inputs if inputs is not None else [self.own_pending, *ids[:n - 1]]
        if ids:
            self.pending = self.own_pending = ids[-1]
        return ids

    def check_ids(self, ids: list) -> None:
        for id_ in ids:
            if not 0 <= id_ < self.vocab:
                raise HostError("bad_input", f"{self.who}: token id {id_} is not in [0, {self.vocab})")

    def check_room(self, positions: int) -> None:
        if positions > self.max_context:
            raise HostError("bad_input", f"{self.who}: context: {positions} positions needed, {self.max_context} there")
