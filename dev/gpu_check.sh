#!/usr/bin/env bash
# Everything that needs a GPU, on the GPU machine: dev/gpu_check.sh OUT [PART ...]
#   bench   parity and times: ring at all depths, plain and eager at some, engines from elsewhere; memcheck, synccheck
#   tests   all tests that need a GPU, and the light tests that need none
#   cases   the tiny checkpoints, faults planted in the kernels, faults of timing (selftest --timing)
#   gate    `mkbench parity` at every cache length, the fault corpus, a full-size checkpoint trained here; tune
#   timing  the clock's calibration, the README's table, blocks of 1 to 128 tokens, the cost of telemetry, energy,
#           `mkbench verify` of these runs, and whether all bytes are read (`mkbench audit`)
#   profile ncu around one launch of ring, of plain and of a library that launches many kernels (docs/profiling.md),
#           or why ncu cannot run, since many machines forbid its counters; then the timelines of all three
#   soak    ring and plain under delays and counters near 2^32, GPU_CHECK_SOAK_MINUTES (10) for each, on a cut and on
#           full-size weights; planted faults that only a soak sees; racecheck and initcheck
# The script builds first, for this machine's cards. Without a PART it runs all parts but profile and soak, which the
# evidence does not need. OUT keeps the results of earlier PARTs from the same source and the same kind of card, because
# a machine may be lent for less time than all parts take.
# OUT/evidence then holds the files for reports/evidence/<gpu>/, and dev/check_evidence.py judges them. Exit 0
# only if every step passed and, once OUT holds all parts, every line of the evidence holds.
# No network is needed where torch, the toolkit and the Debian packages are installed.
# GPU_CHECK_BUDGET_S: longest time of one call; steps that do not fit are left out, and their lines fail.
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
all_parts="bench tests cases gate timing" named_parts="profile soak"
[ $# -ge 1 ] || { echo "usage: dev/gpu_check.sh OUT [PART ...], of $all_parts $named_parts" >&2; exit 2; }
out="$1"
shift
parts=" ${*:-$all_parts} "
for part in $parts; do
  case " $all_parts $named_parts " in
    *" $part "*) ;;
    *) echo "gpu_check: no part '$part': wanted one of $all_parts $named_parts" >&2; exit 2 ;;
  esac
done
mkdir -p "$out" || exit 2
out="$(cd "$out" && pwd -P)"
rm -rf "$out/evidence"  # if this run ends early, an earlier run's evidence must not be taken for its own
begun=$SECONDS
# Upper bound for the time of all steps together.
budget_s="${GPU_CHECK_BUDGET_S:-4800}"
. "$root/scripts/logged_steps.sh"

# begin PART FILE ...: removes the files that the part makes, and starts its log with a line about the card. Returns
# 1 if the part was not asked for.
begin() {
  local part="$1"
  shift
  case "$parts" in *" $part "*) ;; *) return 1 ;; esac
  log="$out/$part.log"
  (cd "$out" && rm -rf "$part.log" "$@")
  note "== dev/gpu_check.sh $part, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  note_card
}

log="$out/build.log"
rm -f "$log"
# The test programs take most of the build: only bench and tests build them all. The calibration needs slowed_cuda.
targets=(mkbench slowed_cuda)
export sanitized_tests="test_plain test_plain_graph test_prefill test_ring_state"
# shellcheck disable=SC2206
case "$parts" in *" soak "*) targets+=($sanitized_tests) ;; esac
case "$parts" in *" profile "*) targets+=(naive_cuda) ;; esac
case "$parts" in *" bench "* | *" tests "*) targets=() ;; esac
step 240 "set-up and build" "$root/scripts/setup.sh" "${targets[@]}" || exit 1
build="$root/build/${MKBENCH_PRESET:-release}"
# shellcheck disable=SC1091
. "$build/setup.env"
mkbench="$build/harness/mkbench"
# shellcheck disable=SC2154
ctest="$(dirname "$cmake")/ctest"
export root toolkit build mkbench
unset MKBENCH_PRESET MKBENCH_CUDA MKBENCH_CUDA_ARCHITECTURES MKBENCH_USE_PYPI_CUDA MKBENCH_JOBS

