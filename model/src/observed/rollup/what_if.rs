//! Simulation of node failures: addresses that would move, Services that would lose endpoints, and the single points
//! of failure that would remain.
//!
//! The simulation is based on stored objects and reports of agents, and changes nothing. Addresses move in
//! the recorded order of candidates, because the nodes follow this order if one of them fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AnnouncementInputs, saturating};
use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledService},
    kinds::{
        address::AddressSpec,
        resource::{Kind, ServiceKey},
    },
    primitives::name::Name,
};

/// Maximum number of listed addresses, of listed Services and of listed nodes in a simulation result.
pub const LISTED_MAX: usize = 1000;

/// Simulated consequences of the failure of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// Names of the nodes whose failure is simulated.
    #[schema(value_type = Vec<String>)]
    pub failed: BTreeSet<Name>,
    /// Addresses that would be announced by other nodes than now, or by no node.
    #[schema(max_items = 1000)]
    pub addresses: Vec<AddressMove>,
    /// Services that would lose endpoints.
    #[schema(max_items = 1000)]
    pub services: Vec<ServiceLoss>,
    /// Remaining nodes that would be single points of failure: a further failure of one of them would cause
    /// an outage.
    #[schema(max_items = 1000)]
    pub single_points: Vec<SinglePoint>,
    /// Number of addresses, Services and nodes beyond the list limits.
    pub omitted: u64,
}

/// Change of the announcing node of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressMove {
    /// Load balancer address, such as `192.0.2.10`.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Services with this address.
    #[schema(value_type = Vec<String>)]
    pub services: BTreeSet<ServiceKey>,
    /// Node that announces the address by ARP or NDP at present; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// Node that would announce the address by ARP or NDP after the failure; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_owner: Option<Name>,
    /// Number of nodes that announce the address by BGP.
    pub paths: u32,
    /// Number of nodes that would still announce the address by BGP after the failure.
    pub paths_left: u32,
    /// True if no node would announce the address after the failure, neither by ARP or NDP nor by BGP.
    pub is_lost: bool,
}

/// Loss of endpoints of a Service because of the failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceLoss {
    /// Key of the Service.
    pub service: ServiceKey,
    /// Number of ready endpoints at present. An endpoint counts once for each port.
    pub endpoints: u32,
    /// Number of ready endpoints that would remain. An endpoint counts once for each port.
    pub endpoints_left: u32,
    /// Percentage of the total weight of ready endpoints that would remain, 0–100, at the port that would
    /// lose the largest share.
    pub capacity_left: u8,
    /// True if a port would have no ready endpoint left.
    pub is_down: bool,
}

/// Node whose failure would cause an outage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SinglePoint {
    /// Name of the node.
    pub node: Name,
    /// Services with a port whose remaining ready endpoints are all on the node.
    #[schema(value_type = Vec<String>, max_items = 1000)]
    pub services: BTreeSet<ServiceKey>,
    /// Addresses that no other node would announce.
    #[schema(value_type = Vec<String>, max_items = 1000)]
    pub addresses: BTreeSet<IpAddr>,
}

/// Computes which addresses would move, which Services would lose endpoints, and which single points of
/// failure would remain if the given nodes failed.
#[must_use]
pub fn what_if<'a>(
    of: &AnnouncementInputs<'_>,
    services: impl Iterator<Item = &'a CompiledService>,
    failed: BTreeSet<Name>,
) -> WhatIf {
    let mut found = WhatIf::default();
    let mut single = BTreeMap::new();
    for object in of.scene.snapshot.list(Kind::Address, None, None) {
        if let Some(record) = object.as_address().filter(|record| !record.services.is_empty()) {
            let announcers = Announcers::of(of, record);
            if let Some(only) = announcers.only(&failed) {
                single_point(&mut single, only).addresses.insert(record.address);
            }
            found.addresses.extend(announcers.moved(record, &failed));
        }
    }
    for service in services {
        if let Some(only) = only_node(service, &failed) {
            single_point(&mut single, only).services.insert(service.service.clone());
        }
        found.services.extend(loss(service, &failed));
    }
    // Outages come before reduced capacity.
    found.addresses.sort_by_key(|one| (!one.is_lost, one.address));
    found.services.sort_by_key(|one| (!one.is_down, one.capacity_left, one.service.clone()));
    found.single_points = single.into_values().collect();
    found.failed = failed;
    found.omitted = cut(&mut found.addresses) + cut(&mut found.services) + cut(&mut found.single_points);
    for point in &mut found.single_points {
        found.omitted += cut_set(&mut point.services) + cut_set(&mut point.addresses);
    }
    found
}

