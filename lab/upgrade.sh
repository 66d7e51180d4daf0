#!/usr/bin/env bash
# Upgrades a cluster from the newest release to this tree while clients open connections, and runs both versions beside each other:
# lab/upgrade.sh
#
# The commit of the newest release stands in CHANGELOG.md. OLDER names a directory with its programs if they are built already.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${OLDER:-}" ]; then
  commit=$(grep -oPm 1 '^Commit `\K[0-9a-f]{40}' CHANGELOG.md) || { echo "CHANGELOG.md names no commit of a release" >&2; exit 1; }
  work=$PWD/target/upgrade
  rm -rf "$work/tree"
  git clone --quiet --shared --no-checkout . "$work/tree"
  git -C "$work/tree" checkout --quiet "$commit"
  echo "== programs of $commit"
  (cd "$work/tree" && CARGO_TARGET_DIR=$work/build cargo build --quiet --locked -p api -p node-agent -p cli --bins)
  OLDER=$work/build/debug
fi
cargo build --quiet --locked -p lab -p api -p node-agent -p cli --bins
lab/as-root.sh target/debug/tidegate-lab upgrade "$OLDER"
