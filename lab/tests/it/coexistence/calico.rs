//! Footprints of Calico with VXLAN, and of Canal: Calico's policy on the network of flannel.

use super::{
    flannel,
    footprint::{Footprint, NODES, Overlay, node_address, routed_pod},
};

/// Address that answers for the gateway of each workload, by proxy ARP.
const GATEWAY: &str = "169.254.1.1";
/// Ethernet address of the interfaces to workloads on the node.
const HOST_MAC: &str = "ee:ee:ee:ee:ee:ee";
/// UDP port of the VXLAN device.
const PORT: u16 = 4789;

pub(crate) fn footprint(index: u8) -> Footprint {
    let mut footprint = workload(index, &format!("192.168.{index}.2"), "boot");
    let overlay = Overlay {
        device: "vxlan.calico",
        vni: 4096,
        port: PORT,
        mac: "66:1f:00:00:00",
        protocol: "80",
        network: "192.168",
        prefix_length: 26,
    };
    overlay.add_to(&mut footprint, index);
    footprint.node.push(format!("route add blackhole 192.168.{index}.0/26 proto 80"));
    footprint.sets = sets(index, &["192.168.0.0/16", "fd00:168::/48"]);
    footprint.rules = [4, 6].map(|family| rules(&footprint.host, family, true));
    footprint
}

pub(crate) fn canal(index: u8) -> Footprint {
    let mut footprint = workload(index, &format!("10.244.{index}.2"), "boot");
    flannel::overlay().add_to(&mut footprint, index);
    footprint.sets = sets(index, &["10.244.0.0/16", "fd00:244::/48"]);
    footprint.rules = [4, 6].map(|family| {
        let of_flannel = flannel::rules(index, family == 6);
        format!("{of_flannel}\n{}", rules(&footprint.host, family, false))
    });
    footprint
}

/// Returns the interface to a workload with its route and parameters.
fn workload(index: u8, address: &str, protocol: &str) -> Footprint {
    let host = format!("cali12d4a06137{index}");
    let parameters = [
        ("ipv4/conf/INTERFACE/route_localnet", "1"),
        ("ipv4/neigh/INTERFACE/proxy_delay", "0"),
        ("ipv4/conf/INTERFACE/proxy_arp", "1"),
        ("ipv4/conf/INTERFACE/forwarding", "1"),
        ("ipv4/conf/INTERFACE/rp_filter", "1"),
        ("ipv6/conf/INTERFACE/proxy_ndp", "1"),
        ("ipv6/conf/INTERFACE/forwarding", "1"),
        ("ipv6/conf/INTERFACE/accept_ra", "0"),
    ];
    Footprint {
        pod: routed_pod(address, GATEWAY),
        node: vec![
            format!("link set {host} address {HOST_MAC}"),
            format!("route add {address}/32 dev {host} scope link proto {protocol}"),
        ],
        parameters: parameters.map(|(path, value)| (path.replace("INTERFACE", &host), value)).to_vec(),
        host,
        ..Footprint::default()
    }
}

