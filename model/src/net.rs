//! Kinds of addresses, told apart once and never mixed: what may be an endpoint, a virtual address, a node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub enum IpFamily {
    /// IP version 4.
    #[serde(rename = "IPv4")]
    V4,
    /// IP version 6.
    #[serde(rename = "IPv6")]
    V6,
}

impl IpFamily {
    /// Both families, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The family of a network.
    #[must_use]
    pub const fn of_net(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// How long its addresses are, in bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// `IPv4` or `IPv6`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Why an address can never be the target or the front of a Service, whatever the configuration says.
///
/// Answers `None` for an ordinary unicast address. The list cannot be switched off: endpoints on these addresses
/// would reach daemons of the node itself or of the link (CVE-2021-25737, CVE-2020-8558).
#[must_use]
pub fn forbidden(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => forbidden_v4(v4),
        IpAddr::V6(v6) => forbidden_v6(v6),
    }
}

fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    if address.octets()[0] == 0 {
        Some("unspecified (0.0.0.0/8)")
    } else if address.is_loopback() {
        Some("loopback (127.0.0.0/8)")
    } else if address.is_link_local() {
        Some("link-local (169.254.0.0/16)")
    } else if address.is_multicast() {
        Some("multicast (224.0.0.0/4)")
    } else if address.octets()[0] >= 240 {
        Some("reserved or broadcast (240.0.0.0/4)")
    } else {
        None
    }
}

fn forbidden_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        Some("unspecified (::)")
    } else if address.is_loopback() {
        Some("loopback (::1)")
    } else if address.is_unicast_link_local() {
        Some("link-local (fe80::/10)")
    } else if address.is_multicast() {
        Some("multicast (ff00::/8)")
    } else if address.to_ipv4_mapped().is_some() {
        Some("IPv4-mapped (::ffff:0:0/96); write the IPv4 address instead")
    } else {
        None
    }
}

/// Whether two networks share an address.
#[must_use]
pub fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// An address as a number of its family, for interval arithmetic.
#[must_use]
pub fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// The address with this number; `None` when an IPv4 number does not fit 32 bits.
#[must_use]
pub fn from_number(family: IpFamily, number: u128) -> Option<IpAddr> {
    match family {
        IpFamily::V4 => u32::try_from(number).ok().map(|n| IpAddr::V4(n.into())),
        IpFamily::V6 => Some(IpAddr::V6(number.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_purpose_addresses_are_forbidden_with_their_name() {
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(forbidden(bad.parse().unwrap()).is_some(), "{bad} must be forbidden");
        }
        for good in ["10.0.0.1", "192.0.2.1", "100.64.0.1", "2001:db8::1", "fd00::1"] {
            assert_eq!(forbidden(good.parse().unwrap()), None, "{good} must be allowed");
        }
    }

    #[test]
    fn networks_overlap_only_within_a_family() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        assert!(overlaps(&net("10.0.0.0/8"), &net("10.96.0.0/16")));
        assert!(overlaps(&net("10.96.0.0/16"), &net("10.0.0.0/8")));
        assert!(!overlaps(&net("10.96.0.0/16"), &net("10.97.0.0/16")));
        assert!(!overlaps(&net("0.0.0.0/0"), &net("::/0")));
    }
}
