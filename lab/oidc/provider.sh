#!/usr/bin/env bash
# Runs lab/oidc/provider.mjs, an OpenID Connect provider for tests, until stdin ends, in the network namespace
# OIDC_NETNS if that is set.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The name changes with the versions.
modules=target/oidc-npm-$(sha256sum lab/oidc/package-lock.json | cut -c1-12)
if [ ! -e "$modules/installed" ]; then
  mkdir -p "$modules"
  exec 9>"$modules/lock"
  flock 9
  if [ ! -e "$modules/installed" ]; then
    cp lab/oidc/package.json lab/oidc/package-lock.json "$modules"
    (cd "$modules" && npm ci --ignore-scripts --no-audit --no-fund >&2)
    touch "$modules/installed"
  fi
  exec 9>&-
fi
run=()
[ -z "${OIDC_NETNS:-}" ] || run=(ip netns exec "$OIDC_NETNS")
exec "${run[@]}" node lab/oidc/provider.mjs "$PWD/$modules"
