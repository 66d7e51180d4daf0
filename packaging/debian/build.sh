#!/usr/bin/env bash
# Makes the Debian packages from binaries that are built already: packaging/debian/build.sh BINARIES OUT
#
# BINARIES is a directory such as target/release, OUT gets one file for each package. The same binaries make the same bytes: every
# time in a package is SOURCE_DATE_EPOCH, by default that of the last commit. Nothing is fetched.
#   VERSION      of the packages; by default the workspace's
#   PACKAGES     which; by default all of them
#   MAINTAINER   who answers for the packages, as NAME <ADDRESS>
#   COMPRESSION  as dpkg-deb -Z takes it; by default xz, which every Debian reads
set -euo pipefail
umask 022

if [ $# != 2 ]; then
  echo "usage: packaging/debian/build.sh BINARIES OUT" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
binaries=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")}
maintainer=${MAINTAINER:-Tidegate developers <tidegate@localhost.localdomain>}
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
export LC_ALL=C TZ=UTC
dpkg --validate-version "$version"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Which packages of the libraries a binary was linked with are needed at least, as dpkg knows them here.
libraries() { # libraries BINARY
  mkdir -p "$work/shlibdeps/debian"
  printf 'Source: tidegate\n\nPackage: tidegate\nArchitecture: any\n' >"$work/shlibdeps/debian/control"
  (cd "$work/shlibdeps" && dpkg-shlibdeps -O "$1") | sed -n 's/^shlibs:Depends=//p'
}

documents() { # documents PACKAGE STAGE
  local directory=$2/usr/share/doc/$1
  install -D -m 644 "$here/copyright" "$directory/copyright"
  {
    printf 'tidegate (%s) stable; urgency=medium\n\n  * Version %s.\n\n' "$version" "$version"
    printf ' -- %s  %s\n' "$maintainer" "$(date -R -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$directory/changelog.gz"
  [ "$1" != tidegate ] || guides "$directory"
}

# Tutorials, guides, explanations and reference as Markdown, with their links between each other.
guides() { # guides DIRECTORY
  local page
  (cd "$root/docs" && find README.md tutorials how-to explanation reference -name '*.md' -print0) |
    while IFS= read -r -d '' page; do
      install -D -m 644 "$root/docs/$page" "$1/$page"
    done
}

# What systemd, the kernel and the administrator need of a program that runs by itself.
service() { # service PACKAGE STAGE
  local file short=${1#tidegate-}
  for file in "$root/packaging/systemd/$1.service" "$root/packaging/systemd/$1@.service" "$root/packaging/systemd/$1.socket"; do
    [ ! -e "$file" ] || install -D -m 644 -t "$2/usr/lib/systemd/system" "$file"
  done
  for file in "$root/packaging/etc/tidegate/$short.toml" "$root/packaging/etc/tidegate/$short"-*.toml; do
    [ -e "$file" ] || continue
    install -D -m 644 -t "$2/etc/tidegate" "$file"
    echo "/etc/tidegate/${file##*/}" >>"$2/DEBIAN/conffiles"
  done
  file=$root/packaging/modules-load.d/$1.conf
  [ ! -e "$file" ] || install -D -m 644 -t "$2/usr/lib/modules-load.d" "$file"
}

control() { # control PACKAGE STAGE
  echo "Package: $1"
  echo "Source: tidegate"
  echo "Version: $version"
  echo "Architecture: $architecture"
  echo "Maintainer: $maintainer"
  echo "Section: net"
  echo "Priority: optional"
  echo "Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$2" | cut -f1)"
  local libraries
  libraries=$(libraries "$2/usr/bin/$1")
  # A static program needs no library.
  if [ -n "$libraries" ]; then
    sed "s/@LIBRARIES@/$libraries/" "$here/$1/control"
  else
    sed 's/@LIBRARIES@, //; /^Depends: @LIBRARIES@$/d' "$here/$1/control"
  fi
}

scripts() { # scripts PACKAGE STAGE
  local name
  for name in preinst postinst prerm postrm; do
    [ -e "$here/$1/$name" ] || continue
    # The functions that they share stand where the mark is.
    sed -e "/^#UNITS#$/{r $here/units.sh" -e 'd}' "$here/$1/$name" >"$2/DEBIAN/$name"
    chmod 755 "$2/DEBIAN/$name"
  done
}

package() { # package PACKAGE
  local stage=$work/$1
  mkdir -p "$stage/DEBIAN"
  install -D -m 755 "$binaries/$1" "$stage/usr/bin/$1"
  strip --strip-unneeded --remove-section=.comment "$stage/usr/bin/$1"
  # Container runtimes look for plugins in directories of their own.
  if [ "$1" = tidegate-agent ]; then
    install -D -m 755 "$binaries/tidegate-cni" "$stage/usr/lib/cni/tidegate-cni"
    strip --strip-unneeded --remove-section=.comment "$stage/usr/lib/cni/tidegate-cni"
  fi
  "$binaries/$1" manual "$stage/usr/share"
  find "$stage/usr/share/man" -type f -exec gzip -9n {} +
  documents "$1" "$stage"
  service "$1" "$stage"
  scripts "$1" "$stage"
  control "$1" "$stage" >"$stage/DEBIAN/control"
  (cd "$stage" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
  find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$stage" "$out/$1_${version}_$architecture.deb" >/dev/null
  echo "$out/$1_${version}_$architecture.deb"
}

for name in ${PACKAGES:-tidegate tidegate-api tidegate-agent tidegate-sync tidegate-dns tidegate-gateway tidegate-lab}; do
  package "$name"
done
