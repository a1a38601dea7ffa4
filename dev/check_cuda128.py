"""Compiles the kernels' device code with CUDA 12.8's front end (NVRTC) and assembler (ptxas).

This check shows that 12.8 is enough for the kernels, on a machine that builds with CUDA 13. A spill or local memory is
a failure, as in the build. The wheels of requirements/cuda-12.8.txt, which are installed once into a folder of their
own, are all that it needs: no GPU, no driver, no toolkit.
"""

import argparse
import concurrent.futures
import ctypes
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import scripts_path  # noqa: F401
from pinned_wheels import installed
from tracked_files import ROOT

# Hopper and Blackwell; the lane cuda128 of .ci/long builds for all six architectures.
ARCHITECTURES = ("90a", "100a", "120a")
SOURCES = ("kernels/plain/kernel.cu", "kernels/plain/kernel_families.cu",
           *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("kernels/ring/rows/*.cu")))

# Standard headers that device code may include for types; NVRTC has no host library.
STANDARD_HEADERS = {
    "cstdint": "#pragma once\n#include <cuda/std/cstdint>\n" + "".join(
        f"using cuda::std::{t}; namespace std {{ using cuda::std::{t}; }}\n" for t in (
            "int8_t", "int16_t", "int32_t", "int64_t",
            "uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t")),
    # For names in tables that host and device share; device code never reads them.
    "string_view": "#pragma once\nnamespace std { struct string_view {\n"
                   "  const char* text;\n  constexpr string_view(const char* t = \"\") : text(t) {}\n}; }\n",
    "cstddef": "#pragma once\n#include <cuda/std/cstddef>\nnamespace std { using cuda::std::size_t; }\n",
}

CLEAN_KERNEL = """
extern "C" __global__ void clean(float* x) { x[threadIdx.x] *= 2.0f; }
"""
# An array whose index is known only at run time lies in local memory.
LOCAL_MEMORY_KERNEL = """
extern "C" __global__ void local_memory(float* x, const int* at, int n) {
  float a[64] = {};
  for (int k = 0; k < n; ++k) a[at[k] & 63] += x[k];
  for (int k = 0; k < 64; ++k) x[k] = a[k];
}
"""
# This kernel has more live values than 255 registers hold.
SPILL_KERNEL = """
extern "C" __global__ void __launch_bounds__(1024) spill(float* x) {
  float a[120];
  #pragma unroll
  for (int k = 0; k < 120; ++k) a[k] = x[k * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int k = 0; k < 120; ++k) x[k * 1024 + threadIdx.x] = a[119 - k] * a[k];
}
"""


class CompileError(Exception):
    """A compiler refused the code, or the code uses local memory; the message is the compiler's."""


class Nvrtc:
    """The part of NVRTC's C interface that turns source into PTX."""

    def __init__(self, wheels: pathlib.Path):
        libraries = wheels / "nvidia" / "cuda_nvrtc" / "lib"
        # NVRTC opens its builtins by name and finds them because they are loaded already.
        ctypes.CDLL(str(libraries / "libnvrtc-builtins.so.12.8"), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(libraries / "libnvrtc.so.12"))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.include = [
            wheels / "nvidia" / "cuda_runtime" / "include",
            wheels / "nvidia" / "cuda_cccl" / "include",
        ]

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return f"{major.value}.{minor.value}"

    def check(self, result: int) -> None:
        if result != 0:
            raise CompileError(self.library.nvrtcGetErrorString(result).decode())

    def text(self, size_of, get, program) -> bytes:
        """A result that NVRTC gives in two calls, first its size, then its content."""
        size = ctypes.c_size_t()
        self.check(size_of(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self.check(get(program, buffer))
        return buffer.raw.rstrip(b"\0")

    def ptx(self, source: str, name: str, architecture: str) -> bytes:
        # -default-device, because the constexpr functions of shared headers carry no __device__.
        options = [f"--gpu-architecture=compute_{architecture}", "--std=c++20", "-default-device",
                   f"-I{ROOT}"]
        options += [f"-I{folder}" for folder in self.include]
        program = ctypes.c_void_p()
        headers = (ctypes.c_char_p * len(STANDARD_HEADERS))(
            *(content.encode() for content in STANDARD_HEADERS.values()))
        names = (ctypes.c_char_p * len(STANDARD_HEADERS))(*(n.encode() for n in STANDARD_HEADERS))
        self.check(self.library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), len(STANDARD_HEADERS), headers, names))
        arguments = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        result = self.library.nvrtcCompileProgram(program, len(options), arguments)
        if result != 0:
            log = self.text(self.library.nvrtcGetProgramLogSize, self.library.nvrtcGetProgramLog, program)
            raise CompileError(log.decode(errors="replace"))
        return self.text(self.library.nvrtcGetPTXSize, self.library.nvrtcGetPTX, program)


