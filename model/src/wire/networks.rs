//! Computation of the networks that the packet rules of a node distinguish: workload networks, masqueraded
//! sources and node port addresses.
//!
//! The networks of each list are disjoint, so that the kernel needs only one lookup for an address. The list
//! for masquerading contains the sources *outside* the workload networks.

use std::collections::BTreeSet;

use crate::{
    primitives::net::{self, IpFamily},
    program::oracle::Networks,
    wire::feed::{NetworkState, NodeState},
};
use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Net, Ipv6Subnets};

/// Computes the networks that the packet rules of a node distinguish, such as workload networks, from the
/// cluster-wide data and the settings of the node.
#[must_use]
pub fn networks(network: &NetworkState, node: &NodeState) -> Networks {
    let own: BTreeSet<_> = node.proxy.cluster_cidrs.iter().copied().collect();
    let of_cluster = if own.is_empty() { &network.workload_cidrs } else { &own };
    let answering: BTreeSet<_> = node.proxy.node_port_addresses.iter().copied().collect();
    let answering = if answering.is_empty() {
        IpFamily::ALL.into_iter().map(whole).collect()
    } else {
        aggregate(&answering)
    };
    Networks {
        workloads: aggregate(&local_workloads(network, node)),
        masquerade_sources: masquerade_sources(of_cluster, node.proxy.masquerade_all),
        node_ports: answering,
        services: aggregate(&network.service_cidrs),
    }
}

/// Returns the networks of the workloads that run on a node itself.
///
/// These are the workload networks of the Node. If `clusterCIDRs` contains none of them in an IP family, which
/// is common if another program allocates the addresses of workloads, the workloads of a node cannot be
/// distinguished in this family, and `clusterCIDRs` counts as a whole. If the control server does not send the
/// networks of the Node, the workload networks of the cluster count.
fn local_workloads(network: &NetworkState, node: &NodeState) -> BTreeSet<IpNet> {
    let cluster_cidrs = &node.proxy.cluster_cidrs;
    let Some(of_node) = &node.workload_cidrs else {
        let has_own = !cluster_cidrs.is_empty();
        return if has_own {
            cluster_cidrs.iter().copied().collect()
        } else {
            network.workload_cidrs.clone()
        };
    };
    let of_family = |family: IpFamily| {
        let is_of_family = move |net: &&IpNet| IpFamily::of_net(net) == family;
        let of_cluster: Vec<IpNet> = cluster_cidrs.iter().filter(is_of_family).copied().collect();
        let of_node = of_node.iter().filter(is_of_family).copied();
        if of_cluster.is_empty() {
            return of_node.collect();
        }
        let inside: Vec<IpNet> =
            of_node.filter(|net| of_cluster.iter().any(|outer| outer.contains(net))).collect();
        if inside.is_empty() { of_cluster } else { inside }
    };
    IpFamily::ALL.into_iter().flat_map(of_family).collect()
}

/// Returns the sources whose connections to virtual addresses are masqueraded on a node.
///
/// With `masqueradeAll` these are all sources. Otherwise they are the sources outside all workload networks
/// of their family. If a family has no workload networks, no source of the family is masqueraded, because
/// external sources cannot be recognized.
fn masquerade_sources(workloads: &BTreeSet<IpNet>, masquerade_all: bool) -> BTreeSet<IpNet> {
    if masquerade_all {
        return IpFamily::ALL.into_iter().map(whole).collect();
    }
    IpFamily::ALL.into_iter().flat_map(|family| complement(family, workloads)).collect()
}

/// Returns the smallest list of disjoint networks that contains exactly the addresses of the given networks.
fn aggregate(networks: &BTreeSet<IpNet>) -> BTreeSet<IpNet> {
    IpNet::aggregate(&networks.iter().copied().collect()).into_iter().collect()
}

