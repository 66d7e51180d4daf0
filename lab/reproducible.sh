#!/usr/bin/env bash
# Builds a release from source twice, in clones in two directories, and compares all files: lab/reproducible.sh
#
# CRATES and PACKAGES limit it, for example CRATES='-p dns' PACKAGES=tidegate-dns; CRATES and PROGRAMS limit it to programs without
# packages.
set -euo pipefail
cd "$(dirname "$0")/.."
# Commits that are made meanwhile belong to neither of the two.
commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for place in one another/place; do
  git clone --quiet --no-hardlinks --no-checkout . "$work/$place/source"
  git -C "$work/$place/source" checkout --quiet "$commit"
  (cd "$work/$place/source" && CARGO_TARGET_DIR=$work/$place/target packaging/release/build.sh "$work/$place/out")
done
if ! diff "$work/one/out/SHA256SUMS" "$work/another/place/out/SHA256SUMS"; then
  echo "these files of two builds from the same source differ" >&2
  exit 1
fi
programs() {
  if [ -n "${PROGRAMS:-}" ]; then cat "$work/one/out"/tidegate*; else tar -xzOf "$work"/one/out/*.tar.gz; fi
}
if programs | grep -aF "$work" >/dev/null; then
  echo "a program contains the path of its source" >&2
  exit 1
fi
echo "two builds from source are identical: $(wc -l <"$work/one/out/SHA256SUMS") files"
