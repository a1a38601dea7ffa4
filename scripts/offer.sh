#!/usr/bin/env bash
# Says whether this machine is the one that was wanted, before anything is installed or built. By hand:
# scripts/offer.sh --help; `scripts/run.sh doctor --require LIST` calls it too.
set -euo pipefail
shopt -s nocasematch  # of a card's name
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
program=offer
. "$root/scripts/machine.sh"

usage() {
  cat << 'END'
usage: scripts/offer.sh [[--require] gpu=5090,vram=32,ram=32,cores=8,disk=20,network=20]
  gpu      part of a card's name, in any case; without it the first card is looked at
  vram     that card's memory in GB (10^9 bytes; half a GB less will do, as cards are sold)
  ram      memory that this container may take in all, GB; half a GB less will do
  cores    cores that this container may use
  disk     GB free in this folder
  network  MB/s of a download from PyPI, tried for up to 10 s; not tried unless it is wanted
Exit code 0: will do; 6: will not do; 2: not understood.
END
}

refuse() {
  say "error: $1"
  exit 2
}

# wanted[KEY]: what the list asks for.
declare -A wanted
read_list() {  # LIST
  local words word key value
  [ -n "$1" ] || refuse "--require: the list is empty, wanted gpu=5090,vram=32"
  IFS=, read -ra words <<< "$1"
  for word in "${words[@]}"; do
    key="${word%%=*}" key="${key,,}" value="${word#*=}"
    case "$key" in
      gpu | vram | ram | cores | disk | network) ;;
      *) refuse "--require: '$key' is unknown; known: gpu, vram, ram, cores, disk, network" ;;
    esac
    [[ "$word" == *=?* ]] || refuse "--require: '$word' has no value; wanted $key=VALUE"
    [ "$key" = gpu ] || [[ "$value" =~ ^[0-9]*\.?[0-9]+$ && "$value" == *[1-9]* ]] ||
      refuse "--require: $key: found '$value', wanted a number above 0"
    [ -z "${wanted[$key]:-}" ] || refuse "--require: '$key' is given twice"
    wanted[$key]="$value"
  done
}

# calculate EXPRESSION [FORMAT]: by awk, because bash has whole numbers alone.
calculate() { LC_ALL=C awk "BEGIN { printf \"${2:-%.1f}\", ($1) }"; }

missing=()  # topics with a problem
row() {     # ok|warning|problem TOPIC TEXT
  printf -- '- %-9s%-9s %s\n' "$1" "$2" "$3"
  [ "$1" != problem ] || missing+=("$2")
}

# judge KEY NUMBER UNIT SPARE WHERE: the row of a number, which is met if it is less than SPARE below the wanted one.
judge() {
  local text="found $2$3${5:-}" finding=ok
  if [ -n "${wanted[$1]:-}" ]; then
    text+=", wanted ${wanted[$1]}$3"
    [ "$(calculate "$2 + $4 >= ${wanted[$1]}" %d)" = 1 ] || finding=problem
  fi
  row "$finding" "$1" "$text"
}

# cards: "MiB, power limit, its default, highest memory clock, name" a line.
find_cards() {
  local smi
  smi="$(command -v "$wsl_lib/nvidia-smi" || command -v nvidia-smi || true)"
  cards=""
  [ -z "$smi" ] || cards="$(timeout 30 "$smi" --format=csv,noheader,nounits \
    --query-gpu=memory.total,power.limit,power.default_limit,clocks.max.memory,name 2> /dev/null)" || cards=""
}

# The first card of the wanted name; where none has it, the first one of all.
judge_card() {
  local card line finding=problem mib="" power default_power clock name=none
  find_cards
  card="$(head -n 1 <<< "$cards")"
  while read -r line; do
    case "${line##*, }" in
      "") ;;
      *"${wanted[gpu]:-}"*) card="$line" finding=ok; break ;;
    esac
  done <<< "$cards"
  [ -z "$card" ] || IFS=, read -r mib power default_power clock name <<< "${card//, /,}"
  [ -n "${wanted[gpu]:-}" ] || finding=ok
  row "$finding" gpu "found $name${wanted[gpu]:+, wanted ${wanted[gpu]}}"
  if [[ "$mib" =~ ^[0-9]+$ ]]; then
    judge vram "$(calculate "$mib * 1048576 / 1e9")" " GB" 0.5 ", memory clock up to $clock MHz"
    # Where the driver does not say, they are "[N/A]".
    [[ "$power$default_power" == *[!0-9.]* ]] || [ "$(calculate "$power < $default_power" %d)" = 0 ] ||
      row warning gpu "power limit $power W, default $default_power W: slower than other such cards"
  elif [ -n "${wanted[vram]:-}" ]; then
    row problem vram "found ${mib:-none}, wanted ${wanted[vram]} GB"
  fi
}