fn single_point<'a>(single: &'a mut BTreeMap<Name, SinglePoint>, node: &Name) -> &'a mut SinglePoint {
    single.entry(node.clone()).or_insert_with(|| SinglePoint {
        node: node.clone(),
        services: BTreeSet::new(),
        addresses: BTreeSet::new(),
    })
}

/// Nodes that announce an address and whose agents report.
struct Announcers<'a> {
    /// Candidates for announcing the address by ARP and NDP, by rank.
    candidates: Vec<&'a Name>,
    by_bgp: BTreeSet<&'a Name>,
}

impl<'a> Announcers<'a> {
    fn of(of: &'a AnnouncementInputs<'_>, record: &'a AddressSpec) -> Self {
        let candidates = record.announcement.candidates.iter().map(|candidate| &candidate.node);
        let told = of.bgp.of_address(record.address);
        let told =
            told.filter(|(_, _, route)| route.announced_to().next().is_some()).map(|(node, _, _)| node);
        Self {
            candidates: candidates.filter(|node| of.is_reporting(node)).collect(),
            by_bgp: told.filter(|node| of.is_reporting(node)).collect(),
        }
    }

    /// Returns the only node that would still announce the address after the failure of the nodes `failed`;
    /// `None` if several nodes or no node would announce it.
    fn only(&self, failed: &BTreeSet<Name>) -> Option<&'a Name> {
        let all: BTreeSet<_> = self.candidates.iter().chain(&self.by_bgp).copied().collect();
        let mut left = all.into_iter().filter(|node| !failed.contains(*node));
        left.next().filter(|_| left.next().is_none())
    }

    fn moved(&self, record: &AddressSpec, failed: &BTreeSet<Name>) -> Option<AddressMove> {
        let owner = self.candidates.first().copied();
        let next_owner = self.candidates.iter().copied().find(|node| !failed.contains(*node));
        let paths_left = self.by_bgp.iter().filter(|node| !failed.contains(**node)).count();
        if owner == next_owner && paths_left == self.by_bgp.len() {
            return None;
        }
        Some(AddressMove {
            address: record.address,
            services: record.services.clone(),
            owner: owner.cloned(),
            next_owner: next_owner.cloned(),
            paths: saturating(self.by_bgp.len()),
            paths_left: saturating(paths_left),
            is_lost: next_owner.is_none() && paths_left == 0,
        })
    }
}

/// Returns the endpoints that accept new connections.
fn ready(endpoints: &[CompiledEndpoint]) -> impl Iterator<Item = &CompiledEndpoint> {
    endpoints.iter().filter(|endpoint| endpoint.ready && endpoint.weight.0 > 0)
}

fn survives(endpoint: &CompiledEndpoint, failed: &BTreeSet<Name>) -> bool {
    endpoint.node.as_ref().is_none_or(|node| !failed.contains(node))
}

fn loss(service: &CompiledService, failed: &BTreeSet<Name>) -> Option<ServiceLoss> {
    let (mut endpoints, mut endpoints_left, mut capacity_left) = (0, 0, 100);
    let mut is_down = false;
    for port in &service.ports {
        let weight = |endpoint: &CompiledEndpoint| u64::from(endpoint.weight.0);
        let all: u64 = ready(&port.endpoints).map(weight).sum();
        let left = || ready(&port.endpoints).filter(|endpoint| survives(endpoint, failed));
        endpoints += ready(&port.endpoints).count();
        endpoints_left += left().count();
        if let Some(share) = (left().map(weight).sum::<u64>() * 100).checked_div(all) {
            is_down |= left().next().is_none();
            capacity_left = capacity_left.min(u8::try_from(share).unwrap_or(100));
        }
    }
    (endpoints_left < endpoints).then(|| ServiceLoss {
        service: service.service.clone(),
        endpoints: saturating(endpoints),
        endpoints_left: saturating(endpoints_left),
        capacity_left,
        is_down,
    })
}

/// Returns the node on which all remaining ready endpoints of a port would run after the failure of the nodes
/// `failed`; `None` if no port depends on a single node.
fn only_node<'a>(service: &'a CompiledService, failed: &BTreeSet<Name>) -> Option<&'a Name> {
    service.ports.iter().find_map(|port| {
        let mut left = ready(&port.endpoints).filter(|endpoint| survives(endpoint, failed));
        let first = left.next()?.node.as_ref()?;
        left.all(|endpoint| endpoint.node.as_ref() == Some(first)).then_some(first)
    })
}

fn cut<T>(list: &mut Vec<T>) -> u64 {
    let omitted = list.len().saturating_sub(LISTED_MAX);
    list.truncate(LISTED_MAX);
    omitted as u64
}

fn cut_set<T: Ord + Clone>(set: &mut BTreeSet<T>) -> u64 {
    let Some(first_omitted) = set.iter().nth(LISTED_MAX).cloned() else { return 0 };
    set.split_off(&first_omitted).len() as u64
}
