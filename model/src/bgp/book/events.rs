//! Ring buffer of BGP session events from two sources: events listed by agents, and differences between successive
//! reports.
//!
//! An agent's own event describes the cause best, but agents list few events, and an event has no field for its
//! session. A difference between reports identifies the session. An event found in both sources is stored once.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

use crate::{
    bgp::{
        listing::BgpEvent,
        report::{BgpReport, BgpSession},
    },
    kinds::event::{Event, EventReason},
    primitives::{name::Name, quantity::Timestamp},
};

/// Maximum number of events of all nodes, about 500 bytes each: 10 MB.
pub const EVENTS_KEPT_MAX: usize = 20_000;
/// Maximum number of events of one node, so that a flapping session leaves room for other nodes.
pub const EVENTS_OF_NODE_MAX: usize = 500;
/// Maximum difference in seconds between the timestamps of a session state and of an agent's event that describe
/// the same occurrence.
const SAME_WITHIN_SECS: i64 = 2;

/// Recent BGP events of all nodes.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Events by number; newer events have higher numbers.
    all: BTreeMap<u64, BgpEvent>,
    nodes: BTreeMap<Name, NodeEvents>,
    next: u64,
}

#[derive(Debug, Default)]
struct NodeEvents {
    numbers: VecDeque<u64>,
    /// Events in the agent's last report, by which the new events in the next report are recognized.
    listed: Vec<Event>,
}

/// Event of a session before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionEvent {
    time: Timestamp,
    peer: Option<Name>,
    address: Option<IpAddr>,
    reason: EventReason,
    message: String,
    count: u64,
}

impl Events {
    /// Applies a report of a node: adds the new events in `listed`, which the agent itself reports, and
    /// events derived from the differences between its previous report `before` and this report `after`.
    pub(super) fn apply(
        &mut self,
        node: &Name,
        before: Option<&BgpReport>,
        after: Option<&BgpReport>,
        mut listed: Vec<Event>,
        now: Timestamp,
    ) {
        listed
            .retain(|event| matches!(event.reason, EventReason::BgpSessionUp | EventReason::BgpSessionDown));
        let before = before.map_or(&[][..], |report| &report.sessions);
        let after = after.map_or(&[][..], |report| &report.sessions);
        let earlier = self.nodes.get(node).map_or(&[][..], |of_node| &of_node.listed);
        let fresh = listed.iter().filter(|event| !earlier.contains(event));
        let mut news: Vec<_> = fresh.map(|event| from_agent(event, || before.iter().chain(after))).collect();
        for happened in differences(before, after, now) {
            if !news.iter().any(|listed| listed.is_about_the_same(&happened)) {
                news.push(happened);
            }
        }
        news.sort_by_key(|happened| happened.time);
        for happened in news {
            if !self.is_known(node, &happened) {
                self.push(node, happened);
            }
        }
        if let Some(of_node) = self.nodes.get_mut(node) {
            of_node.listed = listed;
        } else if !listed.is_empty() {
            self.nodes.insert(node.clone(), NodeEvents { listed, numbers: VecDeque::new() });
        }
    }

    fn is_known(&self, node: &Name, happened: &SessionEvent) -> bool {
        let numbers = self.nodes.get(node).into_iter().flat_map(|of_node| &of_node.numbers);
        let mut events = numbers.rev().filter_map(|number| self.all.get(number));
        events.any(|event| {
            let apart = event.time.unix_seconds().abs_diff(happened.time.unix_seconds());
            (event.reason, &event.peer) == (happened.reason, &happened.peer)
                && apart <= SAME_WITHIN_SECS.unsigned_abs()
                && (event.address.is_none()
                    || happened.address.is_none()
                    || event.address == happened.address)
                && (event.peer.is_some() || event.message == happened.message)
        })
    }

    fn push(&mut self, node: &Name, mut happened: SessionEvent) {
        if let Some(before) = self.remove_repeated(node, &happened) {
            happened.count = happened.count.max(before.count.saturating_add(1));
        }
        let SessionEvent { time, peer, address, reason, message, count } = happened;
        let id = self.next;
        self.next += 1;
        let event = BgpEvent { id, time, node: node.clone(), peer, address, reason, message, count };
        self.all.insert(id, event);
        let of_node = self.nodes.entry(node.clone()).or_default();
        of_node.numbers.push_back(id);
        if of_node.numbers.len() > EVENTS_OF_NODE_MAX
            && let Some(oldest) = of_node.numbers.pop_front()
        {
            self.all.remove(&oldest);
        }
        while self.all.len() > EVENTS_KEPT_MAX
            && let Some((_, oldest)) = self.all.pop_first()
        {
            // The oldest event of all is also the oldest one of its node.
            if let Some(of_node) = self.nodes.get_mut(&oldest.node) {
                of_node.numbers.pop_front();
            }
        }
    }

