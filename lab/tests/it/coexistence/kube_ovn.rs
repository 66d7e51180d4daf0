//! Footprint of Kube-OVN. A namespace has the place of its logical router, and forwards between pods and the interface `ovn0` of
//! each node; no Open vSwitch is needed.

use lab::{
    host::netns::{self, Namespace},
    network::topology::Topology,
};

use super::footprint::{Footprint, NODES, node_address, others, routed_pod};

/// Gateway of the pods, an address of the logical router.
const POD_GATEWAY: &str = "10.16.0.1";
/// Address of the logical router in the network that joins it with the nodes.
const ROUTER: &str = "100.64.0.1";

fn joined(index: u8) -> String {
    format!("100.64.0.{}", index + 1)
}

fn pod(index: u8) -> String {
    format!("10.16.0.{}", index + 1)
}

pub(crate) fn footprint(index: u8) -> Footprint {
    let own = joined(index);
    Footprint {
        host: "ovn0".to_owned(),
        pod: routed_pod(&pod(index), POD_GATEWAY),
        node: vec![
            format!("addr add {own}/16 dev ovn0"),
            format!("route add 10.16.0.0/16 via {ROUTER} dev ovn0 proto static src {own}"),
            "link add mirror0 type bridge".to_owned(),
            "link set mirror0 up".to_owned(),
        ],
        sets: sets(index),
        rules: [rules(4), rules(6)],
        ..Footprint::default()
    }
}

/// Connects the nodes and the pods with the logical router. Packets of a pod leave the router through the node of the pod.
pub(crate) fn connect(topology: &Topology, pods: &[Namespace]) -> Namespace {
    let router = Namespace::new("ovn").unwrap();
    router.sysctl("net/ipv4/ip_forward", "1").unwrap();
    router
        .ip(&[
            format!("addr add {ROUTER}/32 dev lo"),
            format!("addr add {POD_GATEWAY}/32 dev lo"),
            "rule add pref 10 to 10.16.0.0/16 lookup main".to_owned(),
            "rule add pref 11 to 100.64.0.0/16 lookup main".to_owned(),
        ])
        .unwrap();
    for (index, namespace) in NODES.into_iter().zip(pods) {
        let node = topology.place(&format!("node{index}")).unwrap();
        let (to_node, to_pod) = (format!("node{index}"), format!("pod{index}"));
        netns::join((node, "ovn0"), (&router, &to_node)).unwrap();
        netns::join((namespace, "eth0"), (&router, &to_pod)).unwrap();
        let (joined, pod) = (joined(index), pod(index));
        router
            .ip(&[
                format!("route add {joined} dev {to_node} src {ROUTER}"),
                format!("route add {pod} dev {to_pod} src {POD_GATEWAY}"),
                format!("rule add pref 20 from {pod} lookup {}", 100 + u32::from(index)),
                format!("route add default via {joined} dev {to_node} table {}", 100 + u32::from(index)),
            ])
            .unwrap();
    }
    router
}

fn sets(index: u8) -> Vec<String> {
    let mut lines = Vec::new();
    for (family, name) in [(4, "inet"), (6, "inet6")] {
        for set in [
            "services",
            "subnets",
            "subnets-nat",
            "subnets-nat-policy",
            "subnets-distributed-gw",
            "other-node",
        ] {
            lines.push(format!("create ovn{family}0{set} hash:net family {name} maxelem 1048576"));
        }
        lines.push(format!("create ovn{family}0local-pod-ip-nat hash:ip family {name} maxelem 1048576"));
    }
    lines.extend(
        [
            "services 10.96.0.0/12",
            "subnets 10.16.0.0/16",
            "subnets 100.64.0.0/16",
            "subnets-nat 10.16.0.0/16",
            "subnets-distributed-gw 10.16.0.0/16",
        ]
        .map(|element| format!("add ovn40{element}")),
    );
    lines.extend(others(index).map(|other| format!("add ovn40other-node {}", node_address(other))));
    lines
}

fn rules(family: u8) -> String {
    let set = |name: &str, side: &str| format!("-m set --match-set ovn{family}0{name} {side}");
    let unless = |name: &str, side: &str| format!("-m set ! --match-set ovn{family}0{name} {side}");
    let accepted = |chain: &str| {
        let sets = [("subnets", "src"), ("subnets", "dst"), ("services", "src"), ("services", "dst")];
        sets.map(|(name, side)| format!("-I {chain} {} -j ACCEPT\n", set(name, side))).concat()
    };
    let comment = |place: &str| format!("-m comment --comment \"kube-ovn {place} rules\"");
    let (prerouting, postrouting) = (comment("prerouting"), comment("postrouting"));
    format!(
        "*mangle
         -A PREROUTING {prerouting} -j OVN-PREROUTING
         -A POSTROUTING {postrouting} -j OVN-POSTROUTING
         -A OUTPUT -m comment --comment \"kube-ovn output rules\" -j OVN-OUTPUT
         -N OVN-PREROUTING
         -N OVN-OUTPUT
         -A OVN-POSTROUTING -p tcp {pods} -m tcp --tcp-flags RST RST -m conntrack --ctstate INVALID -j DROP
         *nat
         -I PREROUTING {prerouting} -j OVN-PREROUTING
         -A POSTROUTING {postrouting} -j OVN-POSTROUTING
         -A OVN-PREROUTING -i ovn0 {pods} {to_services} -j MARK --set-xmark 0x4000/0x4000
         -A OVN-POSTROUTING -m mark --mark 0x4000/0x4000 -j OVN-MASQUERADE
         -A OVN-POSTROUTING {pods} {to_pods} -j OVN-MASQUERADE
         -A OVN-POSTROUTING -m mark --mark 0x80000/0x80000 {to_gateway} -j RETURN
         -A OVN-POSTROUTING -m mark --mark 0x80000/0x80000 -j OVN-MASQUERADE
         -A OVN-POSTROUTING -p tcp -m tcp --tcp-flags SYN NONE -m conntrack --ctstate NEW -j RETURN
         -A OVN-POSTROUTING {not_pods} {not_nodes} {to_nat} -j RETURN
         -A OVN-POSTROUTING {policy} {not_to_pods} -j OVN-NAT-POLICY
         -A OVN-POSTROUTING -m mark --mark 0x90001/0x90001 -j OVN-MASQUERADE
         -A OVN-POSTROUTING -m mark --mark 0x90002/0x90002 -j RETURN
         -A OVN-POSTROUTING {nat} {not_to_pods} -j OVN-MASQUERADE
         -N OVN-NAT-POLICY
         -A OVN-MASQUERADE -j MARK --set-xmark 0x0/0xffffffff
         -A OVN-MASQUERADE -j MASQUERADE
         *filter
         {input}
         {forward}
         -A OUTPUT -p udp -m udp --dport 6081 -j MARK --set-xmark 0x0/0xffffffff
         -A OUTPUT -p udp -m udp --dport 4789 -j MARK --set-xmark 0x0/0xffffffff
        ",
        pods = set("subnets", "src"),
        to_services = set("services", "dst"),
        to_pods = set("subnets", "dst"),
        to_gateway = set("subnets-distributed-gw", "dst"),
        not_pods = unless("subnets", "src"),
        not_nodes = unless("other-node", "src"),
        to_nat = set("subnets-nat", "dst"),
        policy = set("subnets-nat-policy", "src"),
        not_to_pods = unless("subnets", "dst"),
        nat = set("subnets-nat", "src"),
        input = accepted("INPUT"),
        forward = accepted("FORWARD"),
    )
}
