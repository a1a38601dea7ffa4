#!/usr/bin/env bash
# Sets up what is missing, builds everything and runs the tests: scripts/test.sh [ctest arguments]
# Tests with the label gpu are skipped, and say so, where there is none; those with the label slow run when they
# are asked for: scripts/test.sh -L slow
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

"$root/scripts/setup.sh" < /dev/null
build="$root/build/${MKBENCH_PRESET:-release}"
. "$build/setup.env"
# Set-up's own variables are no flags of mkbench, which the tests run.
unset MKBENCH_PRESET MKBENCH_CUDA MKBENCH_CUDA_ARCHITECTURES MKBENCH_USE_PYPI_CUDA MKBENCH_JOBS
case " $* " in *slow*) ;; *) set -- -LE slow "$@" ;; esac
exec "$(dirname "$cmake")/ctest" --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
