#!/usr/bin/env python3
"""Compiles one decode step of Qwen3 with AOTInductor: makes the package that the engine `compiled` loads.

usage: compile_step.py --out FILE.pt2 --device cpu|cuda --layers N --hidden N ... (baselines/compiled_package.cpp)

The package holds code for a model's shape and a device, and no weights: every tensor is an input, so one package is
enough for all checkpoints of the shape, and the number of KV rows is free. --out appears whole or not at all; of
several processes that make the same FILE, all but the first wait for it. Where something is missing, the exit code is 3
and the last line of stderr says what; a compilation that failed has another exit code.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import sys
import tempfile

MISSING = 3
# The step is traced with these sizes, from which Inductor guesses how much work a loop over KV rows is.
TRACED_ROWS, TRACED_CAPACITY = 1024, 2048
MOST_ROWS = 1 << 20


def missing(what):
    print(f"compile_step.py: {what}", file=sys.stderr, flush=True)
    raise SystemExit(MISSING)


def parse():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1].split("\n", 1)[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--torch", required=True, help="the version of libtorch that loads the package")
    parser.add_argument("--torch-cuda", default="", help="the CUDA version that libtorch was built on")
    parser.add_argument("--toolkit", default="", help="the CUDA toolkit, where CUDA_HOME does not name one")
    parser.add_argument("--eps", type=float, required=True)
    for name in ("layers", "hidden", "intermediate", "heads", "kv-heads", "head-dim", "vocab"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def set_environment(options, work):
    """Sets variables of the environment that torch reads when it is imported."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(work / "triton")
    if options.device == "cpu":
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # workers would only compile Triton's kernels
        return
    if options.toolkit and "CUDA_PATH" not in os.environ:
        os.environ.setdefault("CUDA_HOME", options.toolkit)
    # The package is linked with -lcuda, and a driver without its development files has only libcuda.so.1.
    links = work / "lib"
    links.mkdir()
    (links / "libcuda.so").symlink_to(driver_library())
    os.environ["LIBRARY_PATH"] = os.pathsep.join(filter(None, (os.environ.get("LIBRARY_PATH"), str(links))))


