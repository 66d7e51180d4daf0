//! Ring buffer of changes of owners: which node began or ceased to announce a load balancer address, and why.
//!
//! Agents record the changes with their time and cause, and report them also after a time in which the control server was
//! unreachable. A difference between successive states that an agent reports is an event of its own if the agent did not
//! record it: it is older, was killed, or had more changes than it records.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    bgp::listing::ListPage,
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{AddressReport, AnnouncementChange, AnnouncementRole},
};

/// Maximum number of events of all nodes, about 300 bytes each: 6 MB.
pub const EVENTS_KEPT_MAX: usize = 20_000;
/// Maximum number of events of one node, so that a node with many changes leaves room for other nodes.
pub const EVENTS_OF_NODE_MAX: usize = 1000;

/// Event of a load balancer address: a node began or ceased to announce it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressEvent {
    /// Number of the event in the order in which the server received the events. The numbers restart when the server
    /// restarts.
    pub id: u64,
    /// Time of the change of the role, by the clock of the node (RFC 3339, UTC). If the node only reports that it
    /// has no role any longer, time of that report by the clock of the server.
    pub time: Timestamp,
    /// Load balancer address whose announcing node changed.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Name of the node whose role changed.
    pub node: Name,
    /// Node that last began to announce the address before the time of this event. Absent if this server knows no other.
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

/// Time and number of an event: the order of the listing.
pub type AddressEventKey = (Timestamp, u64);

/// Recent changes of owners of all addresses.
#[derive(Debug, Default)]
pub(super) struct OwnerEvents {
    /// Events in the order of their times. `previous` is empty, because it depends on events that arrive later.
    all: BTreeMap<AddressEventKey, AddressEvent>,
    /// Keys of the events of each node.
    nodes: BTreeMap<Name, BTreeSet<AddressEventKey>>,
    /// Nodes that began to announce each address, by the key of the event. The last one is kept without its event.
    owners: BTreeMap<IpAddr, BTreeMap<AddressEventKey, Name>>,
    /// Nodes that announce each address according to their last event, with the time since which they do.
    announcing: BTreeMap<IpAddr, BTreeMap<Name, Timestamp>>,
    /// Last recorded change of each agent.
    journals: BTreeMap<Name, JournalPosition>,
    next: u64,
}

/// Last recorded change of an agent: identifier of the agent's start, and number of the change since then.
#[derive(Debug, Default)]
struct JournalPosition {
    boot_id: String,
    number: u64,
}

