//! Capabilities advertised in OPEN (RFC 5492).

use std::{collections::BTreeMap, fmt};

use crate::family::Family;

/// Capability in an OPEN message (RFC 5492 §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capability {
    /// Multiprotocol Extensions: support for an address family (RFC 4760 §8): code 1.
    MultiProtocol(Family),
    /// Route Refresh: ROUTE-REFRESH requests are accepted (RFC 2918): code 2.
    RouteRefresh,
    /// Extended Next Hop Encoding: IPv6 next hops for routes of these families (RFC 8950): code 5.
    ExtendedNextHop(Vec<Family>),
    /// Extended Message: messages of up to 65,535 bytes (RFC 8654): code 6.
    ExtendedMessage,
    /// Role of the sender towards the receiver (RFC 9234 §4.1): code 9.
    Role(Role),
    /// Graceful Restart (RFC 4724, RFC 8538): code 64.
    GracefulRestart(GracefulRestart),
    /// Support for 4-octet AS numbers, with the AS number of the speaker (RFC 6793): code 65.
    FourOctetAs(u32),
    /// Enhanced Route Refresh: a refresh is enclosed in `BoRR` and `EoRR` (RFC 7313): code 70.
    EnhancedRouteRefresh,
    /// FQDN of the sender, for display (draft-walton-bgp-hostname-capability): code 73. Each part has at most
    /// 64 bytes.
    HostName {
        /// Host name of the sender.
        host: String,
        /// Domain name of the sender; empty if unknown.
        domain: String,
    },
    /// Received capability with an unknown code, an unsupported family or an invalid length. Never sent.
    Unknown {
        /// Capability code as received.
        code: u8,
        /// Capability value as received, without code and length.
        value: Vec<u8>,
    },
}

/// Value of the Graceful Restart capability (RFC 4724 §3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GracefulRestart {
    /// Restart State bit (R): the speaker has restarted and has not received all routes yet.
    pub is_restarted: bool,
    /// Notification bit (N): routes are also retained after a NOTIFICATION or the expiry of the Hold Timer
    /// (RFC 8538 §2).
    pub notification: bool,
    /// Restart Time in seconds, 0 to 4095.
    pub restart_time: u16,
    /// Families for which routes are retained, with their Forwarding State bit (F): true if forwarding state
    /// survived the restart.
    pub families: BTreeMap<Family, bool>,
}

/// BGP Role towards the peer (RFC 9234 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Provider (0): provides transit to the peer.
    Provider,
    /// Route Server (1): relays routes between its clients.
    RouteServer,
    /// Route Server Client (2): peers with a route server.
    RouteServerClient,
    /// Customer (3): receives transit from the peer.
    Customer,
    /// Peer (4): exchanges only its own routes and those of its customers.
    Peer,
}

impl Role {
    /// Returns the corresponding role of the other side (RFC 9234 §4.2).
    #[must_use]
    pub const fn counterpart(self) -> Self {
        match self {
            Self::Provider => Self::Customer,
            Self::RouteServer => Self::RouteServerClient,
            Self::RouteServerClient => Self::RouteServer,
            Self::Customer => Self::Provider,
            Self::Peer => Self::Peer,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "provider",
            Self::RouteServer => "route server",
            Self::RouteServerClient => "route server client",
            Self::Customer => "customer",
            Self::Peer => "peer",
        })
    }
}