def driver_library():
    """The file that the loader takes for libcuda.so.1."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        missing(f"found no NVIDIA driver, wanted one for --device cuda: {error}")
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(line.split(maxsplit=5)[5] for line in maps if "/libcuda.so" in line)


def check_tools(options):
    """Says what is missing, as far as it can be told before anything is compiled."""
    try:
        import torch
    except ImportError as error:
        missing(f"{sys.executable} cannot import torch: {error}")
    found = (torch.__version__.split("+")[0], torch.version.cuda or "")
    if found != (options.torch, options.torch_cuda):
        missing(f"torch of {sys.executable}: found {found[0]} for CUDA '{found[1]}', wanted {options.torch} for CUDA "
                f"'{options.torch_cuda}', the version of the libtorch that loads the package")
    from torch._inductor import config, cpp_builder
    try:
        cpp_builder.get_cpp_compiler()
    except Exception:
        missing(f"found no C++ compiler, wanted one of {', '.join(str(c or 'CXX') for c in config.cpp.cxx)}")
    if options.device == "cuda":
        try:
            import triton  # noqa: F401
        except ImportError as error:
            missing(f"{sys.executable} cannot import triton, with which --device cuda is compiled: {error}")
        if not torch.cuda.is_available():
            missing(f"torch {torch.__version__} of {sys.executable} finds no usable GPU")
    return torch


def step_module(torch, options):
    """A module for one decode step: order and roundings of baselines/eager_model.cpp, tensors of static_step.cpp."""
    nn = torch.nn.functional
    heads, kv_heads, dim, width = options.heads, options.kv_heads, options.head_dim, options.intermediate
    lowest = torch.finfo(torch.bfloat16).min

    def rounded(x):
        """x rounded to bf16 between two operators. On a CPU Inductor's C++ keeps fp32 between the operators of one
        loop, whatever the setting; an operation on the bits of x forces the rounding."""
        return x if options.device == "cuda" else (x.view(torch.int16) & -1).view(torch.bfloat16)

    def norm(x, weight):
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + options.eps)
        return weight * rounded(scaled.to(x.dtype))

    def product(x, matrix):
        """[in] -> [out]. With shape [1, out] the product would be added to the residual before its rounding to bf16."""
        return nn.linear(x.unsqueeze(0), matrix).view(-1)

    def attention(x, layer, position, rows, view):
        k_cache, v_cache, qkv_proj, head_norms, o_proj = layer
        cos, signed_sin, mask = view
        qkv = product(x, qkv_proj).view(heads + 2 * kv_heads, dim)
        qk = rounded(norm(qkv[:heads + kv_heads], head_norms))
        qk = rounded(qk * cos) + rounded(torch.roll(qk, dim // 2, -1) * signed_sin)
        k_cache.index_copy_(1, position, qk[heads:].unsqueeze(1))
        v_cache.index_copy_(1, position, qkv[heads + kv_heads:].unsqueeze(1))
        query = qk[:heads].view(kv_heads, heads // kv_heads, dim)
        scores = rounded(torch.bmm(query, k_cache[:, :rows].transpose(1, 2)) * dim ** -0.5)
        probabilities = torch.softmax(scores + mask, -1, torch.float32).to(x.dtype)
        mixed = torch.bmm(probabilities, v_cache[:, :rows])
        return product(mixed.view(heads * dim), o_proj)

    class Step(torch.nn.Module):
        """The order of the inputs is that of StaticStep::package_inputs() in baselines/static_step.cpp."""

        def forward(self, id_, position, ids, best, places, cos_table, sin_table, embed, final_norm, lm_head, layers):
            rows = places.shape[0]
            torch._check(rows <= cos_table.shape[0])
            mask = torch.where(places <= position, 0.0, lowest).to(embed.dtype)
            view = (cos_table.index_select(0, position), sin_table.index_select(0, position), mask)
            h = embed.index_select(0, id_).view(options.hidden)
            hidden = []
            for input_norm, post_norm, gate_up_proj, down_proj, *of_attention in layers:
                h = rounded(h + attention(norm(h, input_norm), of_attention, position, rows, view))
                both = product(norm(h, post_norm), gate_up_proj)
                h = rounded(h + product(rounded(nn.silu(both[:width])) * both[width:], down_proj))
                hidden.append(h.unsqueeze(0))
            logits = product(norm(h, final_norm), lm_head)
            value, index = logits.max(0, keepdim=True)
            ids.index_copy_(0, position, index)
            best.index_copy_(0, position, value)
            id_.copy_(index)
            position.add_(1)
            return [logits, *hidden]

    return Step()


def traced_inputs(torch, options, device):
    """Inputs without data, and which of their dimensions are free."""
    rows, capacity = (torch.export.Dim(name, min=2, max=MOST_ROWS) for name in ("rows", "capacity"))
    heads, kv_heads, dim, hidden = options.heads, options.kv_heads, options.head_dim, options.hidden

    def real(*sizes):
        return torch.empty(sizes, dtype=torch.bfloat16, device=device)

    def whole(size):
        return torch.empty((size,), dtype=torch.int64, device=device)

    def layer():
        return [real(hidden), real(hidden), real(2 * options.intermediate, hidden), real(hidden, options.intermediate),
                real(kv_heads, TRACED_CAPACITY, dim), real(kv_heads, TRACED_CAPACITY, dim),
                real((heads + 2 * kv_heads) * dim, hidden), real(heads + kv_heads, dim), real(hidden, heads * dim)]

    table = (TRACED_CAPACITY, dim)
    inputs = (whole(1), whole(1), whole(TRACED_CAPACITY), real(TRACED_CAPACITY), whole(TRACED_ROWS), real(*table),
              real(*table), real(options.vocab, hidden), real(hidden), real(options.vocab, hidden),
              [layer() for _ in range(options.layers)])
    free_layer = [{}, {}, {}, {}, {1: capacity}, {1: capacity}, {}, {}, {}]
    free = ({}, {}, {0: capacity}, {0: capacity}, {0: rows}, {0: capacity}, {0: capacity}, {}, {}, {},
            [free_layer] * options.layers)
    return inputs, free


def compile_package(torch, options, path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    device = f"cuda:{options.gpu}" if options.device == "cuda" else "cpu"
    settings = {
        "cpp.dynamic_threads": True,  # as many as libtorch has when the step runs
        "emulate_precision_casts": True,  # each operator rounds, as it does outside a compiler
        "cpp_cache_precompile_headers": False,  # they pay only where more than one package is made
    }
    if options.device == "cuda":
        # Products with one row become Triton's reductions, tuned one parameter at a time: gpt-fast's setting for
        # batch 1.
        settings["coordinate_descent_tuning"] = True
    with torch.no_grad():
        with FakeTensorMode():
            inputs, free = traced_inputs(torch, options, device)
        step = torch.export.export(step_module(torch, options), inputs, dynamic_shapes=free, strict=False)
        torch._inductor.aoti_compile_and_package(step, package_path=str(path), inductor_configs=settings)


@contextlib.contextmanager
def locked(path):
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main():
    options = parse()
    folder = options.out.parent
    folder.mkdir(parents=True, exist_ok=True)
    with locked(options.out.with_suffix(".lock")):
        if options.out.exists():
            return
        work = pathlib.Path(tempfile.mkdtemp(prefix=".compiling-", dir=folder))
        try:
            set_environment(options, work)
            torch = check_tools(options)
            if options.device == "cuda":
                torch.cuda.set_device(options.gpu)
            compile_package(torch, options, work / "step.pt2")
            os.replace(work / "step.pt2", options.out)
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
