//! The session itself: what starts, stops and changes it, and the timers. Connections come in `dial`, end in `ending`, and what
//! comes over them is met in `receive`.

use std::time::Instant;

use crate::{
    message::{Message, Open},
    notification::{Notification, cease, code},
    session::{
        Config, ConnectionId, Event, Input, Negotiated, Output, PrefixCount, State, Stop,
        connection::{Connection, Exchange, Stage},
        dial::Dial,
        ending::{After, Ending, plain},
        negotiated::keepalive_time,
        timing::Noise,
    },
    wire,
};

/// The session with one neighbour.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) config: Config,
    pub(super) phase: Phase,
    pub(super) dial: Dial,
    /// At most one of each direction that is not established, and one that is.
    pub(super) connections: Vec<Connection>,
    /// Failures in a row (`ConnectRetryCounter`).
    pub(super) failures: u32,
    /// It was established since the beginning: a restart of the agent is over.
    pub(super) was_established: bool,
    pub(super) peer_open: Option<Open>,
    /// Why it stands where it stands.
    pub(super) reason: String,
    /// What ended the last attempt.
    pub(super) failure: Option<String>,
}

/// Whether the session is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Stopped,
    /// After a protocol error (`IdleHoldTimer`).
    Holding {
        until: Instant,
    },
    Running,
}

/// One call: its time, its random numbers, and what comes of it.
pub(super) struct Step {
    pub(super) now: Instant,
    pub(super) noise: Noise,
    pub(super) outputs: Vec<Output>,
}

impl Step {
    pub(super) fn send(&mut self, connection: ConnectionId, message: Message) {
        self.outputs.push(Output::Send { connection, message });
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.outputs.push(Output::Event(event));
    }
}

