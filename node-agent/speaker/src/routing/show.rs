//! Status of routes: combines the routing decisions with the Adj-RIB-Out of the neighbors. Only prefixes that
//! changed in either are updated. Routes of other nodes that this node reflects are counted in the status of the
//! sessions and not listed, because there are as many of them as routes times clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{events::Events, limit_message};
use imbl::{OrdMap, ordmap::DiffItem};
use ipnet::IpNet;
use model::{
    bgp::report::{BgpReport, BgpRoute, BgpSession, BgpSessionState, BgpTold, SESSIONS_MAX},
    kinds::event::{Event, EventReason},
    primitives::name::Name,
};
use tokio::sync::watch;

use super::{
    RoutingDecisions,
    decision::{Choice, Decision},
    words,
};
use crate::peering::{AdvertisedRoute, NeighborStatus, NeighborsStatus};

/// Status of routes and recent events; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RoutesStatus {
    /// Status of the routes by prefix.
    pub routes: OrdMap<IpNet, BgpRoute>,
    /// Recent session events, oldest first.
    pub events: Arc<Vec<Event>>,
}

/// Read access to the current status of routes and sessions.
#[derive(Debug, Clone)]
pub struct View {
    /// Receiver of the status of routes and recent events.
    pub routes: watch::Receiver<RoutesStatus>,
    decided: watch::Receiver<RoutingDecisions>,
    shown: watch::Receiver<NeighborsStatus>,
}

/// Starts the task that keeps the status of routes up to date until the sender of decisions is dropped.
pub fn start(decided: watch::Receiver<RoutingDecisions>, shown: watch::Receiver<NeighborsStatus>) -> View {
    let (publish, routes) = watch::channel(RoutesStatus::default());
    let view = View { routes, decided: decided.clone(), shown: shown.clone() };
    tokio::spawn(keep(decided, shown, publish));
    view
}

async fn keep(
    mut decided: watch::Receiver<RoutingDecisions>,
    mut shown: watch::Receiver<NeighborsStatus>,
    publish: watch::Sender<RoutesStatus>,
) {
    let mut board = Board::default();
    loop {
        let (next_decided, next_shown) =
            (decided.borrow_and_update().clone(), shown.borrow_and_update().clone());
        if board.follow(next_decided, next_shown) {
            publish.send_replace(RoutesStatus { routes: board.routes.clone(), events: board.events.all() });
        }
        let changed = tokio::select! {
            changed = decided.changed() => changed,
            changed = shown.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

impl View {
    /// Waits until routes or sessions have changed since the last call. Changes of session counters are
    /// ignored.
    pub async fn changed(&mut self) {
        let of_routes = self.routes.changed();
        let of_sessions = self.shown.changed();
        let changed = tokio::select! { changed = of_routes => changed, changed = of_sessions => changed };
        if changed.is_err() {
            // The senders are gone, so there are no further changes.
            std::future::pending::<()>().await;
        }
    }

    /// Returns the current sessions with their counters, or `None` without peers.
    #[must_use]
    pub fn report(&mut self) -> Option<BgpReport> {
        let bgp = self.decided.borrow().bgp.clone()?;
        let shown = self.shown.borrow_and_update().clone();
        let sessions = shown.neighbours.values().map(|neighbour| neighbour.session.clone());
        Some(BgpReport {
            asn: bgp.asn,
            router_id: bgp.router_id,
            sessions: sessions.take(SESSIONS_MAX).collect(),
            strangers: shown.strangers,
        })
    }

    /// Returns problems that do not prevent announcements.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.shown.borrow().faults.clone()
    }
}

/// Combined status of routes, with the decisions and sessions from which it was computed.
#[derive(Default)]
pub struct Board {
    decided: RoutingDecisions,
    shown: NeighborsStatus,
    routes: OrdMap<IpNet, BgpRoute>,
    events: Events,
}

impl Board {
    /// Updates the status from new decisions and session status. Returns true if it has changed.
    pub fn follow(&mut self, decided: RoutingDecisions, shown: NeighborsStatus) -> bool {
        let mut touched = BTreeSet::new();
        for difference in self.decided.decisions.diff(&decided.decisions) {
            touched.insert(*key_of(&difference));
        }
        let mut keys: BTreeSet<_> = self.shown.neighbours.keys().cloned().collect();
        keys.extend(shown.neighbours.keys().cloned());
        let mut has_events = false;
        for key in keys {
            let (before, after) = (self.shown.neighbours.get(&key), shown.neighbours.get(&key));
            has_events |= record(&mut self.events, before, after);
            if is_established(before) != is_established(after) || before.is_some() != after.is_some() {
                // The status of prefixes that are not advertised to the session depends on the session.
                let meant = decided.decisions.iter().filter(|(_, it)| it.peers.contains_key(&key.peer));
                touched.extend(meant.map(|(prefix, _)| *prefix));
            }
            let told = |neighbour: Option<&NeighborStatus>| {
                neighbour.map(|neighbour| neighbour.told.clone()).unwrap_or_default()
            };
            let (before, after) = (told(before), told(after));
            if !before.ptr_eq(&after) {
                let of_this_node = before.diff(&after).filter(|difference| !is_reflected(difference));
                touched.extend(of_this_node.map(|difference| *key_of(&difference)));
            }
        }
        (self.decided, self.shown) = (decided, shown);
        for prefix in &touched {
            match self.route(prefix) {
                Some(route) => self.routes.insert(*prefix, route),
                None => self.routes.remove(prefix),
            };
        }
        has_events || !touched.is_empty()
    }

    /// Returns recent session events, oldest first.
    pub fn events(&mut self) -> Arc<Vec<Event>> {
        self.events.all()
    }

    /// Returns the status of the routes by prefix.
    #[must_use]
    pub const fn routes(&self) -> &OrdMap<IpNet, BgpRoute> {
        &self.routes
    }

    /// Returns the status of a prefix, or `None` if no neighbor has the route and none is to receive it.
    fn route(&self, prefix: &IpNet) -> Option<BgpRoute> {
        let decision = self.decided.decisions.get(prefix).map(|decision| &**decision);
        let mut peers = BTreeMap::new();
        let mut met = BTreeSet::new();
        for (key, neighbour) in &self.shown.neighbours {
            met.insert(&key.peer);
            if let Some(told) = told(prefix, neighbour, choice(decision, &key.peer)) {
                peers.insert(key.to_string(), told);
            }
        }
        let unmet = decision.into_iter().flat_map(|it| &it.peers).filter(|(peer, _)| !met.contains(peer));
        for (peer, choice) in unmet {
            let text = match choice {
                Choice::Announce { .. } => "it has no session yet".to_owned(),
                Choice::Withhold(why) => why.clone(),
            };
            peers.insert(peer.to_string(), BgpTold { since: None, text: limit_message(text) });
        }
        if decision.is_none() && peers.is_empty() {
            return None;
        }
        let withheld = match decision {
            Some(decision) => decision.withheld.clone(),
            None => Some("no Advertisement of this node selects it any longer".to_owned()),
        };
        let addresses = decision.map(|decision| decision.addresses.clone()).unwrap_or_default();
        Some(BgpRoute { addresses, peers, withheld: withheld.map(limit_message) })
    }
}

fn key_of<'a, K, V>(difference: &DiffItem<'a, 'a, K, V>) -> &'a K {
    match difference {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) | DiffItem::Update { new: (key, _), .. } => key,
    }
}

/// Returns true if a neighbor got or lost a route of another node, which is no route of this node before or afterwards.
fn is_reflected(difference: &DiffItem<'_, '_, IpNet, AdvertisedRoute>) -> bool {
    match difference {
        DiffItem::Add(_, route) | DiffItem::Remove(_, route) => route.is_reflected(),
        DiffItem::Update { old: (_, old), new: (_, new) } => old.is_reflected() && new.is_reflected(),
    }
}

fn choice<'a>(decision: Option<&'a Decision>, peer: &Name) -> Option<&'a Choice> {
    decision.and_then(|decision| decision.peers.get(peer))
}