    /// Removes and returns the newest stored event of a session if it has the same reason and message as the
    /// new event. The caller then stores a single event with a higher count, so that a session that fails
    /// repeatedly does not displace all other events.
    fn remove_repeated(&mut self, node: &Name, happened: &SessionEvent) -> Option<BgpEvent> {
        let of_node = self.nodes.get_mut(node)?;
        let of_session = |number: &u64| {
            let event = self.all.get(number);
            event.is_some_and(|event| (&event.peer, event.address) == (&happened.peer, happened.address))
        };
        let at = of_node.numbers.iter().rposition(of_session)?;
        let newest = self.all.get(of_node.numbers.get(at)?)?;
        if (newest.reason, &newest.message) != (happened.reason, &happened.message) {
            return None;
        }
        self.all.remove(&of_node.numbers.remove(at)?)
    }

    /// Returns the events, newest first.
    pub(super) fn newest_first(&self) -> impl DoubleEndedIterator<Item = &BgpEvent> {
        self.all.values().rev()
    }

    /// Removes the events of nodes for which `has_node` returns false.
    pub(super) fn forget(&mut self, has_node: impl Fn(&Name) -> bool) {
        self.nodes.retain(|node, _| has_node(node));
        let nodes = &self.nodes;
        self.all.retain(|_, event| nodes.contains_key(&event.node));
    }
}

impl SessionEvent {
    /// Returns true if an event that the agent listed and one derived from session states describe the same
    /// occurrence.
    fn is_about_the_same(&self, other: &Self) -> bool {
        let has_address = self.address.is_some() && other.address.is_some();
        (self.reason, &self.peer) == (other.reason, &other.peer)
            && (!has_address || self.address == other.address)
    }
}

/// Converts an event listed by an agent, and determines the session from the text of its message.
fn from_agent<'a, S: Iterator<Item = &'a BgpSession>>(
    event: &Event,
    sessions: impl Fn() -> S,
) -> SessionEvent {
    let Event { time, reason, message, count } = event;
    let words = || {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        message.split(move |c| !is_of_name(c)).map(|word| word.trim_matches(['-', '.']))
    };
    let peer = words().find_map(|word| {
        let of_word = sessions().find(|session| session.peer.as_str() == word)?;
        Some(of_word.peer.clone())
    });
    let addresses = || {
        let is_of_address = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '.');
        message
            .split(move |c| !is_of_address(c))
            .filter_map(|word| word.trim_end_matches([':', '.']).parse().ok())
    };
    let is_named = |address: IpAddr| addresses().any(|named: IpAddr| named == address);
    let of_peer = sessions().filter(|session| peer.as_ref() == Some(&session.peer));
    let address = of_peer.filter_map(|session| session.address).find(|address| is_named(*address));
    SessionEvent { time: *time, peer, address, reason: *reason, message: message.clone(), count: *count }
}

/// Derives session events from the differences between two successive reports of the sessions.
fn differences(before: &[BgpSession], after: &[BgpSession], now: Timestamp) -> Vec<SessionEvent> {
    let mut found = Vec::new();
    for session in after {
        let earlier = before.iter().find(|earlier| is_same(earlier, session));
        let was_up = earlier.is_some_and(BgpSession::is_established);
        let is_other = earlier.is_some_and(|earlier| earlier.since != session.since);
        match (was_up, session.is_established()) {
            (true, false) => found.push(happened(session, EventReason::BgpSessionDown, &session.reason)),
            (true, true) if is_other => {
                found.push(happened(session, EventReason::BgpSessionDown, &interruption(session)));
                found.push(happened(session, EventReason::BgpSessionUp, &session.reason));
            }
            (false, true) => found.push(happened(session, EventReason::BgpSessionUp, &session.reason)),
            (true, true) | (false, false) => {}
        }
    }
    for gone in before.iter().filter(|gone| !after.iter().any(|session| is_same(gone, session))) {
        if gone.is_established() {
            let message = "the session was removed from the node";
            found.push(SessionEvent { time: now, ..happened(gone, EventReason::BgpSessionDown, message) });
        }
    }
    found
}

/// Returns true if two reports describe the same session: equal peer, and equal addresses unless one of them is
/// unknown, as it may be for an unnumbered peer.
fn is_same(a: &BgpSession, b: &BgpSession) -> bool {
    a.peer == b.peer && (a.address == b.address || a.address.is_none() || b.address.is_none())
}

fn happened(session: &BgpSession, reason: EventReason, message: &str) -> SessionEvent {
    SessionEvent {
        time: session.since,
        peer: Some(session.peer.clone()),
        address: session.address,
        reason,
        message: message.to_owned(),
        count: 1,
    }
}

/// Describes the interruption of a session that was established again before the next report, with the newest
/// NOTIFICATION that was sent or received, if any.
fn interruption(session: &BgpSession) -> String {
    let errors = [("sent", &session.last_sent), ("received", &session.last_received)];
    let newest = errors.iter().filter_map(|(how, error)| Some((error.as_ref()?, how)));
    match newest.max_by_key(|(error, _)| error.at) {
        Some((error, how)) => format!("interrupted between two reports; last {how}: {}", error.message),
        None => "interrupted between two reports".to_owned(),
    }
}
