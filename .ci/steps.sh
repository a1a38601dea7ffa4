# What .ci/run and .ci/long share. Sourced from the repository's root.

results=()
failed=0
step() {  # NAME COMMAND ...
  local name="$1" start=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" < /dev/null || status=$?
  local line
  if [ "$status" = 0 ]; then line="passed"; else line="FAILED ($status)" failed=1; fi
  results+=("$(printf '%-34s %-12s %5d s' "$name" "$line" $((SECONDS - start)))")
  return "$status"
}

sources() { git -c safe.directory='*' ls-files -- "$@"; }

# tool NAME: prints the path of version 14 of a tool, from the virtual environment or else from PATH. Other versions
# format and warn differently.
tool() {
  local found
  for found in "$(dirname "$python")/$1" "$(command -v "$1-14" || true)" "$(command -v "$1" || true)"; do
    if [ -x "$found" ] && "$found" --version | grep -q 'version 14\.'; then
      echo "$found"
      return 0
    fi
  done
  echo "there is no $1 14 beside $python or on PATH" >&2
  return 1
}

# lint BUILD: runs clang-tidy over the host code by BUILD's compile commands (a batch is read as one file), except for
# code that clang-tidy 14 cannot read (CUDA 13, GCC's precompiled headers) or not in reasonable time (libtorch).
lint() {
  # clang does not know all of GCC's warning options.
  local build="$1" clang_tidy extra=(--extra-arg=-Wno-unknown-warning-option) status=0
  # PyPI's clang-tidy lacks the compiler's own headers (stddef.h), so GCC's are used. Debian's package is complete.
  if ! clang_tidy="$(command -v clang-tidy-14)"; then
    clang_tidy="$(tool clang-tidy)" || return 1
    extra+=("--extra-arg=-isystem$(g++ -print-file-name=include)")
  fi
  mkdir -p "$build/lint"
  "$python" .ci/lint_files.py "$build" > "$build/lint/files" || return 1
  xargs -P "$(nproc)" -n 1 "$clang_tidy" --quiet "${extra[@]}" -p "$build/lint" \
    < "$build/lint/files" 2> "$build/lint/log" || status=$?
  if [ "$status" = 0 ]; then
    echo "$(wc -l < "$build/lint/files") files and batches are clean"
  else
    grep -v 'warnings generated\|Suppressed\|header-filter' "$build/lint/log"
  fi
  return "$status"
}

# sanitizers 'TARGET ...' CTEST-ARGUMENT ...
sanitizers() {
  local target="$1"
  shift
  MKBENCH_PRESET=sanitize MKBENCH_CUDA_ARCHITECTURES=90a-real scripts/setup.sh $target || return 1
  . build/sanitize/setup.env
  "$(dirname "$cmake")/ctest" --test-dir build/sanitize -j "$(nproc)" --output-on-failure --no-tests=error "$@"
}

fuzz_targets="safetensors config reference wire report"

# fuzz_briefly SECONDS: runs each target on its seeds, its committed corpus, and mutations of both for SECONDS, without
# libFuzzer: clang's build takes 520 s of CPU, these four targets 70 s more than `sanitizers`. The report's reader
# runs without sanitizers here, because no other step builds its libraries with them; the lane `fuzz` of .ci/long does.
# The seed is fixed, so that a change hardly ever fails by what it did not touch; the lane draws anew every time.
fuzz_briefly() {
  local target build status=0 seeds=build/ci/fuzz-seeds found=build/fuzz-found
  MKBENCH_PRESET=sanitize MKBENCH_CUDA_ARCHITECTURES=90a-real \
    scripts/setup.sh fuzz_safetensors fuzz_config fuzz_reference fuzz_wire || return 1
  rm -rf "$seeds" "$found"
  mkdir -p "$found"
  build/ci/tests/fuzz_seeds "$seeds" || return 1
  for target in $fuzz_targets; do
    build=sanitize
    [ "$target" != report ] || build=ci
    "build/$build/tests/fuzz_$target" --mutate "$1" --seed 1 --found "$found/$target" \
      "build/$build/tests/fuzz-corpus/$target" "$seeds/$target" 2> "$found/$target.log" > "$found/$target.out" ||
      { tail -n 40 "$found/$target.log"; status=1; }
    echo "fuzz_$target: $(paste -sd ';' "$found/$target.out")"
  done
  return "$status"
}

summary() {  # NAME BEGUN
  printf '\n== %s: %d s\n' "$1" $((SECONDS - $2))
  printf '%s\n' "${results[@]}"
  if [ "$failed" = 0 ]; then echo "ALL STEPS PASSED"; else echo "SOME STEPS FAILED"; fi
}
