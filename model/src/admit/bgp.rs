//! Rules between peers, profiles, Advertisements of type BGP, pools, Nodes and Services: what could not work, or would
//! draw traffic that is not ours, is refused in the write that brings it about.
//!
//! Only what the write itself names is looked at, with everything that it meets: a contradiction that came about by a
//! Node's labels, which agents set, stands in no other write's way.

use std::{collections::BTreeSet, net::IpAddr};

use super::candidate::Candidate;
use crate::{
    advertisement::{AdvertisementSpec, AdvertisementType},
    assign::covering,
    bgp_peer::BgpPeerSpec,
    bgp_state::{advertisements, identity, is_external, is_same_router, peer, peers, profile},
    config::ClusterConfig,
    coverage::Coverage,
    metadata::Labels,
    name::Name,
    net::IpFamily,
    resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    selector::Selector,
    service::TrafficPolicy,
    snapshot::Snapshot,
    validate::bgp::check_internal,
    violation::{Violation, ViolationCode},
};

/// Checks what a request writes, when all of it is in the snapshot.
pub(super) fn check(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    candidates: &[Candidate],
    pruned: &[ObjectKey],
    found: &mut Vec<Violation>,
) {
    let scene = Scene { snapshot, config };
    for candidate in candidates {
        let mut own = Vec::new();
        let name = &candidate.key.name;
        match candidate.new.as_ref().map(|object| &object.spec) {
            Some(Spec::BgpPeer(spec)) => scene.check_peer(name, spec, candidates, &mut own),
            Some(Spec::Advertisement(spec)) if spec.advertisement_type == AdvertisementType::Bgp => {
                scene.check_advertisement(name, spec, &mut own);
            }
            Some(Spec::AddressPool(_)) => scene.check_pools("/spec/addresses", candidates, &mut own),
            None if candidate.key.kind == Kind::AddressPool => scene.check_pools("", candidates, &mut own),
            Some(_) | None => {}
        }
        found.extend(own.into_iter().map(|violation| candidate.place(violation)));
    }
    let removed =
        candidates.iter().filter(|candidate| candidate.new.is_none()).map(|candidate| &candidate.key);
    for key in removed.chain(pruned) {
        scene.check_removed(key, found);
    }
}

/// Checks what depends on the addresses that Services have, when they have them.
pub(super) fn check_addresses(
    before: &Snapshot,
    snapshot: &Snapshot,
    candidates: &[Candidate],
    found: &mut Vec<Violation>,
) {
    for candidate in candidates {
        let mut own = Vec::new();
        match candidate.new.as_ref().map(|object| &object.spec) {
            Some(Spec::Service(_)) => {
                let Some(key) = candidate.service_key() else { continue };
                // What came about without this write, because the Service waited, does not hinder it.
                let stands = before.service(&key).map(|old| policy(old))
                    == snapshot.service(&key).map(|new| policy(new));
                let had: BTreeSet<IpAddr> = before.addresses_of(&key).filter(|_| stands).collect();
                for address in snapshot.addresses_of(&key).filter(|address| !had.contains(address)) {
                    check_address(snapshot, address, None, &mut own);
                }
            }
            Some(Spec::Advertisement(spec)) if spec.advertisement_type == AdvertisementType::Bgp => {
                check_addresses_of(snapshot, &candidate.key.name, spec, &mut own);
            }
            Some(_) | None => {}
        }
        // One address says it; the others have the same remedy.
        found.extend(own.into_iter().take(1).map(|violation| candidate.place(violation)));
    }
}

/// The addresses that an Advertisement covers.
fn check_addresses_of(
    snapshot: &Snapshot,
    name: &Name,
    spec: &AdvertisementSpec,
    found: &mut Vec<Violation>,
) {
    if !IpFamily::ALL.into_iter().any(|family| spec.aggregates(family)) {
        return;
    }
    for object in snapshot.list(Kind::Address, None, None) {
        let Some(record) = object.as_address() else { continue };
        if spec.covers_pool(record.pool.as_ref()) && found.is_empty() {
            check_address(snapshot, record.address, Some(name), found);
        }
    }
}

