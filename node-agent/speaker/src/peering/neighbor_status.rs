//! Records the status of one neighbor for reports and the status server.

use std::net::IpAddr;

use ::bgp::{
    Message, Notification,
    capability::Capability,
    session::{Down, NegotiatedSession, Session, State},
    wire::DecodedMessage,
};
use model::{
    bgp::report::{BGP_TEXT_BYTES_MAX, BgpCounters, BgpError, BgpNegotiated, BgpSession, BgpSessionState},
    primitives::quantity::Timestamp,
};
use tokio::sync::watch;
use tracing::info;

use super::{
    reflection::Reflection,
    routes::NeighborRoutes,
    settings::Settings,
    status::{self, NeighborStatus, NeighborsStatus, NeighbourKey},
    words,
};

/// Maximum length of a reported host name, in bytes.
const HOST_NAME_BYTES_MAX: usize = 255;

/// Status of a neighbor in addition to the session state: addresses, counters, times and last errors.
#[derive(Debug)]
pub(super) struct StatusRecorder {
    key: NeighbourKey,
    board: watch::Sender<NeighborsStatus>,
    pub(super) address: Option<IpAddr>,
    /// BFD state of the path to the neighbor as text; `None` without BFD.
    pub(super) bfd: Option<String>,
    /// Reason why the neighbor cannot connect, such as a failed listening socket; `None` if there is no
    /// obstacle.
    pub(super) door_fault: Option<String>,
    pub(super) counters: BgpCounters,
    /// Number of TCP segments with an invalid MD5 signature when the session was last established.
    md5_failures_before: u64,
    /// Reason why no connection is attempted yet, for example because no router was discovered on an
    /// unnumbered link; `None` if nothing delays the attempt.
    waiting: Option<&'static str>,
    state: State,
    since: Timestamp,
    established: u64,
    last_sent: Option<BgpError>,
    last_received: Option<BgpError>,
}

impl StatusRecorder {
    pub(super) fn new(key: NeighbourKey, settings: &Settings, board: watch::Sender<NeighborsStatus>) -> Self {
        let address = match &settings.place {
            super::settings::Place::Address(address) => Some(*address),
            super::settings::Place::Interface(_) => None,
        };
        Self {
            key,
            board,
            address,
            bfd: None,
            door_fault: None,
            counters: BgpCounters::default(),
            md5_failures_before: 0,
            waiting: None,
            state: State::Idle,
            since: status::now(),
            established: 0,
            last_sent: None,
            last_received: None,
        }
    }

    pub(super) const fn wait(&mut self, what: &'static str) {
        self.waiting = Some(what);
    }

    pub(super) const fn go_on(&mut self) {
        self.waiting = None;
    }

    pub(super) fn received(&mut self, result: &Result<DecodedMessage, Notification>) {
        self.counters.messages_received += 1;
        let Ok(DecodedMessage { message, faults }) = result else { return };
        self.counters.attribute_errors += faults.len() as u64;
        match message {
            Message::Update(_) => self.counters.updates_received += 1,
            Message::Notification(notification) => self.last_received = Some(error(notification)),
            Message::Open(_) | Message::Keepalive | Message::Refresh(_) => {}
        }
    }

    pub(super) fn sent(&mut self, message: &Message) {
        self.counters.messages_sent += 1;
        match message {
            Message::Update(_) => self.counters.updates_sent += 1,
            Message::Notification(notification) => self.last_sent = Some(error(notification)),
            Message::Open(_) | Message::Keepalive | Message::Refresh(_) => {}
        }
    }

    pub(super) fn established(&mut self, negotiated: &NegotiatedSession) {
        self.established += 1;
        self.md5_failures_before = self.counters.md5_failures;
        let asn = negotiated.peer_asn;
        info!(neighbour = %self.key, asn, "BGP session is established");
    }

    pub(super) fn down(&self, down: &Down) {
        let Down { why, sent: _, received: _, peer_keeps_routes } = down;
        info!(neighbour = %self.key, why, peer_keeps_routes, "BGP session is down");
    }

    pub(super) fn entered(&mut self, state: State) {
        (self.state, self.since) = (state, status::now());
    }

