#!/usr/bin/env bash
# Packs the sources and every package that set-up takes from a network into one archive: scripts/bundle.sh --help,
# docs/offline.md.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
program=bundle
. "$root/scripts/machine.sh"
. "$root/scripts/progress.sh"
. "$root/scripts/packages.sh"

usage() {
  cat << 'END'
usage: scripts/bundle.sh [--plan] [--cuda 13|12.8] [--without debian|compiler] FILE.tar
  Packs the sources of this clone (tracked files as they are now, with the last commit), Debian packages and wheels into
  FILE.tar, for machines without a network that have the distribution and Python version of this one. There:
    tar -xf FILE.tar && cd mkbench && scripts/run.sh --compare eager
  --plan      prints what would be packed, and stops
  --cuda      the CUDA version to build with there (default: the newest; 12.8 has no compiler to pack)
  --without   debian: no Debian packages, for machines that have them; compiler: no CUDA compiler, for machines with
              a toolkit. May be given twice
environment:
  MKBENCH_CUDA   the same as --cuda
END
}

plan=0
file=""
holds=" debian wheels compiler "
while [ $# -gt 0 ]; do
  case "$1" in
    --plan) plan=1 ;;
    --cuda | --without)
      [ -n "${2:-}" ] || { usage >&2; exit 2; }
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --cuda=*) MKBENCH_CUDA="${1#--cuda=}" ;;
    --without=debian | --without=compiler) holds="${holds/ ${1#--without=} / }" ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *)
      [ -z "$file" ] || { usage >&2; exit 2; }
      file="$1"
      ;;
  esac
  shift
done
[ -n "$file" ] || { usage >&2; exit 2; }
gpus=""  # the target machine's GPUs are unknown: --cuda decides, else the newest lane
choose_lane
[ -e "$root/scripts/requirements/compiler-$lane.txt" ] || holds="${holds/ compiler / }"
# The distribution's own Python, which the archive brings where it is missing.
system="$(system_name)" base_python=/usr/bin/python3

# Absolute, because apt-get takes a relative folder for one of its own.
folder="$(realpath -m -- "$(dirname -- "$file")")"
[ ! -e "$file" ] || die "$file is there already" "remove it, or choose another name"
[ -w "$folder/." ] || die "$folder is no folder that can be written to" "choose another place for FILE.tar"
git=(git -c 'safe.directory=*' -C "$root")
commit="$("${git[@]}" rev-parse HEAD 2> /dev/null)" ||
  die "$root is no git clone" "an archive holds the files that git tracks, and their commit"
"$base_python" -c 'import ensurepip, venv' 2> /dev/null ||
  die "$base_python cannot make a virtual environment" "apt-get install python3-venv"
python_version="$("$base_python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
command -v apt-get > /dev/null ||
  die "this is not Debian or Ubuntu (no apt-get)" "make the archive on the target's distribution"

debian_packages="python3-venv $(debian_rows | awk '{ print $1 }' | xargs)"
wheel_files=(python.txt "lane-$lane.txt")
case "$holds" in *" compiler "*) wheel_files+=("compiler-$lane.txt") ;; esac
changes="$("${git[@]}" status --porcelain --untracked-files=no | wc -l)"
left="$("${git[@]}" ls-files --others --exclude-standard | wc -l)"

say "an archive for $system, Python $python_version and CUDA $lane (torch $(pinned torch))"
[ "$changes" = 0 ] || say "$changes tracked files differ from the commit: they are packed as they are"
[ "$left" = 0 ] || say "$left files that git does not track are left out (git add takes them in)"
facts() {
  printf '%s\n' "system=$system" "python=$python_version" "cuda=$lane" "holds=$(xargs <<< "$holds")" "commit=$commit"
}
if [ "$plan" = 1 ]; then
  facts
  printf '%s\n' "sources=$("${git[@]}" ls-files | wc -l)" "debian=$debian_packages" "wheels=${wheel_files[*]}"
  exit 0
fi

# Packed, the wheels take a third of the disk space in the lane's row; while tar writes, one wheel exists twice.
needed_gb="$(lane_rows | awk -v lane="$lane" '$1 == lane { print int(($5 + 1) / 2) }')"
free_mb() { df -Pm "$folder" | awk 'NR == 2 { print $4 }'; }
[ "$(free_mb)" -ge $((needed_gb * 1024)) ] ||
  die "$folder has $(free_mb) MB free; making the archive needs $needed_gb GB" "free some space, or take another folder"

