#!/usr/bin/env bash
# Runs schemathesis against a live control server with the server's own documents, for users and for agents: no 5xx, no undocumented answer.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
version=4.32.5
examples=${EXAMPLES:-10}
venv=target/schemathesis-$version
work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

if [ ! -x "$venv/bin/schemathesis" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi

# Port 0: the kernel chooses a free one, and the server says which.
target/debug/tidegate-api --listen 127.0.0.1:0 --store memory: --service-cidr 10.96.0.0/16,fd00:96::/112 \
  >"$work/ready" 2>"$work/log" </dev/null &
server=$!
url=
for _ in $(seq 300); do
  url=$(sed -n 's/^tidegate-api listening on //p' "$work/ready")
  [ -z "$url" ] || break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
if [ -z "$url" ]; then
  echo "tidegate-api did not start:" >&2
  cat "$work/log" >&2
  exit 1
fi

# The time that cases take to generate depends on what else the machine does, so it is no finding (`too_slow`).
# Streams never end by design (watch, feed): each is held to its document by tests of its own.
for document in openapi.json openapi-agent.json; do
  env -C "$work" "$root/$venv/bin/schemathesis" --config-file "$root/lab/schemathesis.toml" run "$url/$document" \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance \
    --exclude-path /v1/watch --exclude-path /v1/overview/watch --exclude-path /v1/addresses/announced --exclude-path '/v1/nodes/{node}/state' \
    --max-examples "$examples" --seed 1 --suppress-health-check too_slow --request-timeout 30 --generation-database none --no-color </dev/null && continue
  echo "the server's log ends:" >&2
  tail -20 "$work/log" >&2
  exit 1
done
kill -0 "$server" || { echo "tidegate-api ended during the run" >&2; exit 1; }
