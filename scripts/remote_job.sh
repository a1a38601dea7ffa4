# shellcheck shell=bash
# The part of remote.sh for the other machine, whose bash gets this text: bash -c TEXT mkbench-remote FUNCTION ...
# Nothing is installed for it. Its state of a tree is in the tree's folder .mkbench-remote:
#   files    the files that remote.sh has sent, each ended by a NUL
#   commit   the commit of these files, and whether they differ from it (harness/wire/git_info.cmake reads it)
#   lock     held while a job runs
#   begun, built, ended    times of the last job in ms; cut: there if the job was ended because remote.sh was gone
#   reports  the folders of reports that the last job wrote, as mkbench was told their names, one a line
#   of-CALL  begun, built, ended and reports of the job that this call of remote.sh started: the next job may overwrite
#            the files above at once

now_ms() { date +%s%3N; }

# prepare FOLDER COMMIT BYTES: makes the folder, and removes files that were sent earlier and are not in the list on
# stdin, which is BYTES long. Prints the folder's full name.
prepare() {
  local folder="$1" commit="$2" bytes="$3" tool name
  for tool in rsync flock; do
    command -v "$tool" > /dev/null || { echo "it has no $tool (apt-get install rsync util-linux)" >&2; return 105; }
  done
  cd || return 107
  if [ -d "$folder" ] && [ ! -d "$folder/.mkbench-remote" ] && [ -n "$(ls -A "$folder")" ]; then
    echo "its folder $folder is not empty and was not made by remote.sh: choose another one with --dir" >&2
    return 107
  fi
  mkdir -p "$folder/.mkbench-remote" && cd "$folder" && cat > .mkbench-remote/files.new &&
    echo "$commit" > .mkbench-remote/commit || return 107
  # A list that was cut short would remove files that are still wanted.
  [ "$(wc -c < .mkbench-remote/files.new)" = "$bytes" ] || { echo "the list of files came incomplete" >&2; return 107; }
  touch .mkbench-remote/files
  LC_ALL=C comm -z -23 <(LC_ALL=C sort -z .mkbench-remote/files) <(LC_ALL=C sort -z .mkbench-remote/files.new) |
    while IFS= read -r -d '' name; do
      rm -f -- "./$name"
      rmdir -p -- "$(dirname -- "$name")" 2> /dev/null
    done
  mv .mkbench-remote/files.new .mkbench-remote/files || return 107
  printf 'folder=%s\n' "$PWD"
}

# The processes of the job: its variable is in the environment of all that it started, whatever group or session they
# have put themselves into.
job_processes() { grep -lzsFx -- "$mark" /proc/[0-9]*/environ | cut -d/ -f3; }

# Ends what the job has started: by SIGTERM, and after two seconds by SIGKILL.
end_job() {
  local tries pids
  kill -TERM -- "-$worker"
  for tries in {1..70}; do
    pids="$(job_processes)"
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    [ "$tries" -le 20 ] || kill -KILL $pids
    sleep 0.1
  done
  kill -KILL -- "-$worker"
} 2> /dev/null

# Obeys the words of remote.sh on descriptor 7, and ends the job when none come any more: the connection has ended, or
# the other end is gone silently (a closed laptop).
watch_caller() {
  local word status
  while :; do
    word=""
    IFS= read -r -t "$patience_s" -u 7 word
    status=$?
    case "$status $word" in
      "0 beat") continue ;;
      "0 interrupt")
        # A shell may overlook SIGINT between two commands, and set-up has no report to write.
        if [ -e "$state/built" ]; then kill -INT -- "-$worker"; continue; fi
        ;;
      "0 end") ;;
      *) touch "$state/cut" ;;
    esac
    end_job
    return
  done 2> /dev/null
}

# One job at a time in a folder. An earlier job may be about to be ended, after its connection broke.
wait_for_turn() {
  local word status
  flock -n 8 && return
  echo "remote: another call runs in $root; waiting for it" >&2
  until flock -n 8; do
    word=""
    IFS= read -r -t 1 -u 7 word
    status=$?
    # Above 128: the read timed out.
    if [ "$status" -le 128 ] && [ "$status $word" != "0 beat" ]; then exit 106; fi
  done
}

