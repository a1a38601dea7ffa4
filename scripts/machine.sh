# What this machine has. Sourced by setup.sh; nothing here installs or changes anything.
# Each function sets the variables that its comment names, and explains on stderr what it rejects.

# Where NVIDIA's installer puts a toolkit, without putting it on PATH.
usual_toolkit=/usr/local/cuda

say() { printf 'setup: %s\n' "$*" >&2; }

# die MESSAGE [WHAT TO DO ...]
die() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# at_least VERSION WANTED
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# pinned PACKAGE: its version in requirements/python.txt.
pinned() { sed -n "s/^$1==//p" "$root/scripts/requirements/python.txt"; }

# torch_fact NAME, out of find_torch.py's answer in $torch_facts.
torch_fact() { printf '%s\n' "$torch_facts" | sed -n "s/^$1=//p"; }

# missing_packages: names from requirements/debian.txt whose files are not there.
find_missing_packages() {
  missing_packages=""
  local name probe
  while read -r name probe; do
    case "$name" in '' | '#'*) continue ;; esac
    [ -e "$probe" ] || [ -e "/usr/local/${probe#/usr/}" ] || missing_packages+=" $name"
  done < "$root/scripts/requirements/debian.txt"
  missing_packages="${missing_packages# }"
}

# cxx: one C++ compiler for host code and for nvcc, whatever CUDAHOSTCXX says; two would mix ABIs.
find_cxx() {
  cxx="$(command -v "${CXX:-g++}" || true)"
  [ -n "$cxx" ] || die "there is no C++ compiler '${CXX:-g++}'" "apt-get install g++"
  local major
  major="$("$cxx" -dumpversion | cut -d. -f1)"
  if "$cxx" --version | head -n 1 | grep -qiv clang && [ "$major" -lt 12 ]; then
    die "$cxx is GCC $major; C++20 needs 12 or newer" \
        "Debian 12 and Ubuntu 24.04 have it; or set CXX to a newer compiler"
  fi
  if [ -n "${CUDAHOSTCXX:-}" ] && [ "$(command -v "$CUDAHOSTCXX")" != "$cxx" ]; then
    say "nvcc is given $cxx too (CUDAHOSTCXX=$CUDAHOSTCXX is not used)"
  fi
}

# base_python: a Python that can make the virtual environment.
find_base_python() {
  local candidate seen=""
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    candidate="$(command -v "$candidate" || true)"
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
        2> /dev/null && "$candidate" -c 'import ensurepip, venv' 2> /dev/null; then
      base_python="$("$candidate" -c 'import sys; print(sys.executable)')"
      return 0
    fi
    seen+=" $candidate ($("$candidate" -V 2>&1 | tail -n 1))"
  done
  base_python=""
  rejected_pythons="${seen# }"
  return 1
}

# machine_python, torch_facts, cmake, ninja: a python3 on PATH that already has the pinned torch, with
# CMake and ninja (a machine image made for GPU work). Returns 1 where there is none.
find_machine_python() {
  machine_python="$(command -v python3 || true)"
  [ -n "$machine_python" ] || return 1
  torch_facts="$("$machine_python" "$root/scripts/find_torch.py" 2> /dev/null)" || return 1
  local found
  found="$(torch_fact version)"
  if [ "$found" != "$(pinned torch)" ]; then
    say "$machine_python has torch $found, not $(pinned torch): a virtual environment is used"
    return 1
  fi
  if [ "$(torch_fact cuda)" = none ]; then
    say "$machine_python has a torch without CUDA: a virtual environment is used"
    return 1
  fi
  if ! "$machine_python" -c 'import numpy, safetensors' 2> /dev/null; then
    say "$machine_python has torch but no numpy or safetensors: a virtual environment is used"
    return 1
  fi
  local bin
  bin="$(dirname "$("$machine_python" -c 'import sys; print(sys.executable)')")"
  cmake="$(PATH="$bin:$PATH" command -v cmake || true)"
  ninja="$(PATH="$bin:$PATH" command -v ninja || true)"
  if [ -z "$cmake" ] || [ -z "$ninja" ] ||
      ! at_least "$("$cmake" --version | sed -n 's/^cmake version //p')" 3.28; then
    say "$machine_python has torch, but CMake >= 3.28 or ninja is missing: a virtual environment is used"
    return 1
  fi
  machine_python="$("$machine_python" -c 'import sys; print(sys.executable)')"
}