# The files of each part. Files from another source or another kind of card are removed.
bench=(full deep strangers memcheck.log synccheck.log)
tests=(gpu-tests.txt gpu-tests.xml)
cases=(tiny)
gate=(parity memorised)
timing=(data clock.json table blocks telemetry energy audit)
profile=(profile-ring profile-plain profile-library timeline)
soak=(soak racecheck.log initcheck.log)
# shellcheck disable=SC2154
made_by="$("$python" "$root/scripts/source_hash.py")" || exit 1
made_by="$made_by $(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)"
if [ "$(cat "$out/made_by" 2> /dev/null)" != "$made_by" ]; then
  (cd "$out" && rm -rf "${bench[@]}" "${tests[@]}" "${cases[@]}" "${gate[@]}" "${timing[@]}" "${profile[@]}" "${soak[@]}" \
    {bench,tests,cases,gate,timing,profile,soak}.log)
  echo "$made_by" > "$out/made_by"
fi
rm -rf "$out/memorised-qwen3"
cd "$out" || exit 1  # reports then name folders relative to it

# verified RUN ...: recomputes all figures of these reports from their samples.
verified() { local run; for run in "$@"; do "$mkbench" verify "$run" || return 1; done; }
export -f verified

# sanitize TOOL LOG [TAG]: checks every access (memcheck), barrier (synccheck), access to shared memory (racecheck) or
# read of uninitialised device memory (initcheck) of the kernels and of their set-up on small models. LOG gets one
# section for each test, whose cases with TAG (default: memcheck) run. A sanitizer slows the kernels a hundredfold, and
# libtorch's kernels a thousandfold, so the kernels' tests run here and not mkbench.
sanitize() {
  local sanitizer="$toolkit/bin/compute-sanitizer" test status worst=0
  [ -x "$sanitizer" ] || sanitizer="$(command -v compute-sanitizer)" ||
    { echo "there is no compute-sanitizer in $toolkit/bin or on PATH"; return 1; }
  for test in $sanitized_tests; do
    echo "== $test"
    status=0
    "$sanitizer" --tool "$1" --error-exitcode 99 "$build/tests/$test" "[${3:-memcheck}]" 2>&1 || status=$?
    echo "exit status $status"
    [ "$status" = 0 ] || worst="$status"
  done > "$2"
  sed 's/^== /-- /' "$2"
  return "$worst"
}
export -f sanitize

if begin bench "${bench[@]}"; then
  step 60 "doctor" "$mkbench" doctor --strict
  # dev/evidence_lines.py lists the depths. Neighbouring depths share a lag set, and so their weights.
  # Two processes, the least that gives a verdict, keep the steps inside their limits.
  step 260 "parity, bench and prefill, full size" "$mkbench" --engine ring,plain --compare eager \
    --device cuda --model synthetic --n-depth 0,512,4032 --n-gen 64 --n-prompt 512,2048 --ablations \
    --blocks 10 --processes 2 --no-plot --out full
  step 260 "bench of ring at all other depths" "$mkbench" --engine ring --compare none --device cuda \
    --model synthetic --n-depth 32,64,128,256,960,1984,8128,16320,32704 --n-gen 64 --ablations \
    --blocks 10 --processes 2 --no-plot --out deep
  # Three processes: with two, half of the 95 % interval is 12.7 standard errors.
  strangers="$build/tests/plugins/naive_cuda.so"
  for name in triton extension; do strangers="$strangers,$root/tests/engines/${name}_decoder.py"; done
  step 480 "engines from elsewhere beside ours, one run" "$mkbench" --compare eager,graph,hf --device cuda --model synthetic \
    --engine "ring,plain,$strangers" -n 16 --blocks 6 --processes 3 --no-plot --out strangers
  step 60 "the bench verified" bash -c 'verified full deep strangers'
  step 90 "memcheck on small models" bash -c 'sanitize memcheck "$1"' sanitize "$out/memcheck.log"
  step 90 "synccheck on small models" bash -c 'sanitize synccheck "$1"' sanitize "$out/synccheck.log"
fi

