#!/usr/bin/env bash
# The gate of this engine, for CI and by hand: builds it, judges it (parity), then judges and times it (run).
#
#   bash gate.sh cpu|cuda [FLAG ...]     FLAGs go to both calls of mkbench, as in --model NAME
#
# The exit code is mkbench's verdict; reports/ holds both reports whatever it was. mkbench is the first of: the program
# in MKBENCH, mkbench on PATH, a clone of GATE_MKBENCH_URL at GATE_MKBENCH_REF, which sets itself up and is kept in
# .mkbench.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

die() { printf 'gate.sh: error: %s\n' "$1" >&2; exit 2; }

device="${1:-}"
case "$device" in cpu | cuda) ;; *) die "device: found '$device', wanted cpu or cuda" ;; esac
shift

get_mkbench() {
  local url="${GATE_MKBENCH_URL:-}" ref="${GATE_MKBENCH_REF:-@COMMIT@}"
  [ -n "$url" ] ||
    die "there is no mkbench: put it on PATH, or set MKBENCH to the program or GATE_MKBENCH_URL to its git address"
  [ -d .mkbench ] || git clone --quiet "$url" .mkbench
  # A clone from an earlier call lacks newer commits.
  git -C .mkbench fetch --quiet "$url" "+refs/heads/*:refs/remotes/origin/*"
  git -C .mkbench checkout --quiet --detach "origin/$ref" 2> /dev/null ||
    git -C .mkbench checkout --quiet --detach "$ref" || die "GATE_MKBENCH_REF: $url has no commit $ref"
  MKBENCH="$PWD/.mkbench/scripts/run.sh"
}

MKBENCH="${MKBENCH:-$(command -v mkbench || true)}"
[ -n "$MKBENCH" ] || get_mkbench
if [ -e Makefile ]; then make; fi

judge() {  # COMMAND FLAG ...
  local name="$1"
  shift
  rm -rf "reports/$name"
  mkdir -p reports
  "$MKBENCH" "$name" --engine ./@ENGINE@ --device "$device" --out "reports/$name" "$@"
}
judge parity "$@"
judge run "$@"
