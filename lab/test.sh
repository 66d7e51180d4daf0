#!/usr/bin/env bash
# Everything that has to hold, from a clean checkout. The last line counts: `N passed, N failed`.
#
# A step that cannot be run counts as a failure; nothing is skipped. Tests that make namespaces need root.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

passed=0
failed=0
logs=target/test-logs

step() { # step NAME COMMAND…: one check that passes or fails as a whole
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name" >&2
  fi
}

finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}

# Sums the result lines of all test binaries. A run that ends badly without a failed test in it is a failure of its own.
run_cargo_tests() {
  echo "== tests"
  mkdir -p "$logs"
  cargo test --workspace --locked --no-fail-fast 2>&1 </dev/null | tee "$logs/cargo-test.log"
  local status=${PIPESTATUS[0]} ok bad ignored
  read -r ok bad ignored < <(awk '/^test result: /{ok += $4; bad += $6; ignored += $8} END {print ok + 0, bad + 0, ignored + 0}' "$logs/cargo-test.log")
  if [ "$ignored" != 0 ]; then
    echo "FAILED: $ignored tests were ignored; a test that cannot run has to say so by failing" >&2
    bad=$((bad + ignored))
  fi
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  if [ "$ok" = 0 ]; then bad=$((bad + 1)); fi
  passed=$((passed + ok))
  failed=$((failed + bad))
}

if [ "$(id -u)" != 0 ]; then
  echo "The tests make network namespaces: run them as root (lab/as-root.sh make test)." >&2
  failed=1
  finish
fi
if ! lab/setup.sh; then
  failed=1
  finish
fi

step "build" cargo build --workspace --locked --all-targets
[ "$failed" = 0 ] || finish
step "formatting" cargo fmt --all --check
step "formatting of the fuzz targets" cargo fmt --manifest-path fuzz/Cargo.toml --check
step "lints" cargo clippy --workspace --locked --all-targets --quiet -- -D warnings
run_cargo_tests
step "API contract (schemathesis)" lab/schemathesis.sh
step "fuzzing" lab/fuzz.sh 5
finish
