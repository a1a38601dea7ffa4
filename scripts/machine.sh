# What this machine has. Sourced by setup.sh; nothing here installs or changes anything.
# Each function sets the variables that its comment names, and explains on stderr what it rejects.

# Where NVIDIA's installer puts a toolkit, without putting it on PATH.
usual_toolkit=/usr/local/cuda

# Where WSL2 has the user-mode half of Windows' driver, the only driver that reaches the card there. It may be missing
# in PATH, or come after the programs of a Linux driver that was installed inside.
wsl_lib=/usr/lib/wsl/lib

# Where the kernel shows the limits of containers.
cgroups=/sys/fs/cgroup

cpu_way_out="or run without the GPU: MKBENCH_DEVICE=cpu (for mkbench itself: --device cpu)"

# program: the name in front of every message (default: setup).
say() { printf '%s: %s\n' "${program:-setup}" "$*" >&2; }

# die MESSAGE [WHAT TO DO ...]
die() {
  printf '%s: error: %s\n' "${program:-setup}" "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# at_least VERSION WANTED
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# pinned PACKAGE: its version in the lane's requirements.
pinned() { sed -n "s/^$1==//p" "$root/scripts/requirements/lane-$lane.txt"; }

# The rows of requirements/cuda_lanes.txt: lane, driver, toolkit, image, disk.
lane_rows() { grep '^[0-9]' "$root/scripts/requirements/cuda_lanes.txt"; }

# lane_has CUDA: whether a toolkit or libtorch of that CUDA version belongs to the chosen lane.
lane_has() { [ "${1%%.*}" = "${lane%%.*}" ] && at_least "$1" "$lane"; }

# torch_fact NAME: a value of find_torch.py's answer in $torch_facts.
torch_fact() { printf '%s\n' "$torch_facts" | sed -n "s/^$1=//p"; }

# The rows of requirements/debian.txt: package, file.
debian_rows() { grep '^[^#]' "$root/scripts/requirements/debian.txt"; }

# missing_packages: names from requirements/debian.txt whose files are not there.
find_missing_packages() {
  missing_packages=""
  local name probe
  while read -r name probe; do
    [ -e "$probe" ] || [ -e "/usr/local/${probe#/usr/}" ] || missing_packages+=" $name"
  done < <(debian_rows)
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

# existing_folder PATH: the nearest folder on the way to PATH that is there.
existing_folder() {
  local at="$1"
  while [ ! -d "$at" ]; do at="$(dirname "$at")"; done
  printf '%s\n' "$at"
}

# can_write FOLDER: by trying, because root may write everywhere but in /sys and on a disk that is read-only.
can_write() {
  local probe
  probe="$(mktemp -d "$1/.mkbench-XXXXXX" 2> /dev/null)" && rmdir "$probe"
}

# cache: the folder for what can be fetched again: the user's, where it can be written or has NAME already; else build/.
find_cache() {  # NAME
  local why
  case "${XDG_CACHE_HOME:-}" in
    /*) cache="$XDG_CACHE_HOME/mkbench" ;;
    *) cache="${HOME:+$HOME/.cache/mkbench}" ;;
  esac
  if [ -z "$cache" ]; then
    why="neither HOME nor XDG_CACHE_HOME is set"
  elif [ -e "$cache/$1/.mkbench-complete" ] || can_write "$(existing_folder "$cache")"; then
    return 0
  else
    why="cannot write to $(existing_folder "$cache")"
  fi
  cache="$root/build/cache"
  say "$why: what is fetched goes to $cache; XDG_CACHE_HOME names another folder"
}

# base_python: a Python that can make the virtual environment; with offline packages, one of the version that their
# wheels are for.
find_base_python() {
  local candidate seen=""
  for candidate in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    candidate="$(command -v "$candidate" || true)"
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) or
          sys.argv[1] not in ("", "%d.%d" % sys.version_info[:2]))' "${offline_python:-}" 2> /dev/null &&
        "$candidate" -c 'import ensurepip, venv' 2> /dev/null; then
      base_python="$("$candidate" -c 'import sys; print(sys.executable)')"
      return 0
    fi
    seen+=" $candidate ($("$candidate" -V 2>&1 | tail -n 1))"
  done
  base_python=""
  rejected_pythons="${seen# }"
  return 1
}

# Whether installing the system's package python3-venv may help: there is no Python at all, or the system's own has a
# version that fits but lacks venv. A Python of the user's is left alone. Offline packages are for the system's own.
python_package_helps() {
  local found
  [ -z "${offline:-}" ] || return 0
  found="$(command -v python3 || true)"
  [ -n "$found" ] || return 0
  [ "$found" = /usr/bin/python3 ] &&
    at_least "$(python3 -c 'import platform; print(platform.python_version())')" 3.11
}

# machine_python, torch_facts, cmake, ninja: a python3 on PATH that already has the lane's torch, with
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
  if ! lane_has "$(torch_fact cuda)"; then
    say "$machine_python has a torch built on CUDA $(torch_fact cuda), not $lane: a virtual environment is used"
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

# toolkit, toolkit_version: the machine's CUDA toolkit that fits the lane. Returns 1 if none does; then toolkit_reason
# says why.
find_toolkit() {
  toolkit="" toolkit_version="" toolkit_reason=""
  if [ "${MKBENCH_USE_PYPI_CUDA:-0}" != 0 ]; then
    toolkit_reason="MKBENCH_USE_PYPI_CUDA is set"
    return 1
  fi
  local nvcc top seen=""
  for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || true)" "$usual_toolkit"{,-*}/bin/nvcc; do
    if [ -z "$nvcc" ] || [ ! -x "$nvcc" ]; then continue; fi
    case "$seen" in *":$(realpath "$nvcc"):"*) continue ;; esac
    seen+=":$(realpath "$nvcc"):"
    toolkit_version="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    # nvcc on PATH may be a wrapper: its --dryrun says where its toolkit lies.
    top="$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')"
    if ! lane_has "$toolkit_version"; then
      toolkit_reason+="${toolkit_reason:+, }$nvcc is CUDA $toolkit_version"
    elif [ -z "$top" ] || [ ! -e "$top/include/cuda_runtime.h" ] ||
        [ ! -d "$top/include/nvtx3" ] || [ ! -e "$top/lib64/libcudart.so" ]; then
      toolkit_reason+="${toolkit_reason:+, }the toolkit of $nvcc is not complete"
      toolkit_reason+=" (cuda_runtime.h, nvtx3, libcudart.so)"
    else
      toolkit="$(cd "$top" && pwd -P)"
      return 0
    fi
  done
  toolkit_reason="${toolkit_reason:-this machine has no nvcc}"
  return 1
}

# gpus: "driver, compute capability, name" a line; empty without a working NVIDIA driver.
# driver_cuda: the newest CUDA of the libcuda that programs load ("12.8"); empty where nvidia-smi does not say. With
# NVIDIA's forward compatibility it is newer than the driver's own.
find_gpus() {
  gpus="" driver_cuda=""
  local smi
  smi="$(command -v "$wsl_lib/nvidia-smi" || command -v nvidia-smi || true)"
  [ -n "$smi" ] || return 0
  local query=("$smi" --query-gpu=driver_version,compute_cap,name --format=csv,noheader)
  if ! gpus="$(timeout 30 "${query[@]}" 2> /dev/null)"; then
    say "nvidia-smi is there but fails, so no GPU is used. It says:"
    timeout 30 "$smi" 2>&1 | head -n 3 >&2 || true
    gpus=""
    return 0
  fi
  driver_cuda="$(timeout 30 "$smi" 2> /dev/null |
    sed -n 's/.*CUDA \(UMD \)\?Version: *\([0-9][0-9.]*\).*/\2/p' | head -n 1)" || true
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

# driver_runs LANE OLDEST_DRIVER: runs_lane() of harness/device/cuda_lanes.cpp in shell.
driver_runs() {
  if [ -n "$driver_cuda" ]; then at_least "$driver_cuda" "$1"; else [ "${driver%%.*}" -ge "$2" ]; fi
}

# lane: the CUDA version to build with. MKBENCH_CUDA names it; without it the driver decides, by the rows of
# cuda_lanes.txt, and without a GPU it is the newest. Stops where the driver cannot run it.
choose_lane() {
  local name needed names="" oldest="" runs="" wanted="${MKBENCH_CUDA:-}" wanted_driver="" why="no GPU is used"
  local driver="${gpus%%,*}" card
  card="$(head -n 1 <<< "$gpus" | cut -d, -f3)"
  while read -r name needed _; do
    names+="${names:+ or }$name" oldest="$name (needs $needed or newer)"
    if [ "$name" = "$wanted" ]; then wanted_driver="$needed"; fi
    if [ -z "$runs" ] && { [ -z "$gpus" ] || driver_runs "$name" "$needed"; }; then runs="$name"; fi
  done < <(lane_rows)
  if [ -n "$wanted" ] && [ -z "$wanted_driver" ]; then
    say "error: --cuda or MKBENCH_CUDA is '$wanted', wanted $names"
    exit 2
  fi
  if [ -n "$gpus" ]; then
    why="the driver $driver runs CUDA $runs"
    [ -n "$runs" ] || die "the driver $driver of '${card# }' is too old for CUDA $oldest" \
      "update the NVIDIA driver," "$cpu_way_out"
    [ -z "$wanted" ] || driver_runs "$wanted" "$wanted_driver" ||
      die "the driver $driver of '${card# }' is too old for CUDA $wanted (needs $wanted_driver or newer)" \
        "update the NVIDIA driver, build for CUDA $runs (--cuda $runs)," "$cpu_way_out"
  fi
  lane="${wanted:-$runs}"
  if [ -n "$wanted" ]; then why="asked for"; fi
  say "CUDA $lane ($why), torch $(pinned torch)"
}

# Finds the toolkit; stops if this machine has none of the lane and PyPI has no compiler of the lane either.
require_toolkit() {
  local name needed package image free="" free_driver driver="${gpus%%,*}" last_way
  if find_toolkit; then return 0; fi
  while read -r name needed package image _; do
    if [ "$package" = pypi ]; then free="$name" free_driver="$needed"; fi
    if [ "$name" = "$lane" ]; then break; fi
  done < <(lane_rows)
  if [ "$package" = pypi ]; then return 0; fi
  last_way="or update the NVIDIA driver to $free_driver or newer: then CUDA $free is used, whose compiler PyPI has"
  if [ -z "$gpus" ] || driver_runs "$free" "$free_driver"; then
    last_way="or build for CUDA $free, whose compiler PyPI has: --cuda $free"
  fi
  die "CUDA $lane needs a toolkit of that version on this machine (PyPI has no such nvcc): $toolkit_reason" \
    "apt-get install $package (from NVIDIA's package repository)," "or use a container image that has it: $image," \
    "$last_way"
}

# Stops, with what to do, where none of the cards can run mkbench. Cards older than 8.0 are left out where a newer
# one is beside them.
check_gpus() {
  local driver capability name usable=""
  while IFS=',' read -r driver capability name; do
    capability="${capability# }" name="${name# }"
    if at_least "$capability" 8.0; then
      usable+="$driver, $capability, $name"$'\n'
    else
      say "'$name' has compute capability $capability; bf16 needs 8.0 or newer"
    fi
  done <<< "$gpus"
  gpus="${usable%$'\n'}"
  [ -n "$gpus" ] || die "no card of this machine can run mkbench (above)" "use a newer card," "$cpu_way_out"
}

# cgroup_limits HIERARCHY FILE NAME: the limits in FILE of this process's control group and of those around it.
cgroup_limits() {
  local at
  at="$(sed -n "s/^[0-9]*:$3://p" "${own_cgroups:-/proc/self/cgroup}" 2> /dev/null || true)"
  while cat "$cgroups$1$at/$2" 2> /dev/null || true; [ -n "$at" ]; do at="${at%/*}"; done
}

# jobs: how many compilers run at a time. One takes up to 2 GB.
jobs() {
  local cores memory_gb limit
  cores="$(nproc)"
  memory_gb="$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)"
  # Without a limit the files say "max", in the first version a number beyond all memory.
  for limit in $(cgroup_limits "" memory.max ""; cgroup_limits /memory memory.limit_in_bytes memory); do
    [ "$limit" != max ] || continue
    limit=$((limit / 1073741824))
    if [ "$limit" -lt "$memory_gb" ]; then memory_gb="$limit"; fi
  done
  local by_memory=$((memory_gb / 2 > 0 ? memory_gb / 2 : 1))
  echo "${MKBENCH_JOBS:-$((cores < by_memory ? cores : by_memory))}"
}

# All that is decided before Python: gpus, use_gpu, lane, toolkit (empty where it comes from PyPI), architectures.
judge_machine() {
  find_gpus
  # With MKBENCH_DEVICE=cpu an unfit GPU is left aside; a fit one still decides what to build for, so that
  # a run on the CPU does not undo the build for the GPU.
  if [ "${MKBENCH_DEVICE:-auto}" = cpu ] && [ -n "$gpus" ] &&
      ! (choose_lane && check_gpus && require_toolkit) 2> /dev/null; then
    gpus=""
  fi
  use_gpu=0
  choose_lane
  if [ -n "$gpus" ]; then
    use_gpu=1
    check_gpus
  fi
  require_toolkit
  choose_architectures
}

# Stops where libtorch has no code for one of the cards. $1: a Python with torch. Imports torch: seconds.
check_torch_architectures() {
  local capabilities
  capabilities="$(cut -d, -f2 <<< "$gpus" | tr -d ' ' | sort -u | tr '\n' ' ')"
  "$1" "$root/scripts/check_torch_architectures.py" $capabilities >&2 ||
    die "libtorch has no code for this card (above)" \
        "use a torch wheel that has it, or run without the GPU: MKBENCH_DEVICE=cpu"
}
