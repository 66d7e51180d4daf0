#!/usr/bin/env bash
# Checks the files of a release with programs that are built already: lab/release.sh [BINARIES]
#
# Packing twice makes the same bytes, signatures verify and those of changed files do not, and apt installs from the signed
# repository only. One program stands for all: the packages of the others are tests of their own (lab/tests/it/packages.rs).
# The comparison of two builds from source is lab/reproducible.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
lab=$PWD/lab
binaries=${1:-target/debug}
work=$(mktemp -d)
export GNUPGHOME=$work/gnupg
mkdir -m 700 "$GNUPGHOME"
trap 'gpgconf --kill all; rm -rf "$work"' EXIT
export PACKAGES=tidegate-dns COMPRESSION=gzip

fail() {
  echo "$*" >&2
  exit 1
}
refused() { # refused THING COMMAND…
  local thing=$1
  shift
  if "$@" >"$work/log" 2>&1; then fail "$thing was accepted"; fi
}

gpg --batch --quiet --passphrase '' --quick-generate-key 'Tidegate test <test@example.org>' ed25519 sign 2>/dev/null
APT_KEY=$(gpg --with-colons --list-keys | sed -n 's/^fpr:*\([0-9A-F]*\):$/\1/p' | head -n 1)
minisign -G -W -p "$work/public" -s "$work/secret" >/dev/null
export APT_KEY

MINISIGN_KEY=$work/secret packaging/release/pack.sh "$binaries" "$work/one"
mkdir "$work/elsewhere"
cp "$binaries/tidegate-dns" "$work/elsewhere/"
APT_KEY='' TZ=Asia/Tokyo LC_ALL=C.UTF-8 packaging/release/pack.sh "$work/elsewhere" "$work/two"
diff -r -x InRelease -x Release.gpg -x '*-keyring.gpg' -x '*.minisig' "$work/one" "$work/two" || fail "packing twice differs"

# As a user does: first the signature of the checksums, then the files.
cd "$work/one"
minisign -V -q -p ../public -m SHA256SUMS
sha256sum --quiet --strict --check SHA256SUMS
archive=$(basename *.tar.gz)
cp "$archive" ../kept
printf x >>"$archive"
refused "a changed archive" sha256sum --quiet --strict --check SHA256SUMS
mv ../kept "$archive"
cp SHA256SUMS ../kept
sed 's/^./0/;1s/^0/1/' ../kept >SHA256SUMS
refused "a changed list of checksums" minisign -V -q -p ../public -m SHA256SUMS
mv ../kept SHA256SUMS
for file in debian/*.deb images/*.tar charts/*.tgz apt/pool/*.deb apt/dists/stable/main/binary-*/Packages *.cdx.json; do
  grep -q " $file$" SHA256SUMS || fail "$file has no checksum"
done
python3 - *.cdx.json <<'END'
import json, sys

document = json.load(open(sys.argv[1]))
names = {one["name"]: one for one in document["components"]}
references = [one["bom-ref"] for one in document["components"]]
assert document["bomFormat"] == "CycloneDX" and document["specVersion"] == "1.5"
assert len(references) == len(set(references)) > 50
assert {"dns", "client", "tokio"} <= set(names) and not {"tempfile", "rcgen", "image"} & set(names), sorted(names)
assert all("licenses" in one for one in names.values())
assert len(names["tokio"]["hashes"][0]["content"]) == 64
known = {"tidegate", *references}
assert all({one["ref"], *one["dependsOn"]} <= known for one in document["dependencies"])
END
tar -tzf "$archive" | grep -q '/tidegate-dns$' || fail "the archive has no program"
version=$(basename charts/*.tgz .tgz)
"$lab/helm.sh" lint --strict charts/*.tgz >../log || fail "the chart is not valid: $(cat ../log)"
"$lab/helm.sh" template release charts/*.tgz | grep -q "image: tidegate-agent:${version#tidegate-}$" || fail "the chart has another version"

# apt with directories of its own knows only this repository.
root=$work/root
mkdir -p "$root"/{etc/apt/apt.conf.d,etc/apt/preferences.d,var/lib/apt/lists/partial,var/lib/dpkg,var/cache/apt/archives/partial}
touch "$root/var/lib/dpkg/status"
chmod -R a+rX "$work"
cp apt/tidegate-archive-keyring.gpg "$root/etc/apt/tidegate.gpg"
echo "deb [signed-by=$root/etc/apt/tidegate.gpg] file://$work/one/apt stable main" >"$root/etc/apt/sources.list"
apt() {
  rm -rf "$root"/var/lib/apt/lists/*
  apt-get -q -o Dir="$root" -o Dir::State::status="$root/var/lib/dpkg/status" -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any update &&
    (cd "$root" && apt-get -q -o Dir="$root" -o Dir::State::status="$root/var/lib/dpkg/status" -o APT::Sandbox::User=root download tidegate-dns)
}
apt >"$work/log" 2>&1 || fail "apt does not install from the repository: $(cat "$work/log")"
cmp "$root"/tidegate-dns_*.deb apt/pool/tidegate-dns_*.deb
dpkg-deb -x "$root"/tidegate-dns_*.deb "$root/installed"
"$root/installed/usr/bin/tidegate-dns" --version | grep -q '^tidegate-dns ' || fail "the installed program does not start"

index=$(echo apt/dists/stable/main/binary-*)
cp -r apt ../kept
sed -i 's/^Version: .*/Version: 9/' "$index/Packages"
gzip -9nkf "$index/Packages"
refused "an index that does not match the signed Release" apt
rm -rf apt && cp -r ../kept apt
sed -i 's/^Label: .*/Label: Other/' apt/dists/stable/InRelease apt/dists/stable/Release
refused "a changed Release" apt
rm -rf apt && cp -r ../kept apt
rm apt/dists/stable/InRelease apt/dists/stable/Release.gpg
refused "a repository without signature" apt
echo "release: packed twice to the same bytes; signatures of checksums and apt repository hold"
