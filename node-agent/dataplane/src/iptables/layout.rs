//! Chains of the iptables backend: rules of the chains that do not depend on Services, names of all chains,
//! and recognition of these names. Does no I/O.
//!
//! The shared chains SERVICES, RANGES and NODEPORTS contain rules of all Services, for single ports, port
//! ranges and node ports. Each Service port has chains of its own: SVC and SVL balance connections over
//! endpoints, FW checks the source ranges, XLB distinguishes workloads, the node and other sources, and SEP
//! translates to one endpoint. MARK-MASQ and MARK-DROP mark packets to masquerade or drop.
//! ```text
//! nat     PREROUTING, OUTPUT ─▶ SERVICES ─▶ RANGES, then NODEPORTS (at local addresses) ─▶ SVC, FW or XLB ─▶ SEP ─▶ DNAT
//!         POSTROUTING ─▶ POSTROUTING (masquerades packets with MARK-MASQ)
//! filter  INPUT, FORWARD, OUTPUT ─▶ PROXY-FIREWALL (drops packets with MARK-DROP)
//!                                └▶ SERVICES, NODEPORTS (reject packets without DNAT) ─▶ UNASSIGNED (drops)
//!         FORWARD ─▶ FORWARD (drops packets in the conntrack state INVALID, accepts those of Services)
//! ```
//! Every name has the prefix of the naming scheme. Chains are recognized by name, no matter which process
//! created them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::{
    kinds::{node::Naming, service::Protocol},
    primitives::net::{self, IpFamily},
    program::oracle::Networks,
};
use sha2::{Digest, Sha256};

/// iptables table with chains of the agent, in write order. The table whose rules the kernel may reject comes
/// first, so that after a rejection nothing has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IptablesTable {
    /// Table `nat`, whose rules translate destinations and masquerade sources.
    Nat,
    /// Table `filter`, whose rules reject and drop packets.
    Filter,
}

impl IptablesTable {
    /// All tables with chains of the agent, in write order.
    pub const ALL: [Self; 2] = [Self::Nat, Self::Filter];

    /// Returns the iptables name of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// Table and name of a chain, unique within an address family.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    /// Table that contains the chain.
    pub table: IptablesTable,
    /// Full name of the chain, with the prefix of the naming scheme.
    pub name: String,
}

/// Purpose of a chain that belongs to one Service port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainKind {
    /// Chain that balances connections over all endpoints of the port.
    Service,
    /// Chain that balances connections over another set of the port's endpoints, such as those of this node.
    Local,
    /// Chain that translates connections to one endpoint (DNAT).
    Endpoint,
    /// Chain that accepts the allowed sources and drops others.
    Firewall,
    /// Chain that applies different verdicts to workloads, the node and other sources.
    External,
}

impl ChainKind {
    const ALL: [Self; 5] = [Self::Service, Self::Local, Self::Endpoint, Self::Firewall, Self::External];

    const fn word(self) -> &'static str {
        match self {
            Self::Service => "SVC-",
            Self::Local => "SVL-",
            Self::Endpoint => "SEP-",
            Self::Firewall => "FW-",
            Self::External => "XLB-",
        }
    }
}

/// Number of hash characters in the name of a Service chain.
const HASH_LENGTH: usize = 16;
/// Chains of the table `nat` that exist without Services (fixed chains), and to which no Service adds rules.
const NAT_WHOLE: [&str; 4] = [MARK_MASQ, MARK_DROP, POSTROUTING, OFF_CLUSTER];
const FILTER_WHOLE: [&str; 4] = [FIREWALL, FORWARD, REJECT, UNASSIGNED];
const NAT_DISPATCH: [&str; 3] = [SERVICES, RANGES, NODEPORTS];
const FILTER_DISPATCH: [&str; 2] = [SERVICES, NODEPORTS];

pub(super) const SERVICES: &str = "SERVICES";
pub(super) const RANGES: &str = "RANGES";
pub(super) const NODEPORTS: &str = "NODEPORTS";
pub(super) const MARK_MASQ: &str = "MARK-MASQ";
pub(super) const MARK_DROP: &str = "MARK-DROP";
pub(super) const OFF_CLUSTER: &str = "OFF-CLUSTER";
pub(super) const REJECT: &str = "REJECT";
const POSTROUTING: &str = "POSTROUTING";
const FIREWALL: &str = "PROXY-FIREWALL";
const FORWARD: &str = "FORWARD";
const UNASSIGNED: &str = "UNASSIGNED";

