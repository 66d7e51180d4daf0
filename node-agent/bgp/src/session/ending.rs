//! Ends connections: sends the NOTIFICATION, reports the reason, and determines the next state of the
//! session.

use std::time::Duration;

use crate::{
    message::Message,
    notification::{Notification, cease, code, open},
    session::{
        ConnectionId, Down, Event, NegotiatedSession, Output, Session, Stop,
        connection::{Connection, Stage},
        dial::Dial,
        machine::{AdministrativeState, Step},
        timing::{STABLE, wait},
    },
};

/// End of a connection: the reason, the NOTIFICATION, and a flag that is true if the TCP connection no longer
/// exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) why: String,
    pub(super) sent: Option<Notification>,
    pub(super) received: Option<Notification>,
    /// True if the TCP connection is already lost, so that nothing can be sent.
    pub(super) is_gone: bool,
}

/// State of the session after its last connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Active: the next attempt follows when the `ConnectRetryTimer` expires; the neighbor may connect
    /// earlier.
    Retry,
    /// Idle for a time that grows with the number of failures (`DampPeerOscillations`), because the next
    /// attempt would probably fail as well.
    Hold,
    /// Idle for this time, for example after the prefix limit was exceeded.
    HoldFor(Duration),
}

impl Ending {
    /// Describes the end of a connection that is closed without a NOTIFICATION.
    pub(super) const fn silent(why: String) -> Self {
        Self { why, sent: None, received: None, is_gone: false }
    }

    /// Describes the end of a connection that was lost.
    pub(super) const fn gone(why: String) -> Self {
        Self { why, sent: None, received: None, is_gone: true }
    }

    /// Describes the end of a connection by a NOTIFICATION to the neighbor. The reported reason is `why`.
    pub(super) const fn told(notification: Notification, why: String) -> Self {
        Self { why, sent: Some(notification), received: None, is_gone: false }
    }

    /// Describes the end of a connection by a NOTIFICATION to the neighbor, whose text is also the reported
    /// reason.
    pub(super) fn by_us(notification: Notification) -> Self {
        let why = format!("we ended it: {notification}");
        Self::told(notification, why)
    }

    /// Describes the end of a connection by a NOTIFICATION from the neighbor.
    pub(super) fn by_neighbour(notification: Notification) -> Self {
        let why = format!("the neighbour ended it: {notification}");
        Self { why, sent: None, received: Some(notification), is_gone: false }
    }

    /// Returns true if the neighbor retains this speaker's routes. Without a NOTIFICATION, this requires
    /// Graceful Restart (RFC 4724 §4.2). After a NOTIFICATION other than a Hard Reset, it requires the
    /// extension for notifications (RFC 8538 §4).
    pub(super) fn leaves_routes(&self, negotiated: &NegotiatedSession) -> bool {
        match self.sent.as_ref().or(self.received.as_ref()) {
            None => negotiated.is_graceful(),
            Some(notification) => {
                negotiated.is_graceful_over_notifications() && !notification.is_hard_reset()
            }
        }
    }
}

impl Stop {
    /// Returns the NOTIFICATION to send for this reason, or `None` to send none. If `keeps_routes` is true
    /// (the neighbor would retain this speaker's routes after an ordinary NOTIFICATION), a Hard Reset makes
    /// the neighbor drop them, except after [`Stop::ConfigurationChange`].
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

    /// Returns the reason to report, including the Shutdown Communication if there is one.
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
    /// Returns the state of the session after a NOTIFICATION from the neighbor, depending on its code. Errors
    /// that this speaker detects lead to [`After::Hold`] instead.
    pub(super) const fn received(notification: &Notification) -> Self {
        match (notification.code, notification.subcode) {
            // Event 24, without damping in RFC 4271 §8.2.2; and limits of prefixes or resources (RFC 4486
            // §4).
            (code::OPEN, open::VERSION) => Self::Retry,
            (code::CEASE, cease::MAX_PREFIXES | cease::OUT_OF_RESOURCES) => Self::Hold,
            (code::CEASE | code::HOLD_TIMER | code::SEND_HOLD_TIMER, _) => Self::Retry,
            _ => Self::Hold,
        }
    }
}

impl Session {
    /// Ends a connection. If no other connection is left, the session moves to the state `after`.
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

    /// Removes a connection and closes it. Returns false if there is no connection with this identifier.
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

    /// Moves the session to Active and waits for the next attempt, or continues an attempt in progress.
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

    /// Moves the session to Idle for `time`, after which it starts again.
    fn hold(&mut self, time: Duration, why: String, step: &mut Step) {
        self.hang_up(step);
        self.failures = self.failures.saturating_add(1);
        self.reason.clone_from(&why);
        self.failure = Some(why);
        self.phase = AdministrativeState::Holding { until: step.now + time };
    }
}

/// Returns a Cease notification with this subcode and an empty data field.
pub(super) const fn plain(subcode: u8) -> Notification {
    Notification::new(code::CEASE, subcode)
}
