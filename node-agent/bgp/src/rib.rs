//! Adj-RIB-Out of one neighbor (RFC 4271 §3.2): desired routes and routes already sent.
//!
//! A prefix is *owed* if it must be sent even without a change: after the session is established (`begin`) or
//! after a refresh request of the neighbor. A prefix is *due* if it is owed or its desired and sent
//! attributes differ.
//! ```text
//!              set(prefix, attributes)              begin · refresh
//!                       │                                  │ everything is owed
//!                       ▼                                  ▼
//!         wanted ≠ sent, or owed ──▶ due ──▶ take ──▶ messages; their content counts as sent
//! ```
//! Due routes are indexed by prefix and by attributes, so that the cost of a change is logarithmic in the
//! number of routes, and messages are packed: all prefixes in a message share its attributes. Invariants: a
//! replaced route is announced without a preceding withdrawal (implicit withdrawal, RFC 4271 §3.1), and no
//! message is sent for an unchanged prefix.

mod due;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ipnet::IpNet;

use self::due::{Entry, EstablishedState, TransmissionPhase};
use crate::{
    attributes::Attributes,
    family::Family,
    message::{Message, Refresh, RefreshKind, Update},
    wire::{self, Context},
};

/// Size of a ROUTE-REFRESH message (RFC 2918 §3), in bytes.
const REFRESH_BYTES: usize = wire::HEADER_BYTES + 4;

/// Adj-RIB-Out of one neighbor: desired routes, and routes sent in the current session.
#[derive(Debug, Default)]
pub struct RibOut {
    entries: BTreeMap<IpNet, Entry>,
    told: usize,
    session: Option<EstablishedState>,
    is_end_held: bool,
}

/// Negotiated session properties that affect routes.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Negotiated address families; routes of other families are not sent.
    pub families: BTreeSet<Family>,
    /// Negotiated properties that determine the encoding and maximum size of messages.
    pub context: Context,
    /// True if Enhanced Route Refresh was negotiated (RFC 7313).
    pub enhanced_refresh: bool,
}

impl RibOut {
    /// Sets the desired attributes of a prefix; `None` withdraws the prefix.
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

    /// Starts to send all routes after the session was established, followed by the End-of-RIB marker of
    /// every family, even of families without routes (RFC 4724 §2).
    pub fn begin(&mut self, terms: Terms) {
        self.end();
        let mut session = EstablishedState::new(terms);
        for (prefix, entry) in &mut self.entries {
            session.owe(*prefix, entry);
        }
        self.session = Some(session);
    }

    /// Resets the record of sent routes after the session was lost. The desired routes are kept.
    pub fn end(&mut self) {
        self.session = None;
        self.told = 0;
        self.entries.retain(|_, entry| {
            *entry = Entry { wanted: entry.wanted.take(), ..Entry::default() };
            !entry.is_forgotten()
        });
    }

    /// Starts (true) or ends (false) a delay of the End-of-RIB marker, which must not be sent while the
    /// desired routes are incomplete: at the marker, a neighbor drops stale routes of the previous session
    /// that were not sent again (RFC 4724 §4.2).
    pub const fn hold_end_of_rib(&mut self, is_held: bool) {
        self.is_end_held = is_held;
    }

    /// Handles a request for all routes of a family (RFC 2918 §4, RFC 7313 §4). If all routes are already
    /// being sent, that transmission is finished first.
    pub fn refresh(&mut self, family: Family) {
        let Some(session) = &mut self.session else { return };
        let Some(telling) = session.families.get_mut(&family) else { return };
        match telling.phase {
            TransmissionPhase::Settled => self.answer(family),
            // RFC 7313 §4: the initial table and its End-of-RIB marker come before any demarcation.
            TransmissionPhase::Initial | TransmissionPhase::Answering => telling.is_asked_again = true,
            // No part of the response has been sent yet.
            TransmissionPhase::Asked => {}
        }
    }

