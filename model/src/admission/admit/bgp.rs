//! Rules between peers, profiles, Advertisements of type BGP, pools, Nodes and Services: what could not work, or would
//! draw traffic that is not ours, is refused in the write that brings it about.
//!
//! Only what the write itself names is looked at, with everything that it meets: a contradiction that came about by a
//! Node's labels, which agents set, stands in no other write's way.

use super::candidate::Candidate;
use crate::{
    bgp::compile::{advertisements, identity, is_external, peers},
    cluster::{config::ClusterConfig, snapshot::Snapshot},
    kinds::{
        advertisement::AdvertisementType,
        bgp_peer::BgpPeerSpec,
        metadata::Labels,
        resource::{Kind, Object, ObjectKey, Spec},
        selector::Selector,
    },
    primitives::{
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

mod addresses;
mod announcing;
mod peers;

pub(super) use self::addresses::check_addresses;

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
            | Kind::EndpointHealth
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
