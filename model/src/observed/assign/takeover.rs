//! Confirmation of takeovers: decides if a candidate's claim to own an address becomes the recorded order.
//!
//! A candidate that is cut off from the others also claims the address, and a faulty node may report anything about
//! itself. A claim is therefore accepted only for a reason that does not depend on the claimant: the recorded owner
//! is silent, reports that it does not announce the address, or is down for another candidate. An owner that reports
//! and is up for any other candidate keeps the address.

use std::net::IpAddr;

use super::ClusterView;
use crate::{
    kinds::address::{Announcement, Candidate},
    observed::{announcements::AnnouncementBook, rollup::NodeView},
    primitives::name::Name,
    wire::report::{AnnouncementRole, PeerReport, PeerState, Report},
};

/// Returns the candidate that has taken over an address from the first candidate of `order`, if the takeover is
/// confirmed. With two candidates, no third one can confirm it, so that the recorded owner remains until it is silent
/// or reports that it does not announce the address.
pub(super) fn confirmed<'a>(
    view: &ClusterView<'_>,
    book: &'a AnnouncementBook,
    address: IpAddr,
    order: &'a Announcement,
) -> Option<&'a Name> {
    let owner = order.candidates.first()?;
    let claimants: Vec<_> = book.claims(address, order).collect();
    if claimants.is_empty() {
        return None;
    }
    let is_claimant = |candidate: &Candidate| claimants.iter().any(|one| one.node == candidate.node);
    let voters = order.candidates.iter().skip(1).filter(|candidate| !is_claimant(candidate));
    let votes: Vec<_> = voters.filter_map(|voter| reporting(view, &voter.node)).collect();
    let is_live = |candidate: &&&Candidate| {
        reporting(view, &candidate.node).is_some() && !votes.iter().any(|vote| is_down(vote, candidate))
    };
    let claimant = *claimants.iter().find(is_live)?;
    let is_accepted = match book.role(address, &owner.node, order.epoch) {
        _ if reporting(view, &owner.node).is_none() => true,
        Some(AnnouncementRole::Standby) => true,
        _ if votes.iter().any(|vote| is_up(vote, owner)) => false,
        Some(AnnouncementRole::Held) => true,
        // A candidate that does not reach the claimant may be cut off itself.
        Some(AnnouncementRole::Owner) | None => {
            votes.iter().any(|vote| is_down(vote, owner) && is_up(vote, claimant))
        }
    };
    is_accepted.then_some(&claimant.node)
}

/// Returns the last report of a node, or `None` if its agent is silent.
fn reporting<'a>(view: &ClusterView<'a>, node: &Name) -> Option<&'a Report> {
    let at = view.nodes.binary_search_by(|view| view.name.cmp(node)).ok()?;
    let found: &NodeView<'a> = view.nodes.get(at)?;
    found.report.filter(|_| found.is_connected)
}

fn is_up(report: &Report, candidate: &Candidate) -> bool {
    state(report, candidate) == Some(PeerState::Up)
}

fn is_down(report: &Report, candidate: &Candidate) -> bool {
    matches!(state(report, candidate), Some(PeerState::Down | PeerState::AdminDown))
}

fn state(report: &Report, candidate: &Candidate) -> Option<PeerState> {
    let is_it = |peer: &&PeerReport| peer.node == candidate.node && peer.address == candidate.address;
    report.peers.iter().find(is_it).map(|peer| peer.state)
}
