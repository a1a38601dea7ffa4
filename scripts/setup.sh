#!/usr/bin/env bash
# Makes everything that mkbench needs, and builds it. Steps that are done are skipped; if all are, no network
# is needed. Asks no question. run.sh and test.sh call it; by hand: scripts/setup.sh --help.
set -euo pipefail

# Settings of a module system or an IDE for another Python than the one that is set up here.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
. "$root/scripts/machine.sh"
. "$root/scripts/progress.sh"
. "$root/scripts/packages.sh"

usage() {
  cat << 'END'
usage: scripts/setup.sh [--plan] [--cuda 13|12.8] [TARGET ...]
  Debian packages, one virtual environment, CMake configure, build of TARGETs (default: all).
  --plan   prints what would be used and stops before anything is changed
  --cuda   the CUDA version to build with (default: by the driver; the newest without a GPU)
environment:
  MKBENCH_CUDA                the same as --cuda, for run.sh and test.sh too
  MKBENCH_PRESET              CMake preset: release (default), ci, sanitize; builds in build/<preset>
  MKBENCH_CUDA_ARCHITECTURES  e.g. 90a-real (default: this machine's GPUs; 90a-real without one)
                              "all": every supported card
  MKBENCH_VENV                the virtual environment (default: ~/.cache/mkbench/venv-<hash of the pins>, with
                              XDG_CACHE_HOME for ~/.cache; build/cache where that cannot be written)
  MKBENCH_USE_PYPI_CUDA=1     take the CUDA compiler from PyPI even where the machine has a toolkit
  MKBENCH_OFFLINE             the folder that packages come from, without a network (default: offline/ in the sources,
                              where an archive of scripts/bundle.sh was unpacked); "no": the network
  MKBENCH_DEVICE=cpu          leave this machine's GPUs aside
  MKBENCH_JOBS                parallel compile jobs (default: cores, but 2 GB of memory each)
  CXX                         the C++ compiler, for nvcc too (default: g++)
END
}

plan=0
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --plan) plan=1 ;;
    --cuda=*) MKBENCH_CUDA="${1#--cuda=}" ;;
    --cuda)
      MKBENCH_CUDA="${2:-}"
      [ -n "$MKBENCH_CUDA" ] || { usage >&2; exit 2; }
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
preset="${MKBENCH_PRESET:-release}"
build="$root/build/$preset"
requirements="$root/scripts/requirements"
started=$SECONDS

# Stops if the disk has no room for the environment (the folder itself may not exist yet).
check_disk() {  # FOLDER
  local at free_gb needed_gb
  at="$(existing_folder "$1")"
  needed_gb="$(lane_rows | awk -v lane="$lane" '$1 == lane { print $5 }')"
  free_gb="$(df -Pk "$at" | awk 'NR == 2 { print int($4 / 1048576) }')"
  [ "$free_gb" -ge "$needed_gb" ] ||
    die "$at has $free_gb GB free; the Python environment needs $needed_gb GB" \
        "free some space, or set MKBENCH_VENV to a folder on another disk"
}

# link TARGET LINK: makes a link that a compiler looks for and PyPI's packages lack.
link() { [ -e "$2" ] || [ ! -e "$(dirname "$2")/$1" ] || ln -s "$1" "$2"; }

# The virtual environment is complete when its stamp says so; a half-made one is made again.
make_venv() {
  local stamp="$venv/.mkbench-complete" mark="$venv/.mkbench-venv"
  if can_write "$(existing_folder "$(dirname "$venv")")"; then
    mkdir -p "$(dirname "$venv")"
    exec 9> "$venv.lock"
    flock -n 9 || { say "waiting for another set-up of $venv"; flock 9; }
  elif [ ! -e "$stamp" ]; then
    die "cannot write to $(existing_folder "$(dirname "$venv")")" "set MKBENCH_VENV to a folder that you can write"
  fi
  if [ ! -e "$stamp" ]; then
    if [ -d "$venv" ] && [ ! -e "$mark" ] && [ -n "$(ls -A "$venv")" ]; then
      die "$venv is there but was not made by this script" "set MKBENCH_VENV to a new or empty folder"
    fi
    [ -z "$offline" ] || require_offline wheels
    [ ! -e "$mark" ] || say "an earlier set-up was cut short; making the environment again"
    rm -rf "$venv"
    check_disk "$venv"
    say "making the Python environment in $venv (torch $(pinned torch)); this takes minutes, depending on the network"
    mkdir -p "$venv" && touch "$mark"
    "$base_python" -m venv "$venv" ||
      die "$base_python could not make a virtual environment" "apt-get install python3-venv"
    pip_install python.txt "lane-$lane.txt"
    touch "$stamp"
  fi
  if [ "$1" = with_cuda ] && [ ! -e "$stamp-cuda" ]; then
    say "installing the CUDA compiler into it (0.3 GB)"
    pip_install "compiler-$lane.txt"
    touch "$stamp-cuda"
  fi
  local cuda
  for cuda in "$venv"/lib/python3.*/site-packages/nvidia/cu13; do
    link lib "$cuda/lib64"
    link libcudart.so.13 "$cuda/lib/libcudart.so"
    link libnvrtc.so.13 "$cuda/lib/libnvrtc.so"
  done
  exec 9>&-
}

