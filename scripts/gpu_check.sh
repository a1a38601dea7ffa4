#!/usr/bin/env bash
# Everything that needs a GPU, on the GPU machine: scripts/gpu_check.sh OUT
# Builds for this machine's cards, then tests, memcheck, parity and the bench at depths 0, 512 and 4,096.
# Exit 0 only if every line of scripts/check_report.py holds; OUT/evidence then holds what is committed as
# reports/evidence/<gpu>/. Needs no network where torch, the toolkit and the Debian packages are installed.
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
[ $# = 1 ] || { echo "usage: scripts/gpu_check.sh OUT" >&2; exit 2; }
mkdir -p "$1" || exit 2
out="$(cd "$1" && pwd -P)"
rm -rf "$out"/{tiny,full,evidence,gpu-tests.xml,memcheck.log,gpu_check.log}
log="$out/gpu_check.log"
begun=$SECONDS
# All steps together stay under this, however each goes.
budget_s="${GPU_CHECK_BUDGET_S:-520}"
failed=0

note() { printf '%s\n' "$*" | tee -a "$log"; }

# step SECONDS NAME COMMAND ...: runs it under a time limit; a failure does not keep the others from
# running, so that one visit to the machine tells all.
step() {
  local limit="$1" name="$2" start=$SECONDS status
  shift 2
  local left=$((budget_s - SECONDS + begun))
  [ "$left" -ge 5 ] || { note "== $name: not run, the time is used up"; failed=1; return 1; }
  [ "$limit" -le "$left" ] || limit="$left"
  note "== $name"
  timeout --kill-after=5 "$limit" "$@" < /dev/null > "$out/step.log" 2>&1
  status=$?
  # Build and test output in full on the screen, its end in the log.
  cat "$out/step.log"
  # The log is committed: it names no folder of this machine.
  tail -n 40 "$out/step.log" | sed "s#$root#.#g; s#$out#.#g; s#/[^ ]*/bin/python3#python3#g" >> "$log"
  rm -f "$out/step.log"
  note "== $name: $([ $status = 0 ] && echo passed || echo "FAILED ($status)") after $((SECONDS - start)) s"
  [ "$status" = 0 ] || failed=1
  return "$status"
}

note "== scripts/gpu_check.sh, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,temperature.gpu --format=csv,noheader \
  2>&1 | tee -a "$log"

step 300 "set-up and build" "$root/scripts/setup.sh" || exit 1
. "$root/build/${MKBENCH_PRESET:-release}/setup.env"
build="$root/build/${MKBENCH_PRESET:-release}"
mkbench="$build/harness/mkbench"
ctest="$(dirname "$cmake")/ctest"
export MKBENCH_PYTHON="$python"
unset MKBENCH_PRESET MKBENCH_CUDA_ARCHITECTURES MKBENCH_USE_PYPI_CUDA MKBENCH_JOBS

cd "$out" || exit 1  # reports then name folders relative to it
step 60 "doctor" "$mkbench" doctor
step 200 "parity and bench, full size" "$mkbench" --compare eager --engine plain --device cuda \
  --model synthetic --n-depth 0,512,4096 --out full
step 90 "parity and bench, tiny" "$mkbench" --compare eager --device cuda \
  --model tiny,tiny-untied --blocks 8 --out tiny
# Each of three faults, planted in the kernel, must fail parity: exit 3.
planted_faults() {
  local fault status
  for fault in rope_theta swap_gate_up cache_length; do
    "$mkbench" --compare eager --device cuda --model tiny --plant-fault "$fault" --blocks 2 \
      --n-gen 8 --out "planted-$fault" | tail -n 4
    status="${PIPESTATUS[0]}"
    rm -rf "planted-$fault"
    echo "planted $fault: exit $status"
    [ "$status" = 3 ] || return 1
  done
}
export -f planted_faults
export mkbench
step 90 "planted faults are seen" bash -c planted_faults
step 180 "tests with a GPU" "$ctest" --test-dir "$build" -L gpu --output-on-failure --no-tests=error \
  --output-junit "$out/gpu-tests.xml"

# Every access of the plain kernel and of its set-up, on a small model: the sanitizer slows it a
# hundredfold, and libtorch's kernels a thousandfold, so the kernel's own test runs here, not mkbench.
memcheck() {
  local sanitizer="$toolkit/bin/compute-sanitizer" status=0
  [ -x "$sanitizer" ] || sanitizer="$(command -v compute-sanitizer)" ||
    { echo "there is no compute-sanitizer in $toolkit/bin or on PATH"; return 1; }
  "$sanitizer" --tool memcheck --error-exitcode 99 "$build/tests/test_plain" "[memcheck]" \
    > "$1/memcheck.log" 2>&1 || status=$?
  echo "exit status $status" >> "$1/memcheck.log"
  cat "$1/memcheck.log"
  return "$status"
}
export -f memcheck
export toolkit build
step 100 "memcheck on tiny" bash -c 'memcheck "$1"' memcheck "$out"
step 60 "tests without a GPU" "$ctest" --test-dir "$build" -L light -j "$(nproc)" --output-on-failure \
  --no-tests=error

note "== total: $((SECONDS - begun)) s"
"$python" "$root/scripts/check_report.py" gpu "$out" 2>&1 | tee -a "$log"
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
if [ "$failed" = 0 ]; then
  note "GPU CHECK PASSED"
  # The log's last lines belong to the evidence too.
  cp "$log" "$out/evidence/"
else
  note "GPU CHECK FAILED"
  rm -rf "$out/evidence"
fi
exit "$failed"
