#!/usr/bin/env bash
# The gate of this engine, for CI and by hand: builds it, judges it (parity), then judges and times it (run). With
# GATE_BASE_REF=main it also builds that commit's engine and times both in one run (compare): REGRESSION is red, and so
# is a difference that cannot be told.
#
#   bash gate.sh cpu|cuda [FLAG ...]     each FLAG goes to those calls of mkbench that have it, as in --model NAME
#
# The exit code is mkbench's verdict; reports/ holds the reports whatever it was. mkbench is the first of: the program
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

# Sets flags: those of the words that the command has, with their values. A flag that no command has goes to all, so that
# mkbench names it.
own_flags() {  # COMMAND WORD ...
  local word command keep=1 known
  flags=()
  for word in "${@:2}"; do
    case "$word" in
      -[a-z]* | --*)
        keep=1 known=""
        for command in "${commands[@]}"; do
          if grep -qE -- "(^ *|,)${word%%=*}([ ,{]|\$)" <<< "${help[$command]}"; then known+=" $command "; fi
        done
        case "$known" in *" $1 "* | "") ;; *) keep=0 ;; esac
        ;;
    esac
    if [ "$keep" = 1 ]; then flags+=("$word"); fi
  done
}

judge() {  # COMMAND ARGUMENT ... -- FLAG ...
  local name="$1" call=()
  while [ "$1" != -- ]; do call+=("$1"); shift; done
  own_flags "$name" "${@:2}"
  rm -rf "reports/$name"
  mkdir -p reports
  local status=0
  "$MKBENCH" "${call[@]}" --device "$device" --out "reports/$name" "${flags[@]}" || status=$?
  # On GitHub, what failed also stands beside the pull request.
  if [ -n "${GITHUB_ACTIONS:-}" ] && [ -e "reports/$name/report.json" ]; then
    "$MKBENCH" report "reports/$name" -o annotations || true
  fi
  return "$status"
}

# The engine of GATE_BASE_REF, built in a working tree of its own: base.
build_base() {
  git worktree remove --force .gate-base 2> /dev/null || rm -rf .gate-base
  git worktree prune
  git worktree add --quiet --detach .gate-base "$GATE_BASE_REF" ||
    die "GATE_BASE_REF: git has no commit '$GATE_BASE_REF' here: fetch it, or leave the variable empty"
  base=".gate-base/$(git rev-parse --show-prefix)"
  if [ -e "$base/Makefile" ]; then make -C "$base"; fi
}

commands=(parity run ${GATE_BASE_REF:+compare})
declare -A help
for name in "${commands[@]}"; do
  help[$name]="$([ $# = 0 ] || "$MKBENCH" "$name" --help)"
done
judge parity --engine ./@ENGINE@ -- "$@"
judge run --engine ./@ENGINE@ -- "$@"
if [ -n "${GATE_BASE_REF:-}" ]; then
  build_base
  judge compare "${base%/}/@ENGINE@" ./@ENGINE@ --fail-on inconclusive -- "$@"
fi
