#!/usr/bin/env bash
# Mutation run: changes one expression of the product at a time and runs the tests of its crate, at least one of which has to
# fail. The mutants of each part are taken in random order, for at most SECONDS a part, from the last commit.
#
#   lab/mutants.sh SECONDS [PART…]
#
# ONLY limits the run to mutants whose names match this regular expression, such as survivors after a new test; the page stays as it
# is. The parts are listed below. The result is docs/contributing/mutation-score.md, whose last line `make test` prints. A mutant
# that no test notices is a survivor. The run fails if the page does not explain each survivor.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?how many seconds for each part}
shift
readonly VERSION=27.1.0
work=$PWD/target/mutants
tools=$PWD/target/tools

# NAME PACKAGE[,PACKAGE WITH TESTS] TESTS FILE…: `TESTS` are arguments of cargo test; after `--` follow parts of test names.
readonly PARTS=(
  "program model --lib,--test=it model/src/program.rs model/src/program/*.rs model/src/program/lower/*.rs model/src/wire/networks.rs"
  "compile model --lib,--test=it model/src/compile.rs model/src/compile/*.rs"
  "decisions model --lib,--test=it model/src/observed/assign/*.rs model/src/observed/health/*.rs"
  "bfd bfd --lib,--test=it node-agent/bfd/src/*.rs"
  "bgp bgp --lib,--test=it node-agent/bgp/src/rib.rs node-agent/bgp/src/rib/*.rs node-agent/bgp/src/export.rs node-agent/bgp/src/session/*.rs node-agent/bgp/src/wire/errors.rs"
  "planners dataplane,node-agent --tests,--,plan,golden,previews,nftables_state,iptables_state,ipvs_state node-agent/dataplane/src/*/plan.rs"
  "ownership announce,node-agent --tests,--,ownership,machine,owners node-agent/announce/src/l2/machine*.rs node-agent/announce/src/ownership/*.rs"
  "store store --lib,--test=it store/src/memory.rs store/src/etcd/write.rs store/src/etcd/attempt.rs"
)

# Programs of this run only: the repository does not depend on the tool.
[ -x "$tools/bin/cargo-mutants" ] ||
  CARGO_TARGET_DIR=$work/tool cargo install cargo-mutants --version "$VERSION" --locked --quiet --root "$tools"
export PATH=$tools/bin:$PATH

# A copy, so that an interrupted run leaves no mutant behind.
rm -rf "$work/tree"
mkdir -p "$work"
git clone --quiet --shared . "$work/tree"
commit=$(git rev-parse --short=12 HEAD)
export CARGO_TARGET_DIR=${MUTANTS_TARGET_DIR:-$work/build}

status=0
for part in "${PARTS[@]}"; do
  read -r name packages tests files <<<"$part"
  package=${packages%%,*}
  if [ $# != 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  echo "== mutants of $name"
  arguments=()
  for tested in ${packages//,/ }; do arguments+=(--test-package "$tested"); done
  for file in $files; do arguments+=(--file "$file"); done
  for test in ${tests//,/ }; do arguments+=("--cargo-test-arg=$test"); done
  if [ -n "${ONLY:-}" ]; then arguments+=(--re "$ONLY"); fi
  out=$work/$name
  rm -rf "$out"
  mkdir -p "$out"
  # Status 124 is the end of the time, 2 and 3 are survivors and timeouts: the outcomes count.
  (cd "$work/tree" && timeout --signal=INT "$seconds" cargo mutants --in-place --package "$package" "${arguments[@]}" \
    --shuffle --no-times --line-col=false --minimum-test-timeout 120 --output "$out" </dev/null) || true
  git -C "$work/tree" checkout --quiet .
  if [ -n "${ONLY:-}" ]; then
    (cd "$out/mutants.out" && head -v -n -0 caught.txt missed.txt timeout.txt)
    [ ! -s "$out/mutants.out/missed.txt" ] || status=1
    continue
  fi
  (cd "$work/tree" && cargo mutants --list --line-col=false --package "$package" "${arguments[@]}") >"$out/all.txt"
  lab/mutation-score.py "$name" "$commit" "$out" || status=1
done
exit "$status"