/// Returns the status of a route at a neighbor, or `None` if the neighbor does not have the route and is not
/// to receive it.
fn told(prefix: &IpNet, neighbour: &NeighborStatus, choice: Option<&Choice>) -> Option<BgpTold> {
    let note = match choice {
        Some(Choice::Announce { note, .. }) => note.as_deref(),
        Some(Choice::Withhold(_)) | None => None,
    };
    let own = neighbour.told.get(prefix).filter(|told| !told.is_reflected());
    let (since, text) = match (own, choice) {
        (Some(told), _) => (Some(told.since), words::attributes(&told.attributes)),
        (None, Some(Choice::Announce { .. })) => (None, words::untold(&neighbour.session)),
        (None, Some(Choice::Withhold(why))) => (None, why.clone()),
        (None, None) => return None,
    };
    let text = note.map_or_else(|| text.clone(), |note| format!("{text}; {note}"));
    Some(BgpTold { since, text: limit_message(text) })
}

fn is_established(neighbour: Option<&NeighborStatus>) -> bool {
    neighbour.is_some_and(|neighbour| neighbour.session.state == BgpSessionState::Established)
}

/// Records an event if a session was established or lost, or if an attempt failed with a new error. Returns
/// true if an event was recorded.
fn record(events: &mut Events, before: Option<&NeighborStatus>, after: Option<&NeighborStatus>) -> bool {
    let session = |neighbour: &NeighborStatus| words::session(&neighbour.session);
    let (reason, message) = match (before, after, is_established(before), is_established(after)) {
        (_, Some(after), false, true) => {
            (EventReason::BgpSessionUp, format!("the session with {} is established", session(after)))
        }
        // The session was lost and re-established between two observations.
        (Some(before), Some(after), true, true)
            if before.session.established != after.session.established =>
        {
            (EventReason::BgpSessionUp, format!("the session with {} is established again", session(after)))
        }
        (_, Some(after), true, false) => {
            let why = &after.session.reason;
            (EventReason::BgpSessionDown, format!("the session with {} is lost: {why}", session(after)))
        }
        (Some(before), None, true, _) => {
            (EventReason::BgpSessionDown, format!("the session with {} is ended", session(before)))
        }
        (Some(before), Some(after), false, false) => {
            let Some(why) = new_error(&before.session, &after.session) else { return false };
            let message = format!("the session with {} cannot be established: {why}", session(after));
            (EventReason::BgpSessionDown, message)
        }
        _ => return false,
    };
    events.record(reason, message);
    true
}

/// Returns the message of the last sent or received error of `after` that differs from the one of `before`,
/// or `None` if there is no new error.
fn new_error<'a>(before: &BgpSession, after: &'a BgpSession) -> Option<&'a str> {
    let pairs = [(&before.last_sent, &after.last_sent), (&before.last_received, &after.last_received)];
    let differs = pairs.into_iter().filter_map(|(before, after)| {
        let after = after.as_ref()?;
        let is_same = before.as_ref().is_some_and(|before| before.message == after.message);
        (!is_same).then_some(after.message.as_str())
    });
    differs.into_iter().next()
}
