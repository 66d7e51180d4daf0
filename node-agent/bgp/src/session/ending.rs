//! How connections end: what is said to the neighbour and to the owner, and what comes after.

use std::time::Duration;

use crate::{
    message::Message,
    notification::{Notification, cease, code, open},
    session::{
        ConnectionId, Down, Event, Negotiated, Output, Session, Stop,
        connection::{Connection, Stage},
        dial::Dial,
        machine::{Phase, Step},
        timing::{STABLE, wait},
    },
};

/// Why and how a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) why: String,
    pub(super) sent: Option<Notification>,
    pub(super) received: Option<Notification>,
    /// The connection is there no longer.
    pub(super) is_gone: bool,
}

/// What comes after the last connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// The next attempt when the connect retry timer says so; the neighbour may come before.
    Retry,
    /// Idle for a while that grows with failures: the next attempt would end the same way (`DampPeerOscillations`).
    Hold,
    /// Idle for as long.
    HoldFor(Duration),
}

impl Ending {
    /// Without a word to the neighbour.
    pub(super) const fn silent(why: String) -> Self {
        Self { why, sent: None, received: None, is_gone: false }
    }

    /// The transport is gone.
    pub(super) const fn gone(why: String) -> Self {
        Self { why, sent: None, received: None, is_gone: true }
    }

    /// With a NOTIFICATION to the neighbour.
    pub(super) const fn told(notification: Notification, why: String) -> Self {
        Self { why, sent: Some(notification), received: None, is_gone: false }
    }

    /// With a NOTIFICATION to the neighbour, whose own words are the reason.
    pub(super) fn by_us(notification: Notification) -> Self {
        let why = format!("we ended it: {notification}");
        Self::told(notification, why)
    }

    /// By a NOTIFICATION of the neighbour.
    pub(super) fn by_neighbour(notification: Notification) -> Self {
        let why = format!("the neighbour ended it: {notification}");
        Self { why, sent: None, received: Some(notification), is_gone: false }
    }

    /// Whether the neighbour keeps our routes after it: it lost the connection without a word and agreed on graceful restart
    /// (RFC 4724 §4.2), or agreed on that for notifications, and this is none that takes it back (RFC 8538 §4).
    pub(super) fn leaves_routes(&self, negotiated: &Negotiated) -> bool {
        match self.sent.as_ref().or(self.received.as_ref()) {
            None => negotiated.is_graceful(),
            Some(notification) => {
                negotiated.is_graceful_over_notifications() && !notification.is_hard_reset()
            }
        }
    }
}

impl Stop {
    /// What is said to the neighbour. With `keeps_routes` it would keep our routes over a notification.
    pub(super) fn notification(&self, keeps_routes: bool) -> Option<Notification> {
        let notification = match self {
            Self::Shutdown(text) => Notification::cease(cease::SHUTDOWN, text),
            Self::Reset(text) => Notification::cease(cease::RESET, text),
            Self::Deconfigured => plain(cease::DECONFIGURED),
            Self::ConfigurationChange => return Some(plain(cease::CONFIGURATION_CHANGE)),
            Self::Silent => return None,
        };
        Some(if keeps_routes { notification.into_hard_reset() } else { notification })
    }

    /// What the owner is told.
    pub(super) fn words(&self) -> String {
        let (what, text) = match self {
            Self::Shutdown(text) => ("stopped", text.as_str()),
            Self::Reset(text) => ("reset", text.as_str()),
            Self::Deconfigured => ("no longer configured", ""),
            Self::ConfigurationChange => ("stopped for other settings", ""),
            Self::Silent => ("stopped for a restart", ""),
        };
        if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") }
    }
}

impl After {
    /// After a NOTIFICATION of the neighbour. Where we had to send one for what it said, it is [`After::Hold`].
    pub(super) const fn received(notification: &Notification) -> Self {
        match (notification.code, notification.subcode) {
            // Event 24, which RFC 4271 §8.2.2 does not damp; and too many prefixes or resources used (RFC 4486 §4).
            (code::OPEN, open::VERSION) => Self::Retry,
            (code::CEASE, cease::MAX_PREFIXES | cease::OUT_OF_RESOURCES) => Self::Hold,
            (code::CEASE | code::HOLD_TIMER | code::SEND_HOLD_TIMER, _) => Self::Retry,
            _ => Self::Hold,
        }
    }
}

impl Session {
    /// A connection ends; when it was the last one, so does this attempt at a session.
    pub(super) fn fall(&mut self, id: ConnectionId, ending: Ending, after: After, step: &mut Step) {
        let (from, why) = (self.state(), ending.why.clone());
        if !self.drop_connection(id, ending, step) {
            return;
        }
        if !self.connections.is_empty() {
            if self.state() != from {
                self.reason = why;
            }
            return;
        }
        match after {
            After::Retry => self.retry(why, step),
            After::Hold => {
                let time = wait(self.config.connect_time, self.failures.saturating_add(1));
                let time = step.noise.jittered(time);
                self.hold(time, why, step);
            }
            After::HoldFor(time) => self.hold(time, why, step),
        }
    }

    /// Takes a connection away; says whether there was one.
    pub(super) fn drop_connection(&mut self, id: ConnectionId, ending: Ending, step: &mut Step) -> bool {
        let Some(at) = self.connections.iter().position(|connection| connection.id == id) else {
            return false;
        };
        let connection = self.connections.swap_remove(at);
        self.end(connection, ending, step);
        true
    }

    pub(super) fn end(&mut self, connection: Connection, ending: Ending, step: &mut Step) {
        if let Some(notification) = &ending.sent {
            step.send(connection.id, Message::Notification(notification.clone()));
        }
        if !ending.is_gone {
            step.outputs.push(Output::Close { connection: connection.id });
        }
        let Stage::Established(exchange) = connection.stage else { return };
        if step.now.saturating_duration_since(exchange.since) >= STABLE {
            self.failures = 0;
        }
        let peer_keeps_routes = ending.leaves_routes(&exchange.negotiated);
        let Ending { why, sent, received, is_gone: _ } = ending;
        step.tell(Event::Down(Box::new(Down { why, sent, received, peer_keeps_routes })));
    }

    /// To Active, or on with the attempt that is under way.
    pub(super) fn retry(&mut self, why: String, step: &mut Step) {
        self.failures = self.failures.saturating_add(1);
        self.reason.clone_from(&why);
        self.failure = Some(why);
        if matches!(self.dial, Dial::Trying { .. }) {
            return;
        }
        if self.config.passive {
            return self.seek(step);
        }
        let time = step.noise.jittered(wait(self.config.connect_time, self.failures));
        self.dial = Dial::Waiting { until: step.now + time };
    }

    /// To Idle, for a while.
    fn hold(&mut self, time: Duration, why: String, step: &mut Step) {
        self.hang_up(step);
        self.failures = self.failures.saturating_add(1);
        self.reason.clone_from(&why);
        self.failure = Some(why);
        self.phase = Phase::Holding { until: step.now + time };
    }
}

/// A Cease without data.
pub(super) const fn plain(subcode: u8) -> Notification {
    Notification::new(code::CEASE, subcode)
}
