#!/usr/bin/env bash
# Makes what compose.yaml needs besides Tidegate: `lab-router`, which is FRR as this machine has it installed, and `lab-tools`, curl and
# a shell, for clients and backends. Nothing is fetched: Debian's packages frr, curl and busybox-static have to be there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. packaging/container/stage.sh
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
lacking=()
[ -x /usr/lib/frr/bgpd ] || lacking+=(frr)
command -v curl >/dev/null || lacking+=(curl)
busybox=$(command -v busybox) || lacking+=(busybox-static)
[ ${#lacking[@]} = 0 ] || { echo "missing: ${lacking[*]} (make setup installs them)" >&2; exit 1; }

for name in lab-router lab-tools; do
  root=$context/$name/root
  stage_begin "$root"
  stage_program "$root" "$busybox" /bin/busybox
  for word in sh ip ping wget cat ls ps sleep hostname; do ln -s busybox "$root/bin/$word"; done
  stage_program "$root" "$(command -v curl)" /usr/bin/curl
  mkdir -p "$root/srv"
done

root=$context/lab-router/root
for daemon in zebra bgpd bfdd; do stage_program "$root" "/usr/lib/frr/$daemon" "/usr/lib/frr/$daemon"; done
stage_program "$root" "$(command -v vtysh)" /usr/bin/vtysh
mkdir -p "$root/etc/frr" "$root/run/frr" "$root/var/tmp/frr" "$root/usr/share"
chmod 1777 "$root/var/tmp/frr"
ln -s /run "$root/var/run"
cp -a /usr/share/yang "$root/usr/share/"
# The daemons run as root of their container, which has few capabilities.
printf 'frr:x:0:\nfrrvty:x:0:\n' >>"$root/etc/group"
: >"$root/etc/frr/vtysh.conf"
# vtysh asks PAM whether it may; in this container there is root only.
permit=$(find /lib/*/security -name pam_permit.so | head -n 1)
stage_program "$root" "$permit" "$permit"
mkdir -p "$root/etc/pam.d"
printf 'auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n' >"$root/etc/pam.d/frr"
install -m 644 packaging/compose/router.sh "$root/etc/frr/start.sh"

for name in lab-router lab-tools; do stage_image "$name" "$context/$name"; done