    /// Returns the next messages in order, about `bytes_max` bytes in total: the last message may exceed this
    /// limit. The returned routes count as sent.
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

    /// Returns true if announcements, withdrawals, or End-of-RIB, `BoRR` or `EoRR` markers are pending.
    /// [`Self::take`] may nevertheless return no message, because a refresh without Enhanced Route Refresh
    /// ends without a marker.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.session.as_ref().is_some_and(|session| {
            let marks = || session.families.values().any(|telling| telling.is_mark_due(self.is_end_held));
            !session.withdrawals.is_empty() || !session.announcements.is_empty() || marks()
        })
    }

    /// Returns the attributes last sent for a prefix in this session, or `None` if the neighbor does not have
    /// it.
    #[must_use]
    pub fn told(&self, prefix: &IpNet) -> Option<&Arc<Attributes>> {
        self.entries.get(prefix).and_then(|entry| entry.told.as_ref())
    }

    /// Returns true if a prefix cannot be sent because its attributes exceed the message size (RFC 4271
    /// §9.2).
    #[must_use]
    pub fn is_too_long(&self, prefix: &IpNet) -> bool {
        self.entries.get(prefix).is_some_and(|entry| entry.is_too_long)
    }

    /// Returns the number of prefixes that the neighbor has received in this session and still has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.told
    }

    /// Returns true if the neighbor has no prefix of this session.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.told == 0
    }

    /// Returns all desired prefixes, and all sent prefixes that must still be withdrawn.
    pub fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.entries.keys()
    }

    fn next_message(&mut self) -> Option<(Message, usize)> {
        self.set_aside();
        self.mark().or_else(|| self.withdraw()).or_else(|| self.announce())
    }

    /// Starts to send all routes of a family again, in response to a refresh request.
    fn answer(&mut self, family: Family) {
        let Some(session) = &mut self.session else { return };
        let is_framed = session.terms.enhanced_refresh;
        if let Some(telling) = session.families.get_mut(&family) {
            telling.phase = if is_framed { TransmissionPhase::Asked } else { TransmissionPhase::Answering };
            telling.is_asked_again = false;
        }
        let of_family = self.entries.iter_mut().filter(|(prefix, _)| Family::of(prefix) == family);
        for (prefix, entry) in of_family {
            session.owe(*prefix, entry);
        }
    }

    /// Returns the next pending marker message (End-of-RIB, `BoRR` or `EoRR`) with its size in bytes, or
    /// `None` if no marker is pending.
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
                TransmissionPhase::Settled => continue,
                TransmissionPhase::Asked => {
                    (Some(refresh(RefreshKind::Begin)), REFRESH_BYTES, TransmissionPhase::Answering)
                }
                TransmissionPhase::Answering => {
                    let end = is_framed.then(|| refresh(RefreshKind::End));
                    (end, REFRESH_BYTES, TransmissionPhase::Settled)
                }
                TransmissionPhase::Initial => {
                    let end = Update { end_of_rib: Some(family), ..Update::default() };
                    let bytes = wire::withdrawal_overhead(family);
                    (Some(Message::Update(Box::new(end))), bytes, TransmissionPhase::Settled)
                }
            };
            telling.phase = next;
            if next == TransmissionPhase::Settled && telling.is_asked_again {
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

    /// Records that a route with the attributes `told` was sent for a prefix, or that it was withdrawn if
    /// `told` is `None`.
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

    /// Withholds pending routes whose attributes leave no room for a prefix in a message (`is_too_long`). If
    /// such a route was sent before, it is withdrawn (RFC 8654 §4).
    fn set_aside(&mut self) {
        let Some(session) = &mut self.session else { return };
        while let Some(prefix) = session.too_long() {
            let entry = self.entries.entry(prefix).or_default();
            entry.is_too_long = true;
            session.settle(prefix, entry);
        }
    }
}
