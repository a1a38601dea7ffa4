# shellcheck shell=bash
# Where packages come from: Debian's archive and PyPI, or an offline folder, which scripts/bundle.sh packs beside the
# sources. Sourced by setup.sh and bundle.sh, after machine.sh.

# What this system is, as an offline folder names it: "debian 12".
system_name() {
  (. /etc/os-release 2> /dev/null && printf '%s %s' "${ID:-unknown}" "${VERSION_ID:-}") || printf unknown
}

# offline_fact NAME: a value in the offline folder's file made_for. Names: system, python, cuda, holds.
offline_fact() { sed -n "s/^$1=//p" "$offline/made_for"; }

# offline: the folder whose packages are used; empty where they come from the network. offline_python: the version of
# Python that its wheels are for.
find_offline() {
  offline="" offline_python="" offline_checked=""
  case "${MKBENCH_OFFLINE:-}" in
    no) return 0 ;;
    '') [ -d "$root/offline" ] || return 0 ;;
  esac
  offline="$(realpath -m -- "${MKBENCH_OFFLINE:-$root/offline}")"
  [ -f "$offline/made_for" ] || die "$offline is no offline folder of scripts/bundle.sh: it has no file made_for" \
    "unpack the archive again, or take packages from the network: MKBENCH_OFFLINE=no"
  offline_python="$(offline_fact python)"
}

tell_offline() {
  say "packages come from $offline," \
    "made for $(offline_fact system), Python $offline_python and CUDA $(offline_fact cuda)"
}

# require_offline KIND: stops if the folder does not hold packages of this kind (debian, wheels, compiler), if they are
# for another machine than this one, or if one of their files is missing or changed.
require_offline() {
  local kind="$1" folder="wheels" found wanted bad
  [ -n "$offline_checked" ] || tell_offline
  case " $(offline_fact holds) " in
    *" $kind "*) ;;
    *) die "$offline holds no packages of the kind '$kind', but: $(offline_fact holds)" \
      "make the archive without --without $kind, or install them first" ;;
  esac
  found="$(system_name)" wanted="$(offline_fact system)"
  if [ "$kind" = debian ]; then
    folder=debian
    [ "$found" = "$wanted" ] || die "the Debian packages of $offline are for $wanted; this is $found" \
      "make the archive on $found with scripts/bundle.sh, or install them first: $missing_packages"
  elif [ "$lane" != "$(offline_fact cuda)" ]; then
    die "$offline is for CUDA $(offline_fact cuda); CUDA $lane is wanted here" \
      "make the archive with scripts/bundle.sh --cuda $lane, or leave --cuda and MKBENCH_CUDA out"
  fi
  # The hashes are of gigabytes, so each folder is checked once. The first bad file is named.
  case "$offline_checked" in *" $folder "*) return 0 ;; esac
  bad="$(cd "$offline" && grep -F "  $folder/" SHA256SUMS 2> /dev/null | sha256sum --check --quiet 2> /dev/null)" ||
    { bad="${bad%%$'\n'*}"
      die "$offline is not as it was made: ${bad:-SHA256SUMS lists nothing of $folder}" \
        "copy and unpack the archive again"; }
  offline_checked+=" $folder "
}

# apt_options, apt_folder: for apt-get to see the offline folder and no other source. The lists go to a folder of their
# own, so that nothing of the machine's own sources is changed.
use_offline_apt() {
  apt_folder="$(mktemp -d)"
  mkdir -p "$apt_folder/lists/partial" "$apt_folder/cache/archives/partial"
  # A source is a URI, which a blank would end.
  printf 'deb [trusted=yes] file:%s ./\n' "$(sed 's/%/%25/g; s/ /%20/g' <<< "$offline/debian")" \
    > "$apt_folder/sources.list"
  apt_options=(-o "Dir::Etc::SourceList=$apt_folder/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$apt_folder/lists" -o "Dir::Cache=$apt_folder/cache" -o APT::Sandbox::User=root)
}

apt_every_s=5 apt_patience_s=900

