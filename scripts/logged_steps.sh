# Steps under a time limit, whose log is committed as evidence. Sourced by gpu_check.sh and gpu_gate.sh, which set
#   root, out   the repository, and the folder of results
#   log         the file that steps are logged in
#   begun       SECONDS at the start; budget_s: upper bound for the time of all steps together
# A step that fails leaves its exit status in `failed`, unless one failed before it.

failed=0

note() { printf '%s\n' "$*" | tee -a "$log"; }

# Logs are committed: they name no folder of this machine.
nameless() { sed "s#$out#.#g; s#$root#.#g; s#/[^ ]*/bin/\(python[0-9.]*\)#\1#g"; }

# The card and its state, one line.
note_card() {
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,temperature.gpu --format=csv,noheader \
    2> /dev/null | tee -a "$log" || note "(nvidia-smi printed nothing)"
}

# step SECONDS NAME COMMAND ...: runs the command under a time limit. After a failure the next steps run all the
# same, so that one visit to the machine shows every failure.
step() {
  local limit="$1" name="$2" start=$SECONDS status
  shift 2
  local left=$((budget_s - SECONDS + begun))
  [ "$left" -ge 5 ] || { note "== $name: not run, the time is used up"; [ "$failed" != 0 ] || failed=1; return 1; }
  [ "$limit" -le "$left" ] || limit="$left"
  note "== $name"
  timeout --kill-after=5 "$limit" "$@" < /dev/null > "$out/step.log" 2>&1
  status=$?
  # The screen gets the whole output, the log its end.
  cat "$out/step.log"
  tail -n 60 "$out/step.log" | nameless >> "$log"
  rm -f "$out/step.log"
  note "== $name: $([ $status = 0 ] && echo passed || echo "FAILED ($status)") after $((SECONDS - start)) s"
  [ "$status" = 0 ] || [ "$failed" != 0 ] || failed="$status"
  return "$status"
}
