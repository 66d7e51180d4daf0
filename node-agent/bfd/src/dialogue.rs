//! What a session is told, what it answers, and what it knows of its peer.

use std::num::{NonZeroU8, NonZeroU32};

use crate::{
    auth::Key,
    interval::Interval,
    state::{Diagnostic, State},
    wire::Received,
};

/// Who speaks first (§6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends whether the peer was heard or not.
    Active,
    /// Sends only while the peer is heard.
    Passive,
}

/// What a session is told by its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How often to send; the peer may want it less often.
    pub desired_min_tx: Interval,
    /// How often packets can be received.
    pub required_min_rx: Interval,
    /// How many missing packets mean that we are gone, for the peer.
    pub multiplier: NonZeroU8,
    /// Who speaks first.
    pub role: Role,
    /// Authenticates both directions; without it, authenticated packets are refused.
    pub key: Option<Key>,
}

/// What happens to a session.
#[derive(Debug)]
pub enum Input<'a> {
    /// A packet that was found to be for this session.
    Received(&'a Received<'a>),
    /// Time has passed: a moment that [`Session::poll_timeout`](crate::Session::poll_timeout) named has come.
    Timeout,
    /// Other settings. A session that is up stays up: intervals are renegotiated by a Poll Sequence.
    Configure(Config),
    /// Hold the session down and tell the peer why, several times at once (§6.8.16).
    AdminDown(Diagnostic),
    /// Let a session go that is held down; otherwise nothing.
    Enable,
}

/// What is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this to the peer.
    Transmit(Vec<u8>),
    /// Tell the owner.
    Event(Event),
    /// The packet was refused and changed nothing; count it.
    Refused(Refusal),
}

/// News of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Both directions work.
    Up,
    /// The session is not up any more, for this reason; the peer being stopped is told as `RemoteAdminDown` instead.
    Down(Diagnostic),
    /// The peer says that it is held down; this is its diagnostic. A session that was up is down.
    RemoteAdminDown(Diagnostic),
    /// Of a session that is up, the transmit interval or the detection time is another.
    TimersChanged,
}

/// Why a packet of a known session was refused (§6.7, §6.8.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The session has a key and the packet is not authenticated.
    #[error("not authenticated")]
    AuthenticationMissing,
    /// The packet is authenticated and the session has no key.
    #[error("authenticated, but the session has no key")]
    AuthenticationUnexpected,
    /// Another authentication type than that of the key.
    #[error("other authentication type")]
    AuthenticationType,
    /// Another key ID.
    #[error("other key ID")]
    KeyId,
    /// The sequence number is outside of the window.
    #[error("sequence number outside of the window")]
    Sequence,
    /// Made with another secret, or changed on its way.
    #[error("wrong digest")]
    Digest,
}

/// What the peer said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Its name of the session; `None` while it is not heard. The rest is then what it said before.
    pub discriminator: Option<NonZeroU32>,
    /// Its state.
    pub state: State,
    /// Why its state changed last.
    pub diagnostic: Diagnostic,
    /// Its detect multiplier.
    pub multiplier: NonZeroU8,
    /// How often it would like to send, in microseconds.
    pub desired_min_tx_micros: u32,
    /// How often it can receive, in microseconds; 0: it wants no periodic packets.
    pub required_min_rx_micros: u32,
    /// It wants no periodic packets while both are up.
    pub demand: bool,
}