/// Returns all addresses of an IP family outside the given networks, as disjoint networks. Returns an empty
/// list if none of the given networks is of the family.
fn complement(family: IpFamily, networks: &BTreeSet<IpNet>) -> Vec<IpNet> {
    let mut taken: Vec<(u128, u128)> = networks
        .iter()
        .filter(|network| IpFamily::of_net(network) == family)
        .map(|network| (net::to_number(network.network()), net::to_number(network.broadcast())))
        .collect();
    if taken.is_empty() {
        return Vec::new();
    }
    taken.sort_unstable();
    let last = net::to_number(whole(family).broadcast());
    let mut gaps = Vec::new();
    let mut next_free = Some(0_u128);
    for (from, to) in taken {
        let Some(free) = next_free else { break };
        if from > free {
            gaps.push((free, from - 1));
        }
        next_free = if to == last { None } else { Some(free.max(to + 1)) };
    }
    gaps.extend(next_free.map(|free| (free, last)));
    gaps.into_iter().flat_map(|(from, to)| subnets(family, from, to)).collect()
}

/// Returns the smallest list of networks that contains exactly the addresses from `from` to `to`.
fn subnets(family: IpFamily, from: u128, to: u128) -> Vec<IpNet> {
    match family {
        IpFamily::V4 => {
            let number = |n: u128| u32::try_from(n).expect("intervals of a family stay inside it").into();
            Ipv4Subnets::new(number(from), number(to), 0).map(IpNet::V4).collect()
        }
        IpFamily::V6 => Ipv6Subnets::new(from.into(), to.into(), 0).map(IpNet::V6).collect(),
    }
}

