//! Announcement states of load balancer addresses, as reported by the agents: a node owns an address
//! (announces it), is a standby, or holds the announcement back.
//!
//! An agent reports only changes, so the last state of each address on each node is stored here, up to
//! [`PARTS_KEPT_MAX`] states.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

mod events;

use self::events::OwnerEvents;
pub use self::events::{
    AddressEvent, AddressEventFilter, AddressEventKey, AddressEventReason, EVENTS_KEPT_MAX,
    EVENTS_OF_NODE_MAX,
};
use crate::{
    bgp::listing::ListPage,
    kinds::address::{Announcement, Candidate},
    primitives::{name::Name, quantity::Timestamp},
    wire::report::{AddressReport, AnnouncementChange, AnnouncementRole},
};

/// Maximum number of stored states, one for each node and address. A state has about 300 bytes, so all have
/// at most 60 MB. Further states are not stored.
pub const PARTS_KEPT_MAX: usize = 200_000;

/// Maximum number of previous owners that are stored for each address.
const PREVIOUS_KEPT_MAX: usize = 4;
/// Time after the end of its order for which announcements of a previous owner are expected, in seconds: it repeats
/// them until it receives the order, and the clocks of nodes and control server differ.
const PREVIOUS_ANNOUNCES_SECS: i64 = 30;

/// Announcement states in one report of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnnouncementUpdate {
    /// Announcement states by address that changed since the previous report.
    pub parts: BTreeMap<IpAddr, AddressReport>,
    /// Addresses for which the node no longer has a role: owner, standby, or first candidate that holds the
    /// announcement back.
    pub gone: BTreeSet<IpAddr>,
    /// True if `parts` replaces all states that the node reported before, false if it contains only changes.
    pub is_complete: bool,
    /// Changes of announcing nodes that the agent recorded, oldest first. May repeat those of earlier reports.
    pub changes: Vec<AnnouncementChange>,
    /// Identifier of the agent's start, since which the changes are numbered.
    pub boot_id: String,
}

/// Last reported announcement state of each address on each node.
#[derive(Debug, Default)]
pub struct AnnouncementBook {
    pages: BTreeMap<IpAddr, AddressReports>,
    /// Addresses for which each node has a stored state.
    nodes: BTreeMap<Name, BTreeSet<IpAddr>>,
    parts: usize,
    /// Logical clock, increased by each report, by each reported state and by each candidate order that the server
    /// records.
    turn: u64,
    /// Logical time of the last report of each node.
    reported_at: BTreeMap<Name, u64>,
    events: OwnerEvents,
    /// Number of states that were not stored because [`PARTS_KEPT_MAX`] was reached.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct AddressReports {
    parts: BTreeMap<Name, ReportedState>,
    /// Logical time at which the control server last recorded a new candidate order.
    ordered_at: u64,
    /// Previous first candidates of the recorded orders, each with the time at which another one replaced it,
    /// newest last; at most [`PREVIOUS_KEPT_MAX`].
    previous: Vec<(Name, Timestamp)>,
}

#[derive(Debug)]
struct ReportedState {
    announced: AddressReport,
    /// Logical time since which the node reports that it owns the address.
    owner_since: Option<u64>,
}

impl AnnouncementBook {
    /// Stores the announcement states, one for each address, that a node's agent reports. Returns the
    /// addresses for which the node now reports another role or another epoch: the version of the candidate
    /// order (the nodes that may announce the address, in order of rank). `now` is the time of the report.
    pub fn apply(&mut self, node: &Name, news: AnnouncementUpdate, now: Timestamp) -> BTreeSet<IpAddr> {
        let AnnouncementUpdate { parts, mut gone, is_complete, changes, boot_id } = news;
        self.events.apply_journal(node, &boot_id, changes);
        self.turn += 1;
        self.reported_at.insert(node.clone(), self.turn);
        if is_complete {
            let known = self.nodes.get(node).into_iter().flatten();
            gone.extend(known.filter(|address| !parts.contains_key(address)));
        }
        let mut changed = BTreeSet::new();
        for address in gone {
            if self.remove(node, address, now) {
                changed.insert(address);
            }
        }
        for (address, announced) in parts {
            if self.put(node, address, announced, now) {
                changed.insert(address);
            }
        }
        changed
    }

    fn put(&mut self, node: &Name, address: IpAddr, announced: AddressReport, now: Timestamp) -> bool {
        let is_known = self.nodes.get(node).is_some_and(|addresses| addresses.contains(&address));
        if !is_known {
            if self.parts >= PARTS_KEPT_MAX {
                self.refused += 1;
                return false;
            }
            self.parts += 1;
            self.nodes.entry(node.clone()).or_default().insert(address);
        }
        self.turn += 1;
        let parts = &mut self.pages.entry(address).or_default().parts;
        let before = parts.get(node);
        let roles = (before.map(|part| &part.announced), Some(&announced));
        self.events.apply(node, address, roles, now);
        let is_news = before.is_none_or(|part| {
            (part.announced.role, part.announced.epoch) != (announced.role, announced.epoch)
        });
        let owned_before = before.and_then(|part| part.owner_since);
        let owner_since =
            (announced.role == AnnouncementRole::Owner).then(|| owned_before.unwrap_or(self.turn));
        parts.insert(node.clone(), ReportedState { announced, owner_since });
        is_news
    }

