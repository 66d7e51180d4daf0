//! The session itself: what every input makes of it.

use std::time::Instant;

use crate::{
    message::Open,
    session::{Config, ConnectionId, Input, Negotiated, Output, PrefixCount, State},
    wire,
};

/// The session with one neighbour.
#[derive(Debug, Clone)]
pub struct Session {
    config: Config,
    state: State,
    reason: String,
}

impl Session {
    /// A session that is stopped.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, state: State::Idle, reason: "not started".to_owned() }
    }

    /// Carries the session on. `random` is any number, drawn anew for each call: for jitter. Messages of one connection
    /// are handed over one by one, in their order, each read with the [`context`](Self::context) of its moment.
    pub fn handle(&mut self, _input: Input, _now: Instant, _random: u64) -> Vec<Output> {
        unimplemented!()
    }

    /// When to call with [`Input::Timeout`] at the latest; `None`: nothing is due before something else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        unimplemented!()
    }

    /// How the next message of a connection is read, and messages to it are written.
    #[must_use]
    pub fn context(&self, _connection: ConnectionId) -> wire::Context {
        unimplemented!()
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
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
        unimplemented!()
    }

    /// The connection that it is established over.
    #[must_use]
    pub fn established_over(&self) -> Option<ConnectionId> {
        unimplemented!()
    }

    /// The last OPEN of the neighbour, whether it was accepted or not.
    #[must_use]
    pub const fn peer_open(&self) -> Option<&Open> {
        unimplemented!()
    }

    /// How many prefixes the neighbour announces; zero while it is not established.
    #[must_use]
    pub fn prefixes(&self) -> PrefixCount {
        unimplemented!()
    }
}