/// Checks that an address does not hide in a wider prefix where that cannot work. With `name` it is that Advertisement which is
/// written, else the Service.
fn check_address(snapshot: &Snapshot, address: IpAddr, name: Option<&Name>, found: &mut Vec<Violation>) {
    let Some(record) = snapshot.address(address).and_then(|object| object.as_address()) else { return };
    let family = IpFamily::of(address);
    let wide = covering(snapshot, record, AdvertisementType::Bgp)
        .find(|(of, spec)| name.is_none_or(|name| name == *of) && spec.aggregates(family));
    let Some((advertisement, spec)) = wide else { return };
    let is_local = |key: &&ServiceKey| {
        snapshot.service(key).is_some_and(|object| policy(object) == Some(TrafficPolicy::Local))
    };
    let local = record.services.iter().find(is_local);
    let length = spec.length(family);
    let at_length = length_field(family);
    let (at, message, hint) = match (local, &record.pool, name) {
        (Some(service), _, Some(_)) => (
            at_length,
            format!(
                "must be {} while Service {service} has {address} with externalTrafficPolicy Local: nodes without its endpoints would draw its traffic by a prefix of {length} bits",
                family.bits()
            ),
            "leave the field out, or let serviceSelectors or addressPools leave such Services out",
        ),
        (Some(_), _, None) => (
            "/spec/externalTrafficPolicy",
            format!(
                "must be Cluster: Advertisement {advertisement} announces {address} by a prefix of {length} bits, also from nodes without endpoints of the Service"
            ),
            "use an address that is announced by itself, from a pool that another Advertisement names",
        ),
        (None, None, Some(_)) => (
            at_length,
            format!(
                "must be {} while it announces {address}, which is of no pool: a prefix of {length} bits around it draws traffic of addresses that are not ours",
                family.bits()
            ),
            "name the pools to announce in spec.addressPools",
        ),
        (None, None, None) => (
            "/spec/loadBalancer/addresses",
            format!(
                "must lie in a pool: Advertisement {advertisement} announces {address} by a prefix of {length} bits, which draws traffic of addresses that are not ours"
            ),
            "name the pools to announce in spec.addressPools of that Advertisement",
        ),
        (None, Some(_), _) => return,
    };
    found.push(Violation::new(at, ViolationCode::Conflict, message).hint(hint));
}

fn policy(object: &Object) -> Option<TrafficPolicy> {
    object.as_service().map(|service| service.external_traffic_policy)
}

const fn length_field(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "/spec/aggregationLength",
        IpFamily::V6 => "/spec/aggregationLengthV6",
    }
}

/// On which sides of the border of our AS a peer is, over all Nodes that it selects.
#[derive(Debug, Clone, Copy, Default)]
struct Sides {
    internal: bool,
    external: bool,
}

struct Scene<'a> {
    snapshot: &'a Snapshot,
    config: &'a ClusterConfig,
}

