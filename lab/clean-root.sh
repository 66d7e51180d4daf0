#!/usr/bin/env bash
# Installs the Debian packages in a clean root file system, and measures the time from `apt-get install` to the first reply of
# `tidegate demo`: lab/clean-root.sh [PACKAGES]
#
# PACKAGES is the directory of the packages, by default target/debian (`make deb`). The root has the packages that a Debian
# installation always has (priority important). Needs root, mmdebstrap and a Debian mirror.
#   BINARIES  directory of programs, of which packages are made in PACKAGES first
#   SUITE     release of Debian; by default bookworm, or that of this machine with BINARIES, because these have its libraries
#   LIMIT     maximum time in seconds, or `none`; by default 10
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
  echo "run it as root, with mmdebstrap: apt-get install mmdebstrap" >&2
  exit 2
fi
packages=${1:-target/debian}
if [ -n "${BINARIES:-}" ]; then
  rm -rf "$packages"
  PACKAGES='tidegate tidegate-api tidegate-agent tidegate-lab' packaging/debian/build.sh "$BINARIES" "$packages" >/dev/null
  SUITE=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
fi
packages=$(cd "$packages" && pwd)
suite=${SUITE:-bookworm} limit=${LIMIT:-10}
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root

echo "== Clean root of $suite"
mmdebstrap --quiet --variant=important --aptopt='Acquire::Check-Valid-Until "false"' "$suite" "$root"
mkdir "$root/srv/packages"
cp "$packages"/*.deb "$root/srv/packages/"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# Runs a command in the root, in namespaces of its own; the kernel removes all of them with its last process.
inside() { # inside SHELL-LINES [OPTION OF unshare]…
  local lines=$1
  shift
  unshare --mount --pid --uts --ipc --fork --kill-child "$@" sh -ec '
    mount --make-rprivate /
    mount --bind "$1" "$1"
    cd "$1"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t tmpfs tmpfs run
    mount -t tmpfs tmpfs tmp
    mount --rbind /dev dev
    exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive sh -ec "$2"
  ' sh "$root" "$lines"
}

# mmdebstrap deletes the lists of packages, which an installation has.
inside 'apt-get update' >"$work/update.log" 2>&1 || {
  cat "$work/update.log" >&2
  exit 1
}

seconds() { # seconds SINCE
  echo "scale=1; ($(date +%s%N) - $1) / 1000000000" | bc
}

echo "== apt-get install ./tidegate*.deb"
begin=$(date +%s%N)
inside 'cd /srv/packages; apt-get install -y ./tidegate*.deb' >"$work/install.log" 2>&1 || {
  cat "$work/install.log" >&2
  exit 1
}
installed=$(seconds "$begin")
sed -n 's/^\(Need to get .*\|.* newly installed.*\)$/   \1/p' "$work/install.log"
echo "   installed after $installed s"

echo "== tidegate demo"
: >"$work/demo.log"
inside 'ip link set lo up; exec tidegate demo --once 2>&1' --net >"$work/demo.log" &
demo=$!
until grep -q 'through the ClusterIP' "$work/demo.log"; do
  if ! kill -0 "$demo" 2>/dev/null; then
    cat "$work/demo.log" >&2
    echo "the demonstration ended before the first reply" >&2
    exit 1
  fi
  sleep 0.05
done
replied=$(seconds "$begin")
grep -m 1 'through the ClusterIP' "$work/demo.log"
wait "$demo" || {
  cat "$work/demo.log" >&2
  exit 1
}
tail -n 1 "$work/demo.log"
echo "== first reply $replied s after the start of apt-get install ($installed s of them installation; limit: $limit)"
if [ "$limit" != none ] && [ "$(echo "$replied > $limit" | bc)" = 1 ]; then
  echo "too slow" >&2
  exit 1
fi
