#!/usr/bin/env bash
# Runs all checks, from a clean checkout. The end shows the duration of each stage; the last line counts: `N passed, N failed`.
#
# A step that cannot be run counts as a failure; nothing is skipped. Tests that make namespaces need root.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

passed=0
failed=0
# Stages with their durations, in the order of their ends.
stages=()

ended() { # ended NAME BEGIN [END]: notes the duration of a stage, from values of SECONDS
  stages+=("$(printf '%6d s  %s' $((${3:-$SECONDS} - $2)) "$1")")
}

check() { # check NAME COMMAND…: counts a command as one check
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

step() { # step NAME COMMAND…: a check that is a stage of its own
  local begin=$SECONDS
  check "$@"
  ended "$1" "$begin"
}

# Process ids of stages that run beside others, such as the tests, which mostly wait; nice, because tests watch clocks.
declare -A beside=()

begin() { # begin NAME COMMAND…: starts a stage; `conclude NAME` shows its output
  local name=$1
  shift
  mkdir -p target/steps
  {
    local begin=$SECONDS status=0
    nice -n 10 "$@" || status=$?
    echo "$begin $SECONDS" >"target/steps/$name.time"
    exit "$status"
  } >"target/steps/$name.log" 2>&1 </dev/null &
  beside[$name]=$!
}

await() { # await NAME: shows the output of a stage; its status is that of the stage
  local status=0
  wait "${beside[$1]}" || status=$?
  cat "target/steps/$1.log"
  return "$status"
}

conclude() { # conclude NAME [STAGE]: ends a stage that ran beside another, by default the tests
  local begin end
  check "$1" await "$1"
  read -r begin end <"target/steps/$1.time" && ended "$1, beside the ${2:-tests}" "$begin" "$end"
}

# Figures of the tests themselves: the connections that the differential test drew.
figures() {
  cat target/tmp/differential-mix.txt 2>/dev/null || echo "differential test: no result"
  sed -n 's/^Score: /mutation score (stored): /p' docs/contributing/mutation-score.md
}

finish() {
  figures
  [ ${#stages[@]} = 0 ] || printf '%s\n' "${stages[@]}"
  printf '%6d s  in total\n' "$SECONDS"
  grep '^Features: ' docs/reference/features.md
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}

run_tests() {
  local begin=$SECONDS
  echo "== tests"
  rm -f target/tmp/differential-mix.txt
  RUSTC_WORKSPACE_WRAPPER="$PWD/lab/lint.sh" lab/run-tests.sh | tee target/tests.log
  ended tests "$begin"
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
# The build needs few packages; the others are installed beside it.
if ! lab/setup.sh lab; then
  failed=1
  finish
fi
begin "packages for the tests" lab/setup.sh test

# Compiles and lints in one pass. The other stages have workspaces or targets of their own.
step "build and lints" env RUSTC_WORKSPACE_WRAPPER="$PWD/lab/lint.sh" cargo build --workspace --locked --all-targets
conclude "packages for the tests" build
[ "$failed" = 0 ] || finish
step "formatting" cargo fmt --all --check
step "formatting of the fuzz targets" cargo fmt --manifest-path fuzz/Cargo.toml --check
step "Python client" env PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover --start-directory clients/python/tests
begin "API contract (schemathesis)" lab/schemathesis.sh
begin "API documents (validators and generators)" lab/contract.sh
begin "fuzzing" lab/fuzz.sh 3
begin "documentation book" lab/book.sh
begin "release files" lab/release.sh
begin "installation in a clean root" env BINARIES=target/debug COMPRESSION=gzip LIMIT=none lab/clean-root.sh target/clean-root
# The smallest program, without optimization, stands for the whole release, which takes too long. It gets the time that the others leave.
begin "two identical builds" chrt --idle 0 env CRATES='-p cni' PROGRAMS=tidegate-cni \
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=0 lab/reproducible.sh
run_tests
conclude "API contract (schemathesis)"
conclude "API documents (validators and generators)"
conclude "fuzzing"
conclude "documentation book"
conclude "release files"
conclude "installation in a clean root"
conclude "two identical builds"
finish
