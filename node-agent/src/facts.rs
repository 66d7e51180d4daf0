//! Data about the machine for reports and registration: addresses, networks, kernel release.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use model::{kinds::node::ProxyMode, primitives::net, wire::report::Facts};
use nix::ifaddrs::getifaddrs;

use kernel::links::{Links, ip_of};

/// Maximum number of addresses in one report (`model::report::Facts`).
const ADDRESSES_MAX: usize = 1024;
/// File with the release of the running kernel.
const KERNEL_RELEASE_PATH: &str = "/proc/sys/kernel/osrelease";

/// Reads the addresses, networks and kernel release of this machine, without loopback, link-local and
/// multicast addresses. Facts that cannot be read are left out.
#[must_use]
pub fn collect() -> Facts {
    let found = getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address.as_ref().and_then(ip_of)?;
        let mask = interface.netmask.as_ref().and_then(ip_of);
        let subnet = mask.and_then(|mask| IpNet::with_netmask(address, mask).ok());
        Some((interface.interface_name, address, subnet))
    });
    from_addresses(found)
}

/// Returns the same data as [`collect`], from the tracked interfaces, and their link-layer addresses. Networks
/// are only taken from interfaces with a MAC address, because only there can an address be announced.
#[must_use]
pub fn of(links: &Links) -> Facts {
    let found = links.by_index.values().flat_map(|link| {
        link.addresses.iter().map(|(address, prefix)| {
            let subnet = IpNet::new(*address, *prefix).ok().filter(|_| link.mac.is_some());
            (link.name.clone(), *address, subnet)
        })
    });
    let mut facts = from_addresses(found);
    let is_used = |name: &String| facts.subnets.contains_key(name);
    let links = links.by_index.values().filter(|link| is_used(&link.name));
    facts.link_layer_addresses =
        links.filter_map(|link| Some((link.name.clone(), link.mac?.to_string()))).collect();
    facts
}

fn from_addresses(found: impl Iterator<Item = (String, IpAddr, Option<IpNet>)>) -> Facts {
    let mut addresses = Vec::new();
    let mut seen = BTreeSet::new();
    let mut subnets: BTreeMap<String, Vec<IpNet>> = BTreeMap::new();
    for (name, address, subnet) in found {
        if net::forbidden(address).is_some() || !seen.insert(address) || addresses.len() == ADDRESSES_MAX {
            continue;
        }
        addresses.push(address);
        if let Some(subnet) = subnet {
            subnets.entry(name).or_default().push(subnet.trunc());
        }
    }
    // IPv4 first, then in interface order: the first address is the one by which operators know the machine.
    addresses.sort_by_key(IpAddr::is_ipv6);
    let kernel = std::fs::read_to_string(KERNEL_RELEASE_PATH).unwrap_or_default().trim().to_owned();
    let link_layer_addresses = BTreeMap::new();
    let capabilities = vec![ProxyMode::Nftables];
    Facts { addresses, subnets, link_layer_addresses, peer_public_key: None, kernel, capabilities }
}
