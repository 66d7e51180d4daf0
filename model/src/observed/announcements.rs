//! What the agents say of their parts in load balancer addresses: who announces what, since when, and what they hear.
//!
//! A report names only what differs, so the last word of each node is kept here, up to [`PARTS_KEPT_MAX`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    kinds::address::Announcement,
    primitives::name::Name,
    wire::report::{AddressReport, AnnouncementRole},
};

/// Parts remembered, one for each node that has one in an address: some 300 bytes each, so 60 MB. Of more, nothing is
/// kept.
pub const PARTS_KEPT_MAX: usize = 200_000;

/// What a report says of its node's parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// Parts that differ from before.
    pub parts: BTreeMap<IpAddr, AddressReport>,
    /// Addresses in which the node has no part any longer.
    pub gone: BTreeSet<IpAddr>,
    /// Whether what `parts` does not name is gone as well.
    pub is_complete: bool,
}

/// What all agents have said.
#[derive(Debug, Default)]
pub struct AnnouncementBook {
    pages: BTreeMap<IpAddr, Page>,
    /// Which pages a node is on.
    nodes: BTreeMap<Name, BTreeSet<IpAddr>>,
    parts: usize,
    /// Counts up with everything that happens, to tell what came first.
    turn: u64,
    /// How often a node's word was not kept because [`PARTS_KEPT_MAX`] is reached.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Page {
    parts: BTreeMap<Name, Part>,
    /// When the order was last recorded.
    ordered_at: u64,
}

#[derive(Debug)]
struct Part {
    announced: AddressReport,
    /// When the node began to say that it owns the address.
    owner_since: Option<u64>,
}

impl AnnouncementBook {
    /// Takes what a node's agent reports; gives the addresses in which something changed that decisions depend on.
    pub fn take(&mut self, node: &Name, news: News) -> BTreeSet<IpAddr> {
        let News { parts, mut gone, is_complete } = news;
        if is_complete {
            let known = self.nodes.get(node).into_iter().flatten();
            gone.extend(known.filter(|address| !parts.contains_key(address)));
        }
        let mut changed = BTreeSet::new();
        for address in gone {
            if self.remove(node, address) {
                changed.insert(address);
            }
        }
        for (address, announced) in parts {
            if self.put(node, address, announced) {
                changed.insert(address);
            }
        }
        changed
    }

    fn put(&mut self, node: &Name, address: IpAddr, announced: AddressReport) -> bool {
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
        let is_news = before.is_none_or(|part| {
            (part.announced.role, part.announced.epoch) != (announced.role, announced.epoch)
        });
        let owned_before = before.and_then(|part| part.owner_since);
        let owner_since =
            (announced.role == AnnouncementRole::Owner).then(|| owned_before.unwrap_or(self.turn));
        parts.insert(node.clone(), Part { announced, owner_since });
        is_news
    }

