#!/usr/bin/env bash
# Edit here, run there: sends this tree over ssh, builds and runs mkbench on that machine, and fetches the report.
# Must run with bash 3.2 and BSD tools (macOS): no newer feature of bash and no option of GNU's tools. remote_job.sh
# is the part that runs on the other machine.
# shellcheck takes signal handlers and what `timed` calls for unreachable; words expand on this side on purpose.
# shellcheck disable=SC2012,SC2029,SC2317
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
program=remote
# shellcheck source=scripts/machine.sh
. "$root/scripts/machine.sh"

usage() {
  cat << 'END'
usage: scripts/remote.sh [USER@]HOST[:PORT] [OPTION ...] [--] [ARGUMENT OF MKBENCH ...]
  Sends what is new or changed in this tree to HOST by ssh and rsync, sets up and builds there, runs mkbench there with
  the arguments, and fetches its report into this folder. docs/remote.md tells more.
  --dir FOLDER         where the tree goes there, relative to the home there (default: mkbench-remote/<its name here>)
  --env NAME=VALUE     an environment variable for set-up and run there; may be repeated
  --before COMMAND     runs there before set-up, in the folder that mkbench then runs in
  --watch              does it again whenever a file of the tree is saved, until Ctrl-C
  --close              ends the connection, which is otherwise kept for ten minutes, and does nothing else
  -i FILE              the key, as ssh takes it
  --ssh OPTION=VALUE   an option of ssh (man ssh_config); may be repeated
exit code: that of mkbench (0 to 8; 130: it was ended by Ctrl-C, and its report holds what was done), or
    2  a wrong command line, of this script or of mkbench
  100  HOST cannot be reached
  101  HOST refuses the login, or its host key is not the known one
  102  the connection broke; what ran there is ended
  103  a disk there is full
  104  set-up, build or --before failed there
  105  a program is missing, here or there
  106  Ctrl-C, before mkbench had a report; what ran there is ended
  107  files could not be sent or fetched
environment: MKBENCH_REMOTE_PATIENCE_S   seconds of silence after which the connection counts as broken (default: 20)
END
}

patience_s="${MKBENCH_REMOTE_PATIENCE_S:-20}"
folder="mkbench-remote/$(basename "$root")"
before="" watching=0 closing=0 port=""
variables=() ssh_options=()

# problem CODE MESSAGE: prints the one line of a failure, and returns CODE.
problem() { say "error: $2"; return "$1"; }

bad_usage() { problem 2 "$1 (scripts/remote.sh --help)"; exit 2; }

parse_target() {
  local user="" name="$1"
  case "$name" in *@*) user="${name%@*}@" name="${name##*@}" ;; esac
  case "$name" in
    \[*\]:*) port="${name##*:}" name="${name%:*}" ;;
    *:*:*) ;;  # an IPv6 address without brackets has no port behind it
    *:*) port="${name##*:}" name="${name%%:*}" ;;
  esac
  name="${name#[}" name="${name%]}"
  case "$port" in *[!0-9]*) bad_usage "the port is '$port', wanted a number" ;; esac
  if [ -z "$name" ]; then bad_usage "the host is empty in '$1'"; fi
  target="$user$name"
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  "" | -*) bad_usage "the host comes first, found '${1:-nothing}'" ;;
esac
parse_target "$1"
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --dir | --env | --before | -i | --ssh) [ $# -gt 1 ] || bad_usage "$1 has no value" ;;
  esac
  case "$1" in
    --dir) folder="$2" ;;
    --env)
      case "$2" in [A-Za-z_]*=*) variables+=("$2") ;; *) bad_usage "--env is '$2', wanted NAME=VALUE" ;; esac ;;
    --before) before="$2" ;;
    -i) ssh_options+=(-i "$2") ;;
    --ssh) ssh_options+=(-o "$2") ;;
    --watch) watching=1; shift; continue ;;
    --close) closing=1; shift; continue ;;
    --) shift; break ;;
    *) break ;;
  esac
  shift 2
done

for tool in ssh rsync git; do
  command -v "$tool" > /dev/null ||
    { problem 105 "this machine has no $tool (apt-get or brew install $tool)"; exit 105; }
done
case "$(rsync --version 2>&1 | head -n 1)" in
  "rsync "*" version "[3-9]*) ;;
  *)
    problem 105 "this machine's rsync is older than version 3, or another program (macOS: brew install rsync)"
    exit 105
    ;;
esac

