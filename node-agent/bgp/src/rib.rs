//! What one neighbour should know of our routes and what it was told: its Adj-RIB-Out (RFC 4271 §3.2).
//!
//! ```text
//!              set(prefix, attributes)              begin · refresh
//!                       │                                  │ everything is owed
//!                       ▼                                  ▼
//!            wanted ≠ told, or owed ──▶ due ──▶ take ──▶ messages; what is in them counts as told
//! ```
//! What is due is found by prefix and by attributes, so that a change costs the logarithm of the table, and messages are
//! full: all prefixes of one message share its attributes, and one change is one message. What must not happen here: a
//! withdrawal before an announcement that replaces (RFC 4271 §3.1: an announcement withdraws what it replaces), and a
//! message for a prefix that is as the neighbour knows it.

mod due;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use self::due::{Entry, Phase, Session};
use crate::{
    attributes::Attributes,
    family::Family,
    message::{Message, Refresh, RefreshKind, Update},
    wire::{self, Context},
};

/// A ROUTE-REFRESH (RFC 2918 §3), in bytes.
const REFRESH_BYTES: usize = wire::HEADER_BYTES + 4;

/// The routes of one neighbour.
#[derive(Debug, Default)]
pub struct RibOut {
    entries: BTreeMap<IpNet, Entry>,
    told: usize,
    session: Option<Session>,
    is_end_held: bool,
}

/// What both sides agreed on, as far as routes depend on it.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Whose routes are exchanged.
    pub families: BTreeSet<Family>,
    /// How messages are written.
    pub context: Context,
    /// Whether answers to a refresh are framed (RFC 7313).
    pub enhanced_refresh: bool,
}

impl RibOut {
    /// Says with which attributes the neighbour is to know a prefix; `None`: not at all.
    pub fn set(&mut self, prefix: IpNet, wanted: Option<Arc<Attributes>>) {
        let prefix = prefix.trunc();
        let entry = self.entries.entry(prefix).or_default();
        if entry.wanted != wanted {
            entry.wanted = wanted;
            entry.is_too_long = false;
            if let Some(session) = &mut self.session {
                session.change(prefix, entry);
            }
        }
        if entry.is_forgotten() {
            self.entries.remove(&prefix);
        }
    }

    /// The session is established: the neighbour knows nothing, is told everything, and then that this was all, for every
    /// family (RFC 4724 §2), also when that was nothing.
    pub fn begin(&mut self, terms: Terms) {
        self.end();
        let mut session = Session::new(terms);
        for (prefix, entry) in &mut self.entries {
            session.owe(*prefix, entry);
        }
        self.session = Some(session);
    }

    /// The session is lost: what is wanted stays, and nothing counts as told.
    pub fn end(&mut self) {
        self.session = None;
        self.told = 0;
        self.entries.retain(|_, entry| {
            *entry = Entry { wanted: entry.wanted.take(), ..Entry::default() };
            !entry.is_forgotten()
        });
    }

    /// Keeps the End-of-RIB back, while what is wanted is not complete: a neighbour that kept routes of an earlier session
    /// drops those that it was not told again when it comes (RFC 4724 §4.2).
    pub const fn hold_end_of_rib(&mut self, is_held: bool) {
        self.is_end_held = is_held;
    }

    /// The neighbour asks for all routes of a family again (RFC 2918 §4, RFC 7313 §4). While it is being told all of them
    /// already, that is finished first.
    pub fn refresh(&mut self, family: Family) {
        let Some(session) = &mut self.session else { return };
        let Some(telling) = session.families.get_mut(&family) else { return };
        match telling.phase {
            Phase::Settled => self.answer(family),
            // RFC 7313 §4: the first table and its End-of-RIB come before any frame.
            Phase::Initial | Phase::Answering => telling.is_asked_again = true,
            // Nothing of the answer was sent yet.
            Phase::Asked => {}
        }
    }

    /// Messages to be sent next, in this order, until they have at least so many bytes together; one message exceeds that
    /// at most. What is in them counts as told.
    pub fn take(&mut self, bytes_max: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max {
            let Some((message, length)) = self.next_message() else { break };
            messages.push(message);
            bytes += length;
        }
        messages
    }

