//! TCP connection with the neighbor in one of the states OpenSent, OpenConfirm and Established, and its
//! timers.

use std::time::{Duration, Instant};

use crate::{
    session::{
        ConnectionId, Direction, NegotiatedSession, State,
        prefixes::Prefixes,
        timing::{OPEN_HOLD, send_hold},
    },
    wire,
};

/// Open connection with its BGP state ([`Stage`]) and the times from which its timers are computed.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) direction: Direction,
    pub(super) stage: Stage,
    /// Time at which the Hold Timer was last restarted: by a received KEEPALIVE or UPDATE, or by the
    /// transition to a new BGP state.
    pub(super) heard: Instant,
    /// Time of the last KEEPALIVE sent.
    pub(super) spoken: Instant,
    /// Delay after `spoken` until the next KEEPALIVE, with jitter; zero before negotiation.
    pub(super) pause: Duration,
    /// Time since which the neighbor has accepted no bytes, for the Send Hold Timer; `None` while it accepts
    /// bytes.
    pub(super) stalled: Option<Instant>,
}

/// BGP state of an open connection (RFC 4271 §8.2.2).
#[derive(Debug, Clone)]
pub(super) enum Stage {
    OpenSent,
    OpenConfirm(Box<NegotiatedSession>),
    Established(Box<Exchange>),
}

/// Data of an established session: negotiated properties and received prefixes.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) negotiated: NegotiatedSession,
    pub(super) since: Instant,
    pub(super) prefixes: Prefixes,
}

impl Connection {
    /// Creates a connection in OpenSent. `now` is the time at which OPEN is sent.
    pub(super) const fn new(id: ConnectionId, direction: Direction, now: Instant) -> Self {
        Self {
            id,
            direction,
            stage: Stage::OpenSent,
            heard: now,
            spoken: now,
            pause: Duration::ZERO,
            stalled: None,
        }
    }

    pub(super) const fn state(&self) -> State {
        match self.stage {
            Stage::OpenSent => State::OpenSent,
            Stage::OpenConfirm(_) => State::OpenConfirm,
            Stage::Established(_) => State::Established,
        }
    }

    pub(super) const fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Established(_))
    }

    pub(super) fn negotiated(&self) -> Option<&NegotiatedSession> {
        match &self.stage {
            Stage::OpenSent => None,
            Stage::OpenConfirm(negotiated) => Some(negotiated),
            Stage::Established(exchange) => Some(&exchange.negotiated),
        }
    }

    pub(super) fn negotiated_mut(&mut self) -> Option<&mut NegotiatedSession> {
        match &mut self.stage {
            Stage::OpenSent => None,
            Stage::OpenConfirm(negotiated) => Some(negotiated),
            Stage::Established(exchange) => Some(&mut exchange.negotiated),
        }
    }

    pub(super) fn exchange_mut(&mut self) -> Option<&mut Exchange> {
        match &mut self.stage {
            Stage::OpenSent | Stage::OpenConfirm(_) => None,
            Stage::Established(exchange) => Some(exchange),
        }
    }

    pub(super) fn context(&self) -> wire::Context {
        self.negotiated().map(NegotiatedSession::context).unwrap_or_default()
    }

    /// Returns the expiry time of the Hold Timer (RFC 4271 §8.1.3, event 10), or `None` if it is disabled.
    pub(super) fn silent_at(&self) -> Option<Instant> {
        let agreed = |hold_time: u16| (hold_time != 0).then(|| Duration::from_secs(hold_time.into()));
        let longest = match &self.stage {
            Stage::OpenSent => Some(OPEN_HOLD),
            // With a Hold Time of 0 the first KEEPALIVE is still required.
            Stage::OpenConfirm(negotiated) => agreed(negotiated.hold_time).or(Some(OPEN_HOLD)),
            Stage::Established(exchange) => agreed(exchange.negotiated.hold_time),
        };
        longest.map(|longest| self.heard + longest)
    }

    /// Returns the expiry time of the Keepalive Timer (RFC 4271 §8.1.3, event 11), or `None` if the Hold Time
    /// is not negotiated yet or KEEPALIVE messages are disabled.
    pub(super) fn speaks_at(&self) -> Option<Instant> {
        let speaks = self.negotiated().is_some_and(|negotiated| negotiated.keepalive_time != 0);
        speaks.then(|| self.spoken + self.pause)
    }

    /// Returns the expiry time of the Send Hold Timer (RFC 9687 §3.1), or `None` while the neighbor accepts
    /// bytes.
    pub(super) fn stuck_at(&self) -> Option<Instant> {
        let hold_time = self.negotiated().map_or(0, |negotiated| negotiated.hold_time);
        self.stalled.map(|since| since + send_hold(hold_time))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.silent_at(), self.speaks_at(), self.stuck_at()].into_iter().flatten().min()
    }
}