# Sets python, cmake, ninja and torch_facts: the machine's own where both torch and toolkit fit, else the lane's
# virtual environment. Sets toolkit where the machine has none: PyPI's.
choose_python_and_toolkit() {
  if [ -z "${MKBENCH_VENV:-}" ] && find_machine_python; then
    if [ -n "$toolkit" ]; then
      python="$machine_python"
      say "using what is installed: $python with torch $(torch_fact version), $toolkit"
      return 0
    fi
    say "$machine_python has torch, but $toolkit_reason: a virtual environment is used"
  fi
  local pins files=(python.txt "lane-$lane.txt" constraints.txt "constraints-$lane.txt")
  local compiler=without_cuda
  if [ -e "$requirements/compiler-$lane.txt" ]; then files+=("compiler-$lane.txt"); fi
  if [ -z "$toolkit" ]; then
    compiler=with_cuda
    say "$toolkit_reason: the CUDA compiler comes from PyPI"
  fi
  pins="$(cd "$requirements" && cat "${files[@]}" | sha256sum | cut -c1-12)"
  venv="${MKBENCH_VENV:-}"
  if [ -z "$venv" ]; then
    find_cache "venv-$lane-$pins"
    venv="$cache/venv-$lane-$pins"
  fi
  if [ "$plan" = 1 ]; then
    python="$venv/bin/python" toolkit="${toolkit:-PyPI}"
    return 0
  fi
  if [ ! -e "$venv/.mkbench-complete" ] && ! find_base_python; then
    ! python_package_helps || install_packages python3-venv
    find_base_python || die "no Python ${offline_python:-from 3.11 to 3.14} that can make a virtual environment" \
      "found: ${rejected_pythons:-none}" "apt-get install python3-venv (Debian 12, Ubuntu 24.04)"
  fi
  make_venv "$compiler"
  python="$venv/bin/python" cmake="$venv/bin/cmake" ninja="$venv/bin/ninja"
  torch_facts="$("$python" "$root/scripts/find_torch.py")" ||
    die "$venv has no torch" "remove that folder and run this again"
  [ "$(torch_fact version)" = "$(pinned torch)" ] ||
    die "$venv has torch $(torch_fact version), wanted $(pinned torch) (CUDA $lane)" \
        "set MKBENCH_VENV to another folder, or remove that one"
  toolkit="${toolkit:-$(torch_fact site)/nvidia/cu13}"
}

configure() {
  local arguments=(--preset "$preset" "-DCMAKE_MAKE_PROGRAM=$ninja" "-DMKBENCH_PYTHON=$python"
    "-DCMAKE_CXX_COMPILER=$cxx" "-DCMAKE_CUDA_HOST_COMPILER=$cxx"
    "-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDAToolkit_ROOT=$toolkit"
    "-DCUDA_TOOLKIT_ROOT_DIR=$toolkit" "-DTorch_DIR=$(torch_fact cmake)"
    "-DMKBENCH_CUDA_ARCHITECTURES=$architectures")
  # A folder that is configured for this request already is left to ninja, which configures again when a list changed.
  local request="$root $cmake ${arguments[*]}"
  if [ "$(cat "$build/setup.request" 2> /dev/null)" = "$request" ]; then return 0; fi
  say "configuring in build/$preset for $architectures"
  mkdir -p "$build"
  rm -f "$build/setup.request"
  (cd "$root" && "$cmake" --fresh "${arguments[@]}" > "$build/configure.log" 2>&1) || {
    tail -n 40 "$build/configure.log" >&2
    die "CMake could not configure (build/$preset/configure.log)"
  }
  printf '%s' "$request" > "$build/setup.request"
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "mkbench runs on Linux x86-64; this is $(uname -sm)"
find_offline
# Without --cuda or MKBENCH_CUDA the lane is the offline packages' lane, also on a machine without a GPU.
if [ -n "$offline" ]; then MKBENCH_CUDA="${MKBENCH_CUDA:-$(offline_fact cuda)}"; fi
find_missing_packages
if [ "$plan" = 1 ]; then
  [ -z "$offline" ] || tell_offline
  [ -z "$missing_packages" ] || say "would install: $missing_packages"
elif [ -n "$missing_packages" ]; then
  install_packages $missing_packages
fi
# A compiler that would be installed cannot be asked for its version yet.
if [ "$plan" = 1 ] && [ -z "${CXX:-}" ] && [[ " $missing_packages " == *" g++ "* ]]; then
  cxx=/usr/bin/g++
else
  find_cxx
fi
judge_machine
choose_python_and_toolkit
if [ "$plan" = 1 ]; then
  printf '%s\n' "cuda=$lane" "python=$python" "toolkit=$toolkit" "cxx=$cxx" "architectures=$architectures" "build=$build"
  exit 0
fi
configure
checked="$build/setup.torch-checked"
if [ "$use_gpu" = 1 ] && [ "${MKBENCH_DEVICE:-auto}" != cpu ] &&
    [ "$(cat "$checked" 2> /dev/null)" != "$python $gpus" ]; then
  check_torch_architectures "$python"
  echo "$python $gpus" > "$checked"
fi
# For run.sh and test.sh: where things are.
printf '%s=%q\n' python "$python" cmake "$cmake" ninja "$ninja" toolkit "$toolkit" > "$build/setup.env"

log="$build/build.log"
say "building ${targets[*]:-everything} in build/$preset for $architectures ($(jobs) jobs)"
build_targets() { "$ninja" -C "$build" -j "$(jobs)" "${targets[@]}" > "$log" 2>&1; }
: > "$log"
if ! with_progress "building ${targets[*]:-everything}" "$log" build_targets; then
  grep -v '^\[[0-9]*/[0-9]*\] ' "$log" | tail -n 60 >&2
  die "the build failed (build/$preset/build.log)"
fi
say "ready after $((SECONDS - started)) s"
