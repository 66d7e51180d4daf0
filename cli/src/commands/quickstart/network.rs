//! Proposal of the addresses of the pool, from the networks and neighbors of this machine. Pure functions.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use model::{kinds::address_pool::AddressRange, primitives::net::from_number};
use serde::{Deserialize, de::DeserializeOwned};

/// Maximum number of addresses of a proposal.
const SIZE_MAX: u32 = 10;
/// Inverse of the maximum share of a network that a proposal contains.
const SHARE: u32 = 8;

/// Route, as in the output of `ip -json route`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RouteRow {
    dst: String,
    gateway: Option<IpAddr>,
    dev: String,
    prefsrc: Option<IpAddr>,
    metric: u32,
    nexthops: Vec<NextHopRow>,
}

/// Next hop of a route with several ones.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NextHopRow {
    gateway: Option<IpAddr>,
    dev: String,
}

/// Interface with its addresses, as in the output of `ip -json address`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct LinkRow {
    ifname: String,
    flags: Vec<String>,
    link_type: String,
    addr_info: Vec<LinkAddressRow>,
}

/// Address of an interface.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct LinkAddressRow {
    local: Option<IpAddr>,
    prefixlen: u8,
    scope: String,
}

/// Entry of the neighbor table, as in the output of `ip -json neighbor`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NeighborRow {
    dst: Option<IpAddr>,
    lladdr: Option<String>,
    state: Vec<String>,
}

/// Networks and neighbors of this machine.
#[derive(Debug, Clone, Default)]
pub(super) struct HostNetworks {
    routes: Vec<RouteRow>,
    links: Vec<LinkRow>,
    neighbors: Vec<NeighborRow>,
}

impl HostNetworks {
    /// Parses the output of `ip -json` for routes of the main table, addresses and neighbors.
    ///
    /// # Errors
    /// Returns an error if one of the texts is not JSON of the expected form.
    pub(super) fn parse([routes, links, neighbors]: [&str; 3]) -> Result<Self, serde_json::Error> {
        // Some versions of `ip` print nothing for an empty list.
        fn rows<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, serde_json::Error> {
            if text.trim().is_empty() { Ok(Vec::new()) } else { serde_json::from_str(text) }
        }
        Ok(Self { routes: rows(routes)?, links: rows(links)?, neighbors: rows(neighbors)? })
    }

    /// Proposes up to [`SIZE_MAX`] consecutive addresses, and at most an eighth of the network of the default route: the
    /// highest ones that are not in use, as far as this machine knows.
    ///
    /// # Errors
    /// Returns the reason if there is no such network or no free address in it.
    pub(super) fn propose(&self) -> Result<AddressRange, String> {
        let net = self.default_network()?.trunc();
        let [first, last] = [net.network(), net.broadcast()].map(u32::from);
        if net.prefix_len() > 30 {
            return Err(format!("the network of the default route, {net}, has no room for a pool"));
        }
        let mut blocked: Vec<(u32, u32)> = vec![(first, first), (last, last)];
        let used = self.used().into_iter().filter_map(|(address, _)| match address {
            IpAddr::V4(address) if net.contains(&address) => Some(u32::from(address)),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        });
        blocked.extend(used.map(|number| (number, number)));
        let routed = self.routes.iter().filter_map(|route| destination(&route.dst));
        let routed = routed.filter(|other| other.prefix_len() > net.prefix_len() && net.contains(other));
        blocked.extend(routed.map(|other| (u32::from(other.network()), u32::from(other.broadcast()))));
        let free = gaps(first, blocked);
        let mut size = SIZE_MAX.min(((last - first - 1) / SHARE).max(1));
        while size > 0 {
            if let Some((_, end)) = free.iter().rev().find(|(start, end)| end - start + 1 >= size) {
                let range = [end + 1 - size, *end].map(|number| IpAddr::from(Ipv4Addr::from(number)));
                return Ok(AddressRange::Between(range[0], range[1]));
            }
            size /= 2;
        }
        Err(format!("no address of {net}, the network of the default route, is free"))
    }

