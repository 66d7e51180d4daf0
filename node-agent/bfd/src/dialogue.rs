//! Inputs, outputs and configuration of a session, and the fields last received from the peer.

use std::num::{NonZeroU8, NonZeroU32};

use crate::{
    auth::Key,
    interval::Interval,
    state::{Diagnostic, State},
    wire::ReceivedPacket,
};

/// Role in session initialization (RFC 5880 §6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Active: sends packets even if none has been received from the peer.
    Active,
    /// Passive: sends packets only while packets are received from the peer.
    Passive,
}

/// Configuration of one BFD session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Desired Min TX Interval: the minimum interval for sending. The peer may request a longer one.
    pub desired_min_tx: Interval,
    /// Required Min RX Interval: the minimum interval between received packets that this system supports.
    pub required_min_rx: Interval,
    /// Detect Mult: the number of missing packets after which the peer declares this session down.
    pub multiplier: NonZeroU8,
    /// Role in session initialization: active or passive (RFC 5880 §6.1).
    pub role: Role,
    /// Key that authenticates sent and received packets. If `None`, authenticated packets are rejected.
    pub key: Option<Key>,
}

/// Input of the session state machine, passed in by the code that owns the sockets (the driver).
#[derive(Debug)]
pub enum Input<'a> {
    /// A packet was received that belongs to this session.
    Received(&'a ReceivedPacket<'a>),
    /// A timer has expired: the time returned by [`Session::poll_timeout`](crate::Session::poll_timeout) has
    /// been reached.
    Timeout,
    /// A new configuration applies. A session that is up stays up: intervals are renegotiated by a Poll
    /// Sequence, and a changed key is used beside the previous one until the peer uses it, for at most
    /// [`KEY_CHANGE_TIME`](crate::key_change::KEY_CHANGE_TIME).
    Configure(Config),
    /// Put the session into AdminDown, and send the diagnostic to the peer in several packets at once (RFC
    /// 5880 §6.8.16).
    AdminDown(Diagnostic),
    /// End the AdminDown state. Has no effect in other states.
    Enable,
}

/// Action that the session state machine requests from the driver (the code that owns the sockets).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to the peer in one UDP datagram.
    Transmit(Vec<u8>),
    /// Report this event to the user of the session.
    Event(Event),
    /// Count a received packet that was rejected. The packet has changed no state.
    Refused(Refusal),
}

/// Change of a session that the driver (the code that owns the sockets) reports to the user of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The session is up: both systems receive packets from each other.
    Up,
    /// The session is no longer up, for the reason in this diagnostic. If the peer is in AdminDown,
    /// `RemoteAdminDown` is reported instead.
    Down(Diagnostic),
    /// The peer is in AdminDown, with this diagnostic. A session that was up is now down.
    RemoteAdminDown(Diagnostic),
    /// The transmit interval or the detection time of a session that is up has changed.
    TimersChanged,
}

/// Reason why a packet of a known session was rejected (RFC 5880 §6.7, §6.8.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The session has a key, but the packet has no authentication section.
    #[error("not authenticated")]
    AuthenticationMissing,
    /// The packet has an authentication section, but the session has no key.
    #[error("authenticated, but the session has no key")]
    AuthenticationUnexpected,
    /// The Auth Type differs from that of the key.
    #[error("unexpected authentication type")]
    AuthenticationType,
    /// The Auth Key ID differs from that of the key.
    #[error("unexpected key ID")]
    KeyId,
    /// The sequence number is outside the accepted range.
    #[error("sequence number outside the window")]
    Sequence,
    /// The digest does not match: the peer uses a different secret, or the packet was modified in transit.
    #[error("wrong digest")]
    Digest,
}

/// Fields of the last packet from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The peer's discriminator (`bfd.RemoteDiscr`), or `None` after the detection time has expired without
    /// packets. The other fields then keep their last values.
    pub discriminator: Option<NonZeroU32>,
    /// State of the peer's session (`bfd.RemoteSessionState`).
    pub state: State,
    /// Diagnostic sent by the peer: the reason for its last state change.
    pub diagnostic: Diagnostic,
    /// Detect Mult in the peer's packets, from which the detection time of this system is computed.
    pub multiplier: NonZeroU8,
    /// The peer's Desired Min TX Interval, in microseconds.
    pub desired_min_tx_micros: u32,
    /// The peer's Required Min RX Interval, in microseconds; 0 if the peer wants no periodic packets.
    pub required_min_rx_micros: u32,
    /// True if the peer is in Demand mode, in which it wants no periodic packets while both sessions are up.
    pub demand: bool,
}
