//! Partition of the addresses into disjoint ranges, each with the networks of rules that contain it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::Serialize;

use crate::primitives::net::{IpFamily, from_number, to_number};

/// Network of a rule, without some networks in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct PeerNetwork {
    pub(super) cidr: IpNet,
    pub(super) except: BTreeSet<IpNet>,
}

/// Disjoint ranges of addresses, by first address, with the last address and the networks of the range.
#[derive(Debug, Default)]
pub(super) struct NetworkRanges(BTreeMap<IpAddr, (IpAddr, BTreeSet<PeerNetwork>)>);

/// Changes of coverage at an address: how often the network and its exceptions cover the addresses from there on.
#[derive(Debug, Clone, Copy, Default)]
struct CoverCount {
    network: i64,
    except: i64,
}

impl NetworkRanges {
    /// Divides the addresses of the networks. Addresses in no network are in no range.
    pub(super) fn of(networks: BTreeSet<PeerNetwork>) -> Self {
        let networks: Vec<_> = networks.into_iter().collect();
        let mut ranges = Self::default();
        for family in IpFamily::ALL {
            ranges.add_family(family, &networks);
        }
        ranges
    }

    fn add_family(&mut self, family: IpFamily, networks: &[PeerNetwork]) {
        let mut edges: BTreeMap<u128, Vec<(usize, CoverCount)>> = BTreeMap::new();
        let end_of_family = match family {
            IpFamily::V4 => u128::from(u32::MAX),
            IpFamily::V6 => u128::MAX,
        };
        let mut cover = |net: &IpNet, index, sign: CoverCount| {
            if IpFamily::of_net(net) != family {
                return;
            }
            edges.entry(to_number(net.network())).or_default().push((index, sign));
            let back = CoverCount { network: -sign.network, except: -sign.except };
            if let Some(after) = to_number(net.broadcast()).checked_add(1).filter(|at| *at <= end_of_family) {
                edges.entry(after).or_default().push((index, back));
            }
        };
        for (index, network) in networks.iter().enumerate() {
            cover(&network.cidr, index, CoverCount { network: 1, except: 0 });
            network.except.iter().for_each(|net| cover(net, index, CoverCount { network: 0, except: 1 }));
        }
        let mut covered: BTreeMap<usize, CoverCount> = BTreeMap::new();
        let mut open: Option<(u128, BTreeSet<usize>)> = None;
        for (at, changes) in edges {
            for (index, change) in changes {
                let state = covered.entry(index).or_default();
                state.network += change.network;
                state.except += change.except;
                if state.network == 0 && state.except == 0 {
                    covered.remove(&index);
                }
            }
            let inside = |(index, state): (&usize, &CoverCount)| {
                (state.network > 0 && state.except == 0).then_some(*index)
            };
            let now: BTreeSet<_> = covered.iter().filter_map(inside).collect();
            if let Some((first, before)) = open.take_if(|(_, before)| *before != now) {
                self.add(family, (first, at - 1), &before, networks);
            }
            open.get_or_insert((at, now));
        }
        if let Some((first, last)) = open {
            self.add(family, (first, end_of_family), &last, networks);
        }
    }

    fn add(
        &mut self,
        family: IpFamily,
        (first, last): (u128, u128),
        inside: &BTreeSet<usize>,
        networks: &[PeerNetwork],
    ) {
        let ends = from_number(family, first).zip(from_number(family, last));
        if let Some((first, last)) = ends.filter(|_| !inside.is_empty()) {
            let inside = inside.iter().filter_map(|index| networks.get(*index).cloned()).collect();
            self.0.insert(first, (last, inside));
        }
    }

    /// Iterates over the ranges: first address, last address, and the networks that contain them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, IpAddr, &BTreeSet<PeerNetwork>)> {
        self.0.iter().map(|(first, (last, networks))| (*first, *last, networks))
    }

    /// Returns the networks that contain an address, or `None` if there are none.
    pub(super) fn at(&self, address: IpAddr) -> Option<&BTreeSet<PeerNetwork>> {
        let (_, (last, networks)) = self.0.range(..=address).next_back()?;
        (*last >= address && IpFamily::of(*last) == IpFamily::of(address)).then_some(networks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(cidr: &str, except: &[&str]) -> PeerNetwork {
        let except = except.iter().map(|net| net.parse().unwrap()).collect();
        PeerNetwork { cidr: cidr.parse().unwrap(), except }
    }

    #[test]
    fn ranges_are_disjoint_and_equal_neighbors_are_one() {
        let networks = [
            network("10.0.0.0/8", &["10.1.0.0/16"]),
            network("10.1.0.0/16", &[]),
            network("10.0.0.0/9", &["10.1.0.0/16", "10.1.2.0/24"]),
            network("0.0.0.0/0", &[]),
            network("ffff::/16", &[]),
        ];
        let ranges = NetworkRanges::of(networks.into());
        let lines: Vec<_> = ranges
            .iter()
            .map(|(first, last, networks)| format!("{first} {last} {}", networks.len()))
            .collect();
        assert_eq!(
            lines,
            [
                "0.0.0.0 9.255.255.255 1",
                "10.0.0.0 10.0.255.255 3",
                "10.1.0.0 10.1.255.255 2",
                "10.2.0.0 10.127.255.255 3",
                "10.128.0.0 10.255.255.255 2",
                "11.0.0.0 255.255.255.255 1",
                "ffff:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 1",
            ]
        );
        assert_eq!(ranges.at("10.1.2.3".parse().unwrap()).unwrap().len(), 2);
        assert_eq!(ranges.at("fd00::1".parse().unwrap()), None);
    }
}
