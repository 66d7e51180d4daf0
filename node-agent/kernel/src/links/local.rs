//! Reads the current addresses of this machine by `getifaddrs(3)`.

use std::{collections::BTreeSet, io, net::IpAddr};

use ipnet::IpNet;
use nix::{
    ifaddrs::{InterfaceAddress, getifaddrs},
    net::if_::InterfaceFlags,
    sys::socket::SockaddrStorage,
};

/// Returns all addresses of this machine except loopback addresses.
///
/// # Errors
/// Returns an error if the interfaces cannot be listed.
pub fn local_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address.as_ref().and_then(ip_of));
    Ok(addresses.filter(|address| !address.is_loopback()).collect())
}

/// Returns the networks of the interfaces that are up, except loopback and link-local networks, and single addresses.
///
/// # Errors
/// Returns an error if the interfaces cannot be listed.
pub fn local_networks() -> io::Result<BTreeSet<IpNet>> {
    let network = |interface: InterfaceAddress| {
        let address = interface.address.as_ref().and_then(ip_of)?;
        let mask = interface.netmask.as_ref().and_then(ip_of)?;
        let network = IpNet::with_netmask(address, mask).ok()?.trunc();
        let is_link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let is_up = interface.flags.contains(InterfaceFlags::IFF_UP);
        let is_single = network.prefix_len() == network.max_prefix_len();
        (is_up && !address.is_loopback() && !is_link_local && !is_single).then_some(network)
    };
    Ok(getifaddrs()?.filter_map(network).collect())
}

/// Returns the IP address of a socket address; `None` for other families.
#[must_use]
pub fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}
