//! IP families, address arithmetic, and the addresses that are never allowed for endpoints, virtual addresses
//! and nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// IP family: `IPv4` or `IPv6`.
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
    /// IPv4 and IPv6, in display order.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the IP family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the IP family of a network.
    #[must_use]
    pub const fn of_net(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// Returns the length of an address of the family in bits: 32 or 128.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Returns the family as in Kubernetes: `IPv4` or `IPv6`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Returns the reason why an address can never be an endpoint or an address of a Service, or `None` for an
/// ordinary unicast address.
///
/// Endpoints at such addresses would give clients access to services of the node itself or of its link
/// (CVE-2021-25737, CVE-2020-8558), or to the metadata service of a cloud. No option permits them. An IPv6
/// address that embeds an IPv4 address for translation or tunneling is treated as that IPv4 address.
#[must_use]
pub fn forbidden(address: IpAddr) -> Option<&'static str> {
    forbidden_within(address, address)
}

/// Returns a reason why [`forbidden`] rejects an address of the range from `first` to `last`, or `None` if it
/// rejects none of them. Both ends must have the same IP family.
#[must_use]
pub fn forbidden_within(first: IpAddr, last: IpAddr) -> Option<&'static str> {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => forbidden_v4(first, last),
        (IpAddr::V6(first), IpAddr::V6(last)) => forbidden_v6(first, last),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

/// Forbidden IPv4 ranges: network, prefix length and reason.
const FORBIDDEN_V4: [(Ipv4Addr, u8, &str); 8] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified (0.0.0.0/8)"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback (127.0.0.0/8)"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local (169.254.0.0/16)"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast (224.0.0.0/4)"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved or broadcast (240.0.0.0/4)"),
    (Ipv4Addr::new(100, 100, 100, 200), 32, "the metadata service of a cloud (100.100.100.200)"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "the metadata service of a cloud (168.63.129.16)"),
    (Ipv4Addr::new(192, 0, 0, 192), 32, "the metadata service of a cloud (192.0.0.192)"),
];

/// Forbidden IPv6 ranges: network, prefix length and reason.
const FORBIDDEN_V6: [(Ipv6Addr, u8, &str); 9] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified (::)"),
    (Ipv6Addr::LOCALHOST, 128, "loopback (::1)"),
    (Ipv6Addr::UNSPECIFIED, 96, "IPv4-compatible (::/96); write the IPv4 address instead"),
    (
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0),
        96,
        "IPv4-mapped (::ffff:0:0/96); write the IPv4 address instead",
    ),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local (fe80::/10)"),
    // Such an address embeds two IPv4 addresses, one of them inverted (RFC 4380 §4).
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "a Teredo tunnel (2001::/32)"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast (ff00::/8)"),
    (
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        128,
        "the metadata service of a cloud (fd00:ec2::254)",
    ),
    (
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
        128,
        "the metadata service of a cloud (fd20:ce::254)",
    ),
];

/// IPv6 networks whose addresses embed an IPv4 address: network, number of bits before the embedded address,
/// and the reason that is returned if the embedded address is forbidden. The networks belong to NAT64 (RFC
/// 6052, RFC 8215), stateless translation (RFC 2765) and 6to4 (RFC 3056).
const HOLDS_V4: [(Ipv6Addr, u8, &str); 4] = [
    (
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
        96,
        "an IPv4 address behind NAT64 (64:ff9b::/96) that is forbidden itself",
    ),
    (
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0),
        96,
        "an IPv4 address behind NAT64 (64:ff9b:1::/96) that is forbidden itself",
    ),
    (
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0),
        96,
        "a translated IPv4 address (::ffff:0:0:0/96) that is forbidden itself",
    ),
    (
        Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0),
        16,
        "a 6to4 address (2002::/16) of a forbidden IPv4 address",
    ),
];

fn forbidden_v4(first: Ipv4Addr, last: Ipv4Addr) -> Option<&'static str> {
    let (first, last) = (u128::from(u32::from(first)), u128::from(u32::from(last)));
    let meets = |network: Ipv4Addr, prefix: u8| {
        let network = u128::from(u32::from(network));
        first <= network + host_part(32 - prefix) && network <= last
    };
    FORBIDDEN_V4.iter().find(|(network, prefix, _)| meets(*network, *prefix)).map(|(_, _, why)| *why)
}

fn forbidden_v6(first: Ipv6Addr, last: Ipv6Addr) -> Option<&'static str> {
    let (first, last) = (u128::from(first), u128::from(last));
    let meets = |network: u128, prefix: u8| first <= network + host_part(128 - prefix) && network <= last;
    let plain = FORBIDDEN_V6.iter().find(|(network, prefix, _)| meets(u128::from(*network), *prefix));
    let holding = || {
        HOLDS_V4.iter().find(|(network, before, _)| {
            FORBIDDEN_V4.iter().any(|(held, prefix, _)| {
                let held = u128::from(u32::from(*held)) << (96 - before);
                meets(u128::from(*network) + held, before + prefix)
            })
        })
    };
    plain.or_else(holding).map(|(_, _, why)| *why)
}

/// Returns the number whose lowest `bits` bits are set; `bits` is at most 127.
fn host_part(bits: u8) -> u128 {
    (1 << bits) - 1
}

/// True if two networks have an address in common.
#[must_use]
pub fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// Returns an address as an integer, for interval arithmetic.
#[must_use]
pub fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// Returns the address of a family for an integer, or `None` if an IPv4 integer exceeds 32 bits.
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
            "::127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::169.254.169.254",
            "::ffff:0:127.0.0.1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "64:ff9b::168.63.129.16",
            "2002:c000:c0::1",
            "2001:0:a9fe:a9fe::",
            "2001::5601:5601",
        ] {
            assert!(forbidden(bad.parse().unwrap()).is_some(), "{bad} must be forbidden");
        }
        for good in [
            "1.0.0.0",
            "10.0.0.1",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "192.0.2.1",
            "100.64.0.1",
            "168.63.129.15",
            "192.0.0.193",
            "223.255.255.255",
            "2001:1::1",
            "2001:db8::1",
            "fd00::1",
            "64:ff9b::192.0.2.1",
            "2002:c000:201::1",
            "::1:0:0",
        ] {
            assert_eq!(forbidden(good.parse().unwrap()), None, "{good} must be allowed");
        }
    }

    #[test]
    fn a_range_around_a_forbidden_address_is_forbidden_though_its_ends_are_not() {
        let why = |first: &str, last: &str| forbidden_within(first.parse().unwrap(), last.parse().unwrap());
        assert!(why("126.0.0.0", "128.0.0.0").unwrap().starts_with("loopback"));
        assert!(why("169.0.0.0", "169.255.255.255").unwrap().starts_with("link-local"));
        assert!(why("fd00::", "fd00:ffff::").unwrap().contains("metadata"));
        assert!(why("2002::1:1:1:1:1:1", "2003::").unwrap().contains("6to4"));
        assert_eq!(why("10.0.0.0", "10.255.255.255"), None);
        assert_eq!(why("2001:db8::", "2001:db8:ffff:ffff::"), None);
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
