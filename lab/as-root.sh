#!/usr/bin/env bash
# Runs a command as root: directly, or by sudo with the environment that builds and tests need.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
  exec "$@"
fi
if ! command -v sudo >/dev/null; then
  echo "This needs root (network namespaces) and there is no sudo: run it as root." >&2
  exit 1
fi
exec sudo --preserve-env=PATH,HOME,CARGO_HOME,RUSTUP_HOME,CARGO_TARGET_DIR,UPDATE_GOLDEN,TIDEGATE_BINARIES,TIDEGATE_SEED -- "$@"