# run_apt ARGUMENT ...: apt-get with the caller's as_root and apt_options. Waits for a program that holds apt's locks:
# on a cloud machine's first minutes that is its own update. locked: what apt-get has last said of a lock.
run_apt() {
  local log status waited=0
  log="$(mktemp)"
  while :; do
    status=0
    "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" "$@" \
      > "$log" 2>&1 < /dev/null || status=$?
    locked="$(sed -n 's/^E: \(\(Could not get\|Unable to acquire\|Unable to lock\).*\)/\1/p' "$log" | head -n 1)"
    if [ "$status" = 0 ] || [ -z "$locked" ] || [ "$waited" -ge "$apt_patience_s" ]; then break; fi
    [ "$waited" != 0 ] || say "apt: $locked: waiting for it, at most $((apt_patience_s / 60)) min"
    sleep "$apt_every_s"
    waited=$((waited + apt_every_s))
  done
  cat "$log" >&2
  rm -f "$log"
  return "$status"
}

install_packages() {  # NAME ...
  command -v apt-get > /dev/null ||
    die "these packages are missing, and this is not Debian or Ubuntu (no apt-get): $*" \
        "install them under the names that your system uses (scripts/requirements/debian.txt names the files to have)"
  local as_root=() apt_options=() apt_folder="" locked="" why="is there a network? Debian 12 or Ubuntu 24.04 is needed" status=0
  if [ -n "$offline" ]; then
    require_offline debian
    use_offline_apt
    why="a system that is newer than $offline needs an archive that is as new"
  fi
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null ||
      die "packages are missing, and there is neither root nor sudo to install them" \
          "let an administrator run: apt-get install $*"
    as_root=(sudo)
    # sudo reads a password from the terminal, also where stdin is another file.
    [ -t 0 ] || [ -t 2 ] || as_root+=(-n)
  fi
  say "installing Debian packages: $*"
  run_apt update -qq || say "apt-get update failed; trying with the lists that are there"
  run_apt install -y -qq --no-install-recommends "$@" || status=$?
  [ -z "$apt_folder" ] || rm -rf "$apt_folder" || true
  [ "$status" = 0 ] || die "apt-get could not install: $*" "${locked:-$why}"
}

# requirement_options FILE ...: pip's options for these files of scripts/requirements, in the lane's versions.
requirement_options() {
  local file requirements="$root/scripts/requirements"
  pip_options=(--constraint "$requirements/constraints.txt" --constraint "$requirements/constraints-$lane.txt")
  for file in "$@"; do pip_options+=(--requirement "$requirements/$file"); done
}

# pip_sources: options for the user's settings of pip that say where packages come from. The others, such as user,
# target and prefix, would take packages out of the environment, so pip runs isolated from all.
find_pip_sources() {
  mapfile -t pip_sources < <("$venv/bin/python" -I -c '
import pip._internal.configuration as pip
settings, found = pip.Configuration(isolated=False), {}
settings.load()
for key, value in settings.items():  # the environment comes last; since pip 25 there is one dict for each file
    found.update(value if isinstance(value, dict) else {key: value})
for key, value in found.items():
    name = key.rpartition(".")[2]
    if name in ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "cert", "client-cert",
                "timeout", "default-timeout", "retries"):
        for word in value.split():
            print(f"--{name}={word}")
')
}

pip_install() {  # REQUIREMENTS FILE ...
  local names pip_options pip_sources source=() kind=wheels what="fetching and unpacking"
  names="$(sed 's/ / and /g' <<< "$*")"
  if [ -n "$offline" ]; then
    case "$1" in compiler-*) kind=compiler ;; esac
    require_offline "$kind"
    source=(--no-index --find-links "$offline/wheels") what=unpacking
  else
    find_pip_sources
    source=("${pip_sources[@]}")
  fi
  # pip unpacks where TMPDIR points; /tmp may be a small memory disk.
  mkdir -p "$venv/tmp"
  requirement_options "$@"
  if ! TMPDIR="$venv/tmp" with_progress "$what $names" /dev/null \
      "$venv/bin/python" -I -m pip --isolated install --quiet --disable-pip-version-check "${source[@]}" "${pip_options[@]}" \
      >&2 < /dev/null; then
    die "pip could not install $names (its message is above)" \
        "without a network nothing can be fetched: run this once with one, unpack an archive of scripts/bundle.sh," \
        "or put a python3 that has torch $(pinned torch), cmake and ninja, and a toolkit of CUDA $lane, on PATH"
  fi
  rm -rf "$venv/tmp"
}
