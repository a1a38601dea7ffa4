#!/usr/bin/env bash
# Sets up what is missing, builds and runs tests:
#   scripts/test.sh                    the light ones, which need neither libtorch nor CUDA code: a few minutes
#   scripts/test.sh --all              all but the slow ones; without a GPU its tests are skipped, and say so
#   scripts/test.sh CTEST-ARGUMENT...  the tests that CTest chooses: -L host, -R test_plan, -L slow
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

targets=()
case "${1:-}" in
  "") targets=(light_tests) && set -- -L light ;;
  --all) shift ;;
esac
"$root/scripts/setup.sh" "${targets[@]}" < /dev/null
build="$root/build/${MKBENCH_PRESET:-release}"
. "$build/setup.env"
# Variables of set-up, which neither the tests nor mkbench read.
unset MKBENCH_PRESET MKBENCH_CUDA MKBENCH_CUDA_ARCHITECTURES MKBENCH_USE_PYPI_CUDA MKBENCH_JOBS
case " $* " in *slow*) ;; *) set -- -LE slow "$@" ;; esac
# One more than the cores: tests wait for processes that start, a quarter of their time.
jobs=$(($(nproc) + 1))
exec "$(dirname "$cmake")/ctest" --test-dir "$build" --output-on-failure --no-tests=error -j "$jobs" "$@"
