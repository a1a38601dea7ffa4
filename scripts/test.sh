#!/usr/bin/env bash
# Sets up what is missing, builds everything and runs the tests: scripts/test.sh [ctest arguments]
# Tests with the label gpu are skipped, and say so, where there is none.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

"$root/scripts/setup.sh" < /dev/null
build="$root/build/${MKBENCH_PRESET:-release}"
. "$build/setup.env"
export MKBENCH_PYTHON="$python"
exec "$(dirname "$cmake")/ctest" --test-dir "$build" --output-on-failure --no-tests=error "$@"