    /// Whether [`Self::take`] has something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.session.as_ref().is_some_and(|session| {
            let marks = || session.families.values().any(|telling| telling.is_mark_due(self.is_end_held));
            !session.withdrawals.is_empty() || !session.announcements.is_empty() || marks()
        })
    }

    /// With which attributes the neighbour was told of a prefix.
    #[must_use]
    pub fn told(&self, prefix: &IpNet) -> Option<&Arc<Attributes>> {
        self.entries.get(prefix).and_then(|entry| entry.told.as_ref())
    }

    /// Whether the neighbour cannot be told of a prefix, because the attributes do not fit into a message (RFC 4271 §9.2).
    #[must_use]
    pub fn is_too_long(&self, prefix: &IpNet) -> bool {
        self.entries.get(prefix).is_some_and(|entry| entry.is_too_long)
    }

    /// How many prefixes the neighbour was told of.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.told
    }

    /// Whether it was told of none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.told == 0
    }

    /// The prefixes that the neighbour is to know, and those that it was told of and is to know no longer.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.entries.keys()
    }

    fn next_message(&mut self) -> Option<(Message, usize)> {
        self.set_aside();
        self.mark().or_else(|| self.withdraw()).or_else(|| self.announce())
    }

    /// Everything of a family is to be told again.
    fn answer(&mut self, family: Family) {
        let Some(session) = &mut self.session else { return };
        let is_framed = session.terms.enhanced_refresh;
        if let Some(telling) = session.families.get_mut(&family) {
            telling.phase = if is_framed { Phase::Asked } else { Phase::Answering };
            telling.is_asked_again = false;
        }
        let of_family = self.entries.iter_mut().filter(|(prefix, _)| Family::of(prefix) == family);
        for (prefix, entry) in of_family {
            session.owe(*prefix, entry);
        }
    }

    /// What frames the routes of a family, when it is due.
    fn mark(&mut self) -> Option<(Message, usize)> {
        for family in Family::ALL {
            let Some(session) = &mut self.session else { return None };
            let is_framed = session.terms.enhanced_refresh;
            let Some(telling) = session.families.get_mut(&family) else { continue };
            if !telling.is_mark_due(self.is_end_held) {
                continue;
            }
            let refresh = |kind| Message::Refresh(Refresh { family: Some(family), kind });
            let (message, bytes, next) = match telling.phase {
                Phase::Settled => continue,
                Phase::Asked => (Some(refresh(RefreshKind::Begin)), REFRESH_BYTES, Phase::Answering),
                Phase::Answering => {
                    let end = is_framed.then(|| refresh(RefreshKind::End));
                    (end, REFRESH_BYTES, Phase::Settled)
                }
                Phase::Initial => {
                    let end = Update { end_of_rib: Some(family), ..Update::default() };
                    let bytes = wire::withdrawal_overhead(family);
                    (Some(Message::Update(Box::new(end))), bytes, Phase::Settled)
                }
            };
            telling.phase = next;
            if next == Phase::Settled && telling.is_asked_again {
                self.answer(family);
            }
            if let Some(message) = message {
                return Some((message, bytes));
            }
        }
        None
    }

    fn withdraw(&mut self) -> Option<(Message, usize)> {
        let session = self.session.as_mut()?;
        let family = Family::of(session.withdrawals.first()?);
        let mut bytes = wire::withdrawal_overhead(family);
        let mut withdrawn = Vec::new();
        while let Some(prefix) = session.withdrawals.first().copied() {
            let length = wire::prefix_bytes(&prefix);
            if Family::of(&prefix) != family || bytes + length > session.terms.context.message_bytes_max() {
                break;
            }
            session.withdrawals.remove(&prefix);
            bytes += length;
            withdrawn.push(prefix);
        }
        for prefix in &withdrawn {
            self.note(*prefix, None);
        }
        Some((Message::Update(Box::new(Update { withdrawn, ..Update::default() })), bytes))
    }

    fn announce(&mut self) -> Option<(Message, usize)> {
        let session = self.session.as_mut()?;
        let (group, mut left) = session.announcements.pop_first()?;
        let attributes = Arc::clone(&group.attributes);
        let mut bytes = wire::update_overhead(&attributes, group.family, &session.terms.context);
        let mut announced = Vec::new();
        while let Some(prefix) = left.first().copied() {
            let length = wire::prefix_bytes(&prefix);
            if bytes + length > session.terms.context.message_bytes_max() {
                break;
            }
            left.remove(&prefix);
            bytes += length;
            announced.push(prefix);
        }
        if !left.is_empty() {
            session.announcements.insert(group, left);
        }
        for prefix in &announced {
            self.note(*prefix, Some(Arc::clone(&attributes)));
        }
        let update = Update { announced, attributes: Some((*attributes).clone()), ..Update::default() };
        Some((Message::Update(Box::new(update)), bytes))
    }

    /// What was due of a prefix is told.
    fn note(&mut self, prefix: IpNet, told: Option<Arc<Attributes>>) {
        let entry = self.entries.entry(prefix).or_default();
        self.told += usize::from(told.is_some());
        self.told -= usize::from(std::mem::replace(&mut entry.told, told).is_some());
        entry.due = None;
        if let Some(session) = &mut self.session {
            session.pay(prefix, entry);
            session.settle(prefix, entry);
        }
        if entry.is_forgotten() {
            self.entries.remove(&prefix);
        }
    }

    /// Takes out what does not fit into a message even alone: it is withdrawn, if the neighbour knows it (RFC 8654 §4).
    fn set_aside(&mut self) {
        let Some(session) = &mut self.session else { return };
        while let Some(prefix) = session.too_long() {
            let entry = self.entries.entry(prefix).or_default();
            entry.is_too_long = true;
            session.settle(prefix, entry);
        }
    }
}