    /// Publishes the status of the neighbor. Receivers are notified if anything other than counters has
    /// changed.
    pub(super) fn show(
        &mut self,
        session: &Session,
        settings: &Settings,
        routes: &NeighborRoutes,
        reflection: &Reflection,
    ) {
        self.counters.prefixes_sent = routes.told().len() as u64;
        self.counters.prefixes_received = session.prefixes().number().into();
        self.counters.prefixes_reflected = reflection.count() as u64;
        let report = self.report(session, settings, routes, reflection);
        self.board.send_if_modified(|board| {
            let before = board.neighbours.get(&self.key);
            let is_news = before.is_none_or(|before| {
                let session = BgpSession { counters: before.session.counters, ..report.clone() };
                session != before.session || !before.told.ptr_eq(routes.told())
            });
            let is_different = is_news || before.is_none_or(|before| before.session != report);
            if is_different {
                let shown = NeighborStatus { session: report, told: routes.told().clone() };
                board.neighbours.insert(self.key.clone(), shown);
            }
            is_news
        });
    }

    /// Removes the neighbor from the status.
    pub(super) fn remove(&self) {
        self.board.send_modify(|board| {
            board.neighbours.remove(&self.key);
        });
    }

    fn report(
        &self,
        session: &Session,
        settings: &Settings,
        routes: &NeighborRoutes,
        reflection: &Reflection,
    ) -> BgpSession {
        let open = session.peer_open();
        let host_name = open.and_then(|open| {
            open.capabilities.iter().find_map(|capability| {
                let Capability::HostName { host, domain: _ } = capability else { return None };
                Some(host).filter(|host| !host.is_empty())
            })
        });
        BgpSession {
            peer: self.key.peer.clone(),
            address: self.address,
            state: state(session.state()),
            since: self.since,
            reason: words::cut(&self.reason(session, routes, reflection), BGP_TEXT_BYTES_MAX),
            established: self.established,
            remote_asn: open.map(|open| open.asn),
            local_asn: settings.session.local_asn,
            remote_router_id: open.map(|open| open.router_id),
            host_name: host_name.map(|name| words::cut(name, HOST_NAME_BYTES_MAX)),
            negotiated: session.negotiated().map(negotiated),
            last_sent: self.last_sent.clone(),
            last_received: self.last_received.clone(),
            bfd: self.bfd.as_ref().map(|text| words::cut(text, BGP_TEXT_BYTES_MAX)),
            counters: self.counters,
        }
    }

    /// Returns the reason for the current session state, with hints such as invalid MD5 signatures or routes
    /// that are not advertised.
    fn reason(&self, session: &Session, routes: &NeighborRoutes, reflection: &Reflection) -> String {
        let first = self.waiting.unwrap_or_else(|| session.reason()).to_owned();
        let mut parts = vec![first];
        if session.state() == State::Established {
            parts.extend(routes.withheld());
            parts.extend(reflection.refusals());
        } else {
            parts.extend(self.door_fault.clone());
            if self.counters.md5_failures > self.md5_failures_before {
                let hint =
                    "segments with a wrong, missing or unexpected MD5 signature arrive: password mismatch?";
                parts.push(hint.to_owned());
            }
        }
        parts.join("; ")
    }
}

const fn state(state: State) -> BgpSessionState {
    match state {
        State::Idle => BgpSessionState::Idle,
        State::Connect => BgpSessionState::Connect,
        State::Active => BgpSessionState::Active,
        State::OpenSent => BgpSessionState::OpenSent,
        State::OpenConfirm => BgpSessionState::OpenConfirm,
        State::Established => BgpSessionState::Established,
    }
}

fn negotiated(negotiated: &NegotiatedSession) -> BgpNegotiated {
    BgpNegotiated {
        hold_time: negotiated.hold_time,
        keepalive_time: negotiated.keepalive_time,
        capabilities: negotiated.capabilities.clone(),
        other_capabilities: negotiated.other_capabilities.clone(),
    }
}

fn error(notification: &Notification) -> BgpError {
    let Notification { code, subcode, data: _ } = notification;
    let message = words::cut(&notification.to_string(), BGP_TEXT_BYTES_MAX);
    BgpError { at: status::now(), code: *code, subcode: *subcode, message }
}
