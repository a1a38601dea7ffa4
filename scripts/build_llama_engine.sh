#!/usr/bin/env bash
# Builds llama.cpp behind mkbench's engine ABI, as one shared library (docs/opponents.md). Steps that are already done
# are skipped; a repeated call needs no network.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

usage() {
  cat << 'END'
usage: scripts/build_llama_engine.sh [--device auto|cuda|cpu] [OUT.so]   (default: ./llama.so)
  Fetches llama.cpp's source with pip (77 MB; scripts/requirements/llama.txt), builds it in ~/.cache/mkbench, and puts
  the engine at OUT.so: for CUDA and the CPU where this machine has a GPU, else for the CPU alone.
  --device   cuda: for CUDA without a GPU too; cpu: without CUDA (default: MKBENCH_DEVICE, else auto)
environment: CXX, MKBENCH_CUDA_ARCHITECTURES, MKBENCH_JOBS, MKBENCH_PRESET as for scripts/setup.sh
END
}

device="${MKBENCH_DEVICE:-auto}" out=""
while [ $# -gt 0 ]; do
  case "$1" in
    --device=*) device="${1#--device=}" ;;
    --device)
      device="${2:-}"
      [ -n "$device" ] || { usage >&2; exit 2; }
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *)
      [ -z "$out" ] || { usage >&2; exit 2; }
      out="$1"
      ;;
  esac
  shift
done
case "$device" in auto | cuda | cpu) ;; *) usage >&2; exit 2 ;; esac
out="${out:-llama.so}"
[ -d "$(dirname "$out")" ] || { echo "build_llama_engine: error: there is no folder $(dirname "$out")" >&2; exit 2; }

"$root/scripts/setup.sh" mkbench_git_info < /dev/null
. "$root/build/${MKBENCH_PRESET:-release}/setup.env"
. "$root/scripts/machine.sh"
. "$root/scripts/progress.sh"
sources=tests/engines/llama
requirements="$root/scripts/requirements/llama.txt"
setup_toolkit="$toolkit"
find_cxx
judge_machine 2> /dev/null
if [ "$device" = auto ]; then [ "$use_gpu" = 1 ] && device=cuda || device=cpu; fi

options=(-G Ninja "-DCMAKE_MAKE_PROGRAM=$ninja" "-DCMAKE_CXX_COMPILER=$cxx")
if [ "$device" = cuda ]; then
  options+=(-DGGML_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$architectures" "-DCUDAToolkit_ROOT=$setup_toolkit"
    "-DCMAKE_CUDA_COMPILER=$setup_toolkit/bin/nvcc" "-DCMAKE_CUDA_HOST_COMPILER=$cxx")
  # PyPI's libcublas has no file name without a version.
  cublas="$(find -L "$setup_toolkit/lib64" -maxdepth 1 -name 'libcublas.so*' | sort | head -n 1)"
  [ -n "$cublas" ] || die "the toolkit in $setup_toolkit has no libcublas" "install it, or build for the CPU: --device cpu"
  options+=("-DCUDA_cublas_LIBRARY=$cublas")
fi
# The build is for this machine's CPU, which is part of the key because machines may share a home folder.
key="$(printf '%s\n' "$(cat "$requirements")" "${options[*]}" "$("$cxx" --version)" \
  "$("$cxx" -march=native -Q --help=target 2> /dev/null || grep -m 1 '^flags' /proc/cpuinfo)" | sha256sum | cut -c1-12)"
find_cache "llama-$device-$key"
cache="$cache/llama-$device-$key"
mkdir -p "$cache"
exec 9> "$cache/lock"
flock -n 9 || { say "waiting for another build in $cache"; flock 9; }

fetch_source() {
  local fetched="$cache/fetched"
  rm -rf "$fetched"
  mkdir -p "$fetched/source"
  # pip compares the archive with the pin's sha256.
  TMPDIR="$fetched" with_progress "fetching llama.cpp's source" /dev/null \
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    --require-hashes --requirement "$requirements" --dest "$fetched" >&2 < /dev/null 9>&- ||
    die "pip could not fetch llama.cpp's source (its message is above)"
  tar -xzf "$fetched"/llama_cpp_python-*.tar.gz -C "$fetched/source" --strip-components=3 --wildcards \
    '*/vendor/llama.cpp/'{ggml,src,include,cmake,LICENSE}
  rm -rf "$cache/source"
  mv "$fetched/source" "$cache/source"
  rm -rf "$fetched"
}

# take FILE TARGET: copies FILE if it differs, so that ninja does not build again for an unchanged file.
take() { cmp -s "$1" "$2" || { mkdir -p "$(dirname "$2")" && cp "$1" "$2"; }; }

[ -e "$cache/source/LICENSE" ] || fetch_source
take "$root/$sources/CMakeLists.txt" "$cache/source/CMakeLists.txt"
for file in "$sources"/{llama_engine.cpp,gguf_file.cpp,gguf_file.h} references/engine_abi.h; do
  take "$root/$file" "$cache/adapter/$file"
done

log="$cache/build.log"
if [ ! -e "$cache/build/build.ninja" ]; then
  "$cmake" -S "$cache/source" -B "$cache/build" "-DADAPTER=$cache/adapter" "${options[@]}" > "$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "CMake could not configure llama.cpp ($log)"
  }
fi
build() { "$ninja" -C "$cache/build" -j "$(jobs)" llama_engine > "$log" 2>&1; }
if ! with_progress "building llama.cpp for $device" "$log" build 9>&-; then
  grep -v '^\[[0-9]*/[0-9]*\] ' "$log" | tail -n 60 >&2
  die "the build of llama.cpp failed ($log)"
fi
take "$cache/build/llama_engine.so" "$out"
say "$out: llama.cpp for $device"
