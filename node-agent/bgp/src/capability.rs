//! Capabilities of a speaker (RFC 5492) as they are told in OPEN.

use std::{collections::BTreeMap, fmt};

use crate::family::Family;

/// One capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capability {
    /// It takes routes of a family (RFC 4760 §8): code 1.
    MultiProtocol(Family),
    /// It takes route refresh messages (RFC 2918): code 2.
    RouteRefresh,
    /// It takes IPv6 next hops for routes of these families (RFC 8950): code 5.
    ExtendedNextHop(Vec<Family>),
    /// It takes messages of up to 65,535 bytes (RFC 8654): code 6.
    ExtendedMessage,
    /// What it is to its peer (RFC 9234): code 9.
    Role(Role),
    /// It keeps forwarding while its sessions restart (RFC 4724, RFC 8538): code 64.
    GracefulRestart(GracefulRestart),
    /// It takes AS numbers of four octets (RFC 6793), and this is its own: code 65.
    FourOctetAs(u32),
    /// It frames the answer to a refresh (RFC 7313): code 70.
    EnhancedRouteRefresh,
    /// What it is called (FQDN capability): code 73. Each part at most 64 bytes.
    HostName {
        /// The host's name.
        host: String,
        /// The domain's name; may be empty.
        domain: String,
    },
    /// Anything else, as it was received: unknown codes, other families, lengths that do not fit. Never sent.
    Unknown {
        /// The code.
        code: u8,
        /// Its value.
        value: Vec<u8>,
    },
}

/// The Graceful Restart capability.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GracefulRestart {
    /// R: it has restarted and did not hear all routes yet.
    pub is_restarted: bool,
    /// N: NOTIFICATION and the end of the hold time keep its routes too (RFC 8538 §2).
    pub notification: bool,
    /// How long its routes may be kept after the session is lost, in seconds, 0–4095.
    pub restart_time: u16,
    /// The families, and whether forwarding was kept (F).
    pub families: BTreeMap<Family, bool>,
}

/// What a speaker is to its peer (RFC 9234 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Sells transit to the peer: 0.
    Provider,
    /// Route server: 1.
    RouteServer,
    /// Client of a route server: 2.
    RouteServerClient,
    /// Buys transit from the peer: 3.
    Customer,
    /// Exchanges own routes only: 4.
    Peer,
}

impl Role {
    /// The role of the other side that fits (RFC 9234 §4.2).
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
