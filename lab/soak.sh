#!/usr/bin/env bash
# The long variants of what `make test` bounds: many more random cases, crashes and rounds. The first failure ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:?how many rounds}
echo "== random cases and crashes"
TIDEGATE_SOAK=1 PROPTEST_CASES="${PROPTEST_CASES:-5000}" cargo test --locked --quiet -p model -p store -p bfd -p bgp -p kernel -p dataplane -p announce -p node-agent -p gateway </dev/null
echo "== mutants"
lab/mutants.sh "${MUTANT_SECONDS:-900}"
echo "== two builds of a release"
lab/reproducible.sh
echo "== an upgrade from the newest release"
lab/upgrade.sh
echo "== histories of storms, and a million names"
TIDEGATE_SOAK=1 cargo test --locked --quiet -p lab --test it -- histories:: dns_limits:: --nocapture </dev/null
echo "== a cluster in changes and faults"
lab/soak-cluster.sh "${MINUTES:-30}"
echo "== fuzzing"
lab/fuzz.sh "${FUZZ_SECONDS:-600}"
echo "== API contract"
EXAMPLES="${EXAMPLES:-200}" lab/schemathesis.sh
for round in $(seq "$rounds"); do
  echo "== end-to-end, round $round of $rounds"
  cargo test --locked --quiet -p lab </dev/null
done
