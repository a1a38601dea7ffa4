#!/usr/bin/env bash
# From a model's name to its reference, in one command: makes the Python environment, fetches the weights where the
# local cache lacks them, and captures. For Linux and macOS; needs no GPU, no compiler and no build of mkbench.
#   scripts/capture.sh ORG/NAME[@REVISION]|FOLDER [arguments of capture_reference.py]
# environment:
#   MKBENCH_PYTHON  a Python that has scripts/requirements/capture.txt (default: set-up's, else one made here)
# Has to work with bash 3.2 and BSD tools (macOS): uses no newer feature of bash and no option of GNU's tools.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

die() { printf 'capture: error: %s\n' "$1" >&2; exit 2; }

[ $# -gt 0 ] || die "name a folder or a model of the hub: scripts/capture.sh ORG/NAME"
case "$1" in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) die "the model comes first, found '$1'" ;;
esac

case "$(uname -s)-$(uname -m)" in
  Linux-* | Darwin-arm64) ;;
  Darwin-*) die "PyPI has no current torch for this Mac ($(uname -m)): capture on an Apple Silicon Mac or on Linux" ;;
  *) die "this is $(uname -s); captures run on Linux and macOS" ;;
esac

# An environment with what a capture needs, made once.
make_python() {
  local venv="${XDG_CACHE_HOME:-${HOME:-$root/build}/.cache}/mkbench/capture" wanted candidate
  wanted="$(cat "$root"/scripts/requirements/capture.txt "$root"/scripts/requirements/constraints.txt)"
  python="$venv/bin/python"
  [ "$(cat "$venv/.mkbench-complete" 2> /dev/null || true)" != "$wanted" ] || return 0
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    "$candidate" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2> /dev/null || continue
    printf 'capture: making a Python environment in %s\n' "$venv" >&2
    "$candidate" -m venv --clear "$venv" >&2 || die "$candidate could not make a virtual environment in $venv"
    "$python" -m pip install --quiet --disable-pip-version-check --requirement \
      "$root/scripts/requirements/capture.txt" >&2 || die "pip could not install capture.txt (its message is above)"
    printf '%s' "$wanted" > "$venv/.mkbench-complete"
    return 0
  done
  die "no Python from 3.11 to 3.14 on PATH"
}

python="${MKBENCH_PYTHON:-}"
if [ -z "$python" ] && [ -f "$root/build/release/setup.env" ]; then
  python="$(. "$root/build/release/setup.env" && printf '%s' "$python")"
  [ -x "$python" ] || python=""
fi
[ -n "$python" ] || make_python

# A name of the hub has one slash and is no folder.
if [ ! -e "$1" ]; then
  case "$1" in
    */*/* | /* | ./* | ../*) ;;
    */*) "$python" "$root/scripts/fetch_model.py" "$1" > /dev/null ;;
  esac
fi
exec "$python" "$root/scripts/capture_reference.py" "$@"
