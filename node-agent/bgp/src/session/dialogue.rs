//! What a session is told, and what it answers.

use std::fmt;

use crate::{
    family::Family, message::Message, notification::Notification, session::Config, session::Negotiated, wire,
};

/// A connection, as its driver calls it; never used for another one of the same session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Who made a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// We did.
    Outgoing,
    /// The neighbour did.
    Incoming,
}

/// Where a session stands (RFC 4271 §8.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Nothing is tried, and connections of the neighbour are refused.
    Idle,
    /// A connection is being made.
    Connect,
    /// A connection of the neighbour is waited for, or the time of the next attempt.
    Active,
    /// OPEN was sent.
    OpenSent,
    /// OPEN was received and accepted.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// What happens to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Try to establish it; also ends the wait after a protocol error. Nothing where it is being tried.
    Start,
    /// End it and do not begin again.
    Stop(Stop),
    /// Time has passed: a moment that [`Session::poll_timeout`](crate::session::Session::poll_timeout) named has come.
    Timeout,
    /// A connection with the neighbour is there: the answer to [`Output::Connect`], or one that the neighbour made.
    Connected {
        /// How it is called from here on.
        connection: ConnectionId,
        /// Who made it.
        direction: Direction,
    },
    /// What [`Output::Connect`] began has failed.
    ConnectFailed {
        /// Why, such as "connection refused".
        why: String,
    },
    /// The connection is gone without our doing. Bytes that came before were handed over.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why, such as "closed by the neighbour".
        why: String,
    },
    /// A whole message came, or bytes that are none: then the NOTIFICATION that answers them.
    Received {
        /// Over which connection.
        connection: ConnectionId,
        /// What `wire` made of it with [`Session::context`](crate::session::Session::context).
        result: Result<wire::Decoded, Notification>,
    },
    /// The neighbour takes no more bytes of what is to be sent to it.
    SendStalled {
        /// Over which connection.
        connection: ConnectionId,
    },
    /// The neighbour has taken bytes after [`Input::SendStalled`]; to be told each time, also when more are left over.
    SendMoved {
        /// Over which connection.
        connection: ConnectionId,
        /// Nothing is left over.
        is_drained: bool,
    },
    /// BFD says that the path to the neighbour, which worked, does not (RFC 5882 §4). Never told for a neighbour that holds
    /// its BFD session down on purpose (§3.2).
    BfdDown,
    /// Other settings. Where [`Config::needs_reset`] names something, a session that has sent its OPEN ends by
    /// Cease/Other Configuration Change and begins again; else they take effect in place.
    Configure(Box<Config>),
}

/// How a session ends on our side.
///
/// Where RFC 8538 was negotiated, a neighbour would keep our routes over an ordinary Cease; the first three tell it by a
/// Hard Reset to drop them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Administrative Shutdown, with a text for the neighbour (RFC 9003).
    Shutdown(String),
    /// Administrative Reset, with a text for the neighbour.
    Reset(String),
    /// Peer De-configured.
    Deconfigured,
    /// Other Configuration Change: settings outside of [`Config`] changed. Routes may stay over it.
    ConfigurationChange,
    /// Close without a word, so that a neighbour that agreed on graceful restart keeps our routes until we are back.
    Silent,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Make a connection to the neighbour, and tell [`Input::Connected`] or [`Input::ConnectFailed`].
    Connect,
    /// Give up what the last [`Output::Connect`] began. Should it be connected already, close it; or tell so before another
    /// attempt begins, and it is answered by a close.
    CancelConnect,
    /// Send this behind all that was sent before.
    Send {
        /// Over which connection.
        connection: ConnectionId,
        /// OPEN, KEEPALIVE or NOTIFICATION. Never routes: those go from whoever has them after [`Event::Established`].
        message: Message,
    },
    /// Close the connection when a NOTIFICATION that was just sent is out, or after a short wait for that; drop everything
    /// else that was to be sent. Nothing is to be told about it any more.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Tell the owner.
    Event(Event),
}

/// News of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It stands elsewhere; the last output of a call. States in which nothing can happen between are left out.
    State {
        /// Where it stood.
        from: State,
        /// Where it stands.
        to: State,
        /// Why; never empty.
        why: String,
    },
    /// Routes can be sent over this connection, and messages are read with another context.
    Established {
        /// The connection.
        connection: ConnectionId,
        /// What both agreed on.
        negotiated: Box<Negotiated>,
    },
    /// An established session is none any more.
    Down(Box<Down>),
    /// An UPDATE was received and counted.
    Update(Learned),
    /// The neighbour has told all its routes of a family.
    PeerEndOfRib(Family),
    /// The neighbour wants our routes of a family again (RFC 2918); framed when enhanced refresh was negotiated (RFC 7313).
    RefreshRequested(Family),
    /// The neighbour has announced three quarters of what it may, or more than it may; each once in a session.
    PrefixLimit {
        /// What it has announced.
        count: PrefixCount,
        /// What it may.
        limit: u32,
        /// It is more, and the session ends.
        is_exceeded: bool,
    },
}

/// How an established session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Why; never empty.
    pub why: String,
    /// The NOTIFICATION that we ended it with.
    pub sent: Option<Notification>,
    /// The NOTIFICATION that the neighbour ended it with.
    pub received: Option<Notification>,
    /// By what was negotiated, the neighbour goes on using our routes until we are back or its patience ends
    /// (RFC 4724 §4.2, RFC 8538 §4).
    pub peer_keeps_routes: bool,
}

/// What an UPDATE said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// Prefixes of negotiated families that it announced.
    pub announced: usize,
    /// Prefixes of negotiated families that it withdrew.
    pub withdrawn: usize,
    /// Prefixes of other families.
    pub foreign: usize,
    /// Malformed attributes that were met without ending the session (RFC 7606).
    pub faults: Vec<wire::AttributeFault>,
    /// What the neighbour announces after it.
    pub prefixes: PrefixCount,
}

/// How many prefixes a neighbour announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixCount {
    /// As many.
    Exactly(u32),
    /// As many or more: it has announced more than are remembered one by one.
    AtLeast(u32),
}

impl PrefixCount {
    /// The number itself.
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
        // The names of RFC 4271.
        fmt::Debug::fmt(self, f)
    }
}
