//! The order of the candidates: the owner stays, those known keep their places, new ones come behind.

use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr};

use super::{Fit, Judgement, Standing, Unfit};
use crate::{
    kinds::address::{Announcement, CANDIDATES_MAX, Candidate},
    primitives::name::Name,
};

/// Ranks the candidates of an address. `takeover` is the candidate that has taken the address over.
pub(super) fn rank(
    judgement: &Judgement,
    current: &Announcement,
    takeover: Option<&Name>,
    owned: &BTreeMap<Name, usize>,
    address: IpAddr,
) -> Vec<Candidate> {
    let mut ranked: Vec<Candidate> =
        current.candidates.iter().filter_map(|candidate| kept(judgement, candidate)).collect();
    if let Some(at) = takeover.and_then(|node| ranked.iter().position(|one| one.node == *node)) {
        ranked[..=at].rotate_right(1);
    } else if let Some(best) = new_owner(judgement, current, &ranked, owned, address) {
        ranked.retain(|candidate| candidate.node != best.node);
        ranked.insert(0, best);
    }
    let is_new = |fit: &&Fit| ranked.iter().all(|candidate| candidate.node != fit.candidate.node);
    let mut new: Vec<_> = fits(judgement).filter(is_new).collect();
    new.sort_by_cached_key(|fit| (Reverse(fit.weight), Reverse(rendezvous(address, &fit.candidate.node))));
    let new: Vec<_> = new.into_iter().map(|fit| fit.candidate.clone()).collect();
    ranked.extend(new);
    ranked.truncate(CANDIDATES_MAX);
    ranked
}

/// A candidate that may stay one, as the node is now.
fn kept(judgement: &Judgement, candidate: &Candidate) -> Option<Candidate> {
    match judgement.standing(&candidate.node)? {
        Standing::Fit(fit) | Standing::NotReady { fit: Some(fit), .. } => Some(fit.candidate.clone()),
        Standing::NotReady { fit: None, .. } => Some(candidate.clone()),
        Standing::Unfit(_) => None,
    }
}

/// Who is to own an address whose owner has to go, or that had none; `None` when the order says it.
fn new_owner(
    judgement: &Judgement,
    current: &Announcement,
    kept: &[Candidate],
    owned: &BTreeMap<Name, usize>,
    address: IpAddr,
) -> Option<Candidate> {
    if let Some(owner) = current.candidates.first() {
        let is_kept = kept.first().is_some_and(|first| first.node == owner.node);
        // The others have noticed by themselves that a silent owner is gone, and follow the order that they know.
        let is_silent =
            matches!(judgement.standing(&owner.node), Some(Standing::Unfit(Unfit::Silent(_))) | None);
        if is_kept || (is_silent && !kept.is_empty()) {
            return None;
        }
    }
    let rank = |fit: &&Fit| {
        let node = &fit.candidate.node;
        let owned = owned.get(node).copied().unwrap_or(0);
        (fit.weight, Reverse(owned), rendezvous(address, node))
    };
    fits(judgement).max_by_key(rank).map(|fit| fit.candidate.clone())
}

fn fits(judgement: &Judgement) -> impl Iterator<Item = &Fit> {
    judgement.nodes.iter().filter_map(|(_, standing)| match standing {
        Standing::Fit(fit) => Some(fit),
        Standing::NotReady { .. } | Standing::Unfit(_) => None,
    })
}

/// The score of a node for an address (rendezvous hashing): a node that comes or goes changes no other node's.
pub(crate) fn rendezvous(address: IpAddr, node: &Name) -> u64 {
    let bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    // FNV-1a, then the finaliser of MurmurHash3, so that close addresses and names do not give close scores.
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let mut mixed = bytes.into_iter().chain(node.as_str().bytes()).fold(0xCBF2_9CE4_8422_2325, hash);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    mixed ^ (mixed >> 33)
}