# Memory in all and cores: the machine's, or what the control groups leave of them.
judge_container() {
  local bytes cores limit quota period
  bytes="$(awk '/^MemTotal/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)"
  for limit in $(cgroup_limits "" memory.max ""; cgroup_limits /memory memory.limit_in_bytes memory); do
    [ "$limit" = max ] || bytes="$(calculate "$limit < $bytes ? $limit : $bytes" %.0f)"
  done
  judge ram "$(calculate "$bytes / 1e9")" " GB" 0.5
  cores="$(nproc)"
  while read -r quota period; do
    case "$quota" in
      max | -1 | "") ;;
      *) cores="$(calculate "$quota / $period < $cores ? $quota / $period : $cores" %g)" ;;
    esac
  done < <(cgroup_limits "" cpu.max ""
    paste -d ' ' <(cgroup_limits /cpu cpu.cfs_quota_us cpu,cpuacct) <(cgroup_limits /cpu cpu.cfs_period_us cpu,cpuacct))
  judge cores "$cores" "" 0
}

# download URL: what comes in 10 s, to stdout, by what this machine has. Returns 1 where it has nothing.
download() {
  local by
  if command -v curl > /dev/null; then by=(curl -sSfL)
  elif command -v wget > /dev/null; then by=(wget -qO-)
  elif command -v python3 > /dev/null; then
    by=(python3 -c 'import shutil, sys, urllib.request as u; shutil.copyfileobj(u.urlopen(sys.argv[1]), sys.stdout.buffer)')
  else return 1; fi
  timeout 10 "${by[@]}" "$1" 2> /dev/null || true
}

# Downloads up to 200 MB of the wheel of torch that set-up fetches, and keeps nothing.
judge_network() {
  local lane page wheel begin bytes nanoseconds
  [ -n "${wanted[network]:-}" ] || return 0
  lane="$(lane_rows | awk 'NR == 1 { print $1 }')"
  page="$(download https://pypi.org/simple/torch/)" ||
    { row problem network "not tried: no curl, wget or python3 (apt-get install curl)"; return 0; }
  wheel="$(grep -om 1 "href=\"[^\"#]*torch-$(pinned torch)-cp311-[^\"#]*x86_64.whl" <<< "$page" || true)"
  [ -n "$wheel" ] || { row problem network "found no wheel of torch at https://pypi.org/simple/torch/"; return 0; }
  begin="$(date +%s%N)"
  bytes="$(download "${wheel#href=\"}" | head -c 200000000 | wc -c)"
  nanoseconds=$(($(date +%s%N) - begin))
  judge network "$(calculate "$bytes * 1e3 / $nanoseconds")" " MB/s" 0
}

# Whether set-up would go on here, and with which CUDA.
judge_setup() {
  local why
  if why="$(judge_machine 2>&1 > /dev/null)"; then
    row ok set-up "$(sed -n 's/^offer: \(CUDA .*\)/\1/p' <<< "$why")"
  else
    row problem set-up "$(tr -s ' \n' ' ' <<< "${why##*error: }")"
  fi
}

main() {
  case "${1:-}" in
    -h | --help) usage; exit 0 ;;
    --require) shift; [ $# -gt 0 ] || set -- "" ;;
    --require=*) set -- "${1#--require=}" "${@:2}" ;;
    -*) usage >&2; exit 2 ;;
  esac
  [ $# -le 1 ] || refuse "found $# words, wanted one list: gpu=5090,vram=32"
  [ $# = 0 ] || read_list "$1"
  judge_card
  judge_container
  judge disk "$(calculate "$(df -Pk . | awk 'NR == 2 { print $4 }') * 1024 / 1e9")" " GB" 0.5 " free in $PWD"
  judge_network
  judge_setup
  if [ "${#missing[@]}" = 0 ]; then
    echo "offer: this machine will do"
  else
    local all="${missing[*]}"
    echo "offer: this machine will not do: ${all// /, }"
    exit 6
  fi
}

[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
