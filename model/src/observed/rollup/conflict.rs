//! Conflicts of announcers: decides if an announcement that a node has observed belongs to another node or to an
//! unknown machine.
//!
//! A node reports its link-layer addresses itself, so a faulty node may report that of a stranger. The report is
//! therefore believed only together with a fact that does not depend on it: the node reports that it announces the
//! address, the control server has ordered it to announce the address, the reporting node has just taken the address over
//! from another candidate, or a further node has recognized it.

use std::net::IpAddr;

use super::{AnnouncementInputs, NodeView, no};
use crate::{
    kinds::{address::AddressSpec, condition_reason::ConditionReason},
    observed::{
        assign::has_on_interface,
        status::{Condition, ConditionType},
    },
    primitives::name::Name,
    wire::report::{AddressConflict, AddressReport, AnnouncementRole},
};

/// Maximum time after a change of the reporting node's role in which announcements of another candidate belong to the
/// handover, in seconds: the previous owner announces until it observes the next one.
const HANDOVER_SECS: i64 = 30;

/// Type of all conditions that this module returns.
const AT: ConditionType = ConditionType::Announced;

impl AnnouncementInputs<'_> {
    /// Returns the condition of an address that an unknown machine or a second node announces too; `None` if only
    /// one node announces the address.
    pub(super) fn conflict(&self, record: &AddressSpec) -> Option<Condition> {
        let address = record.address;
        let conflicts: Vec<_> = self
            .book
            .reported(address)
            .filter_map(|(node, said)| Some((node, self.actual_conflict(record, node, said)?)))
            .collect();
        if let Some((node, conflict)) = conflicts.iter().find(|(_, conflict)| conflict.node.is_none()) {
            let AddressConflict { mac, interface, at, node: _ } = conflict;
            let mut message =
                format!("{node} detects that {mac} announces {address} too, on {interface}, last at {at}");
            if let Some(claimant) = self.nodes_with(mac).next() {
                message += &if self.is_on_interface(claimant, address) {
                    format!("; the address is configured on an interface of node {claimant}")
                } else {
                    format!("; node {claimant} claims this link-layer address")
                };
            }
            return Some(no(AT, ConditionReason::Conflict, message).hint(
                "remove the address from the machine with that link-layer address, or reserve it in the pool",
            ));
        }
        let (node, AddressConflict { node: Some(other), .. }) = conflicts.first()? else { return None };
        let message = format!("{node} and {other} both announce {address}");
        Some(no(AT, ConditionReason::TwoOwners, message).hint(
            "the node of lower rank yields; if the state persists, check that both nodes reach control",
        ))
    }

    /// Returns the conflict that a node reports for an address, with the name of the other machine if this is a
    /// known node. `None` if the other machine is a node that does not announce the address any longer, or the
    /// reporting node itself: the address has only moved. `None` too if another candidate has taken the address over
    /// since the last report of the reporting node.
    pub(super) fn actual_conflict(
        &self,
        record: &AddressSpec,
        reporter: &Name,
        said: &AddressReport,
    ) -> Option<AddressConflict> {
        let conflict = said.conflict.clone().filter(|_| self.successor(record, reporter).is_none())?;
        let is_bound = |node: &&Name| *node == reporter || self.is_bound(record, node, reporter, &conflict);
        let recognized = conflict.node.as_ref().or_else(|| self.nodes_with(&conflict.mac).find(is_bound));
        let Some(node) = recognized.cloned() else { return Some(conflict) };
        let announces = |node: &Name| {
            let is_current = self.is_reporting(node) && self.successor(record, node).is_none();
            is_current && self.is_announcer(record, node)
        };
        (node != *reporter && announces(&node) && announces(reporter))
            .then_some(AddressConflict { node: Some(node), ..conflict })
    }

    /// Returns true if a node, which claims the link-layer address of a conflict, has announced the address
    /// according to more than this claim.
    fn is_bound(
        &self,
        record: &AddressSpec,
        node: &Name,
        reporter: &Name,
        conflict: &AddressConflict,
    ) -> bool {
        let recognizes = |said: &AddressReport| {
            let other = said.conflict.as_ref();
            other.is_some_and(|other| other.mac == conflict.mac && other.node.as_ref() == Some(node))
        };
        let mut others =
            self.book.reported(record.address).filter(|(other, _)| *other != node && *other != reporter);
        self.is_announcer(record, node)
            || self.is_handover(record, node, reporter, conflict)
            || record.announcement.candidates.first().is_some_and(|first| first.node == *node)
            || self.book.was_ordered(record.address, node, conflict.at)
            || others.any(|(_, said)| recognizes(said))
    }

    /// Returns true if `node` is a candidate for an address, and the role of the reporting node has changed shortly
    /// before it observed the announcement. The time is that of the reporting node, so the claim of `node` hides a
    /// stranger no longer than a handover takes.
    fn is_handover(
        &self,
        record: &AddressSpec,
        node: &Name,
        reporter: &Name,
        conflict: &AddressConflict,
    ) -> bool {
        let is_candidate = record.announcement.candidates.iter().any(|candidate| candidate.node == *node);
        let mut reported = self.book.reported(record.address);
        let since = reported.find(|(name, _)| *name == reporter).map(|(_, said)| said.since);
        let until = since.map(|since| since.unix_seconds().saturating_add(HANDOVER_SECS));
        is_candidate && until.is_some_and(|until| conflict.at.unix_seconds() <= until)
    }

    /// Returns true if a node is a candidate for an address and reports that it announces the address.
    fn is_announcer(&self, record: &AddressSpec, node: &Name) -> bool {
        let is_candidate = record.announcement.candidates.iter().any(|candidate| candidate.node == *node);
        is_candidate && self.book.role(record.address, node, 0) == Some(AnnouncementRole::Owner)
    }

    fn is_on_interface(&self, node: &Name, address: IpAddr) -> bool {
        let report = self.view(node).and_then(|view| view.report);
        report.is_some_and(|report| has_on_interface(report, address))
    }

    /// Returns the nodes that report a link-layer address as one of their own.
    fn nodes_with(&self, mac: &str) -> impl Iterator<Item = &Name> {
        let has_it = move |view: &&NodeView<'_>| {
            let facts = view.report.map(|report| &report.facts);
            facts.is_some_and(|facts| facts.link_layer_addresses.values().any(|known| known == mac))
        };
        self.scene.nodes.iter().filter(has_it).map(|view| view.name)
    }
}
