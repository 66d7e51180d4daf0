#!/usr/bin/env bash
# Fuzzes what reads the bytes of others, guided by coverage: lab/fuzz.sh [SECONDS [TARGET…]], 20 seconds for each target.
# One line each. A finding ends it; its bytes are in target/fuzz/found/TARGET/, and running the target with them repeats it.
#
# What is found on the way stays in target/fuzz/corpus/ for the next run; fuzz/corpus/ is what everybody begins with.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(bgp_open bgp_update bgp_notification bgp_capabilities bfd dns_message grpc_health
  import_ipvsadm import_keepalived import_kube_proxy import_kubernetes)
# Longer than any message that was not agreed on to be longer, with the byte that chooses a context.
bytes_max=4200
# A parser needs a small multiple of its message; more than this is a leak, or a length that was believed.
memory_mb_max=512

# The instrumentation of libFuzzer without a sanitizer, which would need another compiler. It is for the target only:
# with --target, programs that run while building are left alone.
# A long run is worth the time of an optimized build.
optimized=()
[ "$seconds" -lt 60 ] || optimized=(--config 'profile.release.package."*".opt-level=1')
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/fuzz
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing" \
  cargo build --quiet --release --locked --manifest-path fuzz/Cargo.toml --target "$host" "${optimized[@]}"

for target in "${targets[@]}"; do
  kept=$CARGO_TARGET_DIR/corpus/$target
  found=$CARGO_TARGET_DIR/found/$target
  log=$CARGO_TARGET_DIR/$target.log
  mkdir -p "$kept" "$found"
  if ! "$CARGO_TARGET_DIR/$host/release/$target" -max_total_time="$seconds" -max_len=$bytes_max -rss_limit_mb=$memory_mb_max \
    -timeout=10 -print_final_stats=1 -artifact_prefix="$found/" "$kept" "fuzz/corpus/$target" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "fuzz $target: FAILED, see $log and $found" >&2
    exit 1
  fi
  inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  covered=$(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log")
  echo "fuzz $target: $inputs inputs in $seconds s, $covered edges covered, nothing found"
done
