//! Footprint of a network plugin: the objects of the kernel by which it connects the pods of a node, and rules of netfilter.

use std::{collections::BTreeMap, net::IpAddr};

use lab::{
    host::{kernel, netns::Namespace},
    network::topology,
};

/// Numbers of the nodes in each test.
pub(crate) const NODES: [u8; 3] = [1, 2, 3];
/// Tables of iptables with their built-in chains.
const TABLES: [(&str, &[&str]); 4] = [
    ("raw", &["PREROUTING", "OUTPUT"]),
    ("mangle", &["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"]),
    ("nat", &["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]),
    ("filter", &["INPUT", "FORWARD", "OUTPUT"]),
];

/// Program that stores the rules of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleStore {
    /// Tables of nf_tables that belong to the plugin alone.
    Native,
    /// Tables of `iptables-nft`, which all programs share.
    Nft,
    /// Tables of `iptables-legacy`.
    Legacy,
}

/// Objects of a plugin on one node.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    /// Name of the interface that leads to the pod.
    pub(crate) host: String,
    /// Lines of `ip` for the pod, whose interface is `eth0`.
    pub(crate) pod: Vec<String>,
    /// Lines of `ip` for the node, after the interface to the pod exists.
    pub(crate) node: Vec<String>,
    /// Lines of `ip -6` for the node.
    pub(crate) node_v6: Vec<String>,
    /// Lines of `bridge` for the node.
    pub(crate) forwarding: Vec<String>,
    /// Lines of `ipset`.
    pub(crate) sets: Vec<String>,
    /// Kernel parameters by their path below `/proc/sys/net`.
    pub(crate) parameters: Vec<(String, &'static str)>,
    /// Rules of iptables and of ip6tables: lines `*TABLE`, `-N CHAIN`, `-A CHAIN RULE` and `-I CHAIN RULE`. The latter are the
    /// first rules of built-in chains, the last line on top.
    pub(crate) rules: [String; 2],
    /// Script of `nft` for [`RuleStore::Native`], and the names of its tables.
    pub(crate) native: (String, Vec<&'static str>),
}

impl Footprint {
    /// Creates all objects.
    pub(crate) fn install(&self, node: &Namespace, pod: &Namespace, store: RuleStore) {
        pod.ip(&self.pod).unwrap();
        node.ip(&self.node).unwrap();
        for (path, value) in &self.parameters {
            node.sysctl(&format!("net/{path}"), value).unwrap();
        }
        let batch = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        node.run_with_input("ip", &["-6", "-batch", "-"], &batch(&self.node_v6)).unwrap();
        node.run_with_input("bridge", &["-batch", "-"], &batch(&self.forwarding)).unwrap();
        node.run_with_input("ipset", &["restore"], &batch(&self.sets)).unwrap();
        self.create_rules(node, store);
    }

    /// Writes the rules, as the plugin does at its start.
    pub(crate) fn create_rules(&self, node: &Namespace, store: RuleStore) {
        self.apply_rules(node, store, creation, &self.native.0);
    }

    /// Removes the rules with their chains, as the plugin does before it writes them again.
    pub(crate) fn remove_rules(&self, node: &Namespace, store: RuleStore) {
        let deletions: String = self.native.1.iter().map(|table| format!("delete table {table}\n")).collect();
        self.apply_rules(node, store, removal, &deletions);
    }

    fn apply_rules(
        &self,
        node: &Namespace,
        store: RuleStore,
        script: fn(&str, &[&str], &[&str]) -> String,
        native: &str,
    ) {
        if store == RuleStore::Native {
            return kernel::load(node, native).unwrap();
        }
        for (tool, rules) in ["iptables", "ip6tables"].into_iter().zip(&self.rules) {
            let by_table = by_table(rules);
            let script: String = TABLES
                .iter()
                .map(|(table, built_in)| {
                    script(table, built_in, by_table.get(table).map_or(&[][..], Vec::as_slice))
                })
                .collect();
            restore(node, tool, store, &["--noflush"], &script);
        }
    }
}

/// Returns the rules of each family in the tables of a store.
pub(crate) fn saved_rules(node: &Namespace, store: RuleStore, table: &str) -> [String; 2] {
    ["iptables", "ip6tables"].map(|tool| node.run(&program(tool, store, "-save"), &["-t", table]).unwrap())
}

/// Replaces a whole table by saved rules, with all rules of other programs in it.
pub(crate) fn replace_table(node: &Namespace, store: RuleStore, saved: &[String; 2]) {
    for (tool, text) in ["iptables", "ip6tables"].into_iter().zip(saved) {
        restore(node, tool, store, &[], text);
    }
}

fn restore(node: &Namespace, tool: &str, store: RuleStore, options: &[&str], text: &str) {
    let program = program(tool, store, "-restore");
    let arguments = [&["--wait=20"][..], options].concat();
    node.run_with_input(&program, &arguments, text).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
}

fn program(tool: &str, store: RuleStore, what: &str) -> String {
    let flavor = if store == RuleStore::Legacy { "legacy" } else { "nft" };
    format!("{tool}-{flavor}{what}")
}

fn by_table(rules: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut tables = BTreeMap::<_, Vec<_>>::new();
    let mut table = "";
    for line in rules.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix('*') {
            Some(name) => table = name,
            None => tables.entry(table).or_default().push(line),
        }
    }
    tables
}

/// Returns the chain of a line `-A CHAIN RULE`, and the rest of the line.
fn chain_of(line: &str) -> (&str, &str) {
    let rest = line.get(3..).unwrap_or_default();
    rest.split_once(' ').unwrap_or((rest, ""))
}

/// Returns the names of the chains of the plugin, in the order of their first lines.
fn own_chains<'a>(built_in: &[&str], lines: &[&'a str]) -> Vec<&'a str> {
    let mut chains = Vec::new();
    for chain in lines.iter().map(|line| chain_of(line).0) {
        if !built_in.contains(&chain) && !chains.contains(&chain) {
            chains.push(chain);
        }
    }
    chains
}

