#!/usr/bin/env bash
# Runs the end-to-end tests ROUNDS times; the first failure ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
for round in $(seq "${1:?how many rounds}"); do
  echo "== round $round"
  cargo test --locked --quiet -p lab </dev/null
done
