#!/usr/bin/env bash
# Builds a release from source and packs it: packaging/release/build.sh OUT
#
# The programs are static and name their commit. The same commit makes the same programs in every directory. CRATES limits the
# build, as `-p CRATE…`; PACKAGES must match then. PROGRAMS names programs that OUT gets as they are, with checksums, instead of all
# the files of a release. See packaging/release/pack.sh for the other variables.
set -euo pipefail
umask 022

if [ $# != 1 ]; then
  echo "usage: packaging/release/build.sh OUT" >&2
  exit 2
fi
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
target=$(rustc -vV | sed -n 's/^host: //p')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
TIDEGATE_BUILD_COMMIT=$(git rev-parse --short=12 HEAD)
# Changes that are not committed belong to no commit.
[ -z "$(git status --porcelain --untracked-files=no)" ] || TIDEGATE_BUILD_COMMIT+=-changed
TIDEGATE_BUILD_DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
TIDEGATE_BUILD_TARGET=$target
export SOURCE_DATE_EPOCH TIDEGATE_BUILD_COMMIT TIDEGATE_BUILD_DATE TIDEGATE_BUILD_TARGET CARGO_INCREMENTAL=0
# No program contains the directory of the source, of Cargo or of what Cargo and the C compiler write. Of several prefixes that
# match, rustc and gcc take the last one.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
built=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
export RUSTFLAGS="-C target-feature=+crt-static"
prefixes=
for prefix in "$root=/tidegate" "$cargo_home=/cargo" "$built=/target"; do
  RUSTFLAGS+=" --remap-path-prefix=$prefix"
  prefixes+=" -ffile-prefix-map=$prefix"
done
export CFLAGS="${CFLAGS:-}$prefixes" CXXFLAGS="${CXXFLAGS:-}$prefixes"
read -ra crates <<<"${CRATES:--p api -p node-agent -p cli -p sync -p dns -p gateway -p cni -p lab}"
# With --target, the flags do not apply to build scripts and procedural macros, which cannot be static.
cargo build --release --locked --target "$target" "${crates[@]}" --bins
if [ -z "${PROGRAMS:-}" ]; then
  exec packaging/release/pack.sh "$built/$target/release" "$out"
fi
rm -rf "$out"
mkdir "$out"
read -ra programs <<<"$PROGRAMS"
install -m 755 "${programs[@]/#/$built/$target/release/}" "$out"
cd "$out"
sha256sum "${programs[@]}" >SHA256SUMS
