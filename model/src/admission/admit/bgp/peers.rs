//! Admission rules of BgpPeers against other peers and against the Advertisements that reference them.

use super::BgpRules;
use crate::{
    admission::{admit::staged_object::StagedObject, validate::bgp::check_internal},
    bgp::compile::{advertisements, is_same_router, peer, peers, profile},
    kinds::{bgp_peer::BgpPeerSpec, resource::Kind},
    primitives::{
        name::Name,
        violation::{Violation, ViolationCode},
    },
};

impl BgpRules<'_> {
    pub(super) fn check_peer(
        &self,
        name: &Name,
        spec: &BgpPeerSpec,
        staged: &[StagedObject],
        found: &mut Vec<Violation>,
    ) {
        if let Some(missing) = spec.bfd_profile.as_ref().filter(|name| profile(self.snapshot, name).is_none())
        {
            let message = format!("must name a BfdProfile that exists; there is no {missing}");
            let hint = "create it before, or in the same apply; leave the field out to have no BFD";
            found.push(Violation::new("/spec/bfdProfile", ViolationCode::NotFound, message).hint(hint));
        }
        self.check_same(name, spec, found);
        // Peers that are internal by their own fields were checked during decoding.
        if spec.local_asn.is_none() && self.session_types(spec).internal {
            check_internal(spec, found);
        }
        let is_written = |name: &Name| {
            staged.iter().any(|other| other.key.kind == Kind::Advertisement && other.key.name == *name)
        };
        for (advertisement, of) in advertisements(self.snapshot) {
            // An Advertisement in the same request reports its own conflicts.
            if !of.peers.contains(name) || is_written(advertisement) {
                continue;
            }
            for (field, why) in self.ineffective_attributes(of) {
                let message = format!("must leave {why} to Advertisement {advertisement}, which has {field}");
                found.push(Violation::new("/spec/peerASN", ViolationCode::Conflict, message));
            }
            if let Some(families) = self.families_without_receiver(of) {
                let message = format!(
                    "must contain {families} for Advertisement {advertisement}, which names this peer and announces no other family"
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

    /// Adds a violation if a Node would have two sessions with the same router, through this BgpPeer and
    /// another one.
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
            let hint = "one session with a router is enough; separate them by nodeSelectors, peerPort or sourceAddress";
            found
                .push(Violation::new(format!("/spec/{field}"), ViolationCode::Duplicate, message).hint(hint));
        }
    }
}