/// Script that creates all built-in chains of a table, as kubelet does, and the rules.
fn creation(table: &str, built_in: &[&str], lines: &[&str]) -> String {
    let policies = built_in.iter().map(|chain| format!(":{chain} ACCEPT [0:0]\n"));
    let chains = own_chains(built_in, lines).into_iter().map(|chain| format!(":{chain} - [0:0]\n"));
    let rules = lines.iter().filter(|line| !line.starts_with("-N ")).map(|line| format!("{line}\n"));
    format!("*{table}\n{}COMMIT\n", policies.chain(chains).chain(rules).collect::<String>())
}

fn removal(table: &str, built_in: &[&str], lines: &[&str]) -> String {
    let jumps = lines.iter().map(|line| chain_of(line)).filter(|(chain, _)| built_in.contains(chain));
    let jumps = jumps.map(|(chain, rule)| format!("-D {chain} {rule}\n"));
    let chains = own_chains(built_in, lines);
    let flushes = chains.iter().map(|chain| format!("-F {chain}\n"));
    let removals = chains.iter().map(|chain| format!("-X {chain}\n"));
    format!("*{table}\n{}COMMIT\n", jumps.chain(flushes).chain(removals).collect::<String>())
}

/// Returns the IPv4 address of a node.
pub(crate) fn node_address(index: u8) -> IpAddr {
    topology::node_addresses(index)[0]
}

/// Returns the numbers of the other nodes.
pub(crate) fn others(index: u8) -> impl Iterator<Item = u8> {
    NODES.into_iter().filter(move |other| *other != index)
}

/// VXLAN device whose peers are entered by hand, as flannel and Calico do: each node has an address in its own subnet, and
/// routes to the subnets of the others by permanent neighbors.
pub(crate) struct Overlay {
    pub(crate) device: &'static str,
    pub(crate) vni: u32,
    pub(crate) port: u16,
    /// First five bytes of the Ethernet address; the last one is the number of the node.
    pub(crate) mac: &'static str,
    /// Name or number of the protocol of routes.
    pub(crate) protocol: &'static str,
    /// First two bytes of the addresses; the third one is the number of the node.
    pub(crate) network: &'static str,
    pub(crate) prefix_length: u8,
}

impl Overlay {
    /// Adds the device of a node with its routes, neighbors and forwarding entries.
    pub(crate) fn add_to(&self, footprint: &mut Footprint, index: u8) {
        let Self { device, vni, port, mac, protocol, network, prefix_length } = self;
        let local = node_address(index);
        footprint.node.extend([
            format!(
                "link add {device} address {mac}:0{index} mtu 1450 type vxlan id {vni} dev eth0 local {local} dstport {port} nolearning"
            ),
            format!("link set {device} up"),
            format!("addr add {network}.{index}.0/32 dev {device}"),
        ]);
        for other in others(index) {
            footprint.node.extend([
                format!("neigh add {network}.{other}.0 lladdr {mac}:0{other} dev {device} nud permanent"),
                format!(
                    "route add {network}.{other}.0/{prefix_length} via {network}.{other}.0 dev {device} onlink proto {protocol}"
                ),
            ]);
            footprint.forwarding.push(format!(
                "fdb add {mac}:0{other} dev {device} dst {} self permanent",
                node_address(other)
            ));
        }
    }
}

/// Returns the lines that give a pod an address without a network, with a gateway that the node answers for.
pub(crate) fn routed_pod(address: &str, gateway: &str) -> Vec<String> {
    vec![
        format!("addr add {address}/32 dev eth0"),
        format!("route add {gateway} dev eth0 scope link"),
        format!("route add default via {gateway} dev eth0"),
    ]
}

/// Creates a bridge with the interface of the pod as its port, and the lines of the pod.
pub(crate) fn bridged_pod(footprint: &mut Footprint, bridge: &str, network: &str, mtu: u32) {
    let host = &footprint.host;
    footprint.node.extend([
        format!("link add {bridge} mtu {mtu} type bridge"),
        format!("addr add {network}.1/24 dev {bridge}"),
        format!("link set {bridge} up"),
        format!("link set {host} mtu {mtu} master {bridge}"),
        // A pod reaches itself through a Service.
        format!("link set {host} type bridge_slave hairpin on"),
    ]);
    footprint.pod = vec![
        format!("link set eth0 mtu {mtu}"),
        format!("addr add {network}.2/24 dev eth0"),
        format!("route add default via {network}.1 dev eth0"),
    ];
    footprint.parameters.push(("bridge/bridge-nf-call-iptables".to_owned(), "1"));
}