impl Session {
    /// A session that is stopped.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            phase: Phase::Stopped,
            dial: Dial::Off,
            connections: Vec::new(),
            failures: 0,
            was_established: false,
            peer_open: None,
            reason: "not started".to_owned(),
            failure: None,
        }
    }

    /// Carries the session on. `random` is any number, drawn anew for each call: for jitter. Messages of one connection
    /// are handed over one by one, in their order, each read with the [`context`](Self::context) of its moment.
    pub fn handle(&mut self, input: Input, now: Instant, random: u64) -> Vec<Output> {
        let from = self.state();
        let mut step = Step { now, noise: Noise::new(random), outputs: Vec::new() };
        match input {
            Input::Start => self.start(&mut step),
            Input::Stop(stop) => self.stop(&stop, &mut step),
            Input::Timeout => self.expire(&mut step),
            Input::Connected { connection, direction } => self.connected(connection, direction, &mut step),
            Input::ConnectFailed { why } => self.connect_failed(why, &mut step),
            Input::Closed { connection, why } => {
                self.fall(connection, Ending::gone(why), After::Retry, &mut step);
            }
            Input::Received { connection, result } => self.receive(connection, result, &mut step),
            Input::SendStalled { connection } => {
                if let Some(connection) = self.connection(connection) {
                    connection.stalled.get_or_insert(now);
                }
            }
            Input::SendMoved { connection, is_drained } => {
                if let Some(connection) = self.connection(connection) {
                    connection.stalled = (!is_drained).then_some(now);
                }
            }
            Input::BfdDown => self.bfd_down(&mut step),
            Input::Configure(config) => self.configure(*config, &mut step),
        }
        let to = self.state();
        if from != to {
            step.tell(Event::State { from, to, why: self.reason.clone() });
        }
        step.outputs
    }

    /// Returns the latest time to call [`Self::handle`] with [`Input::Timeout`], or `None` if no timer is
    /// pending.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Holding { until } => Some(until),
            Phase::Stopped | Phase::Running => None,
        };
        let dial = match self.dial {
            Dial::Waiting { until } | Dial::Trying { until } => Some(until),
            Dial::Off => None,
        };
        let connections = self.connections.iter().filter_map(Connection::poll_timeout);
        phase.into_iter().chain(dial).chain(connections).min()
    }

    /// How the next message of a connection is read, and messages to it are written.
    #[must_use]
    pub fn context(&self, connection: ConnectionId) -> wire::Context {
        let known = self.connections.iter().find(|each| each.id == connection);
        known.map(Connection::context).unwrap_or_default()
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        let connected = self.connections.iter().map(Connection::state).max();
        connected.unwrap_or(match (self.phase, self.dial) {
            (Phase::Stopped | Phase::Holding { .. }, _) => State::Idle,
            (Phase::Running, Dial::Trying { .. }) => State::Connect,
            (Phase::Running, Dial::Off | Dial::Waiting { .. }) => State::Active,
        })
    }

    /// Why it stands there, in words; never empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What it was told.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What both agreed on; while it is established.
    #[must_use]
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.exchange().map(|(_, exchange)| &exchange.negotiated)
    }

    /// The connection that it is established over.
    #[must_use]
    pub fn established_over(&self) -> Option<ConnectionId> {
        self.exchange().map(|(connection, _)| connection)
    }

    /// The last OPEN of the neighbour, whether it was accepted or not.
    #[must_use]
    pub const fn peer_open(&self) -> Option<&Open> {
        self.peer_open.as_ref()
    }

    /// How many prefixes the neighbour announces; zero while it is not established.
    #[must_use]
    pub fn prefixes(&self) -> PrefixCount {
        self.exchange().map_or(PrefixCount::Exactly(0), |(_, exchange)| exchange.prefixes.count())
    }

    /// What of `next` ends this session when it is told to it by [`Input::Configure`], in words. Without a connection nothing
    /// does; and a neighbour that is the right one by both rules stays.
    #[must_use]
    pub fn needs_reset(&self, next: &Config) -> Option<&'static str> {
        let stays = |connection: &Connection| match connection.negotiated() {
            Some(negotiated) => next.peer_asn.accepts(negotiated.peer_asn, next.local_asn),
            // Its OPEN will be checked; ours was for a neighbour of this kind.
            None => next.is_external() == self.config.is_external(),
        };
        let peer_asn = if self.connections.iter().all(stays) { next.peer_asn } else { self.config.peer_asn };
        let current = Config { peer_asn, ..self.config.clone() };
        current.needs_reset(next).filter(|_| !self.connections.is_empty())
    }

    fn exchange(&self) -> Option<(ConnectionId, &Exchange)> {
        self.connections.iter().find_map(|connection| match &connection.stage {
            Stage::Established(exchange) => Some((connection.id, &**exchange)),
            Stage::OpenSent | Stage::OpenConfirm(_) => None,
        })
    }

    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    /// Events 1, 3–7: somebody wants the session.
    fn start(&mut self, step: &mut Step) {
        if self.phase != Phase::Running {
            self.failures = 0;
            self.begin(step);
        }
    }

    fn begin(&mut self, step: &mut Step) {
        self.phase = Phase::Running;
        self.seek(step);
    }

    /// Events 2 and 8: it is not wanted any longer.
    fn stop(&mut self, stop: &Stop, step: &mut Step) {
        self.part_from_all(stop.words(), step, |connection| {
            let keeps = connection.negotiated().is_some_and(Negotiated::is_graceful_over_notifications);
            stop.notification(keeps)
        });
        self.phase = Phase::Stopped;
        self.failure = None;
        self.reason = stop.words();
    }

    /// Ends all connections and attempts for the same reason.
    fn part_from_all(
        &mut self,
        why: String,
        step: &mut Step,
        notification: impl Fn(&Connection) -> Option<Notification>,
    ) {
        self.hang_up(step);
        for connection in std::mem::take(&mut self.connections) {
            let sent = notification(&connection);
            let ending = Ending { sent, ..Ending::silent(why.clone()) };
            self.end(connection, ending, step);
        }
    }

    /// Events 9–11 and 13, and the expiry of the send hold timer.
    fn expire(&mut self, step: &mut Step) {
        let due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= step.now);
        let silent = self.find(|connection| due(connection.silent_at()));
        let stuck = self.find(|connection| due(connection.stuck_at()));
        let holding = matches!(self.phase, Phase::Holding { until } if until <= step.now);
        for id in silent {
            self.fall(id, self.silence(id), After::Retry, step);
        }
        for id in stuck {
            // A NOTIFICATION would wait behind what the neighbour does not take.
            let why = "the neighbour takes no data from us (send hold time)".to_owned();
            self.fall(id, Ending::silent(why), After::Retry, step);
        }
        for connection in &mut self.connections {
            if connection.speaks_at().is_some_and(|at| at <= step.now) {
                speak(connection, step);
            }
        }
        self.expire_dial(step);
        if holding {
            self.begin(step);
        }
    }

    fn silence(&self, id: ConnectionId) -> Ending {
        let negotiated = self.connections.iter().find(|each| each.id == id).and_then(Connection::negotiated);
        let why = match negotiated {
            None => "the neighbour has sent no OPEN within 4 minutes".to_owned(),
            Some(negotiated) => format!("nothing was heard for the hold time of {} s", negotiated.hold_time),
        };
        Ending::told(Notification::new(code::HOLD_TIMER, 0), why)
    }

    /// Event 8, where BFD has found the path to be broken (RFC 9384).
    fn bfd_down(&mut self, step: &mut Step) {
        for id in self.find(|_| true) {
            let why = "BFD: the path to the neighbour is down".to_owned();
            self.fall(id, Ending::told(plain(cease::BFD_DOWN), why), After::Retry, step);
        }
    }

    fn configure(&mut self, config: Config, step: &mut Step) {
        let reset = self.needs_reset(&config);
        let may_help =
            self.config.needs_reset(&config).is_some() || self.config.max_prefixes != config.max_prefixes;
        self.config = config;
        match (self.phase, reset) {
            // What the session waits to get over may be over.
            (Phase::Holding { .. }, _) if may_help => self.start(step),
            (Phase::Stopped | Phase::Holding { .. }, _) => {}
            (Phase::Running, Some(what)) => {
                let why = format!("other settings: {what}");
                self.part_from_all(why.clone(), step, |_| Some(plain(cease::CONFIGURATION_CHANGE)));
                (self.failures, self.failure) = (0, Some(why));
                self.begin(step);
            }
            (Phase::Running, None) => self.adapt(step),
        }
    }

    /// Settings that take effect in place.
    fn adapt(&mut self, step: &mut Step) {
        for connection in &mut self.connections {
            let Some(negotiated) = connection.negotiated_mut() else { continue };
            negotiated.keepalive_time = keepalive_time(&self.config, negotiated.hold_time);
            let pause = step.noise.keepalive(negotiated.keepalive_time);
            connection.pause = connection.pause.min(pause);
        }
        if let Some(id) = self.established_over() {
            self.hold_to_limit(id, step);
        }
        if self.config.passive {
            self.hang_up(step);
        }
        let is_adrift = self.phase == Phase::Running && self.connections.is_empty() && self.dial == Dial::Off;
        if is_adrift {
            self.seek(step);
        }
    }

    pub(super) fn find(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<ConnectionId> {
        self.connections.iter().filter(|each| is_meant(each)).map(|each| each.id).collect()
    }
}

/// A KEEPALIVE, and the time of the next one.
pub(super) fn speak(connection: &mut Connection, step: &mut Step) {
    let keepalive_time = connection.negotiated().map_or(0, |negotiated| negotiated.keepalive_time);
    connection.spoken = step.now;
    connection.pause = step.noise.keepalive(keepalive_time);
    step.send(connection.id, Message::Keepalive);
}
