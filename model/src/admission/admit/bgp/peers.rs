//! A peer beside the others, and under the Advertisements that name it.

use super::Scene;
use crate::{
    admission::{admit::candidate::Candidate, validate::bgp::check_internal},
    bgp::compile::{advertisements, is_same_router, peer, peers, profile},
    kinds::{bgp_peer::BgpPeerSpec, resource::Kind},
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
};

impl Scene<'_> {
    pub(super) fn check_peer(
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
            if let Some(families) = self.untold_families(of) {
                let message = format!(
                    "must have {families} for Advertisement {advertisement}, which names this peer and announces nothing else"
                );
                found.push(Violation::new("/spec/families", ViolationCode::Conflict, message));
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
}