# Everything is made in one folder beside FILE.tar, and FILE.tar gets its name only when it is complete.
work="$(mktemp -d "$folder/.bundle-XXXXXX")"
trap 'rm -rf "$work"' EXIT
trap 'say "error: interrupted; $file was not written"; exit 130' INT TERM HUP
begun=$SECONDS
offline="$work/mkbench/offline"

fail() {  # WHAT WHAT-TO-DO
  [ "$(free_mb)" -gt 50 ] || die "$1: the disk of $folder is full; $file was not written" "free some space"
  die "$1 (its message is above); $file was not written" "$2"
}

# Clones one commit, so that reports made from the archive name it, and adds the uncommitted changes.
pack_sources() {
  # The clone may belong to another user (containers, mounted folders); git's server takes safe.directory from a file.
  printf '[safe]\n\tdirectory = *\n' > "$work/gitconfig"
  GIT_CONFIG_GLOBAL="$work/gitconfig" git clone --quiet --no-local --depth 1 --no-tags "$root" "$work/mkbench" &&
    git -C "$work/mkbench" remote remove origin || return 1
  [ "$changes" = 0 ] || "${git[@]}" diff --binary HEAD | git -C "$work/mkbench" apply --index --whitespace=nowarn
}

# apt resolves as for a system without any package, from this machine's sources; its lists go to a folder of ours.
fetch_debian_packages() {
  local as_root=() apt_options locked=""
  mkdir -p "$work/apt/lists/partial" "$offline/debian/partial"
  : > "$work/apt/status"
  apt_options=(-o "Dir::State=$work/apt" -o "Dir::State::Lists=$work/apt/lists" -o "Dir::State::status=$work/apt/status"
    -o "Dir::Cache=$work/apt" -o "Dir::Cache::archives=$offline/debian" -o "APT::Sandbox::User=$(id -un)")
  run_apt update -qq || return 1
  # shellcheck disable=SC2086
  run_apt install -y -qq --no-install-recommends --download-only $debian_packages || return 1
  rm -rf "$offline/debian/partial" "$offline/debian/lock"
  write_index > "$offline/debian/Packages"
}

# Prints the index that apt needs to use the folder as a source: each package's control file, with name, size and hash.
write_index() {
  local package
  for package in "$offline"/debian/*.deb; do
    dpkg-deb --field "$package" || return 1
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$(basename "$package")" \
      "$(stat -c %s "$package")" "$(sha256sum < "$package" | cut -d' ' -f1)"
  done
}

fetch_wheels() {
  local pip_options pip_sources venv="$work/venv"
  requirement_options "${wheel_files[@]}"
  "$base_python" -I -m venv "$venv" && mkdir -p "$work/tmp" || return 1
  find_pip_sources
  TMPDIR="$work/tmp" with_progress "fetching ${wheel_files[*]}" /dev/null \
    "$venv/bin/python" -I -m pip --isolated download "${pip_sources[@]}" --quiet --disable-pip-version-check --only-binary :all: \
    --dest "$offline/wheels" "${pip_options[@]}" < /dev/null >&2
}

write_facts() {
  facts > "$offline/made_for" || return 1
  (cd "$offline" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum) > "$work/sums" &&
    mv "$work/sums" "$offline/SHA256SUMS"
}

say "packing the sources"
pack_sources || fail "git could not copy the sources" "look at git status in $root"
mkdir -p "$offline"
case "$holds" in
  *" debian "*)
    say "fetching Debian packages: $debian_packages"
    fetch_debian_packages || fail "apt-get could not fetch them" "is there a network?"
    ;;
esac
say "fetching wheels: ${wheel_files[*]} (takes minutes, depending on the network)"
fetch_wheels || fail "pip could not fetch them" "is there a network?"
write_facts || fail "the checksums could not be written" "look at $folder"
# Wheels and Debian packages are compressed already: zstd would save 2 % and need a program that a bare system lacks.
say "writing the archive"
tar -cf "$work/archive.tar" --owner=0 --group=0 --numeric-owner --sort=name --remove-files -C "$work" mkbench ||
  fail "tar could not write the archive" "look at $folder"
mv "$work/archive.tar" "$file"
size_mb="$(($(stat -c %s "$file") / 1000000))"
say "$file: $size_mb MB, made in $((SECONDS - begun)) s. On a machine with $system and Python $python_version run:"
say "tar -xf $(basename "$file") && cd mkbench && scripts/run.sh --compare eager"