fn sets(index: u8, pools: &[&str; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for (family, name, pool) in [(4, "inet", pools[0]), (6, "inet6", pools[1])] {
        for set in ["all-ipam-pools", "masq-ipam-pools"] {
            lines.push(format!("create cali{family}0{set} hash:net family {name} maxelem 1048576"));
            lines.push(format!("add cali{family}0{set} {pool}"));
        }
        lines.push(format!("create cali{family}0this-host hash:ip family {name} maxelem 1048576"));
        lines.push(format!("create cali{family}0all-vxlan-net hash:net family {name} maxelem 1048576"));
    }
    lines.push(format!("add cali40this-host {}", node_address(index)));
    lines.extend(NODES.iter().map(|node| format!("add cali40all-vxlan-net {}", node_address(*node))));
    lines
}

/// Returns the rules of Felix for a node with one workload and no host endpoint. The workload accepts and makes all connections.
fn rules(workload: &str, family: u8, has_overlay: bool) -> String {
    [
        raw(has_overlay),
        MANGLE.to_owned(),
        nat(family, has_overlay),
        filter(family, has_overlay),
        dispatch(workload),
    ]
    .concat()
}

fn raw(has_overlay: bool) -> String {
    let untracked = if has_overlay {
        format!("-A cali-PREROUTING -p udp -m udp --dport {PORT} -j CT --notrack\n")
    } else {
        String::new()
    };
    format!(
        "*raw
         -I PREROUTING -m comment --comment \"cali:6gwbT8clXdHdC1b1\" -j cali-PREROUTING
         -I OUTPUT -m comment --comment \"cali:tVnHkvAo15HuiPy0\" -j cali-OUTPUT
         -N cali-from-host-endpoint
         -N cali-rpf-skip
         -N cali-to-host-endpoint
         -A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
         {untracked}
         -A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x40000/0x40000
         -A cali-PREROUTING -m mark --mark 0x40000/0x40000 -j cali-rpf-skip
         -A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
         -A cali-PREROUTING -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
         -A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
         -A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
         -A cali-OUTPUT -j cali-to-host-endpoint
         -A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
        "
    )
}

const MANGLE: &str = "*mangle
    -I PREROUTING -m comment --comment \"cali:6gwbT8clXdHdC1b1\" -j cali-PREROUTING
    -I POSTROUTING -m comment --comment \"cali:O3lYWMrLQYEMJtB5\" -j cali-POSTROUTING
    -N cali-from-host-endpoint
    -N cali-to-host-endpoint
    -A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    -A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
    -A cali-PREROUTING -j cali-from-host-endpoint
    -A cali-POSTROUTING -m mark --mark 0x10000/0x10000 -j RETURN
    -A cali-POSTROUTING -j MARK --set-xmark 0x0/0xf0000
    -A cali-POSTROUTING -m conntrack --ctstate DNAT -j cali-to-host-endpoint
    -A cali-POSTROUTING -m mark --mark 0x10000/0x10000 -j RETURN
";

fn nat(family: u8, has_overlay: bool) -> String {
    let outgoing = if has_overlay {
        format!(
            "-A cali-nat-outgoing -m set --match-set cali{family}0masq-ipam-pools src -m set ! --match-set cali{family}0all-ipam-pools dst -j MASQUERADE --random-fully
             -A cali-POSTROUTING -o vxlan.calico -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --random-fully
            "
        )
    } else {
        String::new()
    };
    format!(
        "*nat
         -I PREROUTING -m comment --comment \"cali:6gwbT8clXdHdC1b1\" -j cali-PREROUTING
         -I OUTPUT -m comment --comment \"cali:tVnHkvAo15HuiPy0\" -j cali-OUTPUT
         -I POSTROUTING -m comment --comment \"cali:O3lYWMrLQYEMJtB5\" -j cali-POSTROUTING
         -N cali-fip-dnat
         -N cali-fip-snat
         -N cali-nat-outgoing
         -A cali-PREROUTING -j cali-fip-dnat
         -A cali-OUTPUT -j cali-fip-dnat
         -A cali-POSTROUTING -j cali-fip-snat
         -A cali-POSTROUTING -j cali-nat-outgoing
         {outgoing}
        "
    )
}

fn filter(family: u8, has_overlay: bool) -> String {
    let tunnel = if has_overlay {
        let to_port = format!("-A cali-INPUT -p udp -m udp --dport {PORT} -m addrtype --dst-type LOCAL");
        format!("{to_port} -m set --match-set cali{family}0all-vxlan-net src -j ACCEPT\n{to_port} -j DROP\n")
    } else {
        String::new()
    };
    format!(
        "*filter
         -I INPUT -m comment --comment \"cali:Cz_u1IQiXIMmKD4c\" -j cali-INPUT
         -I FORWARD -m comment --comment \"cali:wUHhoiAYhphO9Mso\" -j cali-FORWARD
         -I OUTPUT -m comment --comment \"cali:tVnHkvAo15HuiPy0\" -j cali-OUTPUT
         -A FORWARD -m comment --comment \"cali:S93hcgKJrXEqnTfs\" -m mark --mark 0x10000/0x10000 -j ACCEPT
         -A FORWARD -m comment --comment \"cali:mp77cMpurHhyjLrM\" -j MARK --set-xmark 0x10000/0x10000
         -N cali-from-hep-forward
         -N cali-from-host-endpoint
         -N cali-to-hep-forward
         -N cali-to-host-endpoint
         -N cali-cidr-block
         {tunnel}
         -A cali-INPUT -i cali+ -g cali-wl-to-host
         -A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
         -A cali-INPUT -j MARK --set-xmark 0x0/0xf0000
         -A cali-INPUT -j cali-from-host-endpoint
         -A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
         -A cali-wl-to-host -j cali-from-wl-dispatch
         -A cali-wl-to-host -j ACCEPT
         -A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
         -A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
         -A cali-FORWARD -i cali+ -j cali-from-wl-dispatch
         -A cali-FORWARD -o cali+ -j cali-to-wl-dispatch
         -A cali-FORWARD -j cali-to-hep-forward
         -A cali-FORWARD -j cali-cidr-block
         -A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
         -A cali-OUTPUT -o cali+ -j RETURN
         -A cali-OUTPUT -j MARK --set-xmark 0x0/0xf0000
         -A cali-OUTPUT -m conntrack ! --ctstate DNAT -j cali-to-host-endpoint
         -A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
        "
    )
}

/// Returns the chains of a workload, which drop packets of other workloads.
fn dispatch(workload: &str) -> String {
    let mut rules = format!(
        "-A cali-from-wl-dispatch -i {workload} -g cali-fw-{workload}
         -A cali-from-wl-dispatch -j DROP
         -A cali-to-wl-dispatch -o {workload} -g cali-tw-{workload}
         -A cali-to-wl-dispatch -j DROP
        "
    );
    for (chain, profile) in [("fw", "cali-pro-kns.default"), ("tw", "cali-pri-kns.default")] {
        let chain = format!("cali-{chain}-{workload}");
        rules += &format!(
            "-A {chain} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
             -A {chain} -m conntrack --ctstate INVALID -j DROP
             -A {chain} -j MARK --set-xmark 0x0/0x10000
             -A {chain} -j {profile}
             -A {chain} -m mark --mark 0x10000/0x10000 -j RETURN
             -A {chain} -j DROP
             -A {profile} -j MARK --set-xmark 0x10000/0x10000
             -A {profile} -m mark --mark 0x10000/0x10000 -j RETURN
            "
        );
    }
    rules
}
