"""What scripts/host.py takes from the library of harness/host/python_recorder.cpp, whose path the parent gives it."""

import contextlib
import ctypes
import sys


def load_recorder() -> ctypes.CDLL:
    """The library. Raises IndexError or OSError where there is none."""
    return ctypes.CDLL(sys.argv[1])


class Ranges:
    """NVTX ranges around decodes, as harness/host/server.cpp makes them; no ranges without the library."""

    def __init__(self):
        try:
            library = load_recorder()
        except (IndexError, OSError):
            library = None  # take_trace() of host.py reports why
        self.push, self.pop = getattr(library, "mkbench_push_range", None), getattr(library, "mkbench_pop_range", None)

    def open(self, message: str, category: str = "", payload: int = 0) -> None:
        if self.push and self.pop:
            self.push(message.encode(), category.encode(), payload)

    def close(self) -> None:
        if self.push and self.pop:
            self.pop()

    @contextlib.contextmanager
    def around(self, message: str, category: str, payload: int):
        self.open(message, category, payload)
        try:
            yield
        finally:
            self.close()
