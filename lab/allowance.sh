#!/usr/bin/env bash
# lab/allowance.sh LANE: prints the cause for which LANE may fail beside other lanes and pass alone, and succeeds if
# lab/allowance.txt allows it today.
set -euo pipefail
today=$(date +%F)
while read -r lane until cause; do
  [[ "$lane" == "$1" && ! "$until" < "$today" ]] || continue
  echo "$cause (until $until)"
  exit 0
done < <(grep -v '^#' "${ALLOWANCE:-$(dirname "$0")/allowance.txt}")
exit 1
