#!/usr/bin/env bash
# Sets up what is missing, builds mkbench and runs it: scripts/run.sh --compare eager
# Set-up talks on stderr; stdout is mkbench's alone.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

# Somebody who asks for the CPU need not have a GPU, or a driver, that fits.
previous=""
for argument in "$@"; do
  case "$previous=$argument" in
    --device=cpu | *=--device=cpu) export MKBENCH_DEVICE=cpu ;;
  esac
  previous="$argument"
done

"$root/scripts/setup.sh" mkbench < /dev/null
build="$root/build/${MKBENCH_PRESET:-release}"
. "$build/setup.env"
# The Python that draws the plots.
export MKBENCH_PYTHON="$python"
exec "$build/harness/mkbench" "$@"
