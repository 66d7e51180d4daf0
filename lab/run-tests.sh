#!/usr/bin/env bash
# Runs all tests of the workspace: lab/run-tests.sh. LANES is the number of concurrent processes (cores + 1), because many
# tests mostly wait for protocols.
#
# A lane is one process with its own log: a module of an integration test program (`it`), named `crate.module`, or a whole
# program, named `crate.program`. Tests of different modules therefore never share a process. Logs are in
# target/test-logs/; the end of the output shows the failures.
#
# The last line counts: `tests: N passed, N failed, N ignored`. A lane that exits with an error without a failed test, or
# that ran another number of tests than its program lists, counts as failed.
#
# The tests watch kernels, routers and clocks while other tests load the machine. A failed lane is therefore run once more,
# alone. If it passes then, it counts as failed nevertheless, except if lab/allowance.txt allows it for some days. A line
# before the last names such lanes.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$PWD/target/test-logs
rm -rf "$logs"
mkdir -p "$logs"

# Long lanes start first, so that none of them is left alone at the end; the others follow.
longest=(histories crash soak conformance change ipvs_traffic iptables_traffic addresses differential ipvs_state bgp_frr bgp_gobgp bgp_driver bgp_exabgp
  clock docker compose packages kubernetes_watch bgp_bird rollback trace abuse etcd mode_cost previews iptables_scale routers nftables_oracle mode_switch_traffic failover health silence bfd_driver page page_large)

# run_one NAME: runs the lane of `NAME.lane`, whose lines are the directory, the number of listed tests (`-` if unknown) and
# the words of the command.
run_one() {
  local lane log=$logs/$1.log name=$1 begin=$SECONDS status=0 results
  mapfile -t lane <"$logs/$1.lane"
  cd "${lane[0]}" || return
  local TIMEFORMAT='%U %S'
  { time "${lane[@]:2}" >"$log" 2>&1 </dev/null || status=$?; } 2>"$logs/$name.time"
  # A test that runs again in another process prints results before; those of the lane are the last. Documentation tests
  # print one for each crate.
  if [ "$name" = documentation ]; then results=$(grep '^test result: ' "$log"); else results=$(grep '^test result: ' "$log" | tail -n 1); fi
  read -r ok bad ignored < <(awk '{ok += $4; bad += $6; ignored += $8} END {print ok + 0, bad + 0, ignored + 0}' <<<"$results")
  if [ "$bad" = 0 ] && { [ "$status" != 0 ] || [ -z "$results" ]; }; then bad=1; fi
  if [ "$bad" = 0 ] && [ "${lane[1]}" != - ] && [ $((ok + ignored)) != "${lane[1]}" ]; then
    echo "$name ran $((ok + ignored)) tests, but ${lane[1]} are listed" >>"$log"
    bad=1
  fi
  echo "$ok $bad $ignored" >"$logs/$name.count"
  printf '%-40s %4s passed, %s failed  %4s s, %4.0f s of processor time\n' "$name" "$ok" "$bad" $((SECONDS - begin)) \
    "$(awk '{print $1 + $2}' "$logs/$name.time")"
}
export -f run_one
export logs

cargo test --workspace --locked --no-run --message-format=json-render-diagnostics | lab/test-lanes.py "$logs" >"$logs/lanes" || exit 1
[ -s "$logs/lanes" ] || { echo "there are no tests" >&2; exit 1; }
printf '%s\n' "$PWD" - cargo test --workspace --locked --doc >"$logs/documentation.lane"
{
  for name in "${longest[@]}"; do grep "\.$name$" "$logs/lanes"; done
  grep -vE "\.($(IFS='|'; echo "${longest[*]}"))$" "$logs/lanes"
  echo documentation
} | tr '\n' '\0' | xargs -0 -P "${LANES:-$(($(nproc) + 1))}" -I '{}' bash -c 'run_one "{}"'

# show LOG LINES: prints the failures and their reasons. Tests in a guest fail where their output stands; others follow the
# first `failures:`. The rest is in the log.
show() {
  awk '/^failures:/ {exit} /panicked at/ {left = 12} left-- > 0' "$1" | head -n 60
  awk '/^failures:/ {is_on = 1} is_on' "$1" | head -n "$2"
}

# Maximum number of lanes that are run again: more failures are no coincidence.
readonly AGAIN_MAX=4
failed=$(for count in "$logs"/*.count; do awk -v name="$(basename "${count%.count}")" '$2 != 0 {print name}' "$count"; done)
unsteady=()
if [ -n "$failed" ] && [ "$(wc -l <<<"$failed")" -le "$AGAIN_MAX" ]; then
  for name in $failed; do
    [ "$name" = documentation ] && continue
    cp "$logs/$name.log" "$logs/$name.first"
    echo "again, alone:"
    (run_one "$name")
    read -r _ bad _ <"$logs/$name.count"
    [ "$bad" = 0 ] || continue
    unsteady+=("$name")
    echo "=== $name failed beside others and passed alone; the first failure:"
    show "$logs/$name.first" 60 | sed 's/^/| /'
    if cause=$(lab/allowance.sh "$name"); then
      echo "=== $name is allowed to: $cause"
    else
      echo "$name failed beside others; correct its cause, or state it in lab/allowance.txt" >>"$logs/$name.log"
      read -r ok _ ignored <"$logs/$name.count"
      echo "$ok 1 $ignored" >"$logs/$name.count"
    fi
  done
fi

# A lane without a count did not run.
listed=0
while read -r name; do
  listed=$((listed + $(sed -n 2p "$logs/$name.lane")))
  [ -e "$logs/$name.count" ] && continue
  echo "$name did not run" >>"$logs/$name.log"
  echo "0 1 0" >"$logs/$name.count"
done <"$logs/lanes"

for count in "$logs"/*.count; do
  read -r _ bad _ <"$count"
  [ "$bad" = 0 ] && continue
  log=${count%.count}.log
  echo "=== $(basename "$log")"
  show "$log" 200
  grep -q '^failures:' "$log" || tail -n 40 "$log"
done
sum() { awk '{ok += $1; bad += $2; ignored += $3} END {print ok + 0, bad + 0, ignored + 0}' "$@"; }
read -r ok bad ignored < <(sed "s|.*|$logs/&.count|" "$logs/lanes" | tr '\n' '\0' | xargs -0 cat | sum)
if [ "$bad" = 0 ] && [ $((ok + ignored)) != "$listed" ]; then
  echo "$((ok + ignored)) tests ran, but $listed are listed"
  echo "0 1 0" >"$logs/lost.count"
fi
read -r ok bad ignored < <(sum "$logs"/*.count)
[ ${#unsteady[@]} = 0 ] || echo "passed only when run again, alone: ${unsteady[*]}"
echo "tests: $ok passed, $bad failed, $ignored ignored"
[ "$bad" = 0 ] && [ "$ignored" = 0 ] && [ "$ok" != 0 ]
