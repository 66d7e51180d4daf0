#!/usr/bin/env bash
# Makes the images tidegate-api, tidegate-agent, tidegate-sync, tidegate-dns and tidegate-gateway from programs that are built here; no registry is asked.
#
#   packaging/container/images.sh [BINARIES [IMAGE…]]
#
# BINARIES is a directory with the built programs, target/release when left out; IMAGE is one to make when not all are wanted.
#
# ENGINE names the engine's command (docker), DOCKER_HOST its socket. With ARCHIVES, a directory, the images become files there
# for `docker load`, the same bytes of the same programs at SOURCE_DATE_EPOCH, and no engine is needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/container/stage.sh
binaries=${1:-target/release}
images=("${@:2}")
[ ${#images[@]} -gt 0 ] || images=(tidegate-api tidegate-agent tidegate-sync tidegate-dns tidegate-gateway)
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

# Mode iptables, and the few rules of mode ipvs, go by iptables' own programs; the other modes speak with the kernel themselves.
stage_iptables() { # stage_iptables DIRECTORY
  local root=$1 multi program flavour family verb directory
  for multi in xtables-nft-multi xtables-legacy-multi; do
    if ! program=$(PATH="$PATH:/usr/sbin:/sbin" command -v "$multi"); then
      echo "$multi is not installed here: the agent's image will lack it for mode iptables" >&2
      continue
    fi
    stage_program "$root" "$program" "/usr/sbin/$multi"
    flavour=${multi#xtables-} flavour=${flavour%-multi}
    for family in iptables ip6tables; do
      for verb in "" -save -restore; do
        ln -sf "$multi" "$root/usr/sbin/$family-$flavour$verb"
        [ -e "$root/usr/sbin/$family$verb" ] || ln -s "$multi" "$root/usr/sbin/$family$verb"
      done
    done
  done
  for directory in /usr/lib/*/xtables; do
    [ -d "$directory" ] || continue
    mkdir -p "$root$directory"
    cp -a "$directory/." "$root$directory/"
    stage_libraries "$root" "$directory"/*.so
  done
}

for name in "${images[@]}"; do
  [ -x "$binaries/$name" ] || { echo "$binaries/$name is not built: cargo build --release --workspace" >&2; exit 1; }
  root=$context/$name/root
  stage_begin "$root"
  mkdir -m 700 "$context/$name/state"
  stage_program "$root" "$binaries/$name" "/usr/bin/$name"
  stage_authorities "$root"
  case $name in
    tidegate-api) stage_program "$root" "$binaries/tidegate" /usr/bin/tidegate ;;
    tidegate-agent) stage_iptables "$root" ;;
  esac
  stage_image "$name" "$context/$name"
done