    /// Returns the reason why a range cannot be announced by this machine or is in use; `None` if there is no such reason.
    pub(super) fn objection(&self, range: &AddressRange) -> Option<String> {
        let Some(net) = self.network_of(range) else {
            let nets: Vec<String> = self.networks().map(|net| net.trunc().to_string()).collect();
            let nets = nets.join(", ");
            return Some(format!("{range} is not within a network of this machine ({nets})"));
        };
        let ends = match net {
            IpNet::V4(net) if net.prefix_len() < 31 => vec![net.network(), net.broadcast()],
            IpNet::V4(_) | IpNet::V6(_) => Vec::new(),
        };
        let ends =
            ends.into_iter().map(|address| (IpAddr::from(address), "the network or broadcast address"));
        let ends = ends.map(|(address, use_of)| (address, format!("{use_of} of {}", net.trunc())));
        let (address, use_of) =
            self.used().into_iter().chain(ends).find(|(address, _)| range.contains(*address))?;
        Some(format!("{range} contains {address}, which is {use_of}"))
    }

    /// Returns the address of this machine in the network that contains a range.
    pub(super) fn own_address(&self, range: &AddressRange) -> Option<IpAddr> {
        self.network_of(range).map(|net| net.addr())
    }

    /// Returns the network of this machine that contains a range, with the machine's address in it.
    fn network_of(&self, range: &AddressRange) -> Option<IpNet> {
        self.networks().find(|net| net.contains(&range.first()) && net.contains(&range.last()))
    }

    /// Returns the networks of all interfaces except loopback ones, with the machine's address in each.
    fn networks(&self) -> impl Iterator<Item = IpNet> {
        let links = self.links.iter().filter(|link| link.link_type != "loopback");
        let addresses = links.flat_map(|link| &link.addr_info).filter(|address| address.scope == "global");
        addresses.filter_map(|address| IpNet::new(address.local?, address.prefixlen).ok())
    }

    /// Returns the IPv4 network of the default route with the lowest metric, with the address of this machine in it.
    fn default_network(&self) -> Result<Ipv4Net, String> {
        let defaults = self.routes.iter().filter(|route| route.dst == "default");
        let route =
            defaults.min_by_key(|route| route.metric).ok_or("this machine has no IPv4 default route")?;
        let hop = route.nexthops.first();
        let name = hop.map_or(&route.dev, |hop| &hop.dev);
        let gateway = hop.map_or(route.gateway, |hop| hop.gateway);
        let link = self.links.iter().find(|link| link.ifname == *name);
        let link = link.ok_or_else(|| format!("the default route has no interface ({name})"))?;
        if link.link_type != "ether" || link.flags.iter().any(|flag| flag == "NOARP") {
            return Err(format!("the interface of the default route, {name}, has no ARP"));
        }
        let nets: Vec<Ipv4Net> = link.addr_info.iter().filter_map(ipv4_net).collect();
        let preferred = nets.iter().find(|net| route.prefsrc == Some(net.addr().into()));
        let with_gateway =
            nets.iter().find(|net| gateway.is_some_and(|gateway| IpNet::V4(**net).contains(&gateway)));
        let net = preferred.or(with_gateway).or(nets.first());
        net.copied().ok_or_else(|| format!("the interface of the default route, {name}, has no IPv4 address"))
    }

    /// Returns the addresses that this machine knows to be in use, each with its use.
    fn used(&self) -> Vec<(IpAddr, String)> {
        let own = self.links.iter().flat_map(|link| &link.addr_info).filter_map(|address| address.local);
        let own = own.map(|address| (address, "an address of this machine".to_owned()));
        let routes = self.routes.iter();
        let gateways =
            routes.flat_map(|route| route.nexthops.iter().map(|hop| hop.gateway).chain([route.gateway]));
        let gateways = gateways.flatten().map(|address| (address, "the gateway of a route".to_owned()));
        let neighbors = self.neighbors.iter().filter_map(|neighbor| {
            let is_unreachable = neighbor.state.iter().any(|state| state == "FAILED");
            let lladdr = neighbor.lladdr.as_ref().filter(|_| !is_unreachable)?;
            Some((neighbor.dst?, format!("in use by the device with the link-layer address {lladdr}")))
        });
        own.chain(gateways).chain(neighbors).collect()
    }
}

