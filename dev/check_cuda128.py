"""Compiles all device code that a build ships with CUDA 12.8's front end (NVRTC) and assembler (ptxas).

This check shows that 12.8 is enough for every .cu file outside tests/, on a machine that builds with CUDA 13. A spill
or local memory is a failure, as in the build. The kernels in instances/ folders may spill, and are assembled for one
architecture only: a build leaves them as PTX, which the driver compiles. The wheels of
scripts/requirements/cuda-12.8.txt, which are installed once into a folder of their own, are all that it needs: no GPU,
no driver, no toolkit.

NVRTC has no host library and takes every function for device code. So this check replaces host headers by HOST, which
declares what the files' host functions name; a launch in a host function becomes a launch by the device, which
instantiates the kernel. What throws stands between #ifndef __CUDACC_RTC__ and #endif in the .cu file. Host code
is therefore not checked here: the lane cuda128 of .ci/long compiles it with 12.8's headers.
"""

import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import scripts_path  # noqa: F401
from pinned_wheels import installed
from tracked_files import ROOT, tracked_files

# Hopper and Blackwell; the lane cuda128 of .ci/long builds for all six architectures.
ARCHITECTURES = ("90a", "100a", "120a")
# All device translation units of a build; the longest are first, so that the last ones do not wait for one another.
SOURCES = sorted((path for path in tracked_files() if path.endswith(".cu") and not path.startswith("tests/")),
                 key=lambda path: (not path.startswith(("kernels/plain/", "kernels/ring/rows/")), path))

# What host functions name: declared, never defined, since nothing is linked.
HOST = """#pragma once
#include <cuda_device_runtime_api.h>
#include <cuda/std/bit>
#include <cuda/std/cstdint>
namespace std {
using cuda::std::bit_cast;
template <class T> struct function;
template <class T> struct optional;
struct string {};
template <class T> struct unique_ptr { T* operator->() const; void reset(T*); };
template <class T> struct vector { vector(size_t = 0); T* data(); size_t size() const; };
}
namespace mkbench {
template <class T> struct DeviceBuffer {
  DeviceBuffer(size_t = 0);
  T* get() const;
  size_t size() const, bytes() const;
};
}
#define MKBENCH_CUDA(call)
"""
# Headers that NVRTC does not have, or that only host code reads.
HEADERS = {
    "cstdint": "#pragma once\n#include <cuda/std/cstdint>\n" + "".join(
        f"using cuda::std::{t}; namespace std {{ using cuda::std::{t}; }}\n" for t in (
            "int8_t", "int16_t", "int32_t", "int64_t",
            "uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t")),
    # For names in tables that host and device share; device code never reads them.
    "string_view": "#pragma once\nnamespace std { struct string_view {\n"
                   "  const char* text;\n  constexpr string_view(const char* t = \"\") : text(t) {}\n}; }\n",
    "cstddef": "#pragma once\n#include <cuda/std/cstddef>\nnamespace std { using cuda::std::size_t; }\n",
    "host.h": HOST,
    **{name: '#include "host.h"\n' for name in (
        "algorithm", "bit", "cuda_runtime.h", "functional", "memory", "optional", "string", "utility",
        "vector", "kernels/cuda_check.h", "kernels/cuda_event.h", "kernels/device_buffer.h",
        "references/base/error.h")},
    "references/config.h": '#include "references/model/shape.h"\n',
    "references/engine.h": '#include "references/fault_kind.h"\nnamespace mkbench { struct ModelConfig; }\n',
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


def is_ptx(source: str) -> bool:
    """True if a build leaves this file's kernels as PTX: they are for diagnoses, and may spill."""
    return "/instances/" in source


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
            wheels / "nvidia" / "cuda_nvcc" / "include",
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
        headers = (ctypes.c_char_p * len(HEADERS))(*(content.encode() for content in HEADERS.values()))
        names = (ctypes.c_char_p * len(HEADERS))(*(n.encode() for n in HEADERS))
        self.check(self.library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), len(HEADERS), headers, names))
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


def assemble(ptxas: pathlib.Path, ptx: bytes, architecture: str, may_spill: bool = False) -> list[str]:
    """One line a kernel (registers, shared memory); raises where one spills or uses local memory and may not."""
    # A file with host functions calls what is only declared, so it is compiled without linking. Only then: without
    # linking ptxas keeps registers for unknown callers, and plain's kernels spill.
    link = ["-c"] if b".extern .func" in ptx else []
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernel.ptx"
        source.write_bytes(ptx)
        done = subprocess.run(
            [str(ptxas), "-v", *link, f"-arch=sm_{architecture}", "--warn-on-spills",
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
        if not any(int(number) for number in frame.groups()):
            continue
        if may_spill:
            kernels[-1] += f"; {frame.group()}"
        else:
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
    kernels = assemble(ptxas, nvrtc.ptx((ROOT / source).read_text(), source, architecture), architecture,
                       is_ptx(source))
    return "\n  ".join([f"{source} sm_{architecture}: {len(kernels)} kernels, "
                        f"{'spills are allowed' if is_ptx(source) else 'no spills or local memory'}"
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
            jobs = ((source, architecture) for source in arguments.sources
                    for architecture in ARCHITECTURES[:1 if is_ptx(source) else None])
            for found in pool.map(lambda job: compiled(nvrtc, ptxas, *job), jobs):
                print(found)
    except CompileError as error:
        print(f"CUDA 12.8: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