/// Returns the network of all addresses of a family.
fn whole(family: IpFamily) -> IpNet {
    match family {
        IpFamily::V4 => IpNet::V4(Ipv4Net::default()),
        IpFamily::V6 => IpNet::V6(Ipv6Net::default()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::kinds::node::ProxyOptions;

    fn network(cidrs: &[&str]) -> NetworkState {
        NetworkState {
            workload_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
            ..NetworkState::default()
        }
    }

    fn node(own: Option<&[&str]>, cluster_cidrs: &[&str]) -> NodeState {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let proxy = ProxyOptions { cluster_cidrs: nets(cluster_cidrs), ..ProxyOptions::default() };
        let workload_cidrs = own.map(|own| nets(own).into_iter().collect());
        NodeState { proxy, workload_cidrs, ..NodeState::default() }
    }

    #[test]
    fn only_workloads_of_the_node_itself_take_the_short_cut() {
        let cluster = network(&["10.1.0.0/16", "10.2.0.0/16", "fd01::/16", "fd02::/16"]);
        let local = |node: NodeState| {
            networks(&cluster, &node).workloads.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(local(node(Some(&["10.1.0.0/16", "fd01::/16"]), &[])), ["10.1.0.0/16", "fd01::/16"]);
        assert_eq!(local(node(Some(&[]), &[])), [""; 0]);
        assert_eq!(local(node(Some(&["10.1.0.0/16"]), &["10.0.0.0/8"])), ["10.1.0.0/16"]);
        let elsewhere = node(Some(&["10.1.0.0/16", "fd01::/16"]), &["172.16.0.0/12"]);
        assert_eq!(local(elsewhere), ["172.16.0.0/12", "fd01::/16"]);
        // A control server of the previous version.
        assert_eq!(local(node(None, &[])), ["10.1.0.0/16", "10.2.0.0/16", "fd01::/16", "fd02::/16"]);
        assert_eq!(local(node(None, &["10.0.0.0/8"])), ["10.0.0.0/8"]);
    }

    #[test]
    fn sources_in_the_workload_networks_of_any_node_are_not_masqueraded() {
        let all = networks(&network(&["0.0.0.0/1", "128.0.0.0/2"]), &node(Some(&["0.0.0.0/1"]), &[]));
        assert_eq!(all.masquerade_sources, ["192.0.0.0/2"].iter().map(|net| net.parse().unwrap()).collect());
    }

    fn sources(cidrs: &[&str]) -> Vec<String> {
        let networks = networks(&network(cidrs), &NodeState::default());
        networks.masquerade_sources.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sources_outside_the_workload_networks_are_masqueraded_per_family() {
        assert_eq!(sources(&["128.0.0.0/1"]), ["0.0.0.0/1"]);
        assert_eq!(sources(&["64.0.0.0/2", "::/1"]), ["0.0.0.0/2", "128.0.0.0/1", "8000::/1"]);
    }

    #[test]
    fn a_family_without_workload_networks_masquerades_nothing() {
        assert_eq!(sources(&[]), [""; 0]);
        assert!(sources(&["10.0.0.0/8"]).iter().all(|net| !net.contains(':')));
    }

    #[test]
    fn workload_networks_that_are_everything_leave_nothing() {
        assert_eq!(sources(&["0.0.0.0/0", "::/0", "10.0.0.0/8", "255.0.0.0/8"]), [""; 0]);
    }

    #[test]
    fn masquerade_all_names_every_source() {
        let proxy = ProxyOptions { masquerade_all: true, ..ProxyOptions::default() };
        let all = networks(&network(&["10.0.0.0/8"]), &NodeState { proxy, ..NodeState::default() });
        assert_eq!(
            all.masquerade_sources,
            ["0.0.0.0/0", "::/0"].iter().map(|net| net.parse().unwrap()).collect()
        );
    }

    #[test]
    fn a_nodes_own_settings_name_its_workloads_and_where_node_ports_answer() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let proxy = ProxyOptions {
            cluster_cidrs: nets(&["128.0.0.0/1"]),
            node_port_addresses: nets(&["192.0.2.0/25", "192.0.2.128/25"]),
            ..ProxyOptions::default()
        };
        let found = networks(&network(&["10.0.0.0/8"]), &NodeState { proxy, ..NodeState::default() });
        assert_eq!(found.workloads, nets(&["128.0.0.0/1"]).into_iter().collect());
        assert_eq!(found.masquerade_sources, nets(&["0.0.0.0/1"]).into_iter().collect());
        assert_eq!(found.node_ports, nets(&["192.0.2.0/24"]).into_iter().collect());
        assert_eq!(networks(&network(&[]), &NodeState::default()), Networks::default());
    }

    /// Generates networks that often touch, contain each other or overlap, including networks at both ends of the
    /// address space.
    fn any_net() -> impl Strategy<Value = IpNet> {
        let v4 = (prop_oneof![any::<u32>(), 0..4_u32, u32::MAX - 3..=u32::MAX], 0..=32_u8)
            .prop_map(|(bits, prefix)| IpNet::V4(Ipv4Net::new(bits.into(), prefix).unwrap().trunc()));
        let v6 = (prop_oneof![any::<u128>(), Just(0), Just(u128::MAX)], 0..=128_u8)
            .prop_map(|(bits, prefix)| IpNet::V6(Ipv6Net::new(bits.into(), prefix).unwrap().trunc()));
        prop_oneof![v4, v6]
    }

    fn edges(net: &IpNet) -> Vec<IpAddr> {
        let family = IpFamily::of_net(net);
        let (from, to) = (net::to_number(net.network()), net::to_number(net.broadcast()));
        let around = [from.checked_sub(1), Some(from), Some(to), to.checked_add(1)];
        around.into_iter().flatten().filter_map(|number| net::from_number(family, number)).collect()
    }

    proptest! {
        #[test]
        fn every_address_is_in_exactly_one_of_workload_networks_and_sources(
            nets in prop::collection::btree_set(any_net(), 0..12),
            probes in prop::collection::vec(any::<u32>(), 0..8),
        ) {
            let network = NetworkState { workload_cidrs: nets.clone(), ..NetworkState::default() };
            let Networks { masquerade_sources: sources, workloads, .. } = networks(&network, &NodeState::default());
            let probes = probes.into_iter().map(|bits| IpAddr::V4(bits.into()));
            for address in nets.iter().chain(&sources).flat_map(edges).chain(probes) {
                let known = nets.iter().any(|net| IpFamily::of_net(net) == IpFamily::of(address));
                let inside = nets.iter().any(|net| net.contains(&address));
                let count = sources.iter().filter(|net| net.contains(&address)).count();
                prop_assert_eq!(count, usize::from(known && !inside), "{}", address);
                let count = workloads.iter().filter(|net| net.contains(&address)).count();
                prop_assert_eq!(count, usize::from(inside), "{}", address);
            }
        }
    }
}
