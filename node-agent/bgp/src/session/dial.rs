//! Starts outgoing connection attempts and accepts incoming connections.

use std::time::Instant;

use crate::{
    message::Message,
    notification::cease,
    session::{
        ConnectionId, Direction, Output, Session,
        connection::Connection,
        ending::{Ending, plain},
        machine::{AdministrativeState, Step},
        timing::{ATTEMPT_MIN, wait},
    },
};

/// State of the outgoing connection attempt, with the deadline of the `ConnectRetryTimer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dial {
    Off,
    /// Waiting (RFC 4271 state Active): the next attempt starts when the `ConnectRetryTimer` expires.
    Waiting {
        until: Instant,
    },
    /// Connecting (RFC 4271 state Connect): the attempt is abandoned when the `ConnectRetryTimer` expires.
    Trying {
        until: Instant,
    },
}

impl Session {
    /// Starts a connection attempt, or waits for the neighbor to connect if the session is passive. Called
    /// while there is no connection.
    pub(super) fn seek(&mut self, step: &mut Step) {
        let failure = self.failure.as_ref();
        let after = failure.map(|failure| format!("; before: {failure}")).unwrap_or_default();
        if self.config.passive {
            self.dial = Dial::Off;
            self.reason = format!("waiting for the neighbour to connect (passive){after}");
            return;
        }
        let longest = step.noise.jittered(wait(self.config.connect_time, self.failures.saturating_add(1)));
        self.dial = Dial::Trying { until: step.now + longest.max(ATTEMPT_MIN) };
        self.reason = format!("connecting{after}");
        step.outputs.push(Output::Connect);
    }

    /// Cancels a pending connection attempt and stops the `ConnectRetryTimer`.
    pub(super) fn hang_up(&mut self, step: &mut Step) {
        if matches!(self.dial, Dial::Trying { .. }) {
            step.outputs.push(Output::CancelConnect);
        }
        self.dial = Dial::Off;
    }

    /// Handles the expiry of the `ConnectRetryTimer`: starts the next attempt, or abandons the current one.
    pub(super) fn expire_dial(&mut self, step: &mut Step) {
        match self.dial {
            Dial::Waiting { until } if until <= step.now => self.seek(step),
            Dial::Trying { until } if until <= step.now => {
                self.hang_up(step);
                self.failures = self.failures.saturating_add(1);
                self.failure = Some("no answer to the attempt to connect".to_owned());
                if self.connections.is_empty() {
                    self.seek(step);
                }
            }
            Dial::Off | Dial::Waiting { .. } | Dial::Trying { .. } => {}
        }
    }

    /// Handles a new connection (RFC 4271 events 16 and 17) and sends OPEN.
    pub(super) fn connected(&mut self, id: ConnectionId, direction: Direction, step: &mut Step) {
        if self.connections.iter().any(|connection| connection.id == id) {
            return;
        }
        let is_wanted = match direction {
            Direction::Outgoing => matches!(self.dial, Dial::Trying { .. }),
            Direction::Incoming => self.phase == AdministrativeState::Running,
        };
        if !is_wanted {
            if direction == Direction::Incoming {
                // RFC 4486 §4: the NOTIFICATION lets the neighbor display the reason.
                step.send(id, Message::Notification(plain(cease::REJECTED)));
            }
            step.outputs.push(Output::Close { connection: id });
            return;
        }
        let older = self.find(|each| each.direction == direction && !each.is_established());
        let is_first = self.connections.len() == older.len();
        for older in older {
            let why = "the neighbour has connected again".to_owned();
            self.drop_connection(older, Ending::told(plain(cease::COLLISION), why), step);
        }
        if direction == Direction::Outgoing || matches!(self.dial, Dial::Waiting { .. }) {
            self.dial = Dial::Off;
        }
        self.connections.push(Connection::new(id, direction, step.now));
        if is_first {
            self.reason = "connected; waiting for OPEN".to_owned();
        }
        step.send(id, Message::Open(self.config.open(self.config.is_restarted && !self.was_established)));
    }

    /// Handles a failed connection attempt (RFC 4271 event 18 in state Connect): waits for the
    /// `ConnectRetryTimer`.
    pub(super) fn connect_failed(&mut self, why: String, step: &mut Step) {
        if !matches!(self.dial, Dial::Trying { .. }) {
            return;
        }
        self.dial = Dial::Off;
        if self.connections.is_empty() {
            self.retry(why, step);
        } else {
            self.failure = Some(why);
        }
    }
}
