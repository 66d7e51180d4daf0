//! Public types of BFD: peers, their configuration, state and counters.

use std::{io, net::IpAddr, num::NonZeroU8, time::Duration, time::Instant};

use ::bfd::{Config, Diagnostic, Interval, Key, Refusal, Role, State};

/// Maximum number of sessions. With intervals of 50 ms, more sessions would exceed the packet rate one thread
/// can sustain.
pub const PEERS_MAX: usize = 256;
/// UDP port of single-hop sessions (RFC 5881 §4).
const SINGLE_HOP_PORT: u16 = 3784;
/// UDP port of multihop sessions (RFC 5883 §5).
const MULTIHOP_PORT: u16 = 4784;
/// Hop limit of every transmitted packet (RFC 5881 §5).
pub(super) const HOP_LIMIT: u8 = 255;

/// Pair of local and remote address, which identifies a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerKey {
    /// Local IP address, from which packets are sent.
    pub local: IpAddr,
    /// IP address of the peer.
    pub peer: IpAddr,
}

/// Single-hop or multihop path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Peer on the same link. Packets that crossed a router are dropped (RFC 5881 §5).
    SingleHop,
    /// Peer behind routers. Packets with a hop limit (TTL) below `hop_limit_min` are dropped (RFC 5883 §6).
    Multihop {
        /// Minimum hop limit: 255 minus the maximum number of routers on the path.
        hop_limit_min: u8,
    },
}

impl Reach {
    pub(super) const fn port(self) -> u16 {
        match self {
            Self::SingleHop => SINGLE_HOP_PORT,
            Self::Multihop { .. } => MULTIHOP_PORT,
        }
    }

    pub(super) const fn hop_limit_min(self) -> u8 {
        match self {
            Self::SingleHop => HOP_LIMIT,
            Self::Multihop { hop_limit_min } => hop_limit_min,
        }
    }
}

/// Configuration of the BFD session with one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Minimum interval between sent packets. The peer may request a longer interval.
    pub transmit: Interval,
    /// Minimum interval between received packets that this node supports (Required Min RX Interval).
    pub receive: Interval,
    /// Detect Mult: number of missing packets after which the peer declares the session down.
    pub multiplier: NonZeroU8,
    /// Active or passive role in session initialization (RFC 5880 §6.1).
    pub role: Role,
    /// Single-hop or multihop path. A change of this field creates a new session.
    pub reach: Reach,
    /// Key that authenticates sent and received packets; `None` disables authentication.
    pub auth: Option<Key>,
}

impl SessionConfig {
    /// Creates the configuration of a single-hop session with the same interval in both directions.
    #[must_use]
    pub const fn new(interval: Interval, multiplier: NonZeroU8, auth: Option<Key>) -> Self {
        let reach = Reach::SingleHop;
        Self { transmit: interval, receive: interval, multiplier, role: Role::Active, reach, auth }
    }

    pub(super) fn of_session(&self) -> Config {
        let Self { transmit, receive, multiplier, role, reach: _, auth } = self;
        Config {
            desired_min_tx: *transmit,
            required_min_rx: *receive,
            multiplier: *multiplier,
            role: *role,
            key: auth.clone(),
        }
    }
}

/// Error: the number of peers exceeds [`PEERS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} BFD peers are configured, more than the maximum of {PEERS_MAX}")]
pub struct TooManyPeers {
    /// Number of peers that all users of BFD on this node request together.
    pub wanted: usize,
}

/// Reason why a session has no sockets and therefore sends nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// One address is IPv4 and the other is IPv6.
    #[error("the addresses are of different address families")]
    Families,
    /// An address does not identify a single host on a known link: it is multicast, unspecified, or
    /// link-local IPv6, which would require an interface.
    #[error("an address is multicast, unspecified or link-local")]
    Address,
    /// The kernel returned an error when a socket was opened, usually because the local address does not
    /// exist. Opening is retried.
    #[error("cannot open a socket: {0}")]
    Socket(io::ErrorKind),
}

impl Fault {
    /// Returns the permanent fault of an address pair, or `None` if the addresses are usable.
    pub(super) fn of(key: PeerKey) -> Option<Self> {
        let unusable = |address: IpAddr| {
            let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
            address.is_multicast() || address.is_unspecified() || link_local
        };
        if key.local.is_ipv4() != key.peer.is_ipv4() {
            Some(Self::Families)
        } else {
            (unusable(key.local) || unusable(key.peer)).then_some(Self::Address)
        }
    }
}

/// State of the session with one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerState {
    /// Session state on this node (`bfd.SessionState`).
    pub state: State,
    /// Time of the last state change.
    pub since: Instant,
    /// Reason for the last state change (`bfd.LocalDiag`).
    pub diagnostic: Diagnostic,
    /// Fields of the last packet from the peer, or `None` before the first packet.
    pub remote: Option<RemoteState>,
    /// Negotiated transmit interval, before jitter is subtracted.
    pub transmit_interval: Duration,
    /// Detection time, or `None` before the first packet from the peer.
    pub detection_time: Option<Duration>,
    /// Reason why the session has no sockets; `None` if they are open.
    pub fault: Option<Fault>,
    /// Packet counters since the session was created.
    pub counters: Counters,
}

/// Fields of the last packet from a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteState {
    /// True if the packet arrived within the detection time. Otherwise the other fields are outdated.
    pub heard: bool,
    /// State of the peer's session.
    pub state: State,
    /// Diagnostic of the peer: the reason for its last state change.
    pub diagnostic: Diagnostic,
}

/// Packet counters of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets passed to the kernel.
    pub sent: u64,
    /// Packets that the kernel rejected, for example for lack of a route.
    pub send_failures: u64,
    /// Packets sent later than half an interval after they were due, because this machine is too busy for the
    /// interval.
    pub late: u64,
    /// Well-formed packets received with a valid hop limit, including those that failed authentication.
    pub received: u64,
    /// Packets from the peer's address with a hop limit below the minimum.
    pub hop_limit: u64,
    /// Packets from the peer's address that are not valid BFD Control packets.
    pub malformed: u64,
    /// Packets dropped because they have no authentication although a key is configured, or have
    /// authentication although there is no key.
    pub authentication_presence: u64,
    /// Packets dropped because of a different authentication type or key ID.
    pub authentication_key: u64,
    /// Packets dropped because of a repeated or old sequence number.
    pub authentication_sequence: u64,
    /// Packets dropped because their digest was computed with a different secret.
    pub authentication_digest: u64,
}

impl Counters {
    pub(super) const fn refuse(&mut self, refusal: Refusal) {
        let counter = match refusal {
            Refusal::AuthenticationMissing | Refusal::AuthenticationUnexpected => {
                &mut self.authentication_presence
            }
            Refusal::AuthenticationType | Refusal::KeyId => &mut self.authentication_key,
            Refusal::Sequence => &mut self.authentication_sequence,
            Refusal::Digest => &mut self.authentication_digest,
        };
        *counter += 1;
    }
}
