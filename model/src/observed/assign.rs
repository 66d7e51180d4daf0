//! Assignment of a load balancer address to nodes: ranks the nodes that may announce the address
//! (candidates), based on the cluster state and the reports of agents.
//!
//! Decisions are sticky: the owner (the first candidate) changes only if necessary.

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
    wire::report::AnnouncementRole,
};

mod judge;
mod rank;

pub(crate) use self::rank::rendezvous;
mod reason;
mod takeover;

pub use judge::{AddressEvaluation, Eligibility, EligibleNode, evaluate};
pub(crate) use judge::{covering, has_on_interface};
pub use reason::{IneligibleReason, NoCandidateReason};

/// Cluster state and node reports on which the choice of announcing nodes is based.
#[derive(Clone, Copy)]
pub struct ClusterView<'a> {
    /// Objects of the cluster.
    pub snapshot: &'a Snapshot,
    /// Epoch (identity) of the store. Positions that nodes report for another epoch are ignored.
    pub epoch: Epoch,
    /// Lease and last report of each node, ordered by name.
    pub nodes: &'a [NodeView<'a>],
    /// Function that returns the compiled form of a Service (the data that agents receive), or `None` if
    /// there is none.
    pub compiled: &'a dyn Fn(&ServiceKey) -> Option<Arc<CompiledService>>,
}

/// Inputs of an assignment besides the evaluation of the nodes.
#[derive(Clone, Copy)]
pub struct AssignmentInputs<'a> {
    /// Announcement states that the agents report.
    pub book: &'a AnnouncementBook,
    /// Number of addresses for which each node is the first candidate.
    pub owned: &'a BTreeMap<Name, usize>,
    /// True if the assignment of a new owner may wait for nodes that are about to become ready, so that the
    /// owner is selected from more nodes.
    pub may_wait: bool,
}

/// Result of the assignment of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Action on the Address object.
    pub action: AssignmentAction,
    /// Nodes that will be candidates after they have verified the Services of the address.
    pub waiting: BTreeSet<Name>,
}

/// Action on an Address object that follows from an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignmentAction {
    /// The Address object remains unchanged.
    Leave,
    /// The Address object remains unchanged for now. The assignment must be retried after the nodes in
    /// [`Assignment::waiting`] had time to become ready.
    Wait,
    /// The Address object receives this announcement, whose epoch (version of the candidate order) is higher
    /// than any known epoch of the address.
    Record(Announcement),
}

/// Maximum difference by which a reported epoch (version of the candidate order) may exceed the recorded one;
/// higher epochs are ignored. Agents have higher epochs than the record only after a backup was restored.
/// Without a limit, one faulty agent could exhaust the numbers.
const EPOCH_LEAP_MAX: u64 = 1_000_000;

/// Decides the nodes that may announce an address, as a ranked list of candidates. Returns
/// [`AssignmentAction::Leave`] if no Service has the address.
#[must_use]
pub fn assign(view: &ClusterView<'_>, inputs: &AssignmentInputs<'_>, address: IpAddr) -> Assignment {
    let leave = Assignment { action: AssignmentAction::Leave, waiting: BTreeSet::new() };
    let Some(evaluation) = evaluate(view, address) else { return leave };
    let Some(record) = view.snapshot.address(address).and_then(|object| object.as_address()) else {
        return leave;
    };
    let current = &record.announcement;
    let takeover = takeover::confirmed(view, inputs.book, address, current);
    let ranked = rank::rank(&evaluation, current, takeover, inputs.owned, address);
    let known: BTreeSet<_> = current.candidates.iter().map(|candidate| &candidate.node).collect();
    let waiting: BTreeSet<Name> =
        evaluation.not_ready().filter(|node| !known.contains(node)).cloned().collect();
    let is_first_choice = ranked.first().is_some_and(|first| !known.contains(&first.node));
    let action = if is_first_choice && inputs.may_wait && !waiting.is_empty() {
        AssignmentAction::Wait
    } else {
        action_for(current, announcement(&evaluation, inputs.book, address, current, ranked))
    };
    Assignment { action, waiting }
}

/// Returns a candidate order for an address in which the given node is the first candidate.
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
    Ok(announcement(&evaluation, book, address, &current, ranked))
}

fn announcement(
    evaluation: &AddressEvaluation,
    book: &AnnouncementBook,
    address: IpAddr,
    current: &Announcement,
    candidates: Vec<Candidate>,
) -> Announcement {
    // Without an Advertisement nothing is announced, so its settings keep their values.
    let (answer_ping, when_isolated) = if evaluation.is_advertised {
        (evaluation.answer_ping, evaluation.when_isolated)
    } else {
        (current.answer_ping, current.when_isolated)
    };
    let is_owned = book.reported(address).any(|(_, announced)| announced.role == AnnouncementRole::Owner);
    Announcement {
        epoch: next_epoch(book, address, current),
        candidates,
        answer_ping,
        when_isolated,
        probe_first: (current.epoch == 0 || current.probe_first) && !is_owned,
        advertisements: evaluation.by_bgp.clone(),
    }
}

fn action_for(current: &Announcement, next: Announcement) -> AssignmentAction {
    // The end of the first probe alone is no reason for a new order.
    let (epoch, probe_first) = (next.epoch, next.probe_first);
    let is_same = Announcement { epoch, probe_first, ..current.clone() } == next;
    if is_same { AssignmentAction::Leave } else { AssignmentAction::Record(next) }
}

/// Returns an epoch (version of the candidate order) above the recorded one and all reported ones, so that
/// every agent accepts the new order.
fn next_epoch(book: &AnnouncementBook, address: IpAddr, current: &Announcement) -> u64 {
    let bound = current.epoch.saturating_add(EPOCH_LEAP_MAX);
    let said =
        book.reported(address).map(|(_, announced)| announced.epoch).filter(|epoch| *epoch <= bound).max();
    current.epoch.max(said.unwrap_or(0)).saturating_add(1)
}
