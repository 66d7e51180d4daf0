//! Inputs, outputs and states of a BGP session.

use std::fmt;

use crate::{
    family::Family,
    message::{Message, Update},
    notification::Notification,
    session::{Config, NegotiatedSession},
    wire,
};

/// Identifier of a connection, assigned by the caller of the session; never reused within a session.
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
    /// Inactive; connections from the neighbor are rejected.
    Idle,
    /// Attempt to open a TCP connection in progress.
    Connect,
    /// Waiting for a connection from the neighbor or for the next attempt.
    Active,
    /// TCP connection open and OPEN sent.
    OpenSent,
    /// OPEN of the neighbor accepted; waiting for its KEEPALIVE.
    OpenConfirm,
    /// Session up; routes can be exchanged.
    Established,
}

/// Input of the session state machine, passed in by the code that owns the sockets (the driver).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Start the session, even during the delay after a protocol error. Without effect if the session is
    /// already started.
    Start,
    /// End the session, which then stays in Idle until [`Input::Start`].
    Stop(Stop),
    /// A timer has expired: the time returned by
    /// [`Session::poll_timeout`](crate::session::Session::poll_timeout) has been reached.
    Timeout,
    /// A connection is open: the one requested by [`Output::Connect`], or an incoming one.
    Connected {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Side that initiated the connection.
        direction: Direction,
    },
    /// The attempt started by [`Output::Connect`] has failed.
    ConnectFailed {
        /// Reason for the failure, such as "connection refused".
        why: String,
    },
    /// The connection was closed or lost. All bytes received before must already have been passed in.
    Closed {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Reason for the end, such as "closed by the neighbour".
        why: String,
    },
    /// A message was received, or invalid bytes that must be answered with a NOTIFICATION.
    Received {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Message, decoded with the context that [`Session::context`](crate::session::Session::context)
        /// returns, or the NOTIFICATION to send if it cannot be decoded.
        result: Result<wire::DecodedMessage, Notification>,
    },
    /// The neighbor accepts no more bytes, because a send buffer is full.
    SendStalled {
        /// Identifier of the connection.
        connection: ConnectionId,
    },
    /// The neighbor has accepted bytes after [`Input::SendStalled`]. Passed in each time, even if unsent
    /// bytes remain.
    SendMoved {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// True if no unsent bytes remain.
        is_drained: bool,
    },
    /// BFD has declared the path down after it was up (RFC 5882 §4). Must not be passed in if the neighbor's
    /// BFD session is in AdminDown (§3.2).
    BfdDown,
    /// A new configuration applies. If [`Session::needs_reset`](crate::session::Session::needs_reset) returns
    /// a setting, the session ends with Cease/Other Configuration Change and restarts; otherwise the changes
    /// are applied in place.
    Configure(Box<Config>),
}

/// Reason to end a session, which determines the NOTIFICATION.
///
/// With RFC 8538 a neighbor would retain this speaker's routes after an ordinary Cease, so `Shutdown`,
/// `Reset` and `Deconfigured` use a Hard Reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Administrative Shutdown with a Shutdown Communication (RFC 9003).
    Shutdown(String),
    /// Administrative Reset with a Shutdown Communication (RFC 9003); the session may be started again.
    Reset(String),
    /// Peer De-configured: the neighbor was removed from the configuration.
    Deconfigured,
    /// Other Configuration Change: a setting outside of [`Config`] has changed. The neighbor may retain
    /// routes.
    ConfigurationChange,
    /// The connection is closed without a NOTIFICATION, so that a neighbor with Graceful Restart retains this
    /// speaker's routes until the session is established again.
    Silent,
}

/// Action that the session state machine requests from the driver (the code that owns the sockets). Actions
/// must be carried out in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Connect to the neighbor, and respond with [`Input::Connected`] or [`Input::ConnectFailed`].
    Connect,
    /// Cancel the attempt of the last [`Output::Connect`]. If it has already succeeded, either close the
    /// connection, or report it before another attempt starts; the session then closes it.
    CancelConnect,
    /// Send a message on a connection, after all previous messages.
    Send {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// OPEN, KEEPALIVE or NOTIFICATION. UPDATE messages are sent by the driver after
        /// [`Event::Established`].
        message: Message,
    },
    /// Close the connection after a preceding NOTIFICATION was sent, or after a short timeout. Discard other
    /// pending messages, and pass in no further input about the connection.
    Close {
        /// Identifier of the connection.
        connection: ConnectionId,
    },
    /// Report this event to the user of the session.
    Event(Event),
}

/// Change of a session that the driver (the code that owns the sockets) reports to the user of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The state has changed. Always the last output of a call. States that last only within the call are
    /// omitted.
    State {
        /// State before the input.
        from: State,
        /// State after the input.
        to: State,
        /// Reason for the change as text; never empty.
        why: String,
    },
    /// The session is established: routes can be sent on this connection, and the context for encoding has
    /// changed.
    Established {
        /// Identifier of the connection.
        connection: ConnectionId,
        /// Properties negotiated by the OPEN messages.
        negotiated: Box<NegotiatedSession>,
    },
    /// A session that was established has ended.
    Down(Box<Down>),
    /// An UPDATE was received and counted.
    Update(ReceivedUpdate),
    /// The neighbor has sent the End-of-RIB marker of a family.
    PeerEndOfRib(Family),
    /// The neighbor has requested all routes of a family again (RFC 2918). The response is enclosed in
    /// markers if Enhanced Route Refresh was negotiated (RFC 7313).
    RefreshRequested(Family),
    /// The number of received prefixes has reached three quarters of the limit, or has exceeded the limit.
    /// Each of the two events is reported once per session.
    PrefixLimit {
        /// Number of prefixes received from the neighbor.
        count: PrefixCount,
        /// Configured maximum number of prefixes.
        limit: u32,
        /// True if the limit is exceeded and the session ends.
        is_exceeded: bool,
    },
}

/// End of a session that was established.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Reason for the end as text; never empty.
    pub why: String,
    /// NOTIFICATION that was sent before the end; `None` if none was sent.
    pub sent: Option<Notification>,
    /// NOTIFICATION that was received as the last message; `None` if none was received.
    pub received: Option<Notification>,
    /// True if, as negotiated, the neighbor retains this speaker's routes until the session is established
    /// again or the Restart Time expires (RFC 4724 §4.2, RFC 8538 §4).
    pub peer_keeps_routes: bool,
}

/// Received UPDATE with a summary. The session counts the routes and does not store them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedUpdate {
    /// Number of announced prefixes of negotiated families.
    pub announced: usize,
    /// Number of withdrawn prefixes of negotiated families.
    pub withdrawn: usize,
    /// Number of prefixes of families that are unsupported or were not negotiated.
    pub foreign: usize,
    /// Malformed attributes that did not end the session (RFC 7606).
    pub faults: Vec<wire::AttributeFault>,
    /// Number of prefixes that the neighbor announces after this UPDATE.
    pub prefixes: PrefixCount,
    /// UPDATE with the routes of negotiated families.
    pub update: Box<Update>,
}

/// Number of prefixes that a neighbor announces, either exact or a lower bound.
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