if begin tests "${tests[@]}"; then
  "$ctest" --test-dir "$build" -N -L gpu | sed -n 's/^ *Test *#[0-9]*: //p' > "$out/gpu-tests.txt"
  step 400 "tests with a GPU" "$ctest" --test-dir "$build" -L gpu --output-on-failure --no-tests=error \
    --output-junit "$out/gpu-tests.xml"
  step 150 "tests without a GPU" "$ctest" --test-dir "$build" -L light -j "$(nproc)" --output-on-failure \
    --no-tests=error
fi

# Faults planted in the kernels must fail parity: exit 3.
planted_faults() {
  local fault engine model status
  while read -r fault engine model; do
    "$mkbench" --compare none --engine "$engine" --device cuda --model "$model" --plant-fault "$fault" \
      --blocks 1 --n-gen 8 --no-plot --out "planted-$fault-$engine" | tail -n 4
    status="${PIPESTATUS[0]}"
    rm -rf "planted-$fault-$engine"
    echo "planted $fault in $engine: exit $status"
    [ "$status" = 3 ] || return 1
  done << 'END'
rope_theta plain tiny
cache_length ring synthetic
END
}
export -f planted_faults

if begin cases "${cases[@]}"; then
  # This step is for parity: times of models that fit into L2 say little.
  step 90 "parity and bench, tiny" "$mkbench" --compare eager --device cuda \
    --model tiny,tiny-untied --blocks 2 --no-plot --out tiny
  step 180 "planted faults are seen" bash -c planted_faults
  step 300 "faults of timing" "$mkbench" selftest --timing --device cuda
fi

if begin gate "${gate[@]}"; then
  step 240 "gate alone: every cache length, full size" "$mkbench" parity --engine ring,plain --device cuda \
    --model synthetic --out parity
  step 180 "fault corpus" "$mkbench" selftest --faults --device cuda
  # The 1.2 GB of weights are removed afterwards.
  step 300 "memorised: trained, captured and judged here" "$python" "$root/scripts/make_checkpoint.py" \
    ./memorised-qwen3 --device cuda --run "$mkbench" parity --engine ring,plain --device cuda --out memorised
  rm -rf "$out/memorised-qwen3"
  step 60 "tune" "$mkbench" tune
fi