def demangled(symbol: str) -> str:
    """The demangled name if c++filt is installed, else the mangled one."""
    try:
        return subprocess.run(["c++filt", symbol], capture_output=True, text=True).stdout.strip() or symbol
    except OSError:
        return symbol


def assemble(ptxas: pathlib.Path, ptx: bytes, architecture: str) -> list[str]:
    """One line a kernel (registers, shared memory); raises where one spills or uses local memory."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernel.ptx"
        source.write_bytes(ptx)
        done = subprocess.run(
            [str(ptxas), "-v", f"-arch=sm_{architecture}", "--warn-on-spills",
             "--warn-on-local-memory-usage", "-o", str(source.with_suffix(".cubin")), str(source)],
            capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode != 0:
        raise CompileError(said)
    kernels, defects = [], []
    for block in said.split("Compiling entry function ")[1:]:
        name = demangled(block.split("'")[1])
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                          block)
        used = re.search(r"Used (\d+) registers.*", block)
        if frame is None or used is None:
            raise CompileError("the output of ptxas -v has a form that this script does not know:\n" + block)
        kernels.append(f"{name}: {used.group()}")
        if any(int(number) for number in frame.groups()):
            defects.append(f"{name}: {frame.group()}")
    if defects:
        raise CompileError("spills or local memory:\n" + "\n".join(defects))
    if not kernels:
        raise CompileError("no kernel in the device code")
    return kernels


def self_test(nvrtc: Nvrtc, ptxas: pathlib.Path) -> None:
    """Raises unless the check passes a clean kernel and fails one with a spill and one with local memory."""
    assemble(ptxas, nvrtc.ptx(CLEAN_KERNEL, "clean.cu", "90a"), "90a")
    for name, source in (("local_memory", LOCAL_MEMORY_KERNEL), ("spill", SPILL_KERNEL)):
        try:
            assemble(ptxas, nvrtc.ptx(source, f"{name}.cu", "90a"), "90a")
        except CompileError as error:
            assert "spills or local memory" in str(error), error
        else:
            raise CompileError(f"self-test: a kernel with {name} passed")
    try:
        nvrtc.ptx("__global__ void broken() { no_such_function(); }", "broken.cu", "90a")
    except CompileError:
        return
    raise CompileError("self-test: a broken kernel compiled")


def compiled(nvrtc: Nvrtc, ptxas: pathlib.Path, source: str, architecture: str) -> str:
    """What was found in one file for one architecture, a line a kernel; raises CompileError."""
    begun = time.monotonic()
    kernels = assemble(ptxas, nvrtc.ptx((ROOT / source).read_text(), source, architecture), architecture)
    return "\n  ".join([f"{source} sm_{architecture}: {len(kernels)} kernels, no spills or local memory"
                        f" ({time.monotonic() - begun:.1f} s)", *kernels])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", default=SOURCES,
                        help="device translation units, relative to the root")
    arguments = parser.parse_args()
    wheels = installed("cuda-12.8", "CUDA 12.8's compiler wheels (0.4 GB)")
    nvrtc = Nvrtc(wheels)
    ptxas = wheels / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
    ptxas.chmod(0o755)
    if nvrtc.version() != "12.8":
        print(f"NVRTC is {nvrtc.version()}, wanted 12.8")
        return 1
    try:
        self_test(nvrtc, ptxas)
        print("NVRTC 12.8: the self-test's clean kernel passes, its three bad ones fail")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = itertools.product(arguments.sources, ARCHITECTURES)
            for found in pool.map(lambda job: compiled(nvrtc, ptxas, *job), jobs):
                print(found)
    except CompileError as error:
        print(f"CUDA 12.8: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
