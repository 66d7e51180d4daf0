//! Who answers for a load balancer address: from the state, what nodes report and what they say they do, to a ranked
//! list of candidates. Decisions are sticky: nothing moves that need not move.
//!
//! ```text
//! state, reports ──▶ judge: may this node announce it? ──▶ rank: in which order ──▶ a new Announcement, or as it is
//! ```
//! The same judgement is what people read as the reason why a node is no candidate.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::{
    cluster::{compiled::CompiledService, snapshot::Snapshot},
    kinds::{
        address::{Announcement, CANDIDATES_MAX, Candidate},
        resource::ServiceKey,
    },
    observed::{announcements::AnnouncementBook, rollup::NodeView},
    primitives::{name::Name, quantity::Epoch},
};

mod judge;
mod rank;

pub(crate) use self::rank::rendezvous;
mod reason;

pub(crate) use judge::covering;
pub use judge::{Fit, Judgement, Standing, judge};
pub use reason::{Unfit, Why};

/// What a judgement rests on.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The state.
    pub snapshot: &'a Snapshot,
    /// The life of the store, in which reported positions count.
    pub epoch: Epoch,
    /// What is known of the nodes, in the order of the names.
    pub nodes: &'a [NodeView<'a>],
    /// The compiled form of a Service.
    pub compiled: &'a dyn Fn(&ServiceKey) -> Option<Arc<CompiledService>>,
}

/// What a decision rests on beside the judgement.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    /// What the agents say of their parts.
    pub book: &'a AnnouncementBook,
    /// How many addresses each node is the first candidate for.
    pub owned: &'a BTreeMap<Name, usize>,
    /// Whether a first owner may be chosen later, when nodes that are not ready yet can take part.
    pub may_wait: bool,
}

/// What comes of looking at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub verdict: Verdict,
    /// Nodes that will be candidates once they have verified its Services.
    pub waiting: BTreeSet<Name>,
}

/// What to do about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is as it should be.
    Leave,
    /// Look again when the nodes that are not ready yet had their time.
    Wait,
    /// Record this instead; its epoch is higher than any known.
    Record(Announcement),
}

/// Epochs that agents name are believed up to this far beyond the record's: it lies behind only after a backup was
/// restored, and one mistaken agent must not use up all numbers.
const EPOCH_LEAP_MAX: u64 = 1_000_000;

/// Decides who answers for an address. Nothing is decided about an address that no Service has.
#[must_use]
pub fn assign(scene: &Scene<'_>, circumstances: &Circumstances<'_>, address: IpAddr) -> Decision {
    let leave = Decision { verdict: Verdict::Leave, waiting: BTreeSet::new() };
    let Some(judgement) = judge(scene, address) else { return leave };
    let Some(record) = scene.snapshot.address(address).and_then(|object| object.as_address()) else {
        return leave;
    };
    let current = &record.announcement;
    let takeover = circumstances.book.takeover(address, current);
    let ranked = rank::rank(&judgement, current, takeover, circumstances.owned, address);
    let known: BTreeSet<_> = current.candidates.iter().map(|candidate| &candidate.node).collect();
    let waiting: BTreeSet<Name> =
        judgement.not_ready().filter(|node| !known.contains(node)).cloned().collect();
    let is_first_choice = ranked.first().is_some_and(|first| !known.contains(&first.node));
    let verdict = if is_first_choice && circumstances.may_wait && !waiting.is_empty() {
        Verdict::Wait
    } else {
        let next = next_epoch(circumstances.book, address, current);
        conclude(current, announcement(&judgement, current, ranked, next))
    };
    Decision { verdict, waiting }
}

/// The order with a node in front.
///
/// # Errors
/// Why the node is no candidate.
pub fn move_to(
    scene: &Scene<'_>,
    book: &AnnouncementBook,
    address: IpAddr,
    node: &Name,
) -> Result<Announcement, Unfit> {
    let judgement = judge(scene, address).ok_or(Unfit::NoService)?;
    let record = scene.snapshot.address(address).and_then(|object| object.as_address());
    let current = record.map(|record| record.announcement.clone()).unwrap_or_default();
    let first = match judgement.standing(node) {
        None => return Err(Unfit::NoNode),
        Some(Standing::Fit(fit)) => fit.candidate.clone(),
        Some(Standing::NotReady { why, .. } | Standing::Unfit(why)) => return Err(why.clone()),
    };
    let others = rank::rank(&judgement, &current, None, &BTreeMap::new(), address);
    let others = others.into_iter().filter(|candidate| candidate.node != *node);
    let ranked = std::iter::once(first).chain(others).take(CANDIDATES_MAX).collect();
    Ok(announcement(&judgement, &current, ranked, next_epoch(book, address, &current)))
}

fn announcement(
    judgement: &Judgement,
    current: &Announcement,
    candidates: Vec<Candidate>,
    epoch: u64,
) -> Announcement {
    // Without an Advertisement nobody announces, so there is nothing to say about how.
    let (answer_ping, when_isolated) = if judgement.is_advertised {
        (judgement.answer_ping, judgement.when_isolated)
    } else {
        (current.answer_ping, current.when_isolated)
    };
    let advertisements = judgement.by_bgp.clone();
    Announcement { epoch, candidates, answer_ping, when_isolated, advertisements }
}

fn conclude(current: &Announcement, next: Announcement) -> Verdict {
    let is_same = Announcement { epoch: next.epoch, ..current.clone() } == next;
    if is_same { Verdict::Leave } else { Verdict::Record(next) }
}

/// An epoch that every agent takes for newer than what it follows.
fn next_epoch(book: &AnnouncementBook, address: IpAddr, current: &Announcement) -> u64 {
    let bound = current.epoch.saturating_add(EPOCH_LEAP_MAX);
    let said = book.said(address).map(|(_, announced)| announced.epoch).filter(|epoch| *epoch <= bound).max();
    current.epoch.max(said.unwrap_or(0)).saturating_add(1)
}
