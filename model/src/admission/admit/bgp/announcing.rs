//! Admission rules of BGP Advertisements: each route attribute must reach at least one peer, the attributes
//! of one prefix must not contradict each other, and no announced prefix may contain addresses outside of the
//! pools.

use std::collections::BTreeSet;

use super::{BgpRules, SessionTypes, length_field};
use crate::{
    admission::admit::staged_object::StagedObject,
    bgp::compile::{advertisements, peer, peers},
    cluster::coverage::Coverage,
    kinds::{
        address_pool::AddressRange,
        advertisement::AdvertisementSpec,
        bgp_peer::{BgpFamily, BgpPeerSpec},
        resource::{Kind, Object, ObjectKey},
        selector::Selector,
    },
    primitives::{
        name::Name,
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

impl BgpRules<'_> {
    pub(super) fn check_advertisement(
        &self,
        name: &Name,
        spec: &AdvertisementSpec,
        found: &mut Vec<Violation>,
    ) {
        for missing in spec.peers.iter().filter(|name| peer(self.snapshot, name).is_none()) {
            let message = format!("must name BgpPeers that exist; there is no {missing}");
            let hint = "create it before, or in the same apply; leave the field out for all peers";
            found.push(Violation::new("/spec/peers", ViolationCode::NotFound, message).hint(hint));
        }
        let network =
            |name: &Name| ObjectKey { kind: Kind::WorkloadNetwork, namespace: None, name: name.clone() };
        for missing in
            spec.workload_networks.iter().filter(|name| self.snapshot.get(&network(name)).is_none())
        {
            let message = format!("must name WorkloadNetworks that exist; there is no {missing}");
            let hint = "create it before, or in the same apply";
            found.push(Violation::new("/spec/workloadNetworks", ViolationCode::NotFound, message).hint(hint));
        }
        if !found.is_empty() {
            return;
        }
        for (field, why) in self.ineffective_attributes(spec) {
            let message =
                format!("must be left out: none of the named peers is {why}, and only such peers receive it");
            found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message));
        }
        if self.shares_no_node(spec) {
            let message = "must select a Node that has one of the peers; none that it selects has";
            let hint = "compare spec.nodeSelectors of the BgpPeers and the labels of the Nodes";
            found.push(Violation::new("/spec/nodeSelectors", ViolationCode::Conflict, message).hint(hint));
        }
        found.extend(self.outside(spec).map(|(family, message)| {
            Violation::new(length_field(family), ViolationCode::Overlap, message)
                .hint("routers would send the traffic of all of it; use a longer prefix, or name all pools that it contains")
        }));
        if let Some(families) = self.families_without_receiver(spec) {
            let message = format!("must name a peer for {families} routes, the only family of the pools");
            let hint = "compare spec.families of the BgpPeers and spec.addresses of the AddressPools";
            found.push(Violation::new("/spec/peers", ViolationCode::Conflict, message).hint(hint));
        }
        for (other, of) in advertisements(self.snapshot).filter(|(other, _)| *other != name) {
            self.check_contradiction(spec, other, of, found);
        }
    }

    /// Returns the route attributes that no peer of the Advertisement receives, such as `localPref` without
    /// internal peers, each with the required type of peer.
    pub(super) fn ineffective_attributes(
        &self,
        spec: &AdvertisementSpec,
    ) -> Vec<(&'static str, &'static str)> {
        let types: Vec<SessionTypes> = spec
            .peers
            .iter()
            .filter_map(|name| peer(self.snapshot, name))
            .map(|peer| self.session_types(peer))
            .collect();
        if types.is_empty() {
            return Vec::new();
        }
        let mut ineffective = Vec::new();
        if spec.local_pref.is_some() && !types.iter().any(|types| types.internal) {
            ineffective.push(("localPref", "an internal peer"));
        }
        if spec.prepend.is_some_and(|times| times > 0) && !types.iter().any(|types| types.external) {
            ineffective.push(("prepend", "an external peer"));
        }
        ineffective
    }

    /// Returns true if no Node that the Advertisement selects has a session with one of the Advertisement's
    /// peers, although other Nodes have such sessions. Returns false if the Advertisement selects no Node, or
    /// if no Node at all has such a session, because suitable Nodes may be added later.
    pub(super) fn shares_no_node(&self, spec: &AdvertisementSpec) -> bool {
        let is_receiver = |name: &Name| spec.peers.is_empty() || spec.peers.contains(name);
        let receivers: Vec<_> =
            peers(self.snapshot).filter(|(name, _)| is_receiver(name)).map(|(_, of)| of).collect();
        let has_peer = |node: &Object| {
            receivers.iter().any(|peer| Selector::any_matches(&peer.node_selectors, &node.metadata.labels))
        };
        let mut selected = self.selected(&spec.node_selectors).peekable();
        selected.peek().is_some() && !selected.any(has_peer) && self.nodes().any(has_peer)
    }

    /// Compares the IP families of the pools and of the peers that an Advertisement names. Returns the
    /// families of the pools as text if no named peer exchanges routes of any of them; `None` otherwise, or
    /// if it names no pool or no peer.
    pub(super) fn families_without_receiver(&self, spec: &AdvertisementSpec) -> Option<String> {
        let pools = spec.address_pools.iter().filter_map(|name| self.snapshot.pool(name));
        let held: BTreeSet<IpFamily> =
            pools.flat_map(|pool| &pool.addresses).map(AddressRange::family).collect();
        let peers = spec.peers.iter().filter_map(|name| peer(self.snapshot, name));
        let taken: BTreeSet<IpFamily> =
            peers.flat_map(BgpPeerSpec::effective_families).map(BgpFamily::ip).collect();
        let has_no_receiver = !held.is_empty() && !taken.is_empty() && held.is_disjoint(&taken);
        has_no_receiver.then(|| held.iter().map(|family| family.as_str()).collect::<Vec<_>>().join(" and "))
    }

    /// Returns a message for each IP family in which an aggregated prefix would contain addresses outside of the
    /// pools.
    fn outside(&self, spec: &AdvertisementSpec) -> impl Iterator<Item = (IpFamily, String)> {
        let wide: Vec<IpFamily> =
            IpFamily::ALL.into_iter().filter(|family| spec.aggregates(*family)).collect();
        let coverage = (!wide.is_empty()).then(|| self.coverage(spec));
        wide.into_iter().filter_map(move |family| {
            let length = spec.length(family);
            let prefix = coverage.as_ref()?.reaching_outside(family, length)?;
            Some((family, format!("must be long enough that prefixes lie in the pools; {prefix} does not")))
        })
    }

    fn coverage(&self, spec: &AdvertisementSpec) -> Coverage {
        let pools = self.snapshot.list(Kind::AddressPool, None, None);
        let covered = pools.filter(|object| spec.covers_pool(Some(&object.metadata.name)));
        Coverage::of(covered.filter_map(|object| self.snapshot.pool(&object.metadata.name)))
    }

    /// Adds a violation at `at` if a pool change would make an existing Advertisement announce an aggregated
    /// prefix with addresses outside of the pools. Advertisements in the same write are checked separately.
    pub(super) fn check_pools(&self, at: &str, staged: &[StagedObject], found: &mut Vec<Violation>) {
        let is_written = |name: &Name| {
            staged.iter().any(|other| other.key.kind == Kind::Advertisement && other.key.name == *name)
        };
        for (name, spec) in advertisements(self.snapshot).filter(|(name, _)| !is_written(name)) {
            for (family, message) in self.outside(spec) {
                let field = length_field(family).trim_start_matches("/spec/");
                let message = format!(
                    "would leave Advertisement {name} with prefixes of others: its {field} {message}"
                );
                found.push(
                    Violation::new(at, ViolationCode::Overlap, message)
                        .hint("change that Advertisement first"),
                );
            }
        }
    }

    /// Adds a violation if two Advertisements announce the same prefixes to the same peers with different
    /// attributes.
    fn check_contradiction(
        &self,
        spec: &AdvertisementSpec,
        name: &Name,
        other: &AdvertisementSpec,
        found: &mut Vec<Violation>,
    ) {
        let shares_peers =
            spec.peers.is_empty() || other.peers.is_empty() || !spec.peers.is_disjoint(&other.peers);
        let (a, b) = (&spec.service_selectors, &other.service_selectors);
        let shares_services = a.is_empty() || b.is_empty() || a == b;
        if !shares_peers || !shares_services || !self.announces_same_prefix(spec, other) {
            return;
        }
        if self.meeting(&spec.node_selectors, &other.node_selectors).is_none() {
            return;
        }
        let shown = |value: Option<u32>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        let prepend = |of: &AdvertisementSpec| Some(u32::from(of.prepend.unwrap_or(0)));
        for (field, ours, theirs) in [
            ("localPref", spec.local_pref, other.local_pref),
            ("med", spec.med, other.med),
            ("prepend", prepend(spec), prepend(other)),
        ] {
            if ours != theirs {
                let message = format!(
                    "must equal that of Advertisement {name}, {}, which announces the same prefixes to the same peers, not {}",
                    shown(theirs),
                    shown(ours)
                );
                let hint = "separate them by peers, nodeSelectors, addressPools, serviceSelectors or the prefix length";
                found.push(
                    Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message).hint(hint),
                );
            }
        }
    }

    /// True if two Advertisements announce prefixes of equal length from a pool that both cover.
    fn announces_same_prefix(&self, a: &AdvertisementSpec, b: &AdvertisementSpec) -> bool {
        let pools = self.snapshot.list(Kind::AddressPool, None, None).map(|object| &object.metadata.name);
        let shared: BTreeSet<&Name> =
            pools.filter(|name| a.covers_pool(Some(name)) && b.covers_pool(Some(name))).collect();
        let ranges =
            || shared.iter().filter_map(|name| self.snapshot.pool(name)).flat_map(|pool| &pool.addresses);
        // Addresses outside of pools may be of either family.
        let is_for_all = a.covers_pool(None) && b.covers_pool(None);
        IpFamily::ALL.into_iter().any(|family| {
            let is_shared = is_for_all || ranges().any(|range| range.family() == family);
            is_shared && a.length(family) == b.length(family)
        })
    }
}
