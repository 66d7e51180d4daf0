#!/usr/bin/env bash
# A cluster that is changed 50 times a second for so many minutes while things go wrong at random: lab/soak-cluster.sh MINUTES [STORE].
# STORE is `sqlite`, or `etcd`, which has a page of its own. BINARIES names the directory of the programs, target/debug unless it is set.
# What is built meanwhile does not disturb it: it has copies of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?how many minutes}
store=${2:-sqlite}
copies=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-soak-$$-XXXXXX")
trap 'rm -rf "$copies"' EXIT
cp "${BINARIES:-target/debug}"/{tidegate-api,tidegate-agent,bench} "$copies"
TIDEGATE_BINARIES=$copies lab/as-root.sh "$copies/bench" --out docs/benchmarks soak --minutes "$minutes" --store "$store"
