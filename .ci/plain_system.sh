# shellcheck shell=bash
# A plain system of this machine's distribution, in a folder: Debian's required packages and apt, nothing else. Sourced
# by .ci/long.

plain_system() {  # FOLDER
  local packed=build/plain-system.tar
  [ "$(id -u)" = 0 ] || { echo "this needs root, for chroot" >&2; return 1; }
  command -v mmdebstrap > /dev/null || { echo "there is no mmdebstrap: apt-get install mmdebstrap" >&2; return 1; }
  if [ ! -e "$packed" ]; then
    # The archive gets its final name once it is complete, so an interruption leaves no partial archive.
    mmdebstrap --quiet --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$packed.partial.tar" &&
      mv "$packed.partial.tar" "$packed" || return 1
  fi
  rm -rf "$1" && mkdir -p "$1" && tar -xf "$packed" -C "$1"
}

# without_network FOLDER COMMAND ...: runs COMMAND as root in FOLDER's system, with lo as the only network device.
# Processes and mounts end with the command.
without_network() {
  unshare --net --mount --pid --fork --kill-child bash -ec 'system="$0"
    ip link set lo up
    mount -t proc proc "$system/proc"
    mount --rbind /dev "$system/dev"
    exec chroot "$system" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' "$@"
}