/// Returns the addresses of a range in ascending order, at most `limit`.
pub(super) fn addresses(range: &AddressRange, limit: usize) -> Vec<IpAddr> {
    let (first, last) = range.numbers();
    let last = last.min(first.saturating_add(limit as u128).saturating_sub(1));
    (first..=last).filter_map(|number| from_number(range.family(), number)).collect()
}

fn ipv4_net(address: &LinkAddressRow) -> Option<Ipv4Net> {
    match address.local? {
        IpAddr::V4(local) if address.scope == "global" => Ipv4Net::new(local, address.prefixlen).ok(),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// Parses the destination of a route, which is a network, an address or `default`.
fn destination(text: &str) -> Option<Ipv4Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
}

/// Returns the intervals from `first` on that are between the blocked intervals, in ascending order.
fn gaps(first: u32, mut blocked: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    blocked.sort_unstable();
    let (mut next, mut free) = (first, Vec::new());
    for (start, end) in blocked {
        if start > next {
            free.push((next, start - 1));
        }
        next = next.max(end.saturating_add(1));
    }
    free
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Returns a machine with one interface `eth0`, a default route by `gateway`, and neighbors that answer.
    fn machine(address: &str, gateway: &str, neighbors: &[&str]) -> HostNetworks {
        let net: Ipv4Net = address.parse().unwrap();
        let routes = json!([
            { "dst": "default", "gateway": gateway, "dev": "eth0", "flags": [] },
            { "dst": net.trunc().to_string(), "dev": "eth0", "scope": "link", "prefsrc": net.addr() },
            { "dst": "default", "dev": "wg0", "metric": 50 },
        ]);
        let links = json!([
            {},
            { "ifname": "lo", "link_type": "loopback", "flags": ["LOOPBACK"],
              "addr_info": [{ "family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host" }] },
            { "ifname": "eth0", "link_type": "ether", "flags": ["BROADCAST", "UP"], "addr_info": [
                { "family": "inet", "local": net.addr(), "prefixlen": net.prefix_len(), "scope": "global" },
                { "family": "inet6", "local": "2001:db8::2", "prefixlen": 64, "scope": "global" } ] },
            { "ifname": "wg0", "link_type": "none", "flags": ["POINTOPOINT", "NOARP"], "addr_info": [] },
        ]);
        let neighbors: Vec<_> = neighbors
            .iter()
            .map(
                |dst| json!({ "dst": dst, "dev": "eth0", "lladdr": "02:00:00:00:00:01", "state": ["STALE"] }),
            )
            .collect();
        HostNetworks::parse([&routes.to_string(), &links.to_string(), &json!(neighbors).to_string()]).unwrap()
    }

    fn proposed(address: &str, gateway: &str, neighbors: &[&str]) -> String {
        machine(address, gateway, neighbors).propose().map_or_else(|error| error, |range| range.to_string())
    }

    #[test]
    fn the_highest_free_addresses_of_the_network_of_the_default_route_are_proposed() {
        assert_eq!(proposed("192.0.2.2/24", "192.0.2.1", &[]), "192.0.2.245-192.0.2.254");
        assert_eq!(proposed("192.0.2.2/24", "192.0.2.254", &[]), "192.0.2.244-192.0.2.253");
        assert_eq!(
            proposed("192.0.2.2/24", "192.0.2.1", &["192.0.2.250", "2001:db8::fa"]),
            "192.0.2.240-192.0.2.249"
        );
        assert_eq!(proposed("10.1.2.3/16", "10.1.0.1", &[]), "10.1.255.245-10.1.255.254");
        assert_eq!(proposed("192.0.2.2/28", "192.0.2.1", &[]), "192.0.2.14-192.0.2.14", "one of 14");
        assert_eq!(
            proposed("192.0.2.2/30", "192.0.2.1", &[]),
            "no address of 192.0.2.0/30, the network of the default route, is free"
        );
        assert!(proposed("192.0.2.2/32", "192.0.2.1", &[]).contains("no room"));
    }

    #[test]
    fn a_neighbor_that_does_not_answer_uses_no_address_and_a_narrower_route_uses_its_network() {
        let mut host = machine("192.0.2.2/24", "192.0.2.1", &["192.0.2.250"]);
        host.neighbors[0].state = vec!["FAILED".to_owned()];
        assert_eq!(host.propose().unwrap().to_string(), "192.0.2.245-192.0.2.254");
        host.routes.push(RouteRow { dst: "192.0.2.128/25".to_owned(), ..RouteRow::default() });
        assert_eq!(host.propose().unwrap().to_string(), "192.0.2.118-192.0.2.127");
    }

    #[test]
    fn a_machine_without_a_network_with_arp_gets_the_reason() {
        let mut host = machine("192.0.2.2/24", "192.0.2.1", &[]);
        host.routes[0].metric = 100;
        assert_eq!(host.propose().unwrap_err(), "the interface of the default route, wg0, has no ARP");
        host.routes.retain(|route| route.dst != "default");
        assert_eq!(host.propose().unwrap_err(), "this machine has no IPv4 default route");
        assert_eq!(
            HostNetworks::parse(["", "[]", "\n"]).unwrap().propose().unwrap_err(),
            "this machine has no IPv4 default route"
        );
        assert!(HostNetworks::parse(["{}", "", ""]).is_err());
    }

    #[test]
    fn a_range_of_the_user_must_be_free_and_in_a_network_of_the_machine() {
        let host = machine("192.0.2.2/24", "192.0.2.1", &["192.0.2.70"]);
        let objection = |text: &str| host.objection(&text.parse().unwrap()).unwrap_or_default();
        for good in ["192.0.2.128/26", "192.0.2.5", "2001:db8::10-2001:db8::20"] {
            assert_eq!(objection(good), "", "{good}");
        }
        for (bad, reason) in [
            ("192.0.2.0/30", "contains 192.0.2.2, which is an address of this machine"),
            ("192.0.2.1", "which is the gateway"),
            ("192.0.2.64-192.0.2.80", "contains 192.0.2.70, which is in use by the device"),
            ("192.0.2.240/28", "which is the network or broadcast address of 192.0.2.0/24"),
            ("198.51.100.0/28", "not within a network of this machine (192.0.2.0/24, 2001:db8::/64)"),
            ("127.0.0.8", "not within"),
        ] {
            assert!(objection(bad).contains(reason), "{bad}: {}", objection(bad));
        }
        let own = |text: &str| host.own_address(&text.parse().unwrap());
        assert_eq!(own("192.0.2.128/26"), "192.0.2.2".parse().ok());
        assert_eq!(own("2001:db8::10"), "2001:db8::2".parse().ok());
    }

    proptest! {
        #[test]
        fn a_proposal_has_no_address_in_use(
            host in any::<u32>(), length in 8_u8..=32, used in proptest::collection::vec(any::<u16>(), 0..40),
        ) {
            let own = Ipv4Net::new(Ipv4Addr::from(host), length).unwrap();
            let (first, mask) = (u32::from(own.network()), u32::from(own.hostmask()));
            // Near the end, where proposals are.
            let used: BTreeSet<IpAddr> = used
                .into_iter()
                .map(|number| Ipv4Addr::from(first | (mask - (u32::from(number) % 300).min(mask))).into())
                .collect();
            let names: Vec<String> = used.iter().map(ToString::to_string).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let gateway = Ipv4Addr::from(first | (1 & mask));
            let host = machine(&own.to_string(), &gateway.to_string(), &names);
            if let Ok(range) = host.propose() {
                let list = addresses(&range, 100);
                prop_assert!(!list.is_empty() && list.len() <= 10, "{range}");
                for address in list {
                    prop_assert!(IpNet::V4(own).contains(&address), "{address} of {own}");
                    prop_assert!(!used.contains(&address));
                    for other in [own.addr(), own.network(), own.broadcast(), gateway] {
                        prop_assert!(address != other, "{address} of {own}");
                    }
                }
                prop_assert_eq!(host.objection(&range), None);
            } else {
                // In a network of this size, the addresses in use leave some free.
                prop_assert!(length > 22, "{own}");
            }
        }
    }
}
