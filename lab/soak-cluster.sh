#!/usr/bin/env bash
# A cluster that is changed 50 times a second for so many minutes while things go wrong at random: lab/soak-cluster.sh MINUTES.
# What is built meanwhile does not disturb it: it has copies of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?how many minutes}
copies=$(mktemp -d "${TMPDIR:-/tmp}/tidegate-soak-$$-XXXXXX")
trap 'rm -rf "$copies"' EXIT
cp target/debug/{tidegate-api,tidegate-agent,bench} "$copies"
TIDEGATE_BINARIES=$copies lab/as-root.sh "$copies/bench" soak --minutes "$minutes"