work() {  # BEFORE ARGUMENT ...
  local before="$1"
  shift
  export "${mark?}" "MKBENCH_BUILT_FILE=$state/built"
  if [ -n "$before" ]; then bash -c "$before" >&2 || exit 1; fi
  exec "$root/scripts/run.sh" "$@"
}

# Whether a disk that set-up and build write to is full.
disk_is_full() {
  local place full="No space left on device\|Disk quota exceeded"
  for place in "$state" "${TMPDIR:-/tmp}" "${XDG_CACHE_HOME:-${HOME:-$root/build}/.cache}"; do
    [ -d "$place" ] || continue
    if { head -c 65536 /dev/zero > "$place/.mkbench-room-$$"; } 2>&1 | grep -q "$full"; then
      rm -f "$place/.mkbench-room-$$"
      return 0
    fi
    rm -f "$place/.mkbench-room-$$"
  done
  find "$root/build" -maxdepth 2 -name '*.log' -newer "$state/begun" -exec grep -q "$full" {} \; -print 2> /dev/null |
    grep -q .
}

# list_reports ARGUMENT ...: writes the list of report folders that changed since the job began, out of the folders that
# the arguments name and mkbench's default ones.
list_reports() {
  local argument previous="" folder folders=("${MKBENCH_OUT:-}" mkbench-report-*)
  for argument in "$@"; do
    case "$previous=$argument" in
      --out=* | --resume=*) folders+=("$argument") ;;
      *=--out=* | *=--resume=*) folders+=("${argument#*=}") ;;
    esac
    previous="$argument"
  done
  for folder in "${folders[@]}"; do
    folder="${folder%/}"
    [ -d "$folder" ] || continue
    [ -z "$(find "$(cd -- "$folder" && pwd)" -newer "$state/begun" -type f -print -quit)" ] || echo "$folder"
  done | sort -u > "$state/reports"
}

write_results() {
  local name
  for name in begun built ended; do printf '%s=%s\n' "$name" "$(cat "$state/$name")"; done
  sed 's/^/report=/' "$state/reports"
}

# job FOLDER SUBFOLDER PATIENCE_S CALL BEFORE N VARIABLE*N ARGUMENT ...: runs BEFORE, then scripts/run.sh with the arguments,
# in the subfolder. Exit code: 102 remote.sh had gone, 103 the disk is full, 104 no build, else mkbench's.
job() {
  root="$1" patience_s="$3" state="$1/.mkbench-remote" mark="JOB_OF_MKBENCH_REMOTE=$$-$(date +%s%N)"
  local below="$2" call="$4" before="$5" variables="$6" watcher status
  shift 6
  exec 7<&0 8> "$state/lock" || return 107
  wait_for_turn
  rm -f "$state"/{begun,built,ended,cut,reports}
  while [ "$variables" -gt 0 ]; do
    export "${1?}"
    shift
    variables=$((variables - 1))
  done
  mkdir -p "$root/$below" && cd "$root/$below" && now_ms > "$state/begun" || return 107
  # With job control both background jobs are process groups of their own that do not ignore SIGINT.
  set -m
  work "$before" "$@" < /dev/null 7<&- 8>&- &
  worker=$!
  watch_caller 8>&- &
  watcher=$!
  wait "$worker" 2> /dev/null
  status=$?
  now_ms > "$state/ended"
  if [ -e "$state/cut" ]; then return 102; fi
  { kill "$watcher"; wait "$watcher"; } 2> /dev/null
  end_job
  if [ ! -e "$state/built" ]; then
    if disk_is_full; then return 103; fi
    return 104
  fi
  list_reports "$@"
  write_results > "$state/of-$call" || return 107
  return "$status"
}

# results FOLDER CALL: prints the results of that call's job, a line each, and removes them.
results() {
  cd "$1/.mkbench-remote" || return 107
  cat "of-$2" && rm -f "of-$2"
}

"$@"