/// Naming scheme and packet marks, which determine the fixed rules and all chain names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamingLayout {
    /// Naming scheme of the chains.
    pub naming: Naming,
    /// Packet mark that requests masquerading.
    pub masquerade_mark: u32,
    /// Packet mark that requests a drop.
    pub drop_mark: u32,
    /// True if forwarded packets in the conntrack state INVALID are dropped.
    pub drop_invalid: bool,
}

/// Sources whose connections to virtual addresses are masqueraded, in a form that iptables can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffCluster {
    /// No source, so that nothing is masqueraded.
    Nobody,
    /// All sources of the address family.
    Everybody,
    /// All sources outside of this network.
    OutsideOf(IpNet),
    /// Sources outside of several networks, which a single match cannot express. A chain returns for each
    /// network and marks the rest.
    Chain,
}

/// Rules of one address family that do not depend on Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticRules {
    /// Chains with exactly these rules.
    pub chains: BTreeMap<ChainId, Vec<String>>,
    /// Last rules of the shared chains; they follow the rules of all Services.
    pub tails: BTreeMap<ChainId, Vec<String>>,
    /// Rules of the agent in built-in chains, at the beginning of the chain.
    pub jumps: BTreeMap<ChainId, Vec<String>>,
}

impl NamingLayout {
    const fn prefix(&self) -> &'static str {
        match self.naming {
            Naming::Tidegate => "TG-",
            Naming::Kube => "KUBE-",
        }
    }

    const fn product(&self) -> &'static str {
        match self.naming {
            Naming::Tidegate => "tidegate",
            Naming::Kube => "kubernetes",
        }
    }

    /// Returns the full name of the chain `word`, which exists without Services (fixed chain): the prefix of
    /// the naming scheme, then the word.
    #[must_use]
    pub fn name(&self, word: &str) -> String {
        format!("{}{word}", self.prefix())
    }

    pub(super) fn chain(&self, table: IptablesTable, word: &str) -> ChainId {
        ChainId { table, name: self.name(word) }
    }

    /// Returns the name of a chain that belongs to a Service port. The hash is computed as in kube-proxy.
    /// `label` is `namespace/name:port-name`; `rest` is an endpoint, or empty.
    #[must_use]
    pub fn service_chain(&self, kind: ChainKind, label: &str, protocol: Protocol, rest: &str) -> String {
        let digest = Sha256::digest(format!("{label}{}{rest}", protocol_word(protocol)));
        format!("{}{}{}", self.prefix(), kind.word(), base32(&digest, HASH_LENGTH))
    }

    /// Returns true if a chain of this name in this table belongs to the agent.
    #[must_use]
    pub fn is_ours(&self, table: IptablesTable, name: &str) -> bool {
        let Some(word) = name.strip_prefix(self.prefix()) else { return false };
        let is_hash =
            |hash: &str| hash.len() == HASH_LENGTH && hash.bytes().all(|byte| BASE32.contains(&byte));
        self.is_dispatch(table, name)
            || match table {
                IptablesTable::Filter => FILTER_WHOLE.contains(&word),
                IptablesTable::Nat => {
                    NAT_WHOLE.contains(&word)
                        || ChainKind::ALL
                            .into_iter()
                            .any(|kind| word.strip_prefix(kind.word()).is_some_and(is_hash))
                }
            }
    }

    /// Returns true if the chain is shared, so that each Service adds single rules to it.
    #[must_use]
    pub fn is_dispatch(&self, table: IptablesTable, name: &str) -> bool {
        name.strip_prefix(self.prefix()).is_some_and(|word| match table {
            IptablesTable::Filter => FILTER_DISPATCH.contains(&word),
            IptablesTable::Nat => NAT_DISPATCH.contains(&word),
        })
    }

    /// Returns true if a rule that jumps to this target must follow the rules of all Services in a shared chain.
    #[must_use]
    pub fn is_tail_target(&self, target: &str) -> bool {
        target == "RETURN" || [NODEPORTS, RANGES, UNASSIGNED].iter().any(|word| target == self.name(word))
    }

    /// Builds the rules of one address family that do not depend on any Service.
    #[must_use]
    pub fn fixed(&self, family: IpFamily, networks: &Networks) -> StaticRules {
        let mut fixed = StaticRules::default();
        let product = self.product();
        let mark = |mark: u32| format!("{mark:#x}/{mark:#x}");
        let (masquerade, drop) = (mark(self.masquerade_mark), mark(self.drop_mark));
        let comment = |text: &str| format!("-m comment --comment \"{product} {text}\"");
        // kube-proxy versions with these chain names did not use random ports.
        let randomly = match self.naming {
            Naming::Tidegate => " --random-fully",
            Naming::Kube => "",
        };
        let whole = [
            (IptablesTable::Nat, MARK_MASQ, vec![format!("-j MARK --set-xmark {masquerade}")]),
            (IptablesTable::Nat, MARK_DROP, vec![format!("-j MARK --set-xmark {drop}")]),
            (
                IptablesTable::Nat,
                POSTROUTING,
                vec![format!(
                    "{} -m mark --mark {masquerade} -j MASQUERADE{randomly}",
                    comment("service traffic requiring SNAT")
                )],
            ),
            (IptablesTable::Nat, OFF_CLUSTER, self.off_cluster_rules(family, networks)),
            (
                IptablesTable::Filter,
                FIREWALL,
                vec![format!(
                    "{} -m mark --mark {drop} -j DROP",
                    comment("firewall for dropping marked packets")
                )],
            ),
            (IptablesTable::Filter, FORWARD, self.forward_rules(&masquerade)),
            (IptablesTable::Filter, REJECT, reject_rules(family)),
            (IptablesTable::Filter, UNASSIGNED, vec!["-j DROP".to_owned()]),
        ];
        fixed.chains =
            whole.into_iter().map(|(table, word, rules)| (self.chain(table, word), rules)).collect();
        let ranges = format!("{} -j {}", comment("service port ranges"), self.name(RANGES));
        let node_ports = self.node_port_rules(family, networks);
        let first = [vec![ranges], node_ports.clone()].concat();
        let last = [self.unassigned_rules(family, networks), node_ports].concat();
        for (table, word, tail) in [
            (IptablesTable::Nat, SERVICES, first),
            (IptablesTable::Nat, RANGES, Vec::new()),
            (IptablesTable::Nat, NODEPORTS, Vec::new()),
            (IptablesTable::Filter, SERVICES, last),
            (IptablesTable::Filter, NODEPORTS, Vec::new()),
        ] {
            fixed.tails.insert(self.chain(table, word), tail);
        }
        fixed.jumps = self.jumps();
        fixed
    }

    /// Returns the rules of forwarded packets. A packet in the state INVALID belongs to no connection that could
    /// be translated, such as a TCP segment outside of the window; the client would reset the connection.
    fn forward_rules(&self, masquerade: &str) -> Vec<String> {
        let comment = format!("-m comment --comment \"{} forwarding rules\"", self.product());
        let invalid = self.drop_invalid.then(|| "-m conntrack --ctstate INVALID -j DROP".to_owned());
        let accept = [
            format!("{comment} -m mark --mark {masquerade} -j ACCEPT"),
            format!(
                "{comment} -m conntrack --ctstate RELATED,ESTABLISHED -m conntrack --ctstate DNAT -j ACCEPT"
            ),
        ];
        invalid.into_iter().chain(accept).collect()
    }

    fn jumps(&self) -> BTreeMap<ChainId, Vec<String>> {
        let product = self.product();
        let jump = |matches: &str, text: &str, word: &str| {
            format!("{matches}-m comment --comment \"{product} {text}\" -j {}", self.name(word))
        };
        let services = jump("", "service portals", SERVICES);
        let firewall = jump("", "service firewall", FIREWALL);
        // Packets with DNAT have matched their Service. Only packets without DNAT can be for a port that does
        // not exist.
        let untranslated = "-m conntrack --ctstate NEW -m conntrack ! --ctstate DNAT ";
        let refuse = jump(untranslated, "service portals", SERVICES);
        let forward = jump("", "forwarding rules", FORWARD);
        let postrouting = jump("", "postrouting rules", POSTROUTING);
        [
            (IptablesTable::Nat, "PREROUTING", vec![services.clone()]),
            (IptablesTable::Nat, "OUTPUT", vec![services]),
            (IptablesTable::Nat, "POSTROUTING", vec![postrouting]),
            (IptablesTable::Filter, "INPUT", vec![firewall.clone(), refuse.clone()]),
            (IptablesTable::Filter, "FORWARD", vec![firewall.clone(), refuse.clone(), forward]),
            (IptablesTable::Filter, "OUTPUT", vec![firewall, refuse]),
        ]
        .into_iter()
        .map(|(table, chain, rules)| (ChainId { table, name: chain.to_owned() }, rules))
        .collect()
    }

    /// Returns the rules for addresses of the Service ranges that no Service has.
    fn unassigned_rules(&self, family: IpFamily, networks: &Networks) -> Vec<String> {
        let comment = format!("-m comment --comment \"{} addresses without a service\"", self.product());
        let target = self.name(UNASSIGNED);
        of_family(&networks.services, family).map(|net| format!("-d {net} {comment} -j {target}")).collect()
    }

    /// Returns the rules for node ports. The rules match the local addresses of the node except loopback.
    fn node_port_rules(&self, family: IpFamily, networks: &Networks) -> Vec<String> {
        let product = self.product();
        let loopback = match family {
            IpFamily::V4 => "127.0.0.0/8",
            IpFamily::V6 => "::1/128",
        };
        let comment = format!("{product} service nodeports; NOTE: this must be the last rule in this chain");
        let jump = |destination: String| {
            let target = self.name(NODEPORTS);
            format!(
                "{destination}-m comment --comment \"{comment}\" -m addrtype --dst-type LOCAL -j {target}"
            )
        };
        let except_loopback = format!(
            "-d {loopback} -m comment --comment \"{product} service nodeports are not on loopback\" -j RETURN"
        );
        let nets: Vec<_> = of_family(&networks.node_ports, family).collect();
        let is_everywhere = nets.iter().any(|net| net.prefix_len() == 0);
        let jumps: Vec<_> = if is_everywhere {
            vec![jump(String::new())]
        } else {
            nets.iter().map(|net| jump(format!("-d {} ", net.trunc()))).collect()
        };
        if jumps.is_empty() { jumps } else { [vec![except_loopback], jumps].concat() }
    }

    /// Returns the sources of one address family whose connections to virtual addresses are masqueraded.
    #[must_use]
    pub fn off_cluster(family: IpFamily, networks: &Networks) -> OffCluster {
        let sources: Vec<_> = of_family(&networks.masquerade_sources, family).collect();
        if sources.is_empty() {
            return OffCluster::Nobody;
        }
        match complement(family, &sources).as_slice() {
            [] => OffCluster::Everybody,
            [inside] => OffCluster::OutsideOf(*inside),
            _ => OffCluster::Chain,
        }
    }

    fn off_cluster_rules(&self, family: IpFamily, networks: &Networks) -> Vec<String> {
        let sources: Vec<_> = of_family(&networks.masquerade_sources, family).collect();
        if sources.is_empty() {
            return Vec::new();
        }
        let inside = complement(family, &sources);
        let masquerade = format!("-j {}", self.name(MARK_MASQ));
        if sources.len() < inside.len() {
            return sources.iter().map(|net| format!("-s {net} {masquerade}")).collect();
        }
        let stay = inside.iter().map(|net| format!("-s {net} -j RETURN"));
        stay.chain([masquerade]).collect()
    }
}

