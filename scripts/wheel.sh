#!/usr/bin/env bash
# Builds the wheel that docs/install.md installs: scripts/wheel.sh [FOLDER]   (default: build/wheels)
# Takes the environment variables of scripts/setup.sh; the default of MKBENCH_CUDA_ARCHITECTURES is "all" here, because
# a wheel is for other machines.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
case "${1:-}" in
  -*) sed -n 's/^# Builds the wheel that docs\/install.md installs: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
out="$(realpath -m "${1:-$root/build/wheels}")"
cd "$root"
MKBENCH_PRESET=wheel MKBENCH_CUDA_ARCHITECTURES="${MKBENCH_CUDA_ARCHITECTURES:-all}" scripts/setup.sh mkbench_package
. build/wheel/setup.env
PATH="$(dirname "$cmake"):$(dirname "$ninja"):$PATH" exec "$python" scripts/pack_wheel.py "$out"
