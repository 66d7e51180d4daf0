//! Assignment of a load balancer address to nodes: computes a ranked list of candidates from the cluster state and
//! the reports.
//!
//! Decisions are sticky: the owner changes only if necessary.

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
pub use judge::{AddressEvaluation, Eligibility, EligibleNode, evaluate};
pub use reason::{IneligibleReason, NoCandidateReason};

/// Cluster state and node reports on which the choice of announcing nodes is based.
#[derive(Clone, Copy)]
pub struct ClusterView<'a> {
    /// Objects of the cluster.
    pub snapshot: &'a Snapshot,
    /// Epoch of the store; reported positions count only if they belong to it.
    pub epoch: Epoch,
    /// Lease and last report of each node, ordered by name.
    pub nodes: &'a [NodeView<'a>],
    /// Function that returns the compiled form of a Service.
    pub compiled: &'a dyn Fn(&ServiceKey) -> Option<Arc<CompiledService>>,
}

/// Inputs of an assignment besides the evaluation of the nodes.
#[derive(Clone, Copy)]
pub struct AssignmentInputs<'a> {
    /// Announcement states that the agents report.
    pub book: &'a AnnouncementBook,
    /// Number of addresses for which each node is the first candidate.
    pub owned: &'a BTreeMap<Name, usize>,
    /// True if an address without an owner may remain so until nodes that are not ready yet become ready.
    pub may_wait: bool,
}

/// Result of the assignment of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Action on the address record.
    pub action: AssignmentAction,
    /// Nodes that will be candidates after they have verified the Services of the address.
    pub waiting: BTreeSet<Name>,
}

/// Action on an address record that follows from an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignmentAction {
    /// The record remains unchanged.
    Leave,
    /// The record remains unchanged for now; the assignment is retried after nodes had time to become ready.
    Wait,
    /// The record is changed to this announcement, whose epoch is higher than any known epoch of the address.
    Record(Announcement),
}

/// Maximum difference by which a reported epoch may exceed the recorded one. The record falls behind only if a
/// backup is restored; the limit prevents one faulty agent from exhausting the numbers.
const EPOCH_LEAP_MAX: u64 = 1_000_000;

/// Decides the ranked candidates that may announce an address. The record remains unchanged if no Service has
/// the address.
#[must_use]
pub fn assign(view: &ClusterView<'_>, inputs: &AssignmentInputs<'_>, address: IpAddr) -> Assignment {
    let leave = Assignment { action: AssignmentAction::Leave, waiting: BTreeSet::new() };
    let Some(evaluation) = evaluate(view, address) else { return leave };
    let Some(record) = view.snapshot.address(address).and_then(|object| object.as_address()) else {
        return leave;
    };
    let current = &record.announcement;
    let takeover = inputs.book.takeover(address, current);
    let ranked = rank::rank(&evaluation, current, takeover, inputs.owned, address);
    let known: BTreeSet<_> = current.candidates.iter().map(|candidate| &candidate.node).collect();
    let waiting: BTreeSet<Name> =
        evaluation.not_ready().filter(|node| !known.contains(node)).cloned().collect();
    let is_first_choice = ranked.first().is_some_and(|first| !known.contains(&first.node));
    let action = if is_first_choice && inputs.may_wait && !waiting.is_empty() {
        AssignmentAction::Wait
    } else {
        let next = next_epoch(inputs.book, address, current);
        action_for(current, announcement(&evaluation, current, ranked, next))
    };
    Assignment { action, waiting }
}

/// Returns a candidate order with the given node in front.
///
/// # Errors
/// Returns the reason why the node cannot be a candidate.
pub fn move_to(
    view: &ClusterView<'_>,
    book: &AnnouncementBook,
    address: IpAddr,
    node: &Name,
) -> Result<Announcement, IneligibleReason> {
    let evaluation = evaluate(view, address).ok_or(IneligibleReason::NoService)?;
    let record = view.snapshot.address(address).and_then(|object| object.as_address());
    let current = record.map(|record| record.announcement.clone()).unwrap_or_default();
    let first = match evaluation.eligibility(node) {
        None => return Err(IneligibleReason::NoNode),
        Some(Eligibility::Eligible(fit)) => fit.candidate.clone(),
        Some(Eligibility::NotReady { reason, .. } | Eligibility::Ineligible(reason)) => {
            return Err(reason.clone());
        }
    };
    let others = rank::rank(&evaluation, &current, None, &BTreeMap::new(), address);
    let others = others.into_iter().filter(|candidate| candidate.node != *node);
    let ranked = std::iter::once(first).chain(others).take(CANDIDATES_MAX).collect();
    Ok(announcement(&evaluation, &current, ranked, next_epoch(book, address, &current)))
}

fn announcement(
    evaluation: &AddressEvaluation,
    current: &Announcement,
    candidates: Vec<Candidate>,
    epoch: u64,
) -> Announcement {
    // Without an Advertisement nothing is announced, so its settings keep their values.
    let (answer_ping, when_isolated) = if evaluation.is_advertised {
        (evaluation.answer_ping, evaluation.when_isolated)
    } else {
        (current.answer_ping, current.when_isolated)
    };
    let advertisements = evaluation.by_bgp.clone();
    Announcement { epoch, candidates, answer_ping, when_isolated, advertisements }
}

fn action_for(current: &Announcement, next: Announcement) -> AssignmentAction {
    let is_same = Announcement { epoch: next.epoch, ..current.clone() } == next;
    if is_same { AssignmentAction::Leave } else { AssignmentAction::Record(next) }
}

/// Returns an epoch that every agent treats as newer than the current one.
fn next_epoch(book: &AnnouncementBook, address: IpAddr, current: &Announcement) -> u64 {
    let bound = current.epoch.saturating_add(EPOCH_LEAP_MAX);
    let said =
        book.reported(address).map(|(_, announced)| announced.epoch).filter(|epoch| *epoch <= bound).max();
    current.epoch.max(said.unwrap_or(0)).saturating_add(1)
}