fn reject_rules(family: IpFamily) -> Vec<String> {
    let unreachable = match family {
        IpFamily::V4 => "icmp-port-unreachable",
        IpFamily::V6 => "icmp6-port-unreachable",
    };
    vec![
        "-p tcp -j REJECT --reject-with tcp-reset".to_owned(),
        format!("-p udp -j REJECT --reject-with {unreachable}"),
        format!("-p sctp -j REJECT --reject-with {unreachable}"),
    ]
}

/// Returns the name of a protocol in `-p` matches: `tcp`, `udp` or `sctp`.
pub(super) const fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

/// Iterates over the networks of one address family, in order.
pub(super) fn of_family(networks: &BTreeSet<IpNet>, family: IpFamily) -> impl Iterator<Item = IpNet> {
    networks.iter().filter(move |net| IpFamily::of_net(net) == family).copied()
}

/// Returns the addresses of a family outside of the `taken` networks, as the smallest list of networks.
fn complement(family: IpFamily, taken: &[IpNet]) -> Vec<IpNet> {
    let whole = match family {
        IpFamily::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
        IpFamily::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
    };
    let mut taken: Vec<_> =
        taken.iter().map(|net| (net::to_number(net.network()), net::to_number(net.broadcast()))).collect();
    taken.sort_unstable();
    let last = net::to_number(whole.broadcast());
    let mut gaps = Vec::new();
    let mut next = Some(0_u128);
    for (from, to) in taken {
        let Some(free) = next else { break };
        if from > free {
            gaps.push((free, from - 1));
        }
        next = if to == last { None } else { Some(free.max(to + 1)) };
    }
    gaps.extend(next.map(|free| (free, last)));
    gaps.into_iter().flat_map(|(from, to)| subnets(family, from, to)).collect()
}

