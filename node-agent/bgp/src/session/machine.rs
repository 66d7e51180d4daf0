//! Session state machine: start, stop, configuration and timers. Module `dial` establishes connections,
//! `ending` ends them, and `receive` handles messages.

use std::time::Instant;

use crate::{
    message::{Message, Open},
    notification::{Notification, cease, code},
    session::{
        Config, ConnectionId, Event, Input, NegotiatedSession, Output, PrefixCount, State, Stop,
        connection::{Connection, Exchange, Stage},
        dial::Dial,
        ending::{After, Ending, plain},
        negotiated::keepalive_time,
        timing::Noise,
    },
    wire,
};

/// BGP session with one neighbor.
#[derive(Debug, Clone)]
pub struct Session {
    pub(super) config: Config,
    pub(super) phase: AdministrativeState,
    pub(super) dial: Dial,
    /// Open connections: at most one established, plus at most one per direction that is not established.
    pub(super) connections: Vec<Connection>,
    /// Number of consecutive failures (`ConnectRetryCounter`), which determines the backoff.
    pub(super) failures: u32,
    /// True if the session has been established since the agent started. OPEN then no longer has the Restart
    /// State bit.
    pub(super) was_established: bool,
    pub(super) peer_open: Option<Open>,
    /// Reason for the current state as text; never empty.
    pub(super) reason: String,
    /// Reason why the last connection or attempt ended; `None` after success.
    pub(super) failure: Option<String>,
}

/// Administrative state of the session: stopped by its user, delayed after an error, or running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdministrativeState {
    Stopped,
    /// Idle after a protocol error, until the `IdleHoldTimer` expires.
    Holding {
        until: Instant,
    },
    Running,
}

