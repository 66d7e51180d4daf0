#!/usr/bin/env bash
# Sets the version of the project in all files that have it: packaging/release/version.sh VERSION
#
# The changelog gets its section by hand, and the commit of the release in the commit after it.
set -euo pipefail
cd "$(dirname "$0")/../.."
new=${1:-}
if ! [[ $new =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
  echo "usage: packaging/release/version.sh VERSION, such as 1.2.3" >&2
  exit 2
fi
old=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
pattern=${old//./\\.}
sed -i "s/^version = \"$pattern\"$/version = \"$new\"/" Cargo.toml fuzz/Cargo.toml clients/python/pyproject.toml
sed -i "s/^\(version\|appVersion\): $pattern$/\1: $new/" packaging/helm/tidegate/Chart.yaml
sed -i "s/newTag: $pattern}/newTag: $new}/" packaging/kubernetes/kustomization.yaml
sed -i "s/^\( *image: [a-z-]*\):$pattern$/\1:$new/" compose.yaml
sed -i "s/^\([a-z-]*\):$pattern$/\1:$new/" docs/tutorials/docker-compose-lab.md
# Responses of control servers of this version.
sed -i "s/^\(<.*\"version\": \{0,1\}\"\)$pattern\"/\1$new\"/" api/tests/http/*.txt
sed -i "s/\(+tidegate-\)$pattern\"/\1$new\"/" api/tests/golden/kubernetes_view.txt
for manifest in Cargo.toml fuzz/Cargo.toml; do
  cargo update --quiet --offline --workspace --manifest-path "$manifest"
done
echo "version $old → $new"
