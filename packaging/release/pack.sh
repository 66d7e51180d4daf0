#!/usr/bin/env bash
# Makes the files of a release from programs that are built already: packaging/release/pack.sh BINARIES OUT
#
# OUT gets the programs as an archive, Debian packages, an apt repository, container images, the Helm chart, a bill of
# materials and checksums. The same programs and commit make the same bytes, apart from signatures.
#   VERSION            of the release; by default the workspace's
#   SOURCE_DATE_EPOCH  date in all files; by default that of the last commit
#   PACKAGES           Debian packages; by default all of them
#   APT_KEY            id of the key (GNUPGHOME) that signs the apt repository
#   MINISIGN_KEY       file with the secret key (minisign) that signs the checksums
# Without the keys the files are not signed, and the last line says so.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC

if [ $# != 2 ]; then
  echo "usage: packaging/release/pack.sh BINARIES OUT" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
binaries=$(cd "$1" && pwd)
rm -rf "$2"
mkdir -p "$2/debian"
out=$(cd "$2" && pwd)
export VERSION=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export PACKAGES=${PACKAGES:-tidegate tidegate-api tidegate-agent tidegate-sync tidegate-dns tidegate-gateway tidegate-lab}
target=$(rustc -vV | sed -n 's/^host: //p')
name=tidegate-$VERSION-${target%%-*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$root/packaging/debian/build.sh" "$binaries" "$out/debian" >/dev/null
"$root/packaging/release/apt.sh" "$out/debian" "$out/apt"

images=()
for package in $PACKAGES; do
  [ ! -e "$root/packaging/container/$package.Dockerfile" ] || images+=("$package")
done
if [ ${#images[@]} -gt 0 ]; then
  mkdir "$out/images"
  ARCHIVES=$out/images "$root/packaging/container/images.sh" "$binaries" "${images[@]}" >/dev/null
fi

cp -r "$root/packaging/helm/tidegate" "$work/tidegate"
sed -i "s/^\(version\|appVersion\): .*/\1: $VERSION/" "$work/tidegate/Chart.yaml"
mkdir "$out/charts"
reproducible=(--sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu)
tar "${reproducible[@]}" --mode=u=rwX,go=rX -C "$work" -c tidegate | gzip -9n >"$out/charts/tidegate-$VERSION.tgz"

crates=()
mkdir "$work/$name"
for package in $PACKAGES; do
  install -m 755 "$binaries/$package" "$work/$name/"
  strip --strip-unneeded --remove-section=.comment "$work/$name/$package"
  case $package in
    tidegate) crates+=(cli) ;;
    tidegate-agent) crates+=(node-agent) ;;
    *) crates+=("${package#tidegate-}") ;;
  esac
done
install -m 644 "$root/LICENSE" "$root/CHANGELOG.md" "$work/$name/"
tar "${reproducible[@]}" -C "$work" -c "$name" | gzip -9n >"$out/$name.tar.gz"
(cd "$root" && python3 packaging/release/sbom.py "$target" "$VERSION" "$SOURCE_DATE_EPOCH" "${crates[@]}") >"$out/$name.cdx.json"

# Signatures of the apt repository differ from one run to the next.
cd "$out"
find . -type f ! -name InRelease ! -name Release.gpg ! -name '*-keyring.gpg' -printf '%P\n' | sort | xargs sha256sum >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
checksums="not signed" repository="not signed"
[ -z "${APT_KEY:-}" ] || repository=signed
if [ -n "${MINISIGN_KEY:-}" ]; then
  minisign -S -s "$MINISIGN_KEY" -t "tidegate $VERSION" -m SHA256SUMS >/dev/null
  checksums=signed
fi
echo "$name: checksums $checksums, apt repository $repository"