/// Context of one [`Session::handle`] call: time, random numbers and the outputs collected so far.
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
    /// Creates a session that stays in Idle until [`Input::Start`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            phase: AdministrativeState::Stopped,
            dial: Dial::Off,
            connections: Vec::new(),
            failures: 0,
            was_established: false,
            peer_open: None,
            reason: "not started".to_owned(),
            failure: None,
        }
    }

    /// Processes an input. `random` must be a new random number for each call; it is used for jitter.
    /// Messages of a connection are passed in one by one. Each is decoded with the current
    /// [`context`](Self::context).
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
            AdministrativeState::Holding { until } => Some(until),
            AdministrativeState::Stopped | AdministrativeState::Running => None,
        };
        let dial = match self.dial {
            Dial::Waiting { until } | Dial::Trying { until } => Some(until),
            Dial::Off => None,
        };
        let connections = self.connections.iter().filter_map(Connection::poll_timeout);
        phase.into_iter().chain(dial).chain(connections).min()
    }

    /// Returns the context for decoding the next message of a connection, and for encoding messages.
    #[must_use]
    pub fn context(&self, connection: ConnectionId) -> wire::Context {
        let known = self.connections.iter().find(|each| each.id == connection);
        known.map(Connection::context).unwrap_or_default()
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        let connected = self.connections.iter().map(Connection::state).max();
        connected.unwrap_or(match (self.phase, self.dial) {
            (AdministrativeState::Stopped | AdministrativeState::Holding { .. }, _) => State::Idle,
            (AdministrativeState::Running, Dial::Trying { .. }) => State::Connect,
            (AdministrativeState::Running, Dial::Off | Dial::Waiting { .. }) => State::Active,
        })
    }

    /// Returns the reason for the current state as text; never empty.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the current configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the negotiated properties, or `None` while the session is not established.
    #[must_use]
    pub fn negotiated(&self) -> Option<&NegotiatedSession> {
        self.exchange().map(|(_, exchange)| &exchange.negotiated)
    }

    /// Returns the connection of the established session, or `None` while the session is not established.
    #[must_use]
    pub fn established_over(&self) -> Option<ConnectionId> {
        self.exchange().map(|(connection, _)| connection)
    }

    /// Returns the last OPEN of the neighbor, even if it was rejected; `None` before the first OPEN.
    #[must_use]
    pub const fn peer_open(&self) -> Option<&Open> {
        self.peer_open.as_ref()
    }

    /// Returns the number of prefixes from the neighbor; zero while the session is not established.
    #[must_use]
    pub fn prefixes(&self) -> PrefixCount {
        self.exchange().map_or(PrefixCount::Exactly(0), |(_, exchange)| exchange.prefixes.count())
    }

    /// Returns the name of a setting of `next` whose change by [`Input::Configure`] would reset the session,
    /// or `None`. Without a connection, no reset is needed. A changed rule for the neighbor's AS number
    /// requires a reset only if it rejects the neighbor.
    #[must_use]
    pub fn needs_reset(&self, next: &Config) -> Option<&'static str> {
        let stays = |connection: &Connection| match connection.negotiated() {
            Some(negotiated) => next.peer_asn.accepts(negotiated.peer_asn, next.local_asn),
            // The neighbor's OPEN is yet to be validated; ours depends on the kind of peer.
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

    /// Starts the session (RFC 4271 §8.1.2, events 1 and 3 to 7).
    fn start(&mut self, step: &mut Step) {
        if self.phase != AdministrativeState::Running {
            self.failures = 0;
            self.begin(step);
        }
    }

    fn begin(&mut self, step: &mut Step) {
        self.phase = AdministrativeState::Running;
        self.seek(step);
    }

    /// Stops the session (RFC 4271 §8.1.2, events 2 and 8) with the NOTIFICATION that corresponds to `stop`.
    fn stop(&mut self, stop: &Stop, step: &mut Step) {
        self.part_from_all(stop.words(), step, |connection| {
            let keeps =
                connection.negotiated().is_some_and(NegotiatedSession::is_graceful_over_notifications);
            stop.notification(keeps)
        });
        self.phase = AdministrativeState::Stopped;
        self.failure = None;
        self.reason = stop.words();
    }

    /// Ends all connections and the connection attempt of the session, with the reason `why`. `notification`
    /// returns the NOTIFICATION to send on a connection, if any.
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

    /// Handles expired timers: `ConnectRetryTimer`, Hold Timer, Keepalive Timer, `IdleHoldTimer` (RFC 4271
    /// events 9 to 11 and 13) and Send Hold Timer (RFC 9687).
    fn expire(&mut self, step: &mut Step) {
        let due = |moment: Option<Instant>| moment.is_some_and(|moment| moment <= step.now);
        let silent = self.find(|connection| due(connection.silent_at()));
        let stuck = self.find(|connection| due(connection.stuck_at()));
        let holding = matches!(self.phase, AdministrativeState::Holding { until } if until <= step.now);
        for id in silent {
            self.fall(id, self.silence(id), After::Retry, step);
        }
        for id in stuck {
            // A NOTIFICATION would queue behind the bytes the neighbor does not accept.
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

    /// Ends the session because BFD has declared the path down (RFC 4271 event 8, RFC 9384).
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
            // The new configuration may remove the cause of the failure.
            (AdministrativeState::Holding { .. }, _) if may_help => self.start(step),
            (AdministrativeState::Stopped | AdministrativeState::Holding { .. }, _) => {}
            (AdministrativeState::Running, Some(what)) => {
                let why = format!("other settings: {what}");
                self.part_from_all(why.clone(), step, |_| Some(plain(cease::CONFIGURATION_CHANGE)));
                (self.failures, self.failure) = (0, Some(why));
                self.begin(step);
            }
            (AdministrativeState::Running, None) => self.adapt(step),
        }
    }

    /// Applies configuration changes that do not require a new session.
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
        let is_adrift = self.phase == AdministrativeState::Running
            && self.connections.is_empty()
            && self.dial == Dial::Off;
        if is_adrift {
            self.seek(step);
        }
    }

    pub(super) fn find(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<ConnectionId> {
        self.connections.iter().filter(|each| is_meant(each)).map(|each| each.id).collect()
    }
}

/// Sends a KEEPALIVE and schedules the next one.
pub(super) fn speak(connection: &mut Connection, step: &mut Step) {
    let keepalive_time = connection.negotiated().map_or(0, |negotiated| negotiated.keepalive_time);
    connection.spoken = step.now;
    connection.pause = step.noise.keepalive(keepalive_time);
    step.send(connection.id, Message::Keepalive);
}