# toolkit, toolkit_version: the machine's CUDA toolkit, if it fits CUDA $1 (torch's). Returns 1 where
# none does; then toolkit_reason says why.
find_toolkit() {
  toolkit="" toolkit_version="" toolkit_reason="this machine has no nvcc"
  if [ "${MKBENCH_USE_PYPI_CUDA:-0}" != 0 ]; then
    toolkit_reason="MKBENCH_USE_PYPI_CUDA is set"
    return 1
  fi
  local nvcc top
  for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || true)" "$usual_toolkit/bin/nvcc"; do
    if [ -z "$nvcc" ] || [ ! -x "$nvcc" ]; then continue; fi
    toolkit_version="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    # nvcc on PATH may be a wrapper; it knows best where its toolkit lies.
    top="$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')"
    if ! at_least "$toolkit_version" 12.8; then
      toolkit_reason="$nvcc is CUDA $toolkit_version, older than 12.8"
    elif [ "${toolkit_version%%.*}" != "${1%%.*}" ]; then
      toolkit_reason="$nvcc is CUDA $toolkit_version, but libtorch is built for CUDA $1"
    elif [ -z "$top" ] || [ ! -e "$top/include/cuda_runtime.h" ] ||
        [ ! -d "$top/include/nvtx3" ] || [ ! -e "$top/lib64/libcudart.so" ]; then
      toolkit_reason="the toolkit of $nvcc is not complete (cuda_runtime.h, nvtx3, libcudart.so)"
    else
      toolkit="$(cd "$top" && pwd -P)"
      return 0
    fi
  done
  return 1
}

# gpus: "driver, compute capability, name" a line; empty without a working NVIDIA driver.
find_gpus() {
  gpus=""
  command -v nvidia-smi > /dev/null || return 0
  local query=(nvidia-smi --query-gpu=driver_version,compute_cap,name --format=csv,noheader)
  if ! gpus="$(timeout 30 "${query[@]}" 2> /dev/null)"; then
    say "nvidia-smi is there but answers nothing: no GPU is used. It says:"
    timeout 30 nvidia-smi 2>&1 | head -n 3 >&2 || true
    gpus=""
  fi
}

# architectures: what to build for. The GPUs of this machine; without one, 90a-real alone, which holds every
# kernel (ring needs sm_90): six architectures take minutes more.
choose_architectures() {
  architectures="${MKBENCH_CUDA_ARCHITECTURES:-}"
  local all capability
  all="$(sed -n 's/^set(MKBENCH_CUDA_ARCHITECTURES "\([^"]*\)".*/\1/p' "$root/CMakeLists.txt")"
  if [ "$architectures" = all ]; then architectures="$all"; fi
  [ -z "$architectures" ] || return 0
  if [ "$use_gpu" = 0 ]; then
    architectures=90a-real
    say "no GPU is used: the build is for $architectures alone (MKBENCH_CUDA_ARCHITECTURES=all for every card)"
    return 0
  fi
  while IFS=', ' read -r _ capability _; do
    local number="${capability/./}" wanted
    wanted="$(printf '%s\n' "$all" | tr ';' '\n' | grep -E "^${number}a?-real$" || true)"
    if [ -z "$wanted" ]; then
      wanted="${number}-real"
      say "compute capability $capability is not among those that mkbench is tested on ($all)"
    fi
    case ";$architectures;" in *";$wanted;"*) ;; *) architectures+="${architectures:+;}$wanted" ;; esac
  done <<< "$gpus"
}

# Stops, with what to do, where the driver or the cards cannot run what would be built. $1: torch's CUDA.
# Cards older than 8.0 are left out where a newer one is beside them.
check_gpus() {
  local driver capability name needed_driver usable=""
  local way_out="or run without the GPU: MKBENCH_DEVICE=cpu (for mkbench itself: --device cpu)"
  # The oldest driver that runs each CUDA major version (release notes, minor version compatibility).
  case "${1%%.*}" in 12) needed_driver=525 ;; 13) needed_driver=580 ;; *) needed_driver=0 ;; esac
  while IFS=',' read -r driver capability name; do
    capability="${capability# }" name="${name# }"
    if [ "${driver%%.*}" -lt "$needed_driver" ]; then
      die "the driver $driver of '$name' is too old for CUDA $1 (needs $needed_driver or newer)" \
          "update the NVIDIA driver," "$way_out"
    fi
    if at_least "$capability" 8.0; then
      usable+="$driver, $capability, $name"$'\n'
    else
      say "'$name' has compute capability $capability; bf16 needs 8.0 or newer"
    fi
  done <<< "$gpus"
  gpus="${usable%$'\n'}"
  [ -n "$gpus" ] || die "no card of this machine can run mkbench (above)" "use a newer card," "$way_out"
}

# Stops where libtorch has no code for one of the cards. $1: a Python with torch. Imports torch: seconds.
check_torch_architectures() {
  local capabilities
  capabilities="$(cut -d, -f2 <<< "$gpus" | tr -d ' ' | sort -u | tr '\n' ' ')"
  "$1" "$root/scripts/check_torch_architectures.py" $capabilities >&2 ||
    die "libtorch has no code for this card (above)" \
        "use a torch wheel that has it, or run without the GPU: MKBENCH_DEVICE=cpu"
}
