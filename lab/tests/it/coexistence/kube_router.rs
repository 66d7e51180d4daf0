//! Footprint of kube-router as network plugin, with its policy for pods. The nodes are on one network, so that it has no tunnels.

use super::footprint::{Footprint, NODES, bridged_pod, node_address, others};

pub(crate) fn footprint(index: u8) -> Footprint {
    let mut footprint = Footprint { host: format!("veth5e6f7a8{index}"), ..Footprint::default() };
    bridged_pod(&mut footprint, "kube-bridge", &format!("10.244.{index}"), 1500);
    let to_node =
        |other: u8| format!("route add 10.244.{other}.0/24 via {} dev eth0 proto zebra", node_address(other));
    footprint.node.extend(others(index).map(to_node));
    footprint.node.extend([
        format!("rule add from 10.244.{index}.0/24 lookup 77"),
        "rule add pref 32765 lookup 79".to_owned(),
        "route add 198.51.100.7/32 dev kube-bridge table 79".to_owned(),
    ]);
    footprint.sets = sets(index);
    footprint.rules = [
        rules("", &format!("10.244.{index}.2"), "10.96.0.0/12", "icmp-port-unreachable"),
        rules("inet6:", &format!("fd00:244:0:{index}::2"), "fd00:96::/108", "icmp6-port-unreachable"),
    ];
    footprint
}

/// Adds the objects of the service proxy of kube-router: virtual addresses on an interface, and settings of ARP by which the
/// kernel does not answer for them.
pub(crate) fn add_proxy(footprint: &mut Footprint, addresses: &[&str]) {
    // The kernel may lack interfaces of the kind `dummy`.
    footprint
        .node
        .extend(["link add kube-dummy-if type bridge", "link set kube-dummy-if up"].map(str::to_owned));
    for address in addresses {
        footprint.node.push(format!("addr add {address}/32 dev kube-dummy-if"));
        footprint.sets.push(format!("add kube-router-svip {address}"));
    }
    footprint.parameters.extend(
        [("ipv4/conf/all/arp_ignore", "1"), ("ipv4/conf/all/arp_announce", "2")]
            .map(|(path, value)| (path.to_owned(), value)),
    );
}

fn sets(index: u8) -> Vec<String> {
    let mut lines = Vec::new();
    for (prefix, family) in [("", "inet"), ("inet6:", "inet6")] {
        for (set, kind) in [
            ("kube-router-pod-subnets", "hash:net"),
            ("kube-router-node-ips", "hash:ip"),
            ("kube-router-local-ips", "hash:ip"),
            ("kube-router-svip", "hash:ip"),
            ("kube-router-svip-prt", "hash:ip,port"),
        ] {
            lines.push(format!("create {prefix}{set} {kind} family {family} timeout 0"));
        }
    }
    for node in NODES {
        lines.push(format!("add kube-router-pod-subnets 10.244.{node}.0/24"));
        lines.push(format!("add kube-router-node-ips {}", node_address(node)));
    }
    lines.push(format!("add kube-router-local-ips {}", node_address(index)));
    lines
}

/// Returns the rules with a firewall chain for one pod, to which no policy applies. `prefix` is that of the names of sets.
fn rules(prefix: &str, pod: &str, services: &str, unreachable: &str) -> String {
    let firewall = "KUBE-POD-FW-W4SDPJIDJ7LFTBLU";
    let set = |name: &str| format!("--match-set {prefix}kube-router-{name}");
    let comment = "-m comment --comment \"kube-router netpol\"";
    let (pods, nodes, virtual_addresses, local) =
        (set("pod-subnets"), set("node-ips"), set("svip"), set("local-ips"));
    let to_node_port = |protocol: &str| {
        format!(
            "-A KUBE-ROUTER-INPUT -p {protocol} -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN"
        )
    };
    let node_ports = ["tcp", "udp", "sctp"].map(to_node_port).join("\n");
    let accepted = "-m mark --mark 0x20000/0x20000 -j ACCEPT";
    format!(
        "*nat
         -A POSTROUTING -m set {pods} src -m set ! {pods} dst -m set ! {nodes} dst -j MASQUERADE --random-fully
         *filter
         -A INPUT -m set {virtual_addresses} dst -j KUBE-ROUTER-SERVICES
         -I FORWARD -m comment --comment \"allow outbound traffic from pods\" -i kube-bridge -j ACCEPT
         -I FORWARD -m comment --comment \"allow inbound traffic to pods\" -o kube-bridge -j ACCEPT
         -I FORWARD -m comment --comment \"allow outbound node port traffic\" -o eth0 -j ACCEPT
         -I INPUT {comment} -j KUBE-ROUTER-INPUT
         -I FORWARD {comment} -j KUBE-ROUTER-FORWARD
         -I OUTPUT {comment} -j KUBE-ROUTER-OUTPUT
         -A KUBE-ROUTER-SERVICES -m set ! {local} dst -j REJECT --reject-with {unreachable}
         -A KUBE-ROUTER-INPUT -d {services} -j RETURN
         {node_ports}
         -A KUBE-ROUTER-INPUT -s {pod} -j {firewall}
         -A KUBE-ROUTER-INPUT {accepted}
         -A KUBE-ROUTER-FORWARD -d {pod} -j {firewall}
         -A KUBE-ROUTER-FORWARD -m physdev --physdev-is-bridged -d {pod} -j {firewall}
         -A KUBE-ROUTER-FORWARD -s {pod} -j {firewall}
         -A KUBE-ROUTER-FORWARD -m physdev --physdev-is-bridged -s {pod} -j {firewall}
         -A KUBE-ROUTER-FORWARD {accepted}
         -A KUBE-ROUTER-OUTPUT -d {pod} -j {firewall}
         -A KUBE-ROUTER-OUTPUT -s {pod} -j {firewall}
         -A KUBE-ROUTER-OUTPUT {accepted}
         -A {firewall} -j KUBE-NWPLCY-COMMON
         -A {firewall} -m addrtype --src-type LOCAL -d {pod} -j ACCEPT
         -A {firewall} -d {pod} -j KUBE-NWPLCY-DEFAULT
         -A {firewall} -s {pod} -j KUBE-NWPLCY-DEFAULT
         -A {firewall} -m limit --limit 10/min --limit-burst 10 -m mark ! --mark 0x10000/0x10000 -j NFLOG --nflog-group 100
         -A {firewall} -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with {unreachable}
         -A {firewall} -j MARK --set-xmark 0x0/0x10000
         -A {firewall} -j MARK --set-xmark 0x20000/0x20000
         -A KUBE-NWPLCY-COMMON -m conntrack --ctstate INVALID -j DROP
         -A KUBE-NWPLCY-COMMON -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
         -A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark 0x10000/0x10000
        "
    )
}
