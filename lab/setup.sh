#!/usr/bin/env bash
# Installs the packages that building needs on Debian or Ubuntu, with those of the lab or of the tests, and prints their size.
# Prints nothing if all are installed.
#
#   lab/setup.sh [lab|test]
set -euo pipefail

if ! command -v cargo >/dev/null; then
  echo "Rust is missing: install it with rustup, then run this again." >&2
  exit 1
fi

case ${1:-test} in lab | test) ;; *) echo "usage: lab/setup.sh [lab|test]" >&2; exit 2 ;; esac

# command:package. First those of building and of the lab.
needed=(gcc:gcc make:make protoc:protobuf-compiler ip:iproute2 nft:nftables)
if [ "${1:-test}" = test ]; then
  needed+=(iptables:iptables ipset:ipset ipvsadm:ipvsadm conntrack:conntrack modprobe:kmod linux.uml:user-mode-linux
    keepalived:keepalived arping:iputils-arping ndisc6:ndisc6 tcpdump:tcpdump bird:bird2 gobgpd:gobgpd exabgp:exabgp
    dockerd:docker.io docker-compose:docker-compose busybox:busybox-static dnsmasq:dnsmasq-base curl:curl jq:jq g++:g++ pkg-config:pkg-config
    nginx:nginx-light haproxy:haproxy dig:bind9-dnsutils knotd:knot knsupdate:knot-dnsutils named:bind9 unbound:unbound dnsperf:dnsperf h2load:nghttp2-client caddy:caddy pebble:pebble musl-gcc:musl-tools
    etcd:etcd-server etcdctl:etcd-client systemd-analyze:systemd
    dpkg-shlibdeps:dpkg-dev gpg:gpg gpgv:gpgv gpg-agent:gpg-agent minisign:minisign strip:binutils man:man-db sysctl:procps mmdebstrap:mmdebstrap bc:bc ansible-playbook:ansible-core
    chromium:chromium chromedriver:chromium-driver npm:npm kubectl:kubernetes-client)
fi
missing=()
for pair in "${needed[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
# What etcd's protocol files import, and what gcc only recommends.
[ -e /usr/include/google/protobuf/descriptor.proto ] || missing+=(libprotobuf-dev)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
if [ "${1:-test}" = test ]; then
  [ -e /usr/lib/frr/bfdd ] || missing+=(frr)
  # A system clock for one process.
  compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(libfaketime)
  # What relays connections, beside HTTP.
  [ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing+=(libnginx-mod-stream)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
  python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  # For machines that Ansible sets up.
  python3 -c 'import apt' 2>/dev/null || missing+=(python3-apt)
fi
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "Missing: ${missing[*]}. This system has no apt-get: install their equivalents." >&2
  exit 1
fi
echo "Installing ${missing[*]}"
here=$(dirname "$0")
# What the packages would start at once (routing daemons, keepalived) stays off: tests start their own, in namespaces.
"$here/as-root.sh" env DEBIAN_FRONTEND=noninteractive bash -s -- "${missing[@]}" <<'END'
set -euo pipefail
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
apt-get update -qq
apt-get install --no-install-recommends --assume-no "$@" 2>/dev/null </dev/null | sed -n '/^Need to get\|^After this operation/s/^/  /p' || true
apt-get install -y -qq --no-install-recommends "$@" >/dev/null </dev/null
END
