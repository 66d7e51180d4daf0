//! Selects next hops for advertised routes: addresses of this node on the link of the connection. Does no
//! I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use ::bgp::{Family, attributes::NextHop};
use ipnet::IpNet;
use kernel::links::{Link, Links};

/// Next hop by address family, or the reason why there is none.
pub(super) type NextHops = BTreeMap<Family, Result<NextHop, String>>;

/// Returns the next hop of each family for a session, from the addresses of the TCP connection and its link.
/// `takes_ipv6` is true if the neighbor accepts IPv6 next hops for IPv4 routes (RFC 8950).
pub(super) fn next_hops(
    local: SocketAddr,
    remote: SocketAddr,
    families: &BTreeSet<Family>,
    takes_ipv6: bool,
    links: &Links,
) -> NextHops {
    let link = link_of(local, links);
    let v6 = || v6(local.ip(), remote.ip(), link);
    let next_hop = |family| match (family, local.ip()) {
        (Family::Ipv4Unicast, IpAddr::V4(local)) => Ok(NextHop::V4(local)),
        (Family::Ipv4Unicast, IpAddr::V6(_)) if takes_ipv6 => v6(),
        (Family::Ipv4Unicast, IpAddr::V6(_)) => v4_beside(link),
        (Family::Ipv6Unicast, _) => v6(),
    };
    families.iter().map(|family| (*family, next_hop(*family))).collect()
}

/// Returns the link of this node that has the address `local`, or `None` if there is none. A link-local
/// address is looked up by its scope (interface index).
fn link_of(local: SocketAddr, links: &Links) -> Option<&Link> {
    match local {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => links.by_index.get(&v6.scope_id()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => {
            links.by_index.values().find(|link| link.addresses.contains_key(&local.ip()))
        }
    }
}

fn v4_beside(link: Option<&Link>) -> Result<NextHop, String> {
    let addresses = link.into_iter().flat_map(|link| link.addresses.keys());
    let first = addresses.filter_map(|address| match address {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    });
    first.into_iter().next().map(NextHop::V4).ok_or_else(|| {
        let name = named(link);
        format!(
            "{name} has no IPv4 address to be the next hop, and the neighbour takes no IPv6 one (RFC 8950)"
        )
    })
}

/// Returns the IPv6 next hop as defined by RFC 2545 §3: the global address and, if the neighbor is on the
/// same link, the link-local address.
fn v6(local: IpAddr, remote: IpAddr, link: Option<&Link>) -> Result<NextHop, String> {
    let addresses = || {
        link.into_iter().flat_map(|link| link.addresses.keys()).filter_map(|address| match address {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        })
    };
    let is_global = |v6: &Ipv6Addr| !v6.is_unicast_link_local() && !v6.is_loopback() && !v6.is_multicast();
    let own = match local {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    };
    let link_local = match own.filter(Ipv6Addr::is_unicast_link_local) {
        Some(own) => Some(own),
        None if is_on(remote, link) => addresses().find(Ipv6Addr::is_unicast_link_local),
        None => None,
    };
    let global = own.filter(|own| !own.is_unicast_link_local()).or_else(|| addresses().find(is_global));
    match (global, link_local) {
        (Some(global), link_local) => Ok(NextHop::V6 { global, link_local }),
        // An unnumbered link has only link-local addresses.
        (None, Some(alone)) if own.is_some() => Ok(NextHop::V6 { global: alone, link_local: None }),
        (None, _) => Err(format!("{} has no IPv6 address to be the next hop", named(link))),
    }
}

/// Returns true if two addresses are in the same network of a local link.
pub(super) fn is_on_link(local: IpAddr, remote: IpAddr, links: &Links) -> bool {
    let link = links.by_index.values().find(|link| link.addresses.contains_key(&local));
    is_on(remote, link)
}

fn is_on(remote: IpAddr, link: Option<&Link>) -> bool {
    let networks = link.into_iter().flat_map(|link| &link.addresses);
    let mut networks = networks.filter_map(|(address, length)| IpNet::new(*address, *length).ok());
    networks.any(|network| network.contains(&remote))
}

fn named(link: Option<&Link>) -> &str {
    link.map_or("the interface of the session", |link| link.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(addresses: &[(&str, u8)]) -> Links {
        let addresses =
            addresses.iter().map(|(address, length)| (address.parse().unwrap(), *length)).collect();
        let link = Link { name: "eth0".to_owned(), mac: None, is_up: true, addresses };
        Links { by_index: [(2_u32, link)].into_iter().collect() }
    }

    fn hops(local: &str, remote: &str, takes_ipv6: bool, links: &Links) -> [Result<NextHop, String>; 2] {
        let mut hops = next_hops(
            local.parse().unwrap(),
            remote.parse().unwrap(),
            &Family::ALL.into(),
            takes_ipv6,
            links,
        );
        Family::ALL.map(|family| hops.remove(&family).unwrap())
    }

    fn v6(global: &str, link_local: Option<&str>) -> NextHop {
        let link_local = link_local.map(|text| text.parse().unwrap());
        NextHop::V6 { global: global.parse().unwrap(), link_local }
    }

    const BOTH: [(&str, u8); 3] = [("192.0.2.1", 24), ("2001:db8::1", 64), ("fe80::1", 64)];

    #[test]
    fn the_next_hop_is_our_end_and_for_the_other_family_what_the_link_has() {
        let links = links(&BOTH);
        let [v4, other] = hops("192.0.2.1:179", "192.0.2.2:179", false, &links);
        assert_eq!(v4, Ok(NextHop::V4([192, 0, 2, 1].into())));
        assert_eq!(other, Ok(v6("2001:db8::1", Some("fe80::1"))));
        let [beside, own] = hops("[2001:db8::1]:179", "[2001:db8::2]:179", false, &links);
        assert_eq!(beside, Ok(NextHop::V4([192, 0, 2, 1].into())));
        assert_eq!(own, Ok(v6("2001:db8::1", Some("fe80::1"))));
        // With RFC 8950 the address of the session is used for both families.
        let [extended, _] = hops("[2001:db8::1]:179", "[2001:db8::2]:179", true, &links);
        assert_eq!(extended, own);
    }

    #[test]
    fn link_local_addresses_are_for_neighbours_on_the_link_only() {
        let [_, far] = hops("[2001:db8::1]:179", "[2001:db8:9::2]:179", false, &links(&BOTH));
        assert_eq!(far, Ok(v6("2001:db8::1", None)));
        let [v4, own] = hops("[fe80::1%2]:179", "[fe80::2%2]:179", true, &links(&[("fe80::1", 64)]));
        assert_eq!((v4.clone(), v4), (own, Ok(v6("fe80::1", None))));
        let [_, both] = hops("[fe80::1%2]:179", "[fe80::2%2]:179", true, &links(&BOTH));
        assert_eq!(both, Ok(v6("2001:db8::1", Some("fe80::1"))));
    }

    #[test]
    fn a_family_without_an_address_is_left_out_in_words() {
        let [_, none] = hops("192.0.2.1:179", "192.0.2.2:179", true, &links(&[("192.0.2.1", 24)]));
        assert_eq!(none.unwrap_err(), "eth0 has no IPv6 address to be the next hop");
        let [none, _] = hops("[2001:db8::1]:179", "[2001:db8::2]:179", false, &links(&[("2001:db8::1", 64)]));
        assert!(none.unwrap_err().starts_with("eth0 has no IPv4 address to be the next hop"));
    }
}