# The kept connection is a socket in a folder of this user's own; its name has to be short (104 bytes on macOS).
sockets="/tmp/mkbench-ssh-$(id -u)"
mkdir -m 700 "$sockets" 2> /dev/null
if [ ! -O "$sockets" ] || [ "$(ls -ld "$sockets" | cut -c1-10)" != drwx------ ]; then
  problem 107 "$sockets is there and is not a folder of this user's alone"
  exit 107
fi
if [ -n "$port" ]; then ssh_options+=(-p "$port"); fi
socket="$sockets/$(printf '%s\n' "$target" ${ssh_options[@]+"${ssh_options[@]}"} | cksum | tr ' ' -)"
beat_s=$(((patience_s + 3) / 4))
# Without a terminal nobody can answer a question.
if [ ! -t 0 ]; then ssh_options+=(-o BatchMode=yes); fi
ssh_options+=(-o ControlMaster=auto -o "ControlPath=$socket" -o ControlPersist=600 -o ConnectTimeout=15
  -o "ServerAliveInterval=$beat_s" -o ServerAliveCountMax=3 -o LogLevel=ERROR)
# rsync's ssh uses the kept connection, and with this ProxyCommand it can make no other. rsync gets the name "there"
# in place of the host's, because it would misread the colons of an IPv6 address.
rsync_ssh="ssh -o ControlPath=$socket -o ProxyCommand=false -o LogLevel=ERROR${port:+ -p $port}"

scratch="$(mktemp -d "${TMPDIR:-/tmp}/mkbench-remote.XXXXXX")" || exit 107
job="" beats="" interrupts=0 leaving=0 woken=0

clean_up() {
  [ -z "$beats" ] || kill "$beats" 2> /dev/null
  rm -rf "$scratch"
}
trap clean_up EXIT

# The first Ctrl-C asks mkbench to end and write its report; the second one ends everything on the other machine.
on_interrupt() {
  woken=1 interrupts=$((interrupts + 1))
  if [ -z "$job" ] || [ "$interrupts" -gt 2 ]; then
    problem 106 "ended by Ctrl-C"
    exit 106
  fi
  if [ "$interrupts" = 1 ]; then echo interrupt >&9; else echo end >&9; fi
}
# The terminal was closed, or somebody ended this script.
on_end() {
  [ -n "$job" ] || exit "$1"
  woken=1 leaving="$1"
  echo end >&9
}
trap on_interrupt INT
trap 'on_end 143' TERM
trap 'on_end 129' HUP

job_text="$(cat "$root/scripts/remote_job.sh")"
# quoted WORD ...: quotes words for the other machine's shell, whichever it is.
quoted() {
  local word inside="'\\''"
  for word in "$@"; do printf "'%s' " "${word//\'/$inside}"; done
}

# there FUNCTION ARGUMENT ...: calls a function of remote_job.sh on the machine.
there() { ssh "${ssh_options[@]}" "$target" "bash -c $(quoted "$job_text" mkbench-remote "$@")"; }

close_connection() { ssh "${ssh_options[@]}" -O exit "$target" 2> /dev/null; }

# explain CODE FILE WHAT: reports why a call failed, by its exit code and the last line of its output in FILE.
explain() {
  local said full
  said="$(tr -d '\r' < "$2" | grep -v '^ *$' | tail -n 1)"
  full="$(grep "No space left on device\|Disk quota exceeded" "$2" | head -n 1)"
  if [ -n "$full" ]; then problem 103 "a disk on $target is full: $full"; return; fi
  case "$said" in
    *"Permission denied ("* | *"Host key verification failed"* | *"Too many authentication failures"* | \
      *"no matching host key"*) problem 101 "$target refuses the login: $said" ;;
    *) problem "$1" "$3: ${said:-exit code $1}" ;;
  esac
}

# list_git OPTION ...: the files that `git ls-files` lists with the options, each ended by a NUL, without deleted files
# and repositories inside this one.
list_git() {
  git -c safe.directory='*' ls-files -z "$@" | while IFS= read -r -d '' name; do
    if [ -L "$name" ] || [ -f "$name" ]; then printf '%s\0' "$name"; fi
  done
}

