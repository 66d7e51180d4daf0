#!/usr/bin/env bash
# Makes an apt repository, as a directory for any web server, from Debian packages: packaging/release/apt.sh DEBS OUT
#
#   SOURCE_DATE_EPOCH  date of the repository
#   APT_KEY            id of the key that signs it, in the key ring of GNUPGHOME; without it the repository is not signed
#
# Apart from signatures, the same packages and date make the same bytes.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

if [ $# != 2 ]; then
  echo "usage: packaging/release/apt.sh DEBS OUT" >&2
  exit 2
fi
debs=$(cd "$1" && pwd)
: "${SOURCE_DATE_EPOCH:?}"
rm -rf "$2"
mkdir -p "$2/pool"
cd "$2"
cp "$debs"/*.deb pool/

architectures=()
for architecture in amd64 arm64; do
  compgen -G "pool/*_$architecture.deb" >/dev/null || continue
  architectures+=("$architecture")
  index=dists/stable/main/binary-$architecture
  mkdir -p "$index"
  dpkg-scanpackages --multiversion --arch "$architecture" pool 2>/dev/null >"$index/Packages"
  gzip -9nk "$index/Packages"
done

cd dists/stable
{
  echo "Origin: Tidegate"
  echo "Label: Tidegate"
  echo "Suite: stable"
  echo "Codename: stable"
  echo "Date: $(date -R -u -d "@$SOURCE_DATE_EPOCH")"
  echo "Architectures: ${architectures[*]}"
  echo "Components: main"
  echo "SHA256:"
  find main -type f | sort | while read -r file; do
    printf ' %s %s %s\n' "$(sha256sum "$file" | cut -d' ' -f1)" "$(stat -c %s "$file")" "$file"
  done
} >Release
if [ -n "${APT_KEY:-}" ]; then
  gpg --batch --yes --local-user "$APT_KEY" --clear-sign --output InRelease Release
  gpg --batch --yes --local-user "$APT_KEY" --armor --detach-sign --output Release.gpg Release
  gpg --batch --yes --export --output ../../tidegate-archive-keyring.gpg "$APT_KEY"
fi
