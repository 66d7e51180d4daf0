//! With whom, how, and how it goes: what is said between BFD and its owner.

use std::{io, net::IpAddr, num::NonZeroU8, time::Duration, time::Instant};

use ::bfd::{Config, Diagnostic, Interval, Key, Refusal, Role, State};

/// The most sessions: beyond it, those of 50 ms would be more packets than a thread beside real work keeps up with.
pub const PEERS_MAX: usize = 256;
/// The port of sessions over one hop (RFC 5881 §4).
const SINGLE_HOP_PORT: u16 = 3784;
/// The port of sessions over several hops (RFC 5883 §5).
const MULTIHOP_PORT: u16 = 4784;
/// The hop limit of every packet that is sent (RFC 5881 §5).
pub(super) const HOP_LIMIT: u8 = 255;

/// Between which addresses. There is one session for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerKey {
    /// The address of this node.
    pub local: IpAddr,
    /// The address of the peer.
    pub peer: IpAddr,
}

/// How far away a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// On the same link: packets that crossed a router are not from it (RFC 5881 §5).
    SingleHop,
    /// Behind routers: packets with a lower hop limit than this are not from it (RFC 5883 §6).
    Multihop {
        /// 255 less the routers that may be in between.
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

/// How a session is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// How often to send; the peer may want it less often.
    pub transmit: Interval,
    /// How often packets can be received.
    pub receive: Interval,
    /// After how many missing packets the peer takes us for gone.
    pub multiplier: NonZeroU8,
    /// Who speaks first.
    pub role: Role,
    /// How far away the peer is. Another reach is another session.
    pub reach: Reach,
    /// Authenticates packets of both directions.
    pub auth: Option<Key>,
}

impl SessionConfig {
    /// A session over one hop with one interval for both directions.
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

/// More peers than there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} BFD peers are wanted, more than {PEERS_MAX}")]
pub struct TooManyPeers {
    /// How many.
    pub wanted: usize,
}

/// Why there is nothing to send and receive with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// One address is IPv4 and the other IPv6.
    #[error("the two addresses are of different families")]
    Families,
    /// An address that no single host on a known link has: multicast, unspecified, or link-local IPv6, which needs an
    /// interface.
    #[error("an address is multicast, unspecified or link-local")]
    Address,
    /// The kernel refused a socket, most often because the local address is not there. It is tried again.
    #[error("cannot open a socket: {0}")]
    Socket(io::ErrorKind),
}

impl Fault {
    /// What makes a pair of addresses impossible.
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

/// How a session goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerState {
    /// Our state.
    pub state: State,
    /// Since when.
    pub since: Instant,
    /// Why it changed last.
    pub diagnostic: Diagnostic,
    /// What the peer said last; `None` when it never said anything.
    pub remote: Option<RemoteState>,
    /// How often packets are sent, before jitter.
    pub transmit_interval: Duration,
    /// How long the peer may be silent; `None` when it never said anything.
    pub detection_time: Option<Duration>,
    /// Why there is no session at all.
    pub fault: Option<Fault>,
    /// What was sent, received and dropped.
    pub counters: Counters,
}

/// What a peer said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteState {
    /// It was heard within the detection time. Otherwise the rest is what it said before.
    pub heard: bool,
    /// Its state.
    pub state: State,
    /// Its diagnostic.
    pub diagnostic: Diagnostic,
}

/// The packets of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Given to the kernel.
    pub sent: u64,
    /// Refused by the kernel, as without a route.
    pub send_failures: u64,
    /// Sent later than half an interval after they were due: this machine is too busy for the interval.
    pub late: u64,
    /// Received, from within the hops that are allowed, and well formed; those that were not authentic included.
    pub received: u64,
    /// From the peer's address, but over more hops than allowed.
    pub hop_limit: u64,
    /// From the peer's address, but no control packet.
    pub malformed: u64,
    /// Not authenticated, or authenticated where there is no key.
    pub authentication_presence: u64,
    /// Another authentication type or key ID.
    pub authentication_key: u64,
    /// Repeated, or from before.
    pub authentication_sequence: u64,
    /// Made with another secret.
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
