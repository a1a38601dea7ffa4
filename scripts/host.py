"""The host of an engine that is written in Python. mkbench starts it; harness/host/serve.h is its twin in C++.

The engine's file defines a class Decoder (references/decoder.py), which torch_decoder.py adapts to this host; or, for
tests of the wire, it defines these functions itself:

  make_engine(folder, request)  an engine with the weights of `folder`, a snapshot as Hugging Face writes it; `request`
                                has the fields of the call `open` (harness/wire/calls.h)
  finish(), flush_l2(gpu)       optional: waits for the device; prepares L2 for a timed part (harness/device/l2_flush.h)

The engine has the calls of references/engine.h; a result has all or some fields of the answer on the wire. Optional
are rewind, launch_count (without it `counted` is false), last_times, audit, hidden, kv_row, skip_to, settings, close and
progress() -> (position, layer, phase), which another thread calls. ids, forced: int32 [n]; logits: float32 [n, vocab].

An exception fails the call and leaves the host alive: RUNTIME_ERROR with its type and text, unless its class has an
attribute mkbench_kind, a name of KINDS. What the engine prints goes to stderr.
"""

import copy
import ctypes
import json
import mmap
import operator
import os
import pathlib
import socket
import struct
import sys
import threading
import time
import traceback

if sys.version_info < (3, 9):
    sys.exit(f"host.py: found Python {sys.version_info[0]}.{sys.version_info[1]}, wanted 3.9 or later")
try:
    import numpy
except ImportError as problem:
    sys.exit(f"host.py: {problem}")

sys.dont_write_bytecode = True
# An interpreter that runs this file by runpy does not look for modules beside it.
HERE = pathlib.Path(__file__).resolve().parent  # file_of_main() changes __file__
sys.path.insert(0, str(HERE))
from host_surroundings import (complete_environment, engine_path, file_of_main, load_file, shadowed_package, snapshot_stamp, vocab_size,
                               why_not_started)
from needed_memory import needed_bytes
from nvtx_ranges import Ranges, load_recorder
del sys.path[0]

# harness/wire/channel.h
CALL_FD, PROGRESS_FD, ARENA_FD, STDERR_FD = 3, 4, 5, 6
ASK_HANG = b"!"  # on the progress channel; any other byte asks for progress
# Numbers of references/base/error.h.
KINDS = {"bad_input": 0, "env_unfit": 2, "unsupported_device": 3, "integrity": 7, "runtime": 8, "not_built": 9}
LONGEST_TEXT = 300  # of an exception, which may quote a compiler's whole output
OWN_FILES = {__file__, str(HERE / "torch_decoder.py")}


class HostError(Exception):
    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.mkbench_kind = kind


def fit(default, value, path: str):
    """`value` converted to the type of the field's `default`. Raises if a dict has a field that `default` lacks."""
    if isinstance(default, dict):
        unknown = value.keys() - default.keys()
        if unknown:
            raise KeyError(f"{path}: found {', '.join(sorted(unknown))}, wanted some of {', '.join(default)}")
        return {name: fit(held, value[name], f"{path}.{name}") if name in value else held
                for name, held in default.items()}
    if isinstance(default, list):
        return [item if isinstance(item, dict) else float(item) for item in value]
    if isinstance(default, (bool, str)) and not isinstance(value, type(default)):
        raise TypeError(f"{path}: found {value!r}, wanted {type(default).__name__}")
    if default is None or isinstance(default, (bool, str)):
        return value
    return operator.index(value) if isinstance(default, int) else float(value)


class Wire:
    """The messages of harness/wire/calls.h, as the parent's first frame lists them."""

    def __init__(self, greeting: dict):
        self.build = greeting["build"]
        self.calls = {message["type"]: message for message in greeting["fields"]["to_host"]}
        self.answers = {message["type"]: message for message in greeting["fields"]["from_host"]}

    def answer(self, type_: str, **fields) -> dict:
        return fit(self.answers[type_], fields, type_) | {"type": type_}

    def failed(self, error: BaseException, files=()) -> dict:
        """`files`: the engines' own files; a message names a line of theirs rather than one of a library."""
        if isinstance(error, HostError):
            return self.answer("failed", kind=KINDS[error.mkbench_kind], message=str(error))
        text = " ".join(f"{type(error).__name__}: {error}".split())
        text = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in OWN_FILES]
        at = [frame for frame in frames if frame.filename in files] or frames
        if at and not isinstance(error, SyntaxError):
            text += f" ({pathlib.Path(at[-1].filename).name}, line {at[-1].lineno})"
        kind = getattr(error, "mkbench_kind", None)
        if isinstance(error, ImportError):
            kind, text = kind or "bad_input", f"{text}; the Python is {sys.executable}, --python names another"
        elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's
            kind = "env_unfit"
        if isinstance(error, (ImportError, AttributeError)) and (shadowed := shadowed_package()):
            kind, text = "env_unfit", f"{text}; {shadowed}"
        whole = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return self.answer("failed", kind=KINDS.get(kind, KINDS["runtime"]), message=text, traceback=whole)