    fn remove(&mut self, node: &Name, address: IpAddr, now: Timestamp) -> bool {
        if let Some(addresses) = self.nodes.get_mut(node) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.nodes.remove(node);
            }
        }
        let Some(page) = self.pages.get_mut(&address) else { return false };
        let Some(gone) = page.parts.remove(node) else { return false };
        self.parts -= 1;
        self.events.apply(node, address, (Some(&gone.announced), None), now);
        true
    }

    /// Records that the server has written a new candidate order for an address at `now`, and the first candidate
    /// of the previous order. From then on, a node that became owner before the new order no longer counts as
    /// having taken over the address.
    pub fn record_order(&mut self, address: IpAddr, previous: Option<&Name>, now: Timestamp) {
        self.turn += 1;
        let page = self.pages.entry(address).or_default();
        page.ordered_at = self.turn;
        if let Some(previous) = previous {
            page.previous.retain(|(node, _)| node != previous);
            page.previous.push((previous.clone(), now));
            let surplus = page.previous.len().saturating_sub(PREVIOUS_KEPT_MAX);
            page.previous.drain(..surplus);
        }
    }

    /// Returns true if the control server had ordered a node to announce an address, so that announcements of the
    /// node at the time `at` are expected.
    #[must_use]
    pub fn was_ordered(&self, address: IpAddr, node: &Name, at: Timestamp) -> bool {
        let previous = self.pages.get(&address).map(|page| &*page.previous).unwrap_or_default();
        let expected_until = |ended: Timestamp| ended.unix_seconds().saturating_add(PREVIOUS_ANNOUNCES_SECS);
        previous.iter().any(|(name, ended)| name == node && at.unix_seconds() <= expected_until(*ended))
    }

    /// Removes the states of nodes and addresses for which `has_node` or `has_address` returns false.
    pub fn forget(&mut self, has_node: impl Fn(&Name) -> bool, has_address: impl Fn(IpAddr) -> bool) {
        self.nodes.retain(|node, addresses| {
            addresses.retain(|address| has_address(*address));
            has_node(node) && !addresses.is_empty()
        });
        self.pages.retain(|address, page| {
            page.parts.retain(|node, _| has_node(node));
            page.previous.retain(|(node, _)| has_node(node));
            has_address(*address)
        });
        self.parts = self.pages.values().map(|page| page.parts.len()).sum();
        self.reported_at.retain(|node, _| has_node(node));
        self.events.forget(has_node, has_address);
    }

    /// Returns at most `limit` changes of owners, newest first; if `after` is given, only events older than the one
    /// with this key.
    #[must_use]
    pub fn events(
        &self,
        wanted: &AddressEventFilter,
        after: Option<AddressEventKey>,
        limit: usize,
    ) -> ListPage<AddressEvent, AddressEventKey> {
        self.events.page(wanted, after, limit)
    }

    /// Returns the reported state of an address on each node.
    pub fn reported(&self, address: IpAddr) -> impl Iterator<Item = (&Name, &AddressReport)> {
        let page = self.pages.get(&address);
        page.into_iter().flat_map(|page| page.parts.iter().map(|(node, part)| (node, &part.announced)))
    }

    /// Returns the role that a node reports for an address while it follows a candidate order of at least `epoch`.
    #[must_use]
    pub fn role(&self, address: IpAddr, node: &Name, epoch: u64) -> Option<AnnouncementRole> {
        let announced = &self.pages.get(&address)?.parts.get(node)?.announced;
        (announced.epoch >= epoch).then_some(announced.role)
    }

    /// Returns true if the candidate `successor` became owner of an address after the last report of `node`. The
    /// candidates monitor each other, so the successor knows about a failure of `node` before the lease of that node
    /// expires. A node that still announces reports again, at the latest with its next heartbeat.
    #[must_use]
    pub fn has_succeeded(&self, address: IpAddr, successor: &Name, node: &Name) -> bool {
        let state = self.pages.get(&address).and_then(|page| page.parts.get(successor));
        let owner_since = state.and_then(|state| state.owner_since);
        let reported_at = self.reported_at.get(node).copied().unwrap_or_default();
        successor != node && owner_since.is_some_and(|since| since > reported_at)
    }

    /// Returns the candidates, other than the first one of `order`, that claim an address, in the order of
    /// their rank. A candidate claims the address if it became owner since the order was recorded, while it
    /// followed this order or a newer one.
    pub fn claims<'a>(
        &'a self,
        address: IpAddr,
        order: &'a Announcement,
    ) -> impl Iterator<Item = &'a Candidate> {
        let page = self.pages.get(&address);
        let claims = move |candidate: &&Candidate| {
            let state = page.and_then(|page| Some((page, page.parts.get(&candidate.node)?)));
            state.is_some_and(|(page, state)| {
                state.announced.epoch >= order.epoch
                    && state.owner_since.is_some_and(|since| since > page.ordered_at)
            })
        };
        order.candidates.iter().skip(1).filter(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "192.0.2.7";

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn part(role: AnnouncementRole, epoch: u64) -> AddressReport {
        AddressReport {
            role,
            epoch,
            since: Timestamp::from_unix_seconds(0),
            reason: "test".to_owned(),
            interfaces: Vec::new(),
            last_gratuitous: None,
            replies: 0,
            gratuitous: 0,
            conflict: None,
        }
    }

    fn report(book: &mut AnnouncementBook, node: &str, role: AnnouncementRole, epoch: u64) -> bool {
        let parts = BTreeMap::from([(ADDRESS.parse().unwrap(), part(role, epoch))]);
        let update = AnnouncementUpdate { parts, ..AnnouncementUpdate::default() };
        !book.apply(&name(node), update, Timestamp::from_unix_seconds(0)).is_empty()
    }

    fn order(epoch: u64, nodes: &[&str]) -> Announcement {
        let candidate = |node: &&str| Candidate {
            node: name(node),
            address: ADDRESS.parse().unwrap(),
            interfaces: BTreeSet::new(),
            peer_public_key: None,
        };
        Announcement { epoch, candidates: nodes.iter().map(candidate).collect(), ..Announcement::default() }
    }

    fn claims(book: &AnnouncementBook, order: &Announcement) -> Vec<String> {
        book.claims(ADDRESS.parse().unwrap(), order).map(|candidate| candidate.node.to_string()).collect()
    }

    #[test]
    fn candidates_that_became_owner_since_the_order_claim_the_address_in_the_order_of_their_rank() {
        let mut book = AnnouncementBook::default();
        report(&mut book, "a", AnnouncementRole::Owner, 1);
        assert_eq!(claims(&book, &order(1, &["a", "b", "c"])), [""; 0], "the first owns");
        report(&mut book, "c", AnnouncementRole::Owner, 1);
        report(&mut book, "b", AnnouncementRole::Owner, 1);
        assert_eq!(claims(&book, &order(1, &["a", "b", "c"])), ["b", "c"]);
        book.record_order(ADDRESS.parse().unwrap(), None, Timestamp::from_unix_seconds(0));
        report(&mut book, "a", AnnouncementRole::Owner, 2);
        report(&mut book, "b", AnnouncementRole::Owner, 2);
        assert_eq!(
            claims(&book, &order(2, &["b", "a"])),
            [""; 0],
            "a continues while it does not receive announcements of b"
        );
    }

    #[test]
    fn states_under_an_older_order_are_no_claims() {
        let mut book = AnnouncementBook::default();
        report(&mut book, "a", AnnouncementRole::Owner, 1);
        book.record_order(ADDRESS.parse().unwrap(), None, Timestamp::from_unix_seconds(0));
        assert_eq!(claims(&book, &order(2, &["c", "a"])), [""; 0], "an older epoch");
        report(&mut book, "a", AnnouncementRole::Owner, 2);
        assert_eq!(claims(&book, &order(2, &["c", "a"])), [""; 0], "it became owner before the order");
        report(&mut book, "a", AnnouncementRole::Standby, 2);
        report(&mut book, "a", AnnouncementRole::Owner, 2);
        assert_eq!(claims(&book, &order(2, &["c", "a"])), ["a"], "c has failed in between");
        assert_eq!(claims(&book, &order(2, &["c", "d"])), [""; 0], "no candidate");
        let role = |epoch| book.role(ADDRESS.parse().unwrap(), &name("a"), epoch);
        assert_eq!((role(2), role(3)), (Some(AnnouncementRole::Owner), None));
    }

    #[test]
    fn a_complete_report_replaces_and_deleted_nodes_are_removed() {
        let mut book = AnnouncementBook::default();
        assert!(
            report(&mut book, "a", AnnouncementRole::Owner, 1)
                && !report(&mut book, "a", AnnouncementRole::Owner, 1),
            "an unchanged state is no change"
        );
        let complete = AnnouncementUpdate { is_complete: true, ..AnnouncementUpdate::default() };
        let now = Timestamp::from_unix_seconds(0);
        assert_eq!(book.apply(&name("a"), complete.clone(), now).len(), 1);
        assert_eq!((book.reported(ADDRESS.parse().unwrap()).count(), book.parts), (0, 0));
        assert!(book.apply(&name("a"), complete, now).is_empty());
        report(&mut book, "a", AnnouncementRole::Owner, 1);
        book.forget(|_| false, |_| true);
        assert_eq!(
            (book.reported(ADDRESS.parse().unwrap()).count(), book.parts, book.nodes.len()),
            (0, 0, 0)
        );
    }
}
