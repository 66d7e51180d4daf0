#!/usr/bin/env bash
# Runs a command as root on a second kernel: User Mode Linux, which has what machines that build this may lack (IPVS with
# every scheduler, ipset, dummy, legacy iptables, SCTP). Answers with the command's exit status.
#
#   lab/guest.sh COMMAND [ARGUMENT...]
#
# The guest sees this machine's files, writable, and this environment; it has no network but its own loopback, one CPU
# and GUEST_MEMORY (1024M). GUEST_TIMEOUT seconds (900) after its start it is ended. Each guest has a CPU of this machine
# to itself; further guests wait.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

modules=(ip_vs ip_vs_{rr,wrr,lc,wlc,sh,dh,sed,nq,lblc,lblcr,fo,ovf,mh} dummy veth bridge sctp
  ip_set ip_set_hash_{ip,net,ipport,ipportip,ipportnet} ip_set_bitmap_port
  nf_conntrack nf_conntrack_netlink iptable_{raw,mangle,nat,filter} ip6table_{raw,mangle,nat,filter}
  xt_{nat,MASQUERADE,statistic,set,comment,mark,addrtype,tcpudp,sctp,conntrack,recent,physdev,ipvs,REDIRECT,multiport}
  ipt_REJECT ip6t_REJECT nf_log_syslog)

command -v linux.uml >/dev/null || { echo "guest: user-mode-linux is not installed; run lab/setup.sh" >&2; exit 1; }
work=$(mktemp -d)
guest=
cleanup() {
  # The kernel is several processes in a session of its own: neither the end of `timeout` nor that of one reaches them all.
  [ -z "$guest" ] || pkill -KILL --full "init=$work/init" || true
  rm -rf "$work"
}
trap cleanup EXIT

printf '%q ' "$@" >"$work/command"
export -p >"$work/environment"
# Every command in the guest takes tens of milliseconds, so one loads all modules, and the shell itself writes settings.
cat >"$work/init" <<INIT
#!/bin/bash
source $work/environment
export PATH=\$PATH:/usr/sbin:/usr/bin:/sbin:/bin TIDEGATE_GUEST=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir -p /run/netns /run/modules/lib/modules
ln -s /usr/lib/uml/modules/\$(uname -r) /run/modules/lib/modules/\$(uname -r)
modprobe -q -a -d /run/modules ${modules[*]}
for module in ${modules[*]}; do
  [ -e /sys/module/\$module ] || echo "guest: no module \$module" >&2
done
# All there is has been loaded; the kernel would try again on every rule, a process each.
echo >/proc/sys/kernel/modprobe
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
# What it says goes to the file and not to the console, whose last lines a power-off may swallow.
echo 20 >/proc/sys/vm/dirty_writeback_centisecs
echo 20 >/proc/sys/vm/dirty_expire_centisecs
cd $(printf %q "$PWD") && ( source $work/command ) >>$work/out 2>&1 </dev/null
echo \$? >$work/status
sync
poweroff -f
INIT
chmod +x "$work/init"

: >"$work/out"
cpus=()
IFS=, read -ra ranges < <(sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status)
for range in "${ranges[@]}"; do mapfile -t -O "${#cpus[@]}" cpus < <(seq "${range%-*}" "${range#*-}"); done
while :; do
  for cpu in "${cpus[@]}"; do
    exec 9>"/tmp/tidegate-guest-$cpu.lock"
    ! flock -n 9 || break 2
  done
  sleep 0.5
done
cc -O2 -shared -fPIC -o "$work/registers.so" "$(dirname "$0")/guest-registers.c"
set -m
# Whatever runs beside it waits for packets and clocks; it only computes. Its kernel and its programs are processes that
# wait for each other at each system call, which takes about half of the processor time if both are on one CPU. Early
# terminals and the comparison of RAID algorithms would take most of the time of its boot.
nice -n 5 taskset --cpu-list "$cpu" timeout --signal=KILL "${GUEST_TIMEOUT:-900}" \
  env LD_PRELOAD="$work/registers.so" linux.uml mem="${GUEST_MEMORY:-1024M}" rootfstype=hostfs rootflags=/ rw \
  init="$work/init" pty.legacy_count=0 initcall_blacklist=raid6_select_algo con=null con0=fd:0,fd:1 quiet </dev/null >"$work/console" 2>"$work/boot" 9>&- &
guest=$!
set +m
told=0
tail -n +1 -s 0.1 -f --pid="$guest" "$work/out" 2>/dev/null 9>&- || told=$?
# Whoever listened is gone (SIGPIPE), and wants no answer: the guest goes as well.
[ "$told" != 141 ] || exit "$told"
wait "$guest" || true
if [ ! -s "$work/status" ]; then
  echo "guest: it ended without an answer (timeout, or it did not boot):" >&2
  tail -n 5 "$work/boot" "$work/console" >&2
  exit 125
fi
status=$(cat "$work/status")
# A test program succeeds also if no test has the given name.
result=$(grep '^test result: ' "$work/out" | tail -n 1) || true
if [ "$status" = 0 ] && [[ " $* " == *" --exact "* ]] && [[ "$result" != "test result: ok. "[1-9]* ]]; then
  echo "guest: no test passed: ${result:-there is no result}" >&2
  exit 124
fi
exit "$status"