    fn remove(&mut self, node: &Name, address: IpAddr) -> bool {
        if let Some(addresses) = self.nodes.get_mut(node) {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.nodes.remove(node);
            }
        }
        let Some(page) = self.pages.get_mut(&address) else { return false };
        let was_there = page.parts.remove(node).is_some();
        self.parts -= usize::from(was_there);
        was_there
    }

    /// Notes that an order was recorded: what agents did before counts no longer as a takeover.
    pub fn note_order(&mut self, address: IpAddr) {
        self.turn += 1;
        self.pages.entry(address).or_default().ordered_at = self.turn;
    }

    /// Forgets nodes and addresses that no longer exist.
    pub fn forget(&mut self, has_node: impl Fn(&Name) -> bool, has_address: impl Fn(IpAddr) -> bool) {
        self.nodes.retain(|node, addresses| {
            addresses.retain(|address| has_address(*address));
            has_node(node) && !addresses.is_empty()
        });
        self.pages.retain(|address, page| {
            page.parts.retain(|node, _| has_node(node));
            has_address(*address)
        });
        self.parts = self.pages.values().map(|page| page.parts.len()).sum();
    }

    /// What each node says of its part in an address.
    pub fn said(&self, address: IpAddr) -> impl Iterator<Item = (&Name, &AddressReport)> {
        let page = self.pages.get(&address);
        page.into_iter().flat_map(|page| page.parts.iter().map(|(node, part)| (node, &part.announced)))
    }

    /// The candidate behind the first that has begun to own the address under the recorded order, or a newer one.
    #[must_use]
    pub fn takeover(&self, address: IpAddr, order: &Announcement) -> Option<&Name> {
        let page = self.pages.get(&address)?;
        let first = &order.candidates.first()?.node;
        let is_candidate = |node: &Name| order.candidates.iter().any(|candidate| candidate.node == *node);
        let claims = page
            .parts
            .iter()
            .filter(|(node, part)| part.announced.epoch >= order.epoch && is_candidate(node));
        let newest = claims.filter_map(|(node, part)| Some((part.owner_since?, node))).max()?;
        (newest.0 > page.ordered_at && newest.1 != first).then_some(newest.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kinds::address::Candidate, primitives::quantity::Timestamp};

    const ADDRESS: &str = "192.0.2.7";

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn part(role: AnnouncementRole, epoch: u64) -> AddressReport {
        AddressReport {
            role,
            epoch,
            since: Timestamp::from_unix_seconds(0),
            reason: "as a test says".to_owned(),
            interfaces: Vec::new(),
            last_gratuitous: None,
            replies: 0,
            gratuitous: 0,
            conflict: None,
        }
    }

    fn say(book: &mut AnnouncementBook, node: &str, role: AnnouncementRole, epoch: u64) -> bool {
        let parts = BTreeMap::from([(ADDRESS.parse().unwrap(), part(role, epoch))]);
        !book.take(&name(node), News { parts, ..News::default() }).is_empty()
    }

    fn order(epoch: u64, nodes: &[&str]) -> Announcement {
        let candidate = |node: &&str| Candidate {
            node: name(node),
            address: ADDRESS.parse().unwrap(),
            interfaces: BTreeSet::new(),
        };
        Announcement { epoch, candidates: nodes.iter().map(candidate).collect(), ..Announcement::default() }
    }

    fn takeover(book: &AnnouncementBook, order: &Announcement) -> Option<String> {
        book.takeover(ADDRESS.parse().unwrap(), order).map(ToString::to_string)
    }

    #[test]
    fn who_began_to_own_last_has_taken_over_and_two_owners_do_not_alternate() {
        let mut book = AnnouncementBook::default();
        say(&mut book, "a", AnnouncementRole::Owner, 1);
        assert_eq!(takeover(&book, &order(1, &["a", "b"])), None, "the first owns");
        say(&mut book, "b", AnnouncementRole::Owner, 1);
        assert_eq!(takeover(&book, &order(1, &["a", "b"])).as_deref(), Some("b"));
        book.note_order(ADDRESS.parse().unwrap());
        say(&mut book, "a", AnnouncementRole::Owner, 2);
        say(&mut book, "b", AnnouncementRole::Owner, 2);
        assert_eq!(takeover(&book, &order(2, &["b", "a"])), None, "a goes on where it does not hear b");
    }

    #[test]
    fn words_about_an_older_order_take_nothing_over() {
        let mut book = AnnouncementBook::default();
        say(&mut book, "a", AnnouncementRole::Owner, 1);
        book.note_order(ADDRESS.parse().unwrap());
        assert_eq!(takeover(&book, &order(2, &["c", "a"])), None, "an older epoch");
        say(&mut book, "a", AnnouncementRole::Owner, 2);
        assert_eq!(
            takeover(&book, &order(2, &["c", "a"])),
            None,
            "it owned before the order, until c takes it"
        );
        say(&mut book, "a", AnnouncementRole::Standby, 2);
        say(&mut book, "a", AnnouncementRole::Owner, 2);
        assert_eq!(takeover(&book, &order(2, &["c", "a"])).as_deref(), Some("a"), "c went away meanwhile");
        assert_eq!(takeover(&book, &order(2, &["c", "d"])), None, "no candidate");
    }

    #[test]
    fn a_complete_report_replaces_and_deleted_nodes_are_forgotten() {
        let mut book = AnnouncementBook::default();
        assert!(
            say(&mut book, "a", AnnouncementRole::Owner, 1)
                && !say(&mut book, "a", AnnouncementRole::Owner, 1),
            "only news is news"
        );
        let complete = News { is_complete: true, ..News::default() };
        assert_eq!(book.take(&name("a"), complete.clone()).len(), 1);
        assert_eq!((book.said(ADDRESS.parse().unwrap()).count(), book.parts), (0, 0));
        assert!(book.take(&name("a"), complete).is_empty());
        say(&mut book, "a", AnnouncementRole::Owner, 1);
        book.forget(|_| false, |_| true);
        assert_eq!((book.said(ADDRESS.parse().unwrap()).count(), book.parts, book.nodes.len()), (0, 0, 0));
    }
}
