//! Validated probe targets: IP addresses outside of the forbidden ranges, such as loopback, link-local
//! networks and cloud metadata services.
//!
//! Endpoints are literal addresses, so DNS cannot redirect a probe later. Most addresses rejected here are
//! already forbidden for endpoints (`model::net::forbidden`). The check is repeated here for every endpoint,
//! because an address that bypassed the first check would be probed by every agent. A rejected endpoint is
//! never probed and stays `Pending` with the reason, because its health is unknown.
//!
//! Other addresses of the node are allowed, because endpoints in the host network use them. The control
//! server and other daemons may listen on them, too, but a probe reveals only a status code, or the presence
//! of a text in a page, and its request methods change nothing on the target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use model::primitives::{net, quantity::Port};

/// Address and port to which a probe may connect, checked against forbidden ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeTarget(SocketAddr);

impl ProbeTarget {
    /// Validates an address and a port.
    ///
    /// # Errors
    /// Returns the reason if the address must not be probed, phrased to follow `the address is`.
    pub fn new(address: IpAddr, port: Port) -> Result<Self, &'static str> {
        match refused(address) {
            Some(reason) => Err(reason),
            None => Ok(Self(SocketAddr::new(address, port.get()))),
        }
    }

    /// Returns the address and port to connect to.
    #[must_use]
    pub const fn address(self) -> SocketAddr {
        self.0
    }
}

/// IPv4 addresses of cloud metadata services outside of the link-local network: Alibaba, Azure and Oracle.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// Returns the reason why an address must not be probed, or `None` if it is allowed.
#[must_use]
pub fn refused(address: IpAddr) -> Option<&'static str> {
    if let Some(reason) = net::forbidden(address) {
        return Some(reason);
    }
    match address {
        IpAddr::V4(address) => METADATA_V4.contains(&address).then_some("a cloud metadata service"),
        IpAddr::V6(address) => refused_v6(address),
    }
}

fn refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    let embedded = match [a, b, c, d, e, f] {
        // Deprecated (RFC 4291 §2.5.5.1) and unused by endpoints.
        [0, 0, 0, 0, 0, 0] => return Some("IPv4-compatible (::/96); write the IPv4 address instead"),
        // NAT64 prefixes of RFC 6052 §2.1 and RFC 8215, and IPv4-translated addresses of RFC 2765 §2.1.
        [0x64, 0xff9b, 0, 0, 0, 0] | [0x64, 0xff9b, 1, _, _, _] | [0, 0, 0, 0, 0xffff, 0] => Some(v4(g, h)),
        // 6to4 (RFC 3056 §2).
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    };
    if embedded.is_some_and(|embedded| refused(IpAddr::V4(embedded)).is_some()) {
        return Some("a translation of an IPv4 address that must not be probed");
    }
    METADATA_V6.contains(&address).then_some("a cloud metadata service")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_check_reaches_the_node_the_link_or_the_cloud() {
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::127.0.0.1",
            "::10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "fe80::1",
            "febf::1",
            "fe80::a9fe:a9fe",
            "ff02::1",
            "ff0e::1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b::0.0.0.0",
            "64:ff9b::255.255.255.255",
            "64:ff9b::100.100.100.200",
            "64:ff9b:1::127.0.0.1",
            "64:ff9b:1:2:3:4:169.254.169.254",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            let address: IpAddr = bad.parse().unwrap();
            assert!(refused(address).is_some(), "{bad} must be refused");
            assert!(ProbeTarget::new(address, Port::new(80).unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ordinary_endpoints_are_checked() {
        for good in [
            "10.0.0.1",
            "192.0.2.1",
            "100.64.0.1",
            "169.253.1.1",
            "2001:db8::1",
            "fd00::1",
            "fd00:ec2::1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
            "1::",
        ] {
            let address: IpAddr = good.parse().unwrap();
            assert_eq!(refused(address), None, "{good} must be allowed");
            let pinned = ProbeTarget::new(address, Port::new(80).unwrap()).unwrap();
            assert_eq!(pinned.address(), SocketAddr::new(address, 80));
        }
    }
}