def send_frame(channel: socket.socket, message: dict) -> None:
    text = json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    channel.sendall(struct.pack("<I", len(text)) + text)


def read_exactly(channel: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer where the parent has closed its end."""
    data = b""
    more = b"?"
    while len(data) < size and more:
        more = channel.recv(size - len(data))
        data += more
    return data


def read_frame(channel: socket.socket) -> dict | None:
    """The next message; None where the parent has closed its end."""
    head = read_exactly(channel, 4)
    return json.loads(read_exactly(channel, *struct.unpack("<I", head))) if len(head) == 4 else None


class Arena:
    """harness/wire/arena.h: memory that the parent makes and enlarges."""

    def __init__(self, fd: int):
        self.fd, self.memory = fd, b""

    def array(self, dtype, offset: int, *shape: int) -> numpy.ndarray:
        end = offset + numpy.dtype(dtype).itemsize * int(numpy.prod(shape))
        if end > len(self.memory):
            size = os.fstat(self.fd).st_size
            if size < end:
                raise HostError("runtime", f"arena: found {size} bytes, wanted at least {end}")
            self.memory = mmap.mmap(self.fd, size)
        return numpy.ndarray(shape, dtype, self.memory, offset)


def check_stamp(folder: pathlib.Path, wanted: str) -> None:
    found = snapshot_stamp(folder)
    if found != wanted:
        raise HostError("integrity", f"{folder}: the weights have changed since mkbench loaded them: found {found}, "
                                     f"wanted {wanted} (name, bytes, time in ns)")


def load_engines(path: str):
    """The engine's file, or what torch_decoder.py makes of its Decoder: an object with make_engine()."""
    if not pathlib.Path(path).is_file():
        raise HostError("bad_input", f"{path}: no such file")
    file = pathlib.Path(path).resolve()
    sys.path[0] = str(file.parent)  # in place of scripts/
    try:
        module = load_file(file_of_main(file), str(file))
    except BaseException as error:
        error.mkbench_kind = getattr(error, "mkbench_kind", "bad_input")  # like a library that does not load
        raise
    if hasattr(module, "make_engine"):
        return module
    if not callable(getattr(module, "Decoder", None)):
        raise HostError("bad_input", f"{path}: defines no class Decoder (references/decoder.py)")
    adapter = load_file("mkbench_torch_decoder", str(HERE / "torch_decoder.py"))
    return adapter.DecoderFile(path, module.Decoder)


class Held:
    """An engine, and the length of a row of its logits."""

    def __init__(self, engine, vocab: int):
        self.engine, self.vocab = engine, vocab

    def state(self) -> dict:
        count = getattr(self.engine, "launch_count", None)
        return {"position": self.engine.position(), "launches": count() if count else 0, "device_bytes": 0}


class Server:
    """Answers calls, by the type of the call: take_<type>."""

    def __init__(self, wire: Wire, arena: Arena, ranges: Ranges):
        self.wire, self.arena, self.ranges = wire, arena, ranges
        self.modules, self.files, self.held = {}, set(), {}
        self.numbers, self.running = 0, None
        self.before = {}  # what the running engine had done before this call, as `hang` tells it

    def answer(self, call: dict) -> dict:
        try:
            take = getattr(self, f"take_{call['type']}", None)
            if take is None:
                raise HostError("runtime", f"host.py has no call '{call['type']}'")
            return take(call)
        except BaseException as error:  # sys.exit() in an engine fails its call and no more
            return self.wire.failed(error, self.files)

    def progress(self) -> dict:
        try:
            position, layer, phase = self.running.progress()
            return self.wire.answer("progress", position=position, layer=layer, phase=phase)
        except Exception:  # no engine runs, or it has no progress()
            return self.wire.answer("progress")

    def hang(self) -> dict:
        """What is known of a hung call: where the engine is, and after how many launches or calls of decode()."""
        place = {key: value for key, value in self.progress().items() if key in ("position", "layer", "phase")}
        return self.wire.answer("hang", **place, **self.before)

    def module(self, name: str):
        path = engine_path(name)
        if path not in self.modules:
            self.files.add(str(pathlib.Path(path).resolve()))
            self.modules[path] = load_engines(path)
        return self.modules[path]

    def optional(self, name: str):
        """The functions called `name` in the engines' files that define one."""
        return [getattr(module, name) for module in self.modules.values() if hasattr(module, name)]

    def engine(self, call: dict) -> Held:
        if call["engine"] not in self.held:
            raise HostError("runtime", f"no engine has the number {call['engine']}")
        held = self.held[call["engine"]]
        self.running, self.before = held.engine, {"launches" if held.counted else "decodes": held.state()["launches"]}
        return held

    def take_open(self, call: dict) -> dict:
        request, place = call["request"], call["weights"]
        if request["fault"] != self.wire.calls["open"]["request"]["fault"]:
            raise HostError("bad_input", f"engine {request['name']}: a fault cannot be planted in it")
        folder = pathlib.Path(place["folder"])
        check_stamp(folder, place["stamp"])
        engine = self.module(request["name"]).make_engine(folder, copy.deepcopy(request))
        check_stamp(folder, place["stamp"])  # the files that were read are the ones of the stamp
        held = Held(engine, vocab_size(folder))
        capabilities = dict(engine.capabilities())
        if not hasattr(engine, "launch_count"):
            capabilities["counted"] = False
        held.counted = capabilities.get("counted", True)
        opened = self.wire.answer("opened", engine=self.numbers + 1, capabilities=capabilities,
                                  settings=getattr(engine, "settings", ""), state=held.state())
        self.numbers += 1
        self.held[self.numbers] = held
        return opened

    def take_do(self, call: dict) -> dict:
        held, verb = self.engine(call), call["verb"]
        if verb == "close":
            self.running = None
            del self.held[call["engine"]]
            getattr(held.engine, "close", lambda: None)()
            return self.wire.answer("ok")
        if verb != "audit" or hasattr(held.engine, verb):
            getattr(held.engine, verb)()
        state = held.state()
        if verb == "reset":
            state["device_bytes"] = sum(taken() for taken in self.optional("device_bytes"))
        return self.wire.answer("ok", state=state)

    def finish(self) -> None:
        """Waits for the engine's work on its device; the clock of a call runs until then."""
        for finish in self.optional("finish"):
            finish()

    def take_prefill(self, call: dict) -> dict:
        held = self.engine(call)
        ids = self.arena.array(numpy.int32, 0, call["ids"]).copy()
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        held.engine.prefill(ids)
        self.finish()
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return self.wire.answer("prefilled", state=held.state(), interval={"begin": begin, "end": end})

    def decode(self, engine, call: dict, forced, logits) -> list:
        """One decode() for all tokens, or one for each token if the label asks for ranges of tokens."""
        label = call["label"]
        if not (label and label["tokens"]):
            return engine.decode(call["n"], forced, logits)
        if forced is not None or logits is not None:
            raise HostError("bad_input", "a range for each token: found forced ids or logits, wanted none")
        ids = []
        for token in range(call["n"]):
            with self.ranges.around(f"token {token}", label["category"], token):
                ids += list(engine.decode(1, None, None))
        return ids

    def take_decode(self, call: dict) -> dict:
        held, n = self.engine(call), call["n"]
        if n < 1:
            raise HostError("bad_input", f"decode: n: found {n}, wanted at least 1")
        at_ids = (4 * n + 63) // 64 * 64  # as in DecodeArena of harness/wire/arena.h
        forced = self.arena.array(numpy.int32, 0, n).copy() if call["forced"] else None
        logits = self.arena.array(numpy.float32, 2 * at_ids, n, held.vocab) if call["logits"] else None
        label = call["label"] or {"message": "decode", "category": "", "payload": 0, "opens": "", "closes": False}
        if label["opens"]:
            self.ranges.open(label["opens"])
        with self.ranges.around(label["message"], label["category"], label["payload"]):
            begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            if call["late"] is not None:
                held.engine.set_pending(call["late"])
            ids = numpy.asarray(self.decode(held.engine, call, forced, logits), numpy.int32)
            self.finish()
            end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if label["closes"]:
            self.ranges.close()
        # Surplus ids are counted in the answer, and not sent.
        sent = min(n, len(ids))
        self.arena.array(numpy.int32, at_ids, n)[:sent] = ids[:sent]
        times = held.engine.last_times() if hasattr(held.engine, "last_times") else {}
        interval = {"begin": begin, "end": end}
        return self.wire.answer("decoded", state=held.state(), ids=len(ids), interval=interval, times=times)

    def take_set_pending(self, call: dict) -> dict:
        held = self.engine(call)
        held.engine.set_pending(call["id"])
        return self.wire.answer("ok", state=held.state())

    def take_rewind(self, call: dict) -> dict:
        held = self.engine(call)
        held.engine.rewind(call["position"])
        return self.wire.answer("ok", state=held.state())

    def take_trace(self, call: dict) -> dict:
        held, thrown = self.engine(call), []

        @ctypes.CFUNCTYPE(None)
        def work():
            try:
                held.engine.decode(call["n"], None, None)
            except BaseException as error:  # pylint: disable=broad-except
                thrown.append(error)

        try:
            record = load_recorder().mkbench_record_launches
        except (IndexError, OSError) as error:
            return self.wire.answer("traced", state=held.state(), trace={"problem": f"no recorder of launches: {error}"})
        record.restype = ctypes.c_char_p
        trace = json.loads(record(work))
        if thrown:
            raise thrown[0]
        return self.wire.answer("traced", state=held.state(), trace=dict(trace, tokens=0 if trace["problem"] else call["n"]))

    def take_save(self, call: dict) -> dict:
        return self.wire.answer("saved", snapshot=self.engine(call).engine.save())

    def take_restore(self, call: dict) -> dict:
        held = self.engine(call)
        held.engine.restore(call["snapshot"])
        return self.wire.answer("ok", state=held.state())

    def take_state(self, call: dict) -> dict:
        engine, position = self.engine(call).engine, call["position"]
        name, where = ("hidden", ()) if position is None else ("kv_row", (position,))
        row = getattr(engine, name)(call["layer"], *where) if hasattr(engine, name) else None
        if row is None:
            return self.wire.answer("floats")
        row = numpy.asarray(row, numpy.float32).reshape(-1)
        self.arena.array(numpy.float32, 0, row.size)[:] = row
        return self.wire.answer("floats", floats=row.size)

    def take_skip_to(self, call: dict) -> dict:
        held = self.engine(call)
        able = hasattr(held.engine, "skip_to") and held.engine.skip_to(call["position"])
        return self.wire.answer("able", able=able, state=held.state())

    def take_stress(self, call: dict) -> dict:
        return self.wire.answer("able", state=self.engine(call).state())
    take_set_timeline = take_stress  # engines in Python have neither

    def take_ablate(self, call: dict) -> dict:
        held = self.engine(call)
        return self.wire.answer("able", why="an engine in Python has no ablations", state=held.state())

    def take_describe(self, call: dict) -> dict:
        reads = self.module(call["request"]["name"]).step_reads(call["folder"], call["values"]) if call["folder"] else {}
        return self.wire.answer("described", bytes=needed_bytes(call["request"], call["config"]), reads=reads)

    def take_dequantised(self, call: dict) -> dict:
        held = self.engine(call)
        taken, storage = held.engine.dequantised(call["weight"], call["file"]) if hasattr(held.engine, "dequantised") else (False, None)
        return self.wire.answer("weight_taken", taken=taken, storage=storage, state=held.state())

    def take_values(self, call: dict) -> dict:
        told = self.module(call["engine"]).stated_values(call["folder"], call["file"], call["weight"])
        return self.wire.answer("values_told", **told)

    def take_ping(self, call: dict) -> dict:
        return self.wire.answer("ok")

    def take_finish(self, call: dict) -> dict:
        self.finish()
        return self.wire.answer("ok")

    def take_flush(self, call: dict) -> dict:
        flushes = self.optional("flush_l2")
        if call["cuda"] and not (flushes and self.optional("finish")):
            missing = "finish()" if flushes else "flush_l2(gpu)"
            raise HostError("runtime", f"the engine's file defines no {missing}, without which times are too short")
        begin = time.monotonic()
        if call["cuda"]:
            flushes[0](call["gpu"])
        return self.wire.answer("flushed", ms=1000 * (time.monotonic() - begin))


def answer_progress(server: Server, channel: socket.socket) -> None:
    """Answers the second channel while the main thread is inside a call and does not hold the interpreter's lock."""
    while asked := channel.recv(1):
        send_frame(channel, server.hang() if asked == ASK_HANG else server.progress())


def main() -> int:
    if why := why_not_started((CALL_FD, PROGRESS_FD), (ARENA_FD, STDERR_FD)):
        print(why, file=sys.stderr)
        return 2
    for fd in (CALL_FD, PROGRESS_FD, ARENA_FD):
        os.set_inheritable(fd, False)
    os.dup2(STDERR_FD, sys.stderr.fileno())
    os.dup2(STDERR_FD, sys.stdout.fileno())  # the parent's stdout holds results alone
    os.close(STDERR_FD)
    sys.stdout.reconfigure(line_buffering=True)
    calls = socket.socket(fileno=CALL_FD)
    greeting = read_frame(calls)
    if greeting is None:
        return 0
    complete_environment()
    wire = Wire(greeting)
    server = Server(wire, Arena(ARENA_FD), Ranges())
    threading.Thread(target=answer_progress, args=(server, socket.socket(fileno=PROGRESS_FD)), daemon=True).start()
    send_frame(calls, wire.answer("hello", build=wire.build, program="host.py"))
    while call := read_frame(calls):
        answer = server.answer(call)
        try:
            send_frame(calls, answer)
        except ValueError as error:  # NaN or infinity, which JSON lacks
            send_frame(calls, wire.failed(error))
    server.held.clear()  # the other thread keeps `server` until the end
    server.modules.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
