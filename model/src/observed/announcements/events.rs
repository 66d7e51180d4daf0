//! Ring buffer of changes of owners: which node began or ceased to announce a load balancer address, and why.
//!
//! The events are differences between successive reports of the agents, with the reason that the agent gives.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::listing::ListPage,
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{AddressReport, AnnouncementRole},
};

/// Maximum number of events of all nodes, about 300 bytes each: 6 MB.
pub const EVENTS_KEPT_MAX: usize = 20_000;
/// Maximum number of events of one node, so that a node with many changes leaves room for other nodes.
pub const EVENTS_OF_NODE_MAX: usize = 1000;

/// Event of a load balancer address: a node began or ceased to announce it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressEvent {
    /// Number of the event. Newer events have higher numbers. The numbers restart when the server restarts.
    pub id: u64,
    /// Time of the change of the role, by the clock of the node (RFC 3339, UTC). If the node only reports that it
    /// has no role any longer, time of that report by the clock of the server.
    pub time: Timestamp,
    /// Load balancer address whose announcing node changed.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Name of the node whose role changed.
    pub node: Name,
    /// Node that last began to announce the address before this event. Absent if this server knows no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub previous: Option<Name>,
    /// Type of the event: `Announced` or `Withdrawn`.
    pub reason: AddressEventReason,
    /// Description of the cause, as the agent of the node reports it. The text may change between releases.
    pub message: String,
}

/// Type of an event of a load balancer address: `Announced` or `Withdrawn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum AddressEventReason {
    /// The node began to announce the address: it became owner.
    Announced,
    /// The node ceased to announce the address: it is no longer owner.
    Withdrawn,
}

/// Filter of address events.
#[derive(Debug, Clone, Default)]
pub struct AddressEventFilter {
    /// Load balancer address; `None` matches all addresses.
    pub address: Option<IpAddr>,
    /// Node whose role changed, or that announced the address before; `None` matches all nodes.
    pub node: Option<Name>,
}

/// Recent changes of owners of all addresses.
#[derive(Debug, Default)]
pub(super) struct OwnerEvents {
    /// Events by number; newer events have higher numbers.
    all: BTreeMap<u64, AddressEvent>,
    /// Numbers of the events of each node, oldest first.
    nodes: BTreeMap<Name, VecDeque<u64>>,
    /// Node that last began to announce each address.
    owners: BTreeMap<IpAddr, Name>,
    next: u64,
}

impl OwnerEvents {
    /// Adds the event, if any, that follows from the role of a node for an address before and after a report. `None`
    /// stands for no role.
    pub(super) fn apply(
        &mut self,
        node: &Name,
        address: IpAddr,
        (before, after): (Option<&AddressReport>, Option<&AddressReport>),
        now: Timestamp,
    ) {
        let is_owner = |report: &&AddressReport| report.role == AnnouncementRole::Owner;
        match (before.filter(is_owner), after.filter(is_owner)) {
            // The node lost the address between two reports if the times differ.
            (earlier, Some(owner)) if earlier.is_none_or(|earlier| earlier.since != owner.since) => {
                let previous = self.owners.insert(address, node.clone()).filter(|previous| previous != node);
                let event = (owner.since, previous, AddressEventReason::Announced, &*owner.reason);
                self.push(node, address, event);
            }
            (Some(_), None) => {
                let (time, message) = after
                    .map_or((now, "the node no longer has a role for the address"), |report| {
                        (report.since, &*report.reason)
                    });
                let previous = self.owners.get(&address).filter(|owner| *owner != node).cloned();
                self.push(node, address, (time, previous, AddressEventReason::Withdrawn, message));
            }
            (None | Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn push(
        &mut self,
        node: &Name,
        address: IpAddr,
        (time, previous, reason, message): (Timestamp, Option<Name>, AddressEventReason, &str),
    ) {
        let id = self.next;
        self.next += 1;
        let (name, message) = (node.clone(), message.to_owned());
        self.all.insert(id, AddressEvent { id, time, address, node: name, previous, reason, message });
        let of_node = self.nodes.entry(node.clone()).or_default();
        of_node.push_back(id);
        if of_node.len() > EVENTS_OF_NODE_MAX
            && let Some(oldest) = of_node.pop_front()
        {
            self.all.remove(&oldest);
        }
        while self.all.len() > EVENTS_KEPT_MAX
            && let Some((_, oldest)) = self.all.pop_first()
        {
            // The oldest event of all is also the oldest one of its node.
            if let Some(of_node) = self.nodes.get_mut(&oldest.node) {
                of_node.pop_front();
            }
        }
    }

    /// Removes the events of nodes and addresses for which `has_node` or `has_address` returns false.
    pub(super) fn forget(&mut self, has_node: impl Fn(&Name) -> bool, has_address: impl Fn(IpAddr) -> bool) {
        self.owners.retain(|address, node| has_address(*address) && has_node(node));
        self.all.retain(|_, event| has_node(&event.node) && has_address(event.address));
        let all = &self.all;
        self.nodes.retain(|_, numbers| {
            numbers.retain(|number| all.contains_key(number));
            !numbers.is_empty()
        });
    }

    /// Returns at most `limit` events, newest first; if `after` is given, only events older than the one with this
    /// number.
    pub(super) fn page(
        &self,
        wanted: &AddressEventFilter,
        after: Option<u64>,
        limit: usize,
    ) -> ListPage<AddressEvent, u64> {
        let AddressEventFilter { address, node } = wanted;
        let mut found =
            self.all.range(..after.unwrap_or(u64::MAX)).rev().map(|(_, event)| event).filter(|event| {
                address.is_none_or(|address| address == event.address)
                    && node
                        .as_ref()
                        .is_none_or(|node| *node == event.node || Some(node) == event.previous.as_ref())
            });
        let items: Vec<_> = found.by_ref().take(limit).cloned().collect();
        let has_more = found.next().is_some();
        ListPage { more_after: items.last().map(|last| last.id).filter(|_| has_more), items }
    }
}
