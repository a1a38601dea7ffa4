#!/usr/bin/env bash
# Sets up what is missing, builds mkbench and runs it: scripts/run.sh --compare eager
# Set-up writes to stderr; only mkbench writes to stdout.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

# Whether an offer will do is said before anything is installed or built.
case "$*" in
  "doctor "*--require*) shift; exec "$root/scripts/offer.sh" "$@" ;;
esac

# With --device cpu neither the GPU nor the driver has to fit.
device="${MKBENCH_DEVICE:-auto}" previous=""
for argument in "$@"; do
  case "$previous=$argument" in
    --device=* | *=--device=*) device="${argument#--device=}" ;;
  esac
  previous="$argument"
done

MKBENCH_DEVICE="$device" "$root/scripts/setup.sh" mkbench < /dev/null
build="$root/build/${MKBENCH_PRESET:-release}"
. "$build/setup.env"
# For remote.sh: when the build was done.
[ -z "${MKBENCH_BUILT_FILE:-}" ] || date +%s%3N > "$MKBENCH_BUILT_FILE"
# Variables of set-up, which mkbench does not read.
unset MKBENCH_PRESET MKBENCH_CUDA MKBENCH_CUDA_ARCHITECTURES MKBENCH_USE_PYPI_CUDA MKBENCH_JOBS MKBENCH_BUILT_FILE
exec "$build/harness/mkbench" "$@"
