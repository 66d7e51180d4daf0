//! Reads the current addresses of this machine by `getifaddrs(3)`.

use std::{collections::BTreeSet, io, net::IpAddr};

use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

/// Returns all addresses of this machine except loopback addresses.
///
/// # Errors
/// Returns an error if the interfaces cannot be listed.
pub fn local_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address.as_ref().and_then(ip_of));
    Ok(addresses.filter(|address| !address.is_loopback()).collect())
}

/// Returns the IP address of a socket address; `None` for other families.
#[must_use]
pub fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}
