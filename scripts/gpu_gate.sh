#!/usr/bin/env bash
# What .github/workflows/mkbench.yml runs on a GPU, and what anyone may run: scripts/gpu_gate.sh OUT
# Set-up and build, the parity gate, the fault corpus, a benchmark. OUT/gpu_gate.log has date, commit, source hashes,
# the card and the end of every step's output; OUT also gets the reports (parity, bench), their JUnit files and
# selftest.txt. Exit 0 only if every step passed, else the exit code of the first one that failed (the README has the
# table). No network is needed where torch, the toolkit and the Debian packages are installed.
# GPU_GATE_BUDGET_S: longest time of all steps together; steps that do not fit fail.
# GPU_GATE_BASE: another checkout of mkbench, which is built too; its kernels are timed beside these in one run, and a
# slower one here ends with REGRESSION.
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
[ $# = 1 ] || { echo "usage: scripts/gpu_gate.sh OUT" >&2; exit 2; }
mkdir -p "$1" || exit 2
out="$(cd "$1" && pwd -P)"
cd "$out" || exit 1  # reports then name folders relative to it
rm -rf parity bench against-base parity.xml bench.xml selftest.txt gpu_gate.log
log="$out/gpu_gate.log"
begun=$SECONDS
budget_s="${GPU_GATE_BUDGET_S:-3000}"
# A card that cannot be used is a failure here: nothing falls back to the CPU.
export MKBENCH_DEVICE=cuda
. "$root/scripts/logged_steps.sh"

# Adds the results to the summary page of a GitHub workflow's run; outside a workflow it does nothing.
summarise() {
  local report
  [ -n "${GITHUB_STEP_SUMMARY:-}" ] || return 0
  for report in parity/report.md bench/report.md against-base/gate.md; do
    [ ! -f "$report" ] || cat "$report" >> "$GITHUB_STEP_SUMMARY"
  done
  [ ! -f selftest.txt ] || tail -n 1 selftest.txt >> "$GITHUB_STEP_SUMMARY"
  tail -n 1 "$log" >> "$GITHUB_STEP_SUMMARY"
}

annotate() {
  [ -n "${GITHUB_ACTIONS:-}" ] || return 0
  local folder
  for folder in parity bench against-base; do
    [ ! -f "$folder/report.json" ] || "$mkbench" report "$folder" -o annotations || true
  done
}

finish() {
  note "== total: $((SECONDS - begun)) s"
  note "GPU GATE $([ "$failed" = 0 ] && echo PASSED || echo "FAILED ($failed)")"
  summarise
  annotate
  exit "$failed"
}

note "== scripts/gpu_gate.sh, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
note_card
step 2400 "set-up and build" "$root/scripts/setup.sh" mkbench || finish
build="$root/build/${MKBENCH_PRESET:-release}"
# shellcheck disable=SC1091
. "$build/setup.env"
export mkbench="$build/harness/mkbench"
unset MKBENCH_PRESET MKBENCH_CUDA_ARCHITECTURES MKBENCH_USE_PYPI_CUDA MKBENCH_JOBS

# The commit of this tree, with a + if tracked files differ from it, its source hashes, and what doctor says.
environment() {
  echo "commit $(git -c safe.directory='*' -C "$2" describe --always --abbrev=40 --dirty=+ --exclude='*' 2> /dev/null ||
    echo "${GITHUB_SHA:-unknown} (no git here)")"
  "$1" "$2/scripts/source_hash.py" || return
  "$mkbench" doctor || echo "exit code $?"
}
export -f environment
# shellcheck disable=SC2154
step 120 "machine and sources" bash -c 'environment "$@"' environment "$python" "$root"
step 900 "parity gate" "$mkbench" parity --model synthetic,synthetic:early,synthetic:late,tiny --require-reference \
  --out parity --junit parity.xml
step 600 "fault corpus" bash -c 'set -o pipefail; "$mkbench" selftest --faults | tee selftest.txt'
# Blocks by time, in five processes, could take a minute a process: eager hardly ever settles in its warm-up of 10 s.
# Two processes are the least that gives a verdict.
step 600 "benchmark" "$mkbench" --compare eager --engine megakernel --model synthetic --n-depth 0,512,4032 --n-gen 32 \
  --blocks 10 --processes 2 --out bench --junit bench.xml
if [ -n "${GPU_GATE_BASE:-}" ] && step 2400 "build of the base" "$GPU_GATE_BASE/scripts/setup.sh" mkbench; then
  base="$GPU_GATE_BASE/build/release"
  if [ -d "$base/engines" ]; then
    step 600 "against the base" "$mkbench" compare "$base" "$build" --model synthetic --n-depth 0,4032 --n-gen 64 \
      --processes 8 --out against-base
  else
    note "== against the base: not run, the base is older than mkbench compare and exports no engines"
  fi
fi
finish
