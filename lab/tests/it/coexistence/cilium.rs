//! Footprint of Cilium beside a service proxy, with routes to endpoints and direct routes to nodes. Its eBPF programs are absent, so
//! that the tunnel device and the interface `cilium_host` carry no packets.

use super::footprint::{Footprint, node_address, others, routed_pod};

pub(crate) fn footprint(index: u8) -> Footprint {
    let host = format!("lxc8f2a6c1d0{index}");
    let (router, pod) = (format!("10.0.{index}.1"), format!("10.0.{index}.57"));
    let mut node = vec![
        "link add cilium_host mtu 1450 type veth peer name cilium_net mtu 1450".to_owned(),
        "link set cilium_net up".to_owned(),
        "link set cilium_host up".to_owned(),
        format!("addr add {router}/32 dev cilium_host"),
        "link add cilium_vxlan mtu 1450 type vxlan external dstport 8472".to_owned(),
        "link set cilium_vxlan up".to_owned(),
        format!("link set {host} mtu 1450"),
        format!("route add {router}/32 dev cilium_host scope link proto kernel"),
        format!("route add 10.0.{index}.0/24 via {router} dev cilium_host proto kernel src {router}"),
        format!("route add {pod}/32 dev {host} scope link proto kernel"),
    ];
    let direct =
        |other: u8| format!("route add 10.0.{other}.0/24 via {} dev eth0 proto kernel", node_address(other));
    node.extend(others(index).map(direct));
    node.extend(PROXY_ROUTING.map(str::to_owned));
    node.extend(policy_routing(&router, &pod));
    let parameters = ["cilium_host", "cilium_net", host.as_str()]
        .map(|name| (format!("ipv4/conf/{name}/rp_filter"), "0"))
        .into_iter()
        .chain([("ipv4/conf/cilium_host/forwarding".to_owned(), "1")]);
    Footprint {
        pod: routed_pod(&pod, &router),
        node,
        node_v6: PROXY_ROUTING.map(str::to_owned).to_vec(),
        sets: sets(index),
        parameters: parameters.collect(),
        rules: [rules("cilium_node_set_v4"), rules("cilium_node_set_v6")],
        host,
        ..Footprint::default()
    }
}

/// Rules and tables for packets to and from the proxy of Cilium, and the rule of the table `local` behind them.
const PROXY_ROUTING: [&str; 5] = [
    "rule add pref 100 lookup local protocol kernel",
    "rule del pref 0 lookup local",
    "rule add pref 9 fwmark 0x200/0xf00 lookup 2004 protocol kernel",
    "rule add pref 10 fwmark 0xa00/0xf00 lookup 2005 protocol kernel",
    "route add local default dev lo table 2004 proto kernel",
];

/// Returns the routes of packets from the proxy, and rules for egress by an interface.
fn policy_routing(router: &str, pod: &str) -> [String; 6] {
    [
        format!("route add {router}/32 dev cilium_host scope link table 2005 proto kernel"),
        format!("route add default via {router} dev cilium_host table 2005 proto kernel"),
        format!("rule add pref 20 to {pod}/32 lookup main protocol kernel"),
        "rule add pref 109 fwmark 0x80/0x80 lookup main protocol kernel".to_owned(),
        format!("rule add pref 111 from {pod}/32 to 198.18.0.0/15 lookup 11 protocol kernel"),
        "route add default via 172.17.8.10 dev eth0 table 11 proto kernel".to_owned(),
    ]
}

fn sets(index: u8) -> Vec<String> {
    let mut lines = vec![
        "create cilium_node_set_v4 hash:net family inet".to_owned(),
        "create cilium_node_set_v6 hash:net family inet6".to_owned(),
    ];
    lines.extend(others(index).map(|other| format!("add cilium_node_set_v4 {}", node_address(other))));
    lines
}

fn rules(nodes: &str) -> String {
    let jump = |table: &str, chain: &str, own: &str| {
        format!("*{table}\n-I {chain} -m comment --comment \"cilium-feeder: {own}\" -j {own}\n")
    };
    let jumps = [
        ("raw", "PREROUTING", "CILIUM_PRE_raw"),
        ("raw", "OUTPUT", "CILIUM_OUTPUT_raw"),
        ("mangle", "PREROUTING", "CILIUM_PRE_mangle"),
        ("mangle", "POSTROUTING", "CILIUM_POST_mangle"),
        ("nat", "PREROUTING", "CILIUM_PRE_nat"),
        ("nat", "OUTPUT", "CILIUM_OUTPUT_nat"),
        ("nat", "POSTROUTING", "CILIUM_POST_nat"),
        ("filter", "INPUT", "CILIUM_INPUT"),
        ("filter", "OUTPUT", "CILIUM_OUTPUT"),
        ("filter", "FORWARD", "CILIUM_FORWARD"),
    ];
    let jumps = jumps.map(|(table, chain, own)| jump(table, chain, own)).concat();
    let to_proxy = "-m mark --mark 0x200/0xf00";
    let from_proxy = "-m mark --mark 0xa00/0xe00";
    let not_of_proxy = ["0xe00", "0xd00", "0x400", "0xa00", "0x800"]
        .map(|mark| format!("-m mark ! --mark {mark}/0xf00"))
        .join(" ");
    let address = if nodes.ends_with('6') { "::1" } else { "127.0.0.1" };
    format!(
        "{jumps}
         *raw
         -A CILIUM_PRE_raw {to_proxy} -j CT --notrack
         -A CILIUM_OUTPUT_raw -o lxc+ {from_proxy} -j CT --notrack
         -A CILIUM_OUTPUT_raw -o cilium_host {from_proxy} -j CT --notrack
         *mangle
         -N CILIUM_POST_mangle
         -A CILIUM_PRE_mangle ! -i lo -m socket --transparent -j MARK --set-xmark 0x200/0xffffffff
         -A CILIUM_PRE_mangle -p tcp -m mark --mark 0x92a60200 -j TPROXY --on-port 42642 --on-ip {address} --tproxy-mark 0x200/0xffffffff
         *nat
         -N CILIUM_PRE_nat
         -N CILIUM_OUTPUT_nat
         -A CILIUM_POST_nat -m set --match-set {nodes} dst -j ACCEPT
         -A CILIUM_POST_nat {from_proxy} -j ACCEPT
         -A CILIUM_POST_nat ! -o cilium_host -j RETURN
         *filter
         -A CILIUM_INPUT {to_proxy} -j ACCEPT
         -A CILIUM_OUTPUT {from_proxy} -j ACCEPT
         -A CILIUM_OUTPUT {not_of_proxy} -j MARK --set-xmark 0xc00/0xf00
         -A CILIUM_FORWARD -o lxc+ -j ACCEPT
         -A CILIUM_FORWARD -o cilium_host -j ACCEPT
         -A CILIUM_FORWARD -i lxc+ -j ACCEPT
         -A CILIUM_FORWARD -i cilium_host -j ACCEPT
         -A CILIUM_FORWARD -i cilium_net -j ACCEPT
        "
    )
}
