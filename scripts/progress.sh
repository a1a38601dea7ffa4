# How far a long command is. Sourced by setup.sh.

progress_every_s=60  # between two lines of a log; a terminal has a bar that moves each second

# progress_line WHAT LOG SECONDS: prints WHAT, how many objects ninja has built by its LOG, and the time so far.
progress_line() {
  local counts="" done_text="" last
  last="$(grep -o '^\[[0-9]*/[0-9]*\] .*' "$2" 2> /dev/null | tail -n 1)" || true
  if [ -n "$last" ]; then
    counts="${last%%]*}" counts="${counts#[}"
    done_text=", ${counts%/*} of ${counts#*/} objects (last: $(basename "${last##* }"))"
  fi
  printf '%s%s, %d:%02d min' "$1" "$done_text" $(($3 / 60)) $(($3 % 60))
}

# progress_bar LOG: prints a bar of 24 columns for ninja's counts in LOG; nothing if LOG has none.
progress_bar() {
  local counts bar
  counts="$(grep -o '^\[[0-9]*/[0-9]*\]' "$1" 2> /dev/null | tail -n 1 | tr -d '[]')" || true
  [ -n "$counts" ] || return 0
  printf -v bar '%*s' $((24 * ${counts%/*} / ${counts#*/})) ''
  printf '[%-24s] ' "${bar// /#}"
}

# Shows progress until this shell ends or kills it.
show_progress() {  # WHAT LOG
  local begun=$SECONDS told=$SECONDS
  while sleep 1 && kill -0 $$ 2> /dev/null; do
    if [ -t 2 ]; then
      printf '\r\033[K%.*s' "$(($(tput cols 2> /dev/null || echo 80) - 1))" \
        "$(progress_bar "$2")$(progress_line "$1" "$2" $((SECONDS - begun)))" >&2
    elif [ $((SECONDS - told)) -ge "$progress_every_s" ]; then
      told=$SECONDS
      say "$(progress_line "$1" "$2" $((SECONDS - begun)))"
    fi
  done
}

# with_progress WHAT LOG COMMAND ...: runs COMMAND in the foreground, so that Ctrl-C reaches it.
with_progress() {
  local what="$1" log="$2" status=0 watcher
  shift 2
  show_progress "$what" "$log" < /dev/null > /dev/null &
  watcher=$!
  "$@" || status=$?
  kill "$watcher" 2> /dev/null || true
  wait "$watcher" 2> /dev/null || true
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
  return "$status"
}