fn subnets(family: IpFamily, from: u128, to: u128) -> Vec<IpNet> {
    let address = |number| net::from_number(family, number).expect("intervals of a family stay inside it");
    match (address(from), address(to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipnet::Ipv4Subnets::new(from, to, 0).map(IpNet::V4).collect(),
        (IpAddr::V6(from), IpAddr::V6(to)) => ipnet::Ipv6Subnets::new(from, to, 0).map(IpNet::V6).collect(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => Vec::new(),
    }
}

const BASE32: [u8; 32] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Encodes bytes in base 32 (RFC 4648 §6), truncated to `length` characters.
fn base32(bytes: &[u8], length: usize) -> String {
    let bit = |index: usize| {
        let byte = bytes.get(index / 8).copied().unwrap_or_default();
        usize::from(byte >> (7 - index % 8) & 1)
    };
    let symbol = |number: usize| (0..5).fold(0, |value, offset| value << 1 | bit(number * 5 + offset));
    (0..length).map(|number| char::from(BASE32[symbol(number)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kube() -> NamingLayout {
        NamingLayout { naming: Naming::Kube, masquerade_mark: 0x4000, drop_mark: 0x8000, drop_invalid: true }
    }

    #[test]
    fn f093_f094_chain_names_are_those_of_the_founding_documents() {
        let name = |kind, label: &str, rest: &str| kube().service_chain(kind, label, Protocol::Tcp, rest);
        assert_eq!(name(ChainKind::Service, "default/nginx:", ""), "KUBE-SVC-4N57TFCL4MD7ZTDA");
        assert_eq!(name(ChainKind::External, "default/nginx:", ""), "KUBE-XLB-4N57TFCL4MD7ZTDA");
        for (rest, hash) in [
            ("10.244.1.2:80", "UXHBWR5XIMVGXW3H"),
            ("10.244.2.4:80", "TOYRWPNILILHH3OR"),
            ("10.244.3.4:80", "6QCC2MHJZP35QQAR"),
        ] {
            assert_eq!(name(ChainKind::Endpoint, "default/nginx:", rest), format!("KUBE-SEP-{hash}"));
        }
        assert_eq!(name(ChainKind::Service, "default/nginx-service:", ""), "KUBE-SVC-GKN7Y2BSGW4NJTYL");
        for (rest, hash) in [
            ("10.1.13.2:80", "7ROBBXFV7SD4AIRW"),
            ("10.1.13.3:80", "XY3F6VJIZ7ELIF4Z"),
            ("10.1.13.4:80", "JIDZHFC4A3T535AK"),
        ] {
            assert_eq!(name(ChainKind::Endpoint, "default/nginx-service:", rest), format!("KUBE-SEP-{hash}"));
        }
    }

    #[test]
    fn only_our_own_names_are_ours() {
        let ours = |name| kube().is_ours(IptablesTable::Nat, name);
        for name in ["KUBE-SERVICES", "KUBE-MARK-DROP", "KUBE-SEP-6QCC2MHJZP35QQAR", "KUBE-RANGES"] {
            assert!(ours(name), "{name}");
        }
        for name in [
            "KUBE-KUBELET-CANARY",
            "KUBE-SEP-6QCC2MHJZP35QQA1",
            "KUBE-SEP-",
            "TG-SERVICES",
            "KUBE-FORWARD",
            "DOCKER",
        ] {
            assert!(!ours(name), "{name}");
        }
        assert!(
            !kube().is_ours(IptablesTable::Filter, "KUBE-FIREWALL"),
            "KUBE-FIREWALL belongs to the kubelet"
        );
    }

    #[test]
    fn one_known_network_is_excepted_by_one_match_and_several_by_a_chain() {
        let networks = |texts: &[&str]| Networks {
            masquerade_sources: texts.iter().map(|text| text.parse().unwrap()).collect(),
            ..Networks::default()
        };
        let off_cluster = |texts: &[&str]| NamingLayout::off_cluster(IpFamily::V4, &networks(texts));
        assert_eq!(off_cluster(&[]), OffCluster::Nobody);
        assert_eq!(off_cluster(&["0.0.0.0/0"]), OffCluster::Everybody);
        assert_eq!(off_cluster(&["fd00::/8"]), OffCluster::Nobody);
        let half = "128.0.0.0/1".parse().unwrap();
        assert_eq!(off_cluster(&["0.0.0.0/1"]), OffCluster::OutsideOf(half));
        assert_eq!(off_cluster(&["0.0.0.0/2", "128.0.0.0/2"]), OffCluster::Chain);
        let few = kube().off_cluster_rules(IpFamily::V4, &networks(&["192.0.2.0/24"]));
        assert_eq!(few, ["-s 192.0.2.0/24 -j KUBE-MARK-MASQ"]);
        let rules = kube().off_cluster_rules(IpFamily::V4, &networks(&["0.0.0.0/2", "128.0.0.0/2"]));
        assert_eq!(rules, ["-s 64.0.0.0/2 -j RETURN", "-s 192.0.0.0/2 -j RETURN", "-j KUBE-MARK-MASQ"]);
    }
}