impl OwnerEvents {
    /// Adds the changes that an agent has recorded, except those that an earlier report contained.
    pub(super) fn apply_journal(&mut self, node: &Name, boot_id: &str, changes: Vec<AnnouncementChange>) {
        if changes.is_empty() {
            return;
        }
        let position = self.journals.entry(node.clone()).or_default();
        if position.boot_id != boot_id {
            *position = JournalPosition { boot_id: boot_id.to_owned(), number: 0 };
        }
        let known = position.number;
        position.number = changes.iter().map(|change| change.number).fold(known, u64::max);
        for change in changes.into_iter().filter(|change| change.number > known) {
            let AnnouncementChange { number: _, time, address, announces, reason } = change;
            if announces {
                self.begin(node, address, time, &reason);
            } else {
                self.end(node, address, time, &reason);
            }
        }
    }

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
        let since = self.announcing.get(&address).and_then(|nodes| nodes.get(node)).copied();
        match (before.filter(is_owner), after.filter(is_owner)) {
            // The node lost the address between two reports if the times differ.
            (_, Some(owner)) if since != Some(owner.since) => {
                self.begin(node, address, owner.since, &owner.reason);
            }
            (Some(_), None) if since.is_some() => {
                let (time, message) = after
                    .map_or((now, "the node no longer has a role for the address"), |report| {
                        (report.since, &*report.reason)
                    });
                self.end(node, address, time, message);
            }
            (None | Some(_), None | Some(_)) => {}
        }
    }

    fn begin(&mut self, node: &Name, address: IpAddr, time: Timestamp, message: &str) {
        self.announcing.entry(address).or_default().insert(node.clone(), time);
        let key = self.push(node, address, (time, AddressEventReason::Announced, message));
        let owners = self.owners.entry(address).or_default();
        owners.insert(key, node.clone());
        while owners.len() > 1
            && let Some(first) = owners.first_entry().filter(|first| !self.all.contains_key(first.key()))
        {
            first.remove();
        }
    }

    fn end(&mut self, node: &Name, address: IpAddr, time: Timestamp, message: &str) {
        if let Some(nodes) = self.announcing.get_mut(&address) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.announcing.remove(&address);
            }
        }
        self.push(node, address, (time, AddressEventReason::Withdrawn, message));
    }

    fn push(
        &mut self,
        node: &Name,
        address: IpAddr,
        (time, reason, message): (Timestamp, AddressEventReason, &str),
    ) -> AddressEventKey {
        let id = self.next;
        self.next += 1;
        let key = (time, id);
        let (name, message) = (node.clone(), message.to_owned());
        let event = AddressEvent { id, time, address, node: name, previous: None, reason, message };
        self.all.insert(key, event);
        let of_node = self.nodes.entry(node.clone()).or_default();
        of_node.insert(key);
        if of_node.len() > EVENTS_OF_NODE_MAX
            && let Some(oldest) = of_node.first().copied()
        {
            self.remove(oldest);
        }
        while self.all.len() > EVENTS_KEPT_MAX
            && let Some((oldest, _)) = self.all.first_key_value()
        {
            self.remove(*oldest);
        }
        key
    }

    /// Removes an event. The last node that began to announce its address remains known.
    fn remove(&mut self, key: AddressEventKey) {
        let Some(event) = self.all.remove(&key) else { return };
        if let Some(of_node) = self.nodes.get_mut(&event.node) {
            of_node.remove(&key);
        }
        if let Some(owners) = self.owners.get_mut(&event.address).filter(|owners| owners.len() > 1) {
            owners.remove(&key);
        }
    }

    /// Removes the events of nodes and addresses for which `has_node` or `has_address` returns false.
    pub(super) fn forget(&mut self, has_node: impl Fn(&Name) -> bool, has_address: impl Fn(IpAddr) -> bool) {
        self.owners.retain(|address, owners| {
            owners.retain(|_, node| has_node(node));
            has_address(*address) && !owners.is_empty()
        });
        self.announcing.retain(|address, nodes| {
            nodes.retain(|node, _| has_node(node));
            has_address(*address) && !nodes.is_empty()
        });
        self.journals.retain(|node, _| has_node(node));
        self.all.retain(|_, event| has_node(&event.node) && has_address(event.address));
        let all = &self.all;
        self.nodes.retain(|_, keys| {
            keys.retain(|key| all.contains_key(key));
            !keys.is_empty()
        });
    }

    /// Returns at most `limit` events, newest first; if `after` is given, only events older than the one with this
    /// key.
    pub(super) fn page(
        &self,
        wanted: &AddressEventFilter,
        after: Option<AddressEventKey>,
        limit: usize,
    ) -> ListPage<AddressEvent, AddressEventKey> {
        let AddressEventFilter { address, node } = wanted;
        let last = (Timestamp::from_unix_seconds(i64::MAX), u64::MAX);
        let mut found = self
            .all
            .range(..after.unwrap_or(last))
            .rev()
            .filter(|(_, event)| address.is_none_or(|address| address == event.address))
            .map(|(key, event)| AddressEvent { previous: self.previous(*key, event), ..event.clone() })
            .filter(|event| {
                let is_in = |node: &Name| *node == event.node || Some(node) == event.previous.as_ref();
                node.as_ref().is_none_or(is_in)
            });
        let items: Vec<_> = found.by_ref().take(limit).collect();
        let has_more = found.next().is_some();
        ListPage { more_after: items.last().map(AddressEvent::key).filter(|_| has_more), items }
    }

    /// Returns the other node that last began to announce the address before an event.
    fn previous(&self, key: AddressEventKey, event: &AddressEvent) -> Option<Name> {
        let (_, owner) = self.owners.get(&event.address)?.range(..key).next_back()?;
        (*owner != event.node).then(|| owner.clone())
    }
}

impl AddressEvent {
    /// Returns the key of the event in the order of the listing.
    #[must_use]
    pub const fn key(&self) -> AddressEventKey {
        (self.time, self.id)
    }
}
