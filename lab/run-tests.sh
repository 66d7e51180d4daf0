#!/usr/bin/env bash
# Runs all tests of the workspace, several test programs at a time, because many of them mostly wait for protocols:
# lab/run-tests.sh. LANES says how many (cores + 1). What each printed is in target/test-logs/; what failed is shown at the end.
#
# The last line counts: `tests: N passed, N failed, N ignored`. A program that ends badly without a failed test in it, or
# that says nothing of tests, counts as a failed one.
#
# Tests here watch kernels, routers and clocks, beside each other on few cores. A program that failed is therefore run once
# more, alone; what it said first is shown all the same, and the line before the last names it: it is to be mended, but it
# is known not to fail by itself.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$PWD/target/test-logs
rm -rf "$logs"
mkdir -p "$logs"

# The longest first, so that none of them is alone at the end; whatever is not named here comes after them.
longest=(histories crash soak conformance change ipvs_traffic iptables_traffic addresses differential ipvs_state bgp_frr bgp_gobgp bgp_driver bgp_exabgp
  clock docker compose packages kubernetes_watch bgp_bird rollback trace abuse etcd mode_cost previews iptables_scale routers nftables_oracle mode_switch_traffic failover health bfd_driver page page_large)

run_one() { # run_one NAME DIRECTORY COMMAND…
  local log=$logs/$1.log name=$1 begin=$SECONDS status=0 said
  cd "$2" || return
  shift 2
  "$@" >"$log" 2>&1 </dev/null || status=$?
  # A guest prints results of its own before; the program's are the last. Documentation tests print one for each crate.
  if [ "$name" = documentation ]; then said=$(grep '^test result: ' "$log"); else said=$(grep '^test result: ' "$log" | tail -n 1); fi
  read -r ok bad ignored < <(awk '{ok += $4; bad += $6; ignored += $8} END {print ok + 0, bad + 0, ignored + 0}' <<<"$said")
  if [ "$bad" = 0 ] && { [ "$status" != 0 ] || [ -z "$said" ]; }; then bad=1; fi
  echo "$ok $bad $ignored" >"$logs/$name.count"
  printf '%-40s %4s passed, %s failed  %4s s\n' "$name" "$ok" "$bad" $((SECONDS - begin))
}
export -f run_one
export logs

programs=$(cargo test --workspace --locked --no-run --message-format=json-render-diagnostics | python3 -c '
import json, os, sys
for line in sys.stdin:
    said = json.loads(line)
    if said.get("reason") == "compiler-artifact" and said["profile"]["test"] and said.get("executable"):
        directory = os.path.dirname(said["manifest_path"])
        # In words: crate, and what of it: its test, its library or its binary.
        kind = said["target"]["kind"][0]
        name = said["target"]["name"] if kind == "test" else kind + "-" + said["target"]["name"]
        print(os.path.basename(directory) + "." + name, directory, said["executable"], sep="\t")
') || exit 1
[ -n "$programs" ] || { echo "there are no tests" >&2; exit 1; }
{
  for name in "${longest[@]}"; do grep -P "^[^\t]*\.$name\t" <<<"$programs"; done
  grep -vP "^[^\t]*\.($(IFS='|'; echo "${longest[*]}"))\t" <<<"$programs"
  printf 'documentation\t%s\tcargo\ttest\t--workspace\t--locked\t--doc\n' "$PWD"
} | tr '\n' '\0' | xargs -0 -P "${LANES:-$(($(nproc) + 1))}" -I '{}' bash -c 'IFS=$'"'\t'"' read -ra words <<<"{}"; run_one "${words[@]}"'

# said LOG LINES: what failed, and why. A test that runs in a guest says why where it stands; all else follows the first
# `failures:`. The rest is in the file.
said() {
  awk '/^failures:/ {exit} /panicked at/ {left = 12} left-- > 0' "$1" | head -n 60
  awk '/^failures:/ {is_on = 1} is_on' "$1" | head -n "$2"
}

# More than these is no coincidence.
readonly AGAIN_MAX=4
failed=$(for count in "$logs"/*.count; do awk -v name="$(basename "${count%.count}")" '$2 != 0 {print name}' "$count"; done)
unsteady=()
if [ -n "$failed" ] && [ "$(wc -l <<<"$failed")" -le "$AGAIN_MAX" ]; then
  for name in $failed; do
    [ "$name" = documentation ] && continue
    cp "$logs/$name.log" "$logs/$name.first"
    echo "again, alone:"
    IFS=$'\t' read -ra words <<<"$(grep -P "^\Q$name\E\t" <<<"$programs")"
    run_one "${words[@]}"
    read -r _ bad _ <"$logs/$name.count"
    if [ "$bad" = 0 ]; then
      unsteady+=("$name")
      echo "=== $name failed beside others and passed alone; at first it said"
      said "$logs/$name.first" 60 | sed 's/^/| /'
    fi
  done
fi

for count in "$logs"/*.count; do
  read -r _ bad _ <"$count"
  [ "$bad" = 0 ] && continue
  log=${count%.count}.log
  echo "=== $(basename "$log")"
  said "$log" 200
  grep -q '^failures:' "$log" || tail -n 40 "$log"
done
read -r ok bad ignored < <(cat "$logs"/*.count | awk '{ok += $1; bad += $2; ignored += $3} END {print ok + 0, bad + 0, ignored + 0}')
[ ${#unsteady[@]} = 0 ] || echo "passed only when run again, alone: ${unsteady[*]}"
echo "tests: $ok passed, $bad failed, $ignored ignored"
[ "$bad" = 0 ] && [ "$ignored" = 0 ] && [ "$ok" != 0 ]
