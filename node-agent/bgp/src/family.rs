//! Supported address families (RFC 4760).

use std::fmt;

use ipnet::IpNet;

/// Address family of routes: an AFI and SAFI pair (RFC 4760 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4 unicast: AFI 1, SAFI 1.
    Ipv4Unicast,
    /// IPv6 unicast: AFI 2, SAFI 1.
    Ipv6Unicast,
}

/// SAFI of unicast forwarding (RFC 4760 §6).
const UNICAST: u8 = 1;

impl Family {
    /// All supported families, in the order in which their routes are advertised.
    pub const ALL: [Self; 2] = [Self::Ipv4Unicast, Self::Ipv6Unicast];

    /// Returns the address family of a prefix.
    #[must_use]
    pub const fn of(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::Ipv4Unicast,
            IpNet::V6(_) => Self::Ipv6Unicast,
        }
    }

    /// Returns the Address Family Identifier.
    #[must_use]
    pub const fn afi(self) -> u16 {
        match self {
            Self::Ipv4Unicast => 1,
            Self::Ipv6Unicast => 2,
        }
    }

    /// Returns the Subsequent Address Family Identifier.
    #[must_use]
    pub const fn safi(self) -> u8 {
        UNICAST
    }

    /// Returns the family with these identifiers, or `None` if it is not supported.
    #[must_use]
    pub const fn parse(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, UNICAST) => Some(Self::Ipv4Unicast),
            (2, UNICAST) => Some(Self::Ipv6Unicast),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4Unicast => "ipv4-unicast",
            Self::Ipv6Unicast => "ipv6-unicast",
        })
    }
}
