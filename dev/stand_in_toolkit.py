"""Makes a folder that set-up takes for a toolkit of CUDA 12.8: `dev/stand_in_toolkit.py FOLDER`.

PyPI has no nvcc of CUDA 12.x, but all other parts: the headers, runtime library and assembler (ptxas) in this folder
come from 12.8. The nvcc comes from CUDA 13: it reports version 12.8 and uses its own front end, whose PTX is relabelled
with the version that 12.8 reads. So host code is compiled and linked as with 12.8; machine code is near to 12.8's, but
not equal, because front ends differ. dev/check_cuda128.py compiles the kernels with 12.8's own front end. Nothing built
with this toolkit is for use on a GPU.
Exit code 2 where there is no compiler of CUDA 13.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import scripts_path  # noqa: F401
from pinned_wheels import installed

VERSION = (12, 8, 93)
PTX_VERSION = "8.7"
# Set-up and CMake read the version from what --version prints; every other call goes to the compiler.
NVCC = """#!/bin/sh
case " $* " in
  *" --version "*)
    echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Cuda compilation tools, release {0}.{1}, V{0}.{1}.{2}"
    ;;
  *) exec "$(dirname "$0")/nvcc-13" "$@" ;;
esac
""".format(*VERSION)
PTXAS = f"""#!/bin/sh
for file; do
  case "$file" in *.ptx) sed -i 's/^\\.version 9\\.[0-9]*/.version {PTX_VERSION}/' "$file" ;; esac
done
exec "$(dirname "$0")/ptxas-12.8" "$@"
"""
# nvcc includes this header before any other.
CUDA_RUNTIME = """#ifdef __CUDACC_VER_MAJOR__
#undef __CUDACC_VER_MAJOR__
#undef __CUDACC_VER_MINOR__
#undef __CUDACC_VER_BUILD__
#define __CUDACC_VER_MAJOR__ {0}
#define __CUDACC_VER_MINOR__ {1}
#define __CUDACC_VER_BUILD__ {2}
#endif
#include_next <cuda_runtime.h>
""".format(*VERSION)
LEFT_OUT = ("__init__.py", "__pycache__")


def compiler(candidates: list[str]) -> pathlib.Path | None:
    """The folder of the first nvcc of CUDA 13 among the candidates (paths of nvcc; empty ones are passed over)."""
    for nvcc in filter(None, candidates):
        if not os.access(nvcc, os.X_OK):
            continue
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
        top = re.search(r"^#\$ TOP=(.+)$", subprocess.run(
            [nvcc, "--dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True).stderr, re.M)
        if "release 13." in said and top is not None:
            return pathlib.Path(top.group(1)).resolve()
    return None


def link_all(source: pathlib.Path, into: pathlib.Path) -> None:
    """Links to everything in `source`, in the folder `into`."""
    into.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name not in LEFT_OUT:
            (into / path.name).symlink_to(path)


def make(folder: pathlib.Path, cuda13: pathlib.Path, wheels: pathlib.Path) -> None:
    """Makes `folder` from CUDA 13's toolkit and 12.8's wheels, unless it was made from the same parts before."""
    program = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    stamp, made_of = folder / "made-of", f"{program} {cuda13} {wheels}\n"
    if stamp.exists() and stamp.read_text() == made_of:
        return
    if folder.exists():
        shutil.rmtree(folder)
    nvidia = wheels / "nvidia"
    for part in ("cuda_runtime", "cuda_cccl", "nvtx"):
        link_all(nvidia / part / "include", folder / "include")
    link_all(nvidia / "cuda_nvcc" / "include" / "crt", folder / "include" / "crt")
    # The code that nvcc generates includes this header, so it must be of nvcc's version.
    glue = folder / "include" / "crt" / "host_runtime.h"
    glue.unlink()
    glue.symlink_to(cuda13 / "include" / "crt" / "host_runtime.h")

    (folder / "first").mkdir()
    (folder / "first" / "cuda_runtime.h").write_text(CUDA_RUNTIME)

    binaries = folder / "bin"
    link_all(cuda13 / "bin", binaries)
    for name in ("nvcc", "nvcc.profile", "ptxas"):
        (binaries / name).unlink()
    # nvcc looks for its parts beside its own file, so it is copied, not linked.
    shutil.copy2(cuda13 / "bin" / "nvcc", binaries / "nvcc-13")
    profile = (cuda13 / "bin" / "nvcc.profile").read_text()
    profile = profile.replace("INCLUDES        +=", 'INCLUDES        += "-I$(TOP)/first"', 1)
    # CCCL has a folder of its own since CUDA 13.
    profile = profile.replace('"-isystem" "$(TOP)/$(_TARGET_DIR_)/include/cccl"', "")
    (binaries / "nvcc.profile").write_text(profile)
    (binaries / "ptxas-12.8").symlink_to(nvidia / "cuda_nvcc" / "bin" / "ptxas")
    (nvidia / "cuda_nvcc" / "bin" / "ptxas").chmod(0o755)
    for name, script in (("nvcc", NVCC), ("ptxas", PTXAS)):
        (binaries / name).write_text(script)
        (binaries / name).chmod(0o755)
    (folder / "nvvm").symlink_to(cuda13 / "nvvm")

    link_all(nvidia / "cuda_runtime" / "lib", folder / "lib64")
    (folder / "lib64" / "libcudart.so").symlink_to("libcudart.so.12")
    # CMake tries the compiler with the static library, which PyPI does not have.
    (folder / "lib64" / "libcudart_static.a").symlink_to("libcudart.so.12")
    (folder / "lib64" / "libcudadevrt.a").symlink_to(cuda13 / "lib64" / "libcudadevrt.a")
    stamp.write_text(made_of)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--compiler", default="", help="nvcc of CUDA 13 (default: the one on PATH)")
    arguments = parser.parse_args()
    cuda13 = compiler([arguments.compiler, shutil.which("nvcc") or "", "/usr/local/cuda/bin/nvcc"])
    if cuda13 is None:
        print("there is no nvcc of CUDA 13; --compiler names one", file=sys.stderr)
        return 2
    make(arguments.folder.resolve(), cuda13, installed("cuda-12.8", "CUDA 12.8's wheels (0.4 GB)"))
    print(f"{arguments.folder}: CUDA 12.8 with the front end of {cuda13}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