# The calibration is stored below OUT, so that the runs that follow read it and no other.
calibrate() {
  "$mkbench" selftest --timing --calibrate --device cuda -q &&
    cp data/mkbench/calibration/*.json clock.json
}
export -f calibrate

if begin timing "${timing[@]}"; then
  export XDG_DATA_HOME="$out/data"
  step 600 "calibration of the clock" bash -c calibrate
  step 900 "the README's table" "$mkbench" --compare eager --engine ring,plain --device cuda --model synthetic \
    --n-depth 0,128,512,4096,16384 --n-gen 64 --out table
  step 180 "blocks of 1 to 128 tokens" "$mkbench" --compare none --engine ring,plain --device cuda --model synthetic \
    --n-gen 1,8,64,128 --processes 2 --blocks 20 --no-plot --out blocks
  step 90 "what telemetry costs" "$mkbench" --compare none --engine ring --device cuda --model synthetic \
    --telemetry alternate --processes 1 --blocks 240 --no-plot --out telemetry
  step 90 "energy of a token" "$mkbench" --compare none --engine ring --device cuda --model synthetic \
    --n-gen 2048 --processes 1 --blocks 6 --no-plot --out energy
  step 60 "the clock's runs verified" bash -c 'verified table blocks telemetry energy'
  step 120 "bytes that are read" "$mkbench" audit --device cuda --engine ring,plain -n 8 --tiles 5 --seed 1 --out audit
  unset XDG_DATA_HOME
fi

# profiled NAME OPTION ...: if ncu or its counters are not available (exit 6), the step says why, and passes.
profiled() {
  local status=0 said name="$1"
  shift
  said="$("$mkbench" profile --tool ncu --device cuda --model synthetic -d 512 -n 16 -q --out "profile-$name" \
    "$@" 2>&1)" || status=$?
  printf '%s\n' "$said"
  [ "$status" = 6 ] && { echo "not run: $(printf '%s\n' "$said" | grep -m 1 error)"; return 0; }
  return "$status"
}
export -f profiled

if begin profile "${profile[@]}"; then
  export library="$build/tests/plugins/naive_cuda.so"
  step 60 "ncu around one launch of ring" bash -c 'profiled ring --engine ring'
  step 60 "ncu around one launch of plain" bash -c 'profiled plain --engine plain'
  step 120 "ncu around one launch of a library" bash -c 'profiled library --engine "$library" --kernel attention'
  step 150 "timelines" "$mkbench" profile --timeline --engine "ring,plain,$library" --device cuda --model synthetic \
    -d 512 -n 16 --out timeline
fi

# soak_engine ENGINE MINUTES: half of the time on the cut, half on full-size weights with a long cache. The soak goes on
# to its last minute, even if its numbers of launches and tokens are reached earlier.
soak_engine() {
  local half
  half="$(awk "BEGIN { print $2 / 2 }")"
  "$mkbench" soak --device cuda --engine "$1" --model synthetic:cut --seed 1 --launches 20000 --tokens 200000 \
    --minutes "$half" --all-minutes --out "soak/$1-cut" &&
    "$mkbench" soak --device cuda --engine "$1" --model synthetic --seed 2 --context 32768 --launches 500 \
      --tokens 5000 --minutes "$half" --all-minutes --out "soak/$1-full"
}
# Faults planted in plain: each must end its soak with one of the exit codes in its row.
soak_faults() {
  local fault wanted status rows
  rows="$(grep -v '^#' "$root/tests/cli/soak_faults_gpu.txt")" || return 1
  while read -r fault wanted; do
    "$mkbench" soak --device cuda --engine plain --model synthetic:cut --seed 1 --launches 20000 --tokens 200000 \
      --minutes 1 --timeout 10 --plant-fault "$fault" --out "soak/$fault" | tail -n 4
    status="${PIPESTATUS[0]}"
    echo "planted $fault in a soak of plain: exit $status"
    case " $wanted " in *" $status "*) ;; *) return 1 ;; esac
  done <<< "$rows"
}
export -f soak_engine soak_faults

if begin soak "${soak[@]}"; then
  mkdir -p soak
  minutes="${GPU_CHECK_SOAK_MINUTES:-10}"
  soak_limit="$(awk "BEGIN { print int($minutes * 60 + 180) }")"
  for engine in ring plain; do
    step "$soak_limit" "soak of $engine" bash -c 'soak_engine "$1" "$2"' soak "$engine" "$minutes"
  done
  step 400 "faults that a soak sees" bash -c soak_faults
  step 400 "initcheck on small models" bash -c 'sanitize initcheck "$1"' sanitize "$out/initcheck.log"
  # racecheck does not follow ring's barriers (docs/soak.md), and is the slowest tool: it runs a few tagged cases only.
  sanitized_tests="test_plain test_prefill" \
    step 300 "racecheck on small models" bash -c 'sanitize racecheck "$1" racecheck' sanitize "$out/racecheck.log"
fi

log="$out/end.log"
rm -f "$log"
note "== total: $((SECONDS - begun)) s"
note "GPU CHECK, parts:$parts$([ "$failed" = 0 ] && echo passed || echo FAILED)"
# The logs are joined in the order in which they were made, because the last outcome of a repeated step counts.
missing="" logs=""
for part in $all_parts; do
  if [ -f "$part.log" ]; then
    logs="$logs$(sed -n '1s/.*, //p' "$part.log") $part.log"$'\n'
  else
    missing="$missing $part"
  fi
done
{ cat build.log; printf '%s' "$logs" | sort | while read -r _ name; do cat "$name"; done; } > gpu_check.log
"$python" "$root/dev/check_report.py" collect "$out" 2>&1 | nameless | tee -a "$log"
"$python" "$root/dev/check_evidence.py" "$out/evidence" 2>&1 | nameless | tee -a "$log"
held="${PIPESTATUS[0]}"
if [ -n "$missing" ]; then
  note "The evidence is not whole yet: parts missing:$missing"
else
  [ "$held" = 0 ] || failed=1
  note "GPU CHECK $([ "$failed" = 0 ] && echo PASSED || echo FAILED)"
fi
cat "$log" >> "$out/evidence/gpu_check.log"  # the last lines of the log belong to the evidence too
exit "$failed"
