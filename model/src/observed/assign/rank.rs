//! Order of the candidates for an address: the owner remains first, present candidates keep their order, and
//! new candidates follow.

use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr};

use super::{AddressEvaluation, Eligibility, EligibleNode, IneligibleReason};
use crate::{
    kinds::address::{Announcement, CANDIDATES_MAX, Candidate},
    primitives::name::Name,
};

/// Ranks the candidates for an address, starting with the owner. `takeover` is the candidate that took over
/// the address from the recorded owner, if any.
pub(super) fn rank(
    evaluation: &AddressEvaluation,
    current: &Announcement,
    takeover: Option<&Name>,
    owned: &BTreeMap<Name, usize>,
    address: IpAddr,
) -> Vec<Candidate> {
    let mut ranked: Vec<Candidate> =
        current.candidates.iter().filter_map(|candidate| kept(evaluation, candidate)).collect();
    if let Some(at) = takeover.and_then(|node| ranked.iter().position(|one| one.node == *node)) {
        ranked[..=at].rotate_right(1);
    } else if let Some(best) = new_owner(evaluation, current, &ranked, owned, address) {
        ranked.retain(|candidate| candidate.node != best.node);
        ranked.insert(0, best);
    }
    let is_new = |fit: &&EligibleNode| ranked.iter().all(|candidate| candidate.node != fit.candidate.node);
    let mut new: Vec<_> = fits(evaluation).filter(is_new).collect();
    new.sort_by_cached_key(|fit| (Reverse(fit.weight), Reverse(rendezvous(address, &fit.candidate.node))));
    let new: Vec<_> = new.into_iter().map(|fit| fit.candidate.clone()).collect();
    ranked.extend(new);
    ranked.truncate(CANDIDATES_MAX);
    ranked
}

/// Returns a candidate of the present address record, updated to the current address and interfaces of its
/// node; `None` if the node must not remain a candidate.
fn kept(evaluation: &AddressEvaluation, candidate: &Candidate) -> Option<Candidate> {
    match evaluation.eligibility(&candidate.node)? {
        Eligibility::Eligible(fit) | Eligibility::NotReady { fit: Some(fit), .. } => {
            Some(fit.candidate.clone())
        }
        Eligibility::NotReady { fit: None, .. } => Some(candidate.clone()),
        Eligibility::Ineligible(_) => None,
    }
}

/// Returns the node that becomes the new owner of the address. `None` if the present owner remains, if it is
/// silent and other candidates remain (the first of them takes over by itself), or if no node is eligible.
fn new_owner(
    evaluation: &AddressEvaluation,
    current: &Announcement,
    kept: &[Candidate],
    owned: &BTreeMap<Name, usize>,
    address: IpAddr,
) -> Option<Candidate> {
    if let Some(owner) = current.candidates.first() {
        let is_kept = kept.first().is_some_and(|first| first.node == owner.node);
        // The other candidates detect a silent owner without the control server and follow the recorded order.
        let is_silent = matches!(
            evaluation.eligibility(&owner.node),
            Some(Eligibility::Ineligible(IneligibleReason::Silent(_))) | None
        );
        if is_kept || (is_silent && !kept.is_empty()) {
            return None;
        }
    }
    let rank = |fit: &&EligibleNode| {
        let node = &fit.candidate.node;
        let owned = owned.get(node).copied().unwrap_or(0);
        (fit.weight, Reverse(owned), rendezvous(address, node))
    };
    fits(evaluation).max_by_key(rank).map(|fit| fit.candidate.clone())
}

fn fits(evaluation: &AddressEvaluation) -> impl Iterator<Item = &EligibleNode> {
    evaluation.nodes.iter().filter_map(|(_, eligibility)| match eligibility {
        Eligibility::Eligible(fit) => Some(fit),
        Eligibility::NotReady { .. } | Eligibility::Ineligible(_) => None,
    })
}

/// Returns the score of a node for an address (rendezvous hashing): the nodes with the highest scores are
/// selected. Adding or removing a node does not change the scores of other nodes.
pub(crate) fn rendezvous(address: IpAddr, node: &Name) -> u64 {
    let bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    // FNV-1a and the finalizer of MurmurHash3, so that similar addresses and names have different scores.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let mut mixed = bytes.into_iter().chain(node.as_str().bytes()).fold(0xCBF2_9CE4_8422_2325, hash);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control servers of several versions select the same nodes, and an upgrade moves no address.
    #[test]
    fn scores_are_the_same_in_every_version() {
        let cases = [
            ("192.0.2.10", "a", 0xE23A_367C_AEAC_B0FA),
            ("192.0.2.10", "b", 0x69B6_12A6_B3B3_5F5C),
            ("2001:db8::1", "node-1.example.org", 0x4030_FF97_2A69_7D24),
        ];
        for (address, node, score) in cases {
            assert_eq!(
                rendezvous(address.parse().unwrap(), &Name::parse(node).unwrap()),
                score,
                "{address} {node}"
            );
        }
    }
}
