#!/usr/bin/env bash
# Everything that has to hold, from a clean checkout. The last line counts: `N passed, N failed`.
#
# A step that cannot be run counts as a failure; nothing is skipped. Tests that make namespaces need root.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

passed=0
failed=0

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

# Steps that run beside the tests, which mostly wait; nice, because tests watch clocks.
declare -A beside=()

begin() { # begin NAME COMMAND…: what it says is shown by `conclude NAME`
  local name=$1
  shift
  mkdir -p target/steps
  nice -n 10 "$@" >"target/steps/$name.log" 2>&1 </dev/null &
  beside[$name]=$!
}

await() { # await NAME: shows what it said, and its status
  local status=0
  wait "${beside[$1]}" || status=$?
  cat "target/steps/$1.log"
  return "$status"
}

conclude() { # conclude NAME
  step "$1" await "$1"
}

finish() {
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}

run_tests() {
  echo "== tests"
  lab/run-tests.sh | tee target/tests.log
  local ok bad ignored
  read -r ok bad ignored < <(awk '/^tests: /{print $2, $4, $6}' target/tests.log)
  if [ "${ignored:-0}" != 0 ]; then
    echo "FAILED: $ignored tests were ignored; a test that cannot run has to say so by failing" >&2
    bad=$((bad + ignored))
  fi
  # Without a count they did not run.
  passed=$((passed + ${ok:-0}))
  failed=$((failed + ${bad:-1}))
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
begin "API contract (schemathesis)" lab/schemathesis.sh
begin "fuzzing" lab/fuzz.sh 5
begin "documentation book" lab/book.sh
run_tests
conclude "API contract (schemathesis)"
conclude "fuzzing"
conclude "documentation book"
finish
