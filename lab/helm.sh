#!/usr/bin/env bash
# Runs Helm with the given arguments: lab/helm.sh ARGUMENT…
#
# Debian has no package of Helm. Where it is not installed, the one in a package of npm is used, which has amd64 only.
set -euo pipefail
if command -v helm >/dev/null; then exec helm "$@"; fi
root=$(cd "$(dirname "$0")/.." && pwd)
# The name changes with the version.
place=$root/target/helm-npm-$(sha256sum "$root/lab/helm/package-lock.json" | cut -c1-12)
mkdir -p "$place"
exec 9>"$place/lock"
flock 9
if [ ! -x "$place/helm" ]; then
  cp "$root"/lab/helm/package*.json "$place"
  (cd "$place" && npm ci --ignore-scripts --legacy-peer-deps --no-audit --no-fund >&2)
  layer=$(echo "$place"/node_modules/@aws-cdk/*/lib/layer.zip)
  python3 - "$layer" "$place/new" <<'END'
import sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as layer, open(sys.argv[2], "wb") as helm:
    helm.write(layer.read("helm/helm"))
END
  chmod +x "$place/new"
  mv "$place/new" "$place/helm"
  rm -rf "$place/node_modules"
fi
exec 9>&-
exec "$place/helm" "$@"
