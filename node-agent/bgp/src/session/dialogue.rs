//! Inputs, outputs and states of a session.

use std::fmt;

use crate::{
    family::Family, message::Message, notification::Notification, session::Config,
    session::NegotiatedSession, wire,
};

/// Connection identifier assigned by the driver; never reused within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Side that initiated a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Connection initiated by this speaker.
    Outgoing,
    /// Connection initiated by the neighbor.
    Incoming,
}

/// Session state as defined in RFC 4271 §8.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Inactive; connections of the neighbor are rejected.
    Idle,
    /// A TCP connection attempt is in progress.
    Connect,
    /// Waiting for the neighbor's connection or the next attempt.
    Active,
    /// A TCP connection is open and OPEN was sent.
    OpenSent,
    /// The neighbor's OPEN was accepted; its KEEPALIVE is awaited.
    OpenConfirm,
    /// The session is up and routes can be exchanged.
    Established,
}

/// Input of the session state machine, passed in by the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Start the session; also ends the delay after a protocol error. Without effect if already started.
    Start,
    /// Ends the session, which stays in Idle until [`Input::Start`].
    Stop(Stop),
    /// A timer has expired: the time returned by
    /// [`Session::poll_timeout`](crate::session::Session::poll_timeout) has come.
    Timeout,
    /// A connection is open: the response to [`Output::Connect`], or an incoming one.
    Connected {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Side that initiated the connection.
        direction: Direction,
    },
    /// The attempt started by [`Output::Connect`] has failed.
    ConnectFailed {
        /// Reason, such as "connection refused".
        why: String,
    },
    /// The connection was closed or lost. Bytes received before must have been passed in.
    Closed {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Reason, such as "closed by the neighbour".
        why: String,
    },
    /// A message was received, or invalid bytes with the NOTIFICATION to send.
    Received {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Result of decoding with [`Session::context`](crate::session::Session::context).
        result: Result<wire::DecodedMessage, Notification>,
    },
    /// The neighbor accepts no more bytes.
    SendStalled {
        /// Identifier of the connection.
        connection: ConnectionId,
    },
    /// The neighbor has accepted bytes after [`Input::SendStalled`]; reported each time, even if more are
    /// left.
    SendMoved {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// True if no bytes are left.
        is_drained: bool,
    },
    /// BFD has declared the path down after it was up (RFC 5882 §4). Not reported if the neighbor's BFD
    /// session is in AdminDown (§3.2).
    BfdDown,
    /// New configuration. If [`Session::needs_reset`](crate::session::Session::needs_reset) returns a
    /// setting, the session ends with Cease/Other Configuration Change and restarts; otherwise the changes
    /// are applied in place.
    Configure(Box<Config>),
}

/// Reason to end a session, which determines the NOTIFICATION.
///
/// With RFC 8538 a neighbor would retain our routes after an ordinary Cease, so the first three reasons use a
/// Hard Reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Administrative Shutdown with a Shutdown Communication (RFC 9003).
    Shutdown(String),
    /// Administrative Reset with a Shutdown Communication (RFC 9003); the session may be started again.
    Reset(String),
    /// Peer De-configured: the neighbor was removed from the configuration.
    Deconfigured,
    /// Other Configuration Change: a setting outside of [`Config`] has changed. Routes may be retained.
    ConfigurationChange,
    /// Close without a NOTIFICATION, so that a neighbor with Graceful Restart retains our routes until the
    /// session is back.
    Silent,
}

/// Action of the session state machine that the driver has to carry out, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Connect to the neighbor, and respond with [`Input::Connected`] or [`Input::ConnectFailed`].
    Connect,
    /// Cancel the attempt of the last [`Output::Connect`]. If it is already connected, close it, or report it
    /// before another attempt starts; the session then closes it.
    CancelConnect,
    /// Send a message after all previous ones.
    Send {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// OPEN, KEEPALIVE or NOTIFICATION. Routes are sent by the driver after [`Event::Established`].
        message: Message,
    },
    /// Close the connection after a preceding NOTIFICATION was sent, or after a short timeout, discarding
    /// other pending messages. No further input is expected for it.
    Close {
        /// Identifier of the connection.
        connection: ConnectionId,
    },
    /// Report this event to the owner.
    Event(Event),
}

/// Change of a session that the owner of the driver should observe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The state has changed; always the last output of a call. States that last only within the call are
    /// omitted.
    State {
        /// State before the input.
        from: State,
        /// State after the input.
        to: State,
        /// Reason of the change in words; never empty.
        why: String,
    },
    /// The session is established: routes can be sent on this connection, and the encoding context has
    /// changed.
    Established {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Properties negotiated by the OPEN messages.
        negotiated: Box<NegotiatedSession>,
    },
    /// An established session has ended.
    Down(Box<Down>),
    /// An UPDATE was received and counted.
    Update(ReceivedUpdate),
    /// The neighbor has sent the End-of-RIB marker of a family.
    PeerEndOfRib(Family),
    /// The neighbor has requested our routes of a family (RFC 2918); demarcated if Enhanced Route Refresh was
    /// negotiated (RFC 7313).
    RefreshRequested(Family),
    /// The number of received prefixes has reached three quarters of the limit, or exceeded the limit. Each
    /// is reported once per session.
    PrefixLimit {
        /// Number of prefixes received from the neighbor.
        count: PrefixCount,
        /// Configured maximum number of prefixes.
        limit: u32,
        /// True if the limit is exceeded and the session ends.
        is_exceeded: bool,
    },
}

/// End of an established session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Reason in words; never empty.
    pub why: String,
    /// NOTIFICATION that was sent before the end, if any.
    pub sent: Option<Notification>,
    /// NOTIFICATION that was received as the last message, if any.
    pub received: Option<Notification>,
    /// True if, as negotiated, the neighbor retains our routes until the session is back or its Restart Time
    /// expires (RFC 4724 §4.2, RFC 8538 §4).
    pub peer_keeps_routes: bool,
}

/// Summary of a received UPDATE; its routes are not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedUpdate {
    /// Number of announced prefixes of negotiated families.
    pub announced: usize,
    /// Number of withdrawn prefixes of negotiated families.
    pub withdrawn: usize,
    /// Number of prefixes of unsupported or not negotiated families.
    pub foreign: usize,
    /// Malformed attributes that did not end the session (RFC 7606).
    pub faults: Vec<wire::AttributeFault>,
    /// Number of prefixes the neighbor announces after this UPDATE.
    pub prefixes: PrefixCount,
}

/// Number of prefixes announced by a neighbor, exact or as a lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixCount {
    /// Exact number.
    Exactly(u32),
    /// Lower bound: there are more prefixes than are tracked individually.
    AtLeast(u32),
}

impl PrefixCount {
    /// Returns the number, or the lower bound if the number is not exact.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }
}

impl fmt::Display for PrefixCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => count.fmt(f),
            Self::AtLeast(count) => write!(f, "at least {count}"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // State names of RFC 4271.
        fmt::Debug::fmt(self, f)
    }
}