# Every tracked file, and new files that git does not ignore, each ended by a NUL. New files in folders of mkbench's
# reports are left out: they were made here or fetched before.
list_files() {
  (
    cd "$root" || exit
    list_git --cached
    local name report reports=()
    while IFS= read -r -d '' name; do
      case "$name" in */report.json | */soak.json) reports+=("${name%/*}") ;; esac
    done < <(list_git --others --exclude-standard)
    while IFS= read -r -d '' name; do
      for report in ${reports[@]+"${reports[@]}"}; do
        case "$name" in "$report"/*) continue 2 ;; esac
      done
      printf '%s\0' "$name"
    done < <(list_git --others --exclude-standard)
  )
}

commit() {
  local git=(git -C "$root" -c "safe.directory=*") sha dirty=false
  sha="$("${git[@]}" rev-parse HEAD 2> /dev/null)" || sha=unknown
  [ -z "$("${git[@]}" status --porcelain --untracked-files=no)" ] || dirty=true
  echo "$sha $dirty"
}

prepare() {  # sets `there_root`
  local code bytes
  bytes="$(($(wc -c < "$scratch/files")))"
  there prepare "$folder" "$(commit)" "$bytes" < "$scratch/files" > "$scratch/answer" 2> "$scratch/said"
  code=$?
  case "$code" in
    0) there_root="$(sed -n 's/^folder=//p' "$scratch/answer")" ;;
    105 | 107) explain "$code" "$scratch/said" "$target" ;;
    127) problem 105 "$target has no bash" ;;
    255) explain 100 "$scratch/said" "$target cannot be reached" ;;
    *) explain 107 "$scratch/said" "$target could not prepare $folder" ;;
  esac
}

send() {
  local code=0
  list_files > "$scratch/files"
  [ -s "$scratch/files" ] || { problem 107 "git lists no file of $root"; return; }
  prepare || return
  # Compares contents, and leaves times to the other machine: clocks differ, and a file whose time lies before the last
  # build would not be compiled.
  rsync --links --perms --checksum --compress --force --timeout="$((3 * patience_s))" --from0 --files-from=- \
    --rsh="$rsync_ssh" --rsync-path="cd $(quoted "$there_root") && rsync" "$root/" "there:./" \
    < "$scratch/files" > "$scratch/said" 2>&1 || code=$?
  [ "$code" = 0 ] || explain "$(copy_problem "$code")" "$scratch/said" "the files could not be sent to $target"
}

# copy_problem STATUS: 102 if rsync's exit status means a broken connection, else 107.
copy_problem() { case "$1" in 12 | 30 | 35 | 255) echo 102 ;; *) echo 107 ;; esac; }

# Sends a beat every beat_s seconds. Only the script itself holds descriptor 9, so that ssh's stdin closes with it.
beat() {
  trap - EXIT
  while sleep "$beat_s" && kill -0 $$; do echo beat 1<> "$scratch/words"; done
}

# The folder below the tree's root that this script was called in; empty for the root itself or one outside the tree.
below() {
  local here
  here="$(pwd -P)"
  case "$here/" in "$root/"*) printf '%s' "${here#"$root"}" ;; esac
}

# Runs set-up, build and mkbench, and passes their output on. ssh gets a process group of its own, so that a terminal's
# Ctrl-C does not end it, and on its stdin the words that on_interrupt, on_end and beat write.
run_there() {
  local code status=255
  rm -f "$scratch/words"
  mkfifo "$scratch/words" || return 107
  exec 9<> "$scratch/words"
  set -m
  there job "$there_root" "$(below)" "$patience_s" "$call" "$before" "${#variables[@]}" \
    ${variables[@]+"${variables[@]}"} "$@" < "$scratch/words" 9>&- &
  job=$!
  set +m
  beat < /dev/null > /dev/null 2>&1 9>&- &
  beats=$!
  while :; do
    woken=0
    wait "$job" 2> /dev/null
    code=$?
    # 127: an earlier `wait` has already returned the job's status, then a signal made this loop go on.
    [ "$code" = 127 ] || status="$code"
    [ "$woken" = 1 ] || break
  done
  kill "$beats" 2> /dev/null
  job="" beats=""
  exec 9>&-
  [ "$leaving" = 0 ] || exit "$leaving"
  if [ "$interrupts" -gt 0 ] && { [ "$status" -ge 102 ] && [ "$status" != 130 ]; }; then
    problem 106 "ended by Ctrl-C; nothing is left running on $target"
    return
  fi
  case "$status" in
    102 | 255) problem 102 "the connection to $target broke; what ran there is ended (at most $patience_s s later)" ;;
    103) problem 103 "a disk on $target is full: set-up or build failed (its messages are above)" ;;
    104) problem 104 "set-up or build failed on $target (its messages are above)" ;;
    *) return "$status" ;;
  esac
}

# fetch NAME: the folder of a report, under the same name here, or with a number behind it where that is taken.
fetch() {
  local name="$1" to="$1" from="$1" number=2 code=0
  case "$name" in /*) ;; *) from="$there_root/$(below)/$name" ;; esac
  mkdir -p -- "$(dirname -- "$name")" 2> "$scratch/said"
  until mkdir -- "$to" 2> "$scratch/said"; do
    [ -e "$to" ] || { explain 107 "$scratch/said" "no folder for the report of $target:$from"; return; }
    to="$name-$number" number=$((number + 1))
  done
  rsync --recursive --links --times --compress --timeout="$((3 * patience_s))" --rsh="$rsync_ssh" \
    --rsync-path="cd $(quoted "$from") && rsync" "there:./" "$to/" > "$scratch/said" 2>&1 || code=$?
  if [ "$code" != 0 ]; then
    rm -rf -- "$to"
    explain "$(copy_problem "$code")" "$scratch/said" "the report could not be fetched and lies in $target:$from"
    return
  fi
  say "the report is in $to"
}

seconds() { printf '%d.%d s' "$(($1 / 1000))" "$(($1 % 1000 / 100))"; }

# timed COMMAND ...: sets `took_ms`.
timed() {
  local TIMEFORMAT=%R code
  # bash's `time` prints to stderr, so the command gets the real stderr through descriptor 3.
  { time "$@" 2>&3; } 3>&2 2> "$scratch/time"
  code=$?
  took_ms="$(tail -n 1 "$scratch/time" | tr -d '.,')"
  took_ms=$((10#$took_ms))
  return "$code"
}

answer() { sed -n "s/^$1=//p" "$scratch/answer"; }

# Sends, builds, runs, fetches: one round of --watch.
round() {
  local status=0 name sync_ms all_ms fetch_ms=0 begun built call
  call="$$-$(date +%s)"
  timed send || return
  sync_ms="$took_ms"
  timed run_there "$@" || status=$?
  all_ms=$((sync_ms + took_ms))
  case "$status" in 10[0-7]) return "$status" ;; esac
  timed there results "$there_root" "$call" > "$scratch/answer" 2> "$scratch/said" ||
    { explain 102 "$scratch/said" "the connection to $target broke after the run"; return; }
  all_ms=$((all_ms + took_ms))
  answer report > "$scratch/reports"
  while IFS= read -r name <&4; do
    timed fetch "$name" || return
    fetch_ms=$((fetch_ms + took_ms))
  done 4< "$scratch/reports"
  begun="$(answer begun)" built="$(answer built)"
  say "sync $(seconds "$sync_ms"), build $(seconds $((built - begun))), run $(seconds $(($(answer ended) - built)))$(
    [ "$fetch_ms" = 0 ] || printf ', fetch %s' "$(seconds "$fetch_ms")"); $(seconds $((all_ms + fetch_ms))) in all"
  return "$status"
}

# A checksum that changes when a file is saved, added or removed.
fingerprint() {
  # GNU's stat, then BSD's.
  (
    cd "$root" || exit
    list_files | xargs -0 stat -c '%n %s %y' || list_files | xargs -0 stat -f '%N %z %Fm'
  ) 2> /dev/null | cksum
}

# inotifywait only ends the pause early: fingerprint decides, and also finds changes between two calls.
pause() {
  if command -v inotifywait > /dev/null; then
    inotifywait -qq -r -t 2 -e close_write,move,create,delete --exclude '/(\.git|build)(/|$)' "$root" 2> /dev/null ||
      sleep 0.2
  else
    sleep 0.5
  fi
}

watch() {
  local seen now code first=1
  while :; do
    seen="$(fingerprint)"
    code=0
    round "$@" || code=$?
    if [ "$interrupts" != 0 ]; then return "$code"; fi
    if [ "$first" = 1 ]; then
      case "$code" in 100 | 101 | 105) return "$code" ;; esac
      first=0
    fi
    say "exit code $code; waiting for a file to be saved (Ctrl-C ends)"
    now="$(fingerprint)"
    while [ "$now" = "$seen" ]; do
      pause
      now="$(fingerprint)"
    done
    # An editor, or git, may be about to save more.
    until [ "$now" = "$seen" ]; do
      seen="$now"
      sleep 0.2
      now="$(fingerprint)"
    done
  done
}

if [ "$closing" = 1 ]; then
  close_connection
  exit 0
fi
if [ "$watching" = 1 ]; then watch "$@"; else round "$@"; fi
exit $?