impl Scene<'_> {
    fn check_peer(
        &self,
        name: &Name,
        spec: &BgpPeerSpec,
        candidates: &[Candidate],
        found: &mut Vec<Violation>,
    ) {
        if let Some(missing) = spec.bfd_profile.as_ref().filter(|name| profile(self.snapshot, name).is_none())
        {
            let message = format!("must name a BfdProfile that exists; there is no {missing}");
            let hint = "create it before, or in the same apply; leave the field out to have no BFD";
            found.push(Violation::new("/spec/bfdProfile", ViolationCode::NotFound, message).hint(hint));
        }
        self.check_same(name, spec, found);
        // What is internal by its own fields was told so when it was read.
        if spec.local_asn.is_none() && self.sides(spec).internal {
            check_internal(spec, found);
        }
        let is_written = |name: &Name| {
            candidates.iter().any(|other| other.key.kind == Kind::Advertisement && other.key.name == *name)
        };
        for (advertisement, of) in advertisements(self.snapshot) {
            // One that is written as well says it itself.
            if !of.peers.contains(name) || is_written(advertisement) {
                continue;
            }
            for (field, why) in self.useless(of) {
                let message = format!("must leave {why} to Advertisement {advertisement}, which has {field}");
                found.push(Violation::new("/spec/peerASN", ViolationCode::Conflict, message));
            }
            if self.shares_no_node(of) {
                let message = format!(
                    "must leave a Node to Advertisement {advertisement}, which names this peer and selects others"
                );
                found.push(Violation::new("/spec/nodeSelectors", ViolationCode::Conflict, message));
            }
        }
    }

    /// Two peers that are one router to a node.
    fn check_same(&self, name: &Name, spec: &BgpPeerSpec, found: &mut Vec<Violation>) {
        let same = |other: &BgpPeerSpec| !other.disabled && !spec.disabled && is_same_router(spec, other);
        for (other, _) in peers(self.snapshot).filter(|(other, of)| *other != name && same(of)) {
            let Some(of) = peer(self.snapshot, other) else { continue };
            let Some(meeting) = self.meeting(&spec.node_selectors, &of.node_selectors) else { continue };
            let field = match (spec.peer_address, spec.peer_network) {
                (Some(_), _) => "peerAddress",
                (None, Some(_)) => "peerNetwork",
                (None, None) => "interface",
            };
            let message = format!("must not be that of BgpPeer {other}, which {meeting} has too");
            let hint = "one session with a router carries everything; tell them apart by nodeSelectors, peerPort or sourceAddress";
            found
                .push(Violation::new(format!("/spec/{field}"), ViolationCode::Duplicate, message).hint(hint));
        }
    }

    /// Where selectors of two objects meet, in words.
    fn meeting(&self, a: &[Selector], b: &[Selector]) -> Option<String> {
        if a.is_empty() || b.is_empty() || a == b {
            return Some("every Node that it selects".to_owned());
        }
        let both = |labels: &Labels| Selector::any_matches(a, labels) && Selector::any_matches(b, labels);
        self.nodes()
            .find(|node| both(&node.metadata.labels))
            .map(|node| format!("Node {}", node.metadata.name))
    }

    fn nodes(&self) -> impl Iterator<Item = &Object> {
        self.snapshot.list(Kind::Node, None, None).map(|object| &**object)
    }

    /// The Nodes that selectors choose, of those that exist.
    fn selected<'b>(&'b self, selectors: &'b [Selector]) -> impl Iterator<Item = &'b Object> + 'b {
        self.nodes().filter(|node| Selector::any_matches(selectors, &node.metadata.labels))
    }

    fn sides(&self, spec: &BgpPeerSpec) -> Sides {
        let mut sides = Sides::default();
        let mut note = |local: u32| match is_external(spec.peer_asn, local) {
            true => sides.external = true,
            false => sides.internal = true,
        };
        if let Some(local) = spec.local_asn {
            note(local);
            return sides;
        }
        let mut is_anywhere = false;
        for node in self.selected(&spec.node_selectors) {
            let Spec::Node(of) = &node.spec else { continue };
            note(identity(&node.metadata.name, of, self.config.asn()).asn);
            is_anywhere = true;
        }
        if !is_anywhere {
            note(self.config.asn());
        }
        sides
    }

    fn check_advertisement(&self, name: &Name, spec: &AdvertisementSpec, found: &mut Vec<Violation>) {
        for missing in spec.peers.iter().filter(|name| peer(self.snapshot, name).is_none()) {
            let message = format!("must name BgpPeers that exist; there is no {missing}");
            let hint = "create it before, or in the same apply; leave the field out for all peers";
            found.push(Violation::new("/spec/peers", ViolationCode::NotFound, message).hint(hint));
        }
        if !found.is_empty() {
            return;
        }
        for (field, why) in self.useless(spec) {
            let message = format!("must be left out: none of the named peers is {why}, and no other is told");
            found.push(Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message));
        }
        if self.shares_no_node(spec) {
            let message = "must select a Node that has one of the peers; none that it selects has";
            let hint = "compare spec.nodeSelectors of the BgpPeers and the labels of the Nodes";
            found.push(Violation::new("/spec/nodeSelectors", ViolationCode::Conflict, message).hint(hint));
        }
        found.extend(self.outside(spec).map(|(family, message)| {
            Violation::new(length_field(family), ViolationCode::Overlap, message)
                .hint("routers would send the traffic of all of it; take a longer prefix, or name all pools that it holds")
        }));
        for (other, of) in advertisements(self.snapshot).filter(|(other, _)| *other != name) {
            self.check_contradiction(spec, other, of, found);
        }
    }

    /// The fields that none of the named peers is told, with the sort of peers that would be.
    fn useless(&self, spec: &AdvertisementSpec) -> Vec<(&'static str, &'static str)> {
        let sides: Vec<Sides> = spec
            .peers
            .iter()
            .filter_map(|name| peer(self.snapshot, name))
            .map(|peer| self.sides(peer))
            .collect();
        if sides.is_empty() {
            return Vec::new();
        }
        let mut useless = Vec::new();
        if spec.local_pref.is_some() && !sides.iter().any(|side| side.internal) {
            useless.push(("localPref", "an internal peer"));
        }
        if spec.prepend.is_some_and(|times| times > 0) && !sides.iter().any(|side| side.external) {
            useless.push(("prepend", "an external peer"));
        }
        useless
    }

    /// Whether Nodes are selected and have none of the peers, while others have them. As long as either side has no Nodes at
    /// all, they may come.
    fn shares_no_node(&self, spec: &AdvertisementSpec) -> bool {
        let is_told = |name: &Name| spec.peers.is_empty() || spec.peers.contains(name);
        let told: Vec<_> = peers(self.snapshot).filter(|(name, _)| is_told(name)).map(|(_, of)| of).collect();
        let has_peer = |node: &Object| {
            told.iter().any(|peer| Selector::any_matches(&peer.node_selectors, &node.metadata.labels))
        };
        let mut selected = self.selected(&spec.node_selectors).peekable();
        selected.peek().is_some() && !selected.any(has_peer) && self.nodes().any(has_peer)
    }

    /// The prefixes of an Advertisement that hold addresses which are none of its pools', in words.
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

    /// Pools that change under Advertisements with wider prefixes.
    fn check_pools(&self, at: &str, candidates: &[Candidate], found: &mut Vec<Violation>) {
        let is_written = |name: &Name| {
            candidates.iter().any(|other| other.key.kind == Kind::Advertisement && other.key.name == *name)
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

    /// Two Advertisements that say different things of the same prefixes to the same peers.
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
                    "must be that of Advertisement {name}, {}, which tells the same peers of the same prefixes, not {}",
                    shown(theirs),
                    shown(ours)
                );
                let hint = "tell them apart by peers, nodeSelectors, addressPools, serviceSelectors or the prefix length";
                found.push(
                    Violation::new(format!("/spec/{field}"), ViolationCode::Conflict, message).hint(hint),
                );
            }
        }
    }

    /// Whether two Advertisements have prefixes of one length in a family that they share a pool of.
    fn announces_same_prefix(&self, a: &AdvertisementSpec, b: &AdvertisementSpec) -> bool {
        let pools = self.snapshot.list(Kind::AddressPool, None, None).map(|object| &object.metadata.name);
        let shared: BTreeSet<&Name> =
            pools.filter(|name| a.covers_pool(Some(name)) && b.covers_pool(Some(name))).collect();
        let ranges =
            || shared.iter().filter_map(|name| self.snapshot.pool(name)).flat_map(|pool| &pool.addresses);
        // Addresses of no pool may be of either family.
        let is_for_all = a.address_pools.is_empty() && b.address_pools.is_empty();
        IpFamily::ALL.into_iter().any(|family| {
            let is_shared = is_for_all || ranges().any(|range| range.family() == family);
            is_shared && a.length(family) == b.length(family)
        })
    }

    /// What is named by others stays.
    fn check_removed(&self, key: &ObjectKey, found: &mut Vec<Violation>) {
        let user = match key.kind {
            Kind::BfdProfile => {
                let user =
                    peers(self.snapshot).find(|(_, spec)| spec.bfd_profile.as_ref() == Some(&key.name));
                user.map(|(name, _)| {
                    (format!("BgpPeer {name}"), "take it out of spec.bfdProfile of the BgpPeer")
                })
            }
            Kind::BgpPeer => {
                let user = advertisements(self.snapshot).find(|(_, spec)| spec.peers.contains(&key.name));
                user.map(|(name, _)| {
                    (format!("Advertisement {name}"), "take it out of spec.peers of the Advertisement")
                })
            }
            Kind::Node
            | Kind::AddressPool
            | Kind::Advertisement
            | Kind::Workload
            | Kind::Service
            | Kind::EndpointSet
            | Kind::Address => None,
        };
        if let Some((user, remedy)) = user {
            let message = format!("{key} must stay while {user} names it");
            found.push(
                Violation::new("", ViolationCode::InUse, message)
                    .hint(format!("{remedy} first, or delete that too")),
            );
        }
    }
}
