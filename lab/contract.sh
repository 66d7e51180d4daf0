#!/usr/bin/env bash
# Validates the OpenAPI documents in openapi/, and generates clients from the one for users, which must have every
# operation.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=lab/contract/requirements.txt
# The names change with the versions.
venv=target/contract-$(sha256sum "$requirements" | cut -c1-12)
modules=target/contract-npm-$(sha256sum lab/contract/package-lock.json | cut -c1-12)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -x "$venv/bin/openapi-python-client" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$requirements"
fi
if [ ! -x "$modules/node_modules/.bin/redocly" ]; then
  mkdir -p "$modules"
  cp lab/contract/package.json lab/contract/package-lock.json "$modules"
  (cd "$modules" && npm ci --ignore-scripts --no-audit --no-fund)
fi

for document in openapi/*.json; do
  "$venv/bin/openapi-spec-validator" "$document"
  REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true \
    "$modules/node_modules/.bin/redocly" lint --extends=recommended "$document"
done

document=openapi/tidegate-v1.json
"$venv/bin/openapi-python-client" generate --path "$document" --meta none --config lab/contract/python-client.yaml \
  --output-path "$work/python" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
"$modules/node_modules/.bin/openapi-typescript" "$document" --output "$work/client.ts"
python3 lab/contract/operations.py "$document" "$work/log" "$work/python" "$work/client.ts"
