//! Settings of a link behind which declared Workloads are: kernel parameters, the addresses of the gateways, and neighbor
//! entries. The former settings come back at the end.
//!
//! The node answers ARP and NDP for the gateways `169.254.1.1` and `fe80::ecee:eeff:feee:eeee`, which the link has as
//! addresses. The IPv4 address has the scope of the host, so that the kernel never selects it as the source of a packet.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::IpAddr,
    path::Path,
};

use attach_socket::{GATEWAY_V4, GATEWAY_V6};
use kernel::netlink::{
    route,
    socket::Netlink,
    uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE},
    wire::Message,
};
use model::{kinds::attachment::AttachmentKind, primitives::net::IpFamily};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope},
    link::{LinkFlags, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::RouteType,
};
use nix::errno::Errno;

use super::{AcceptedLink, LinkRecord};
use crate::{
    attach::names,
    routes::{keeper::acknowledge, render::family_number, tunnel::set_parameter},
};

/// Prefix length of the IPv6 gateway: that of link-local networks (RFC 4291 §2.5.6).
const LINK_LOCAL_PREFIX: u8 = 64;

/// Returns the kernel parameters of a link, in the order in which they are set, with `{}` for its name. The node forwards, and
/// drops IPv4 packets with a source address to which the route leads elsewhere; the table of nf_tables does so in both
/// families. A virtual machine is alone on its TAP interface, so that the node can answer ARP for all addresses; on a segment
/// with other machines, it must not.
fn parameters(kind: AttachmentKind) -> Vec<(&'static str, &'static str)> {
    let mut parameters = vec![
        ("ipv4/conf/{}/forwarding", "1"),
        ("ipv4/conf/{}/rp_filter", "1"),
        ("ipv6/conf/{}/disable_ipv6", "0"),
        ("ipv6/conf/{}/accept_ra", "0"),
        ("ipv6/conf/{}/forwarding", "1"),
    ];
    if kind == AttachmentKind::Tap {
        parameters.extend([("ipv4/conf/{}/proxy_arp", "1"), ("ipv4/neigh/{}/proxy_delay", "0")]);
    }
    parameters
}

/// Reads the present settings of a link that the agent is about to change.
///
/// # Errors
/// Returns an error if a parameter cannot be read.
pub fn record(name: &str, link: &AcceptedLink, present: &BTreeSet<IpAddr>) -> io::Result<LinkRecord> {
    let mut values = BTreeMap::new();
    for (parameter, _) in parameters(link.kind) {
        let path = Path::new("/proc/sys/net").join(parameter.replace("{}", name));
        match fs::read_to_string(path) {
            Ok(value) => {
                values.insert(parameter.to_owned(), value.trim().to_owned());
            }
            // The machine has disabled the family.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(LinkRecord {
        index: link.index,
        was_up: link.is_up,
        parameters: values,
        gateways: gateways(link).difference(present).copied().collect(),
        neighbors: neighbors_of(link).into_keys().collect(),
        workloads: BTreeSet::new(),
    })
}

/// Returns the gateways of the families of the Workloads behind a link.
#[must_use]
pub fn gateways(link: &AcceptedLink) -> BTreeSet<IpAddr> {
    let of = |address: &IpAddr| match IpFamily::of(*address) {
        IpFamily::V4 => GATEWAY_V4,
        IpFamily::V6 => GATEWAY_V6,
    };
    link.workloads.keys().map(of).collect()
}

/// Returns the Workloads behind a link whose link-layer address is stated.
#[must_use]
pub fn neighbors_of(link: &AcceptedLink) -> BTreeMap<IpAddr, [u8; 6]> {
    let stated = link.workloads.iter().filter_map(|(address, mac)| Some((*address, mac.as_deref()?)));
    stated.filter_map(|(address, mac)| Some((address, names::parse_mac(mac)?.0))).collect()
}

/// Applies the settings to a link, as far as it does not have them. `present` are its addresses, `former` the Workloads whose
/// neighbor entries the agent has added before. Returns the number of changes.
///
/// # Errors
/// Returns an error if the kernel rejects a change.
pub fn apply(
    netlink: &mut Netlink,
    name: &str,
    link: &AcceptedLink,
    present: &BTreeSet<IpAddr>,
    former: &BTreeSet<IpAddr>,
) -> io::Result<u64> {
    let mut changes = 0;
    for (parameter, value) in parameters(link.kind) {
        changes += u64::from(set_parameter(&parameter.replace("{}", name), value)?);
    }
    let mut requests: Vec<_> =
        gateways(link).difference(present).map(|gateway| address(link.index, *gateway, true)).collect();
    if !link.is_up {
        requests.push(set_state(link.index, true));
    }
    let wanted = neighbors_of(link);
    let held = if wanted.is_empty() && former.is_empty() {
        BTreeMap::new()
    } else {
        permanent_neighbors(netlink, link.index)?
    };
    let missing = wanted.iter().filter(|(address, mac)| held.get(*address) != Some(*mac));
    requests.extend(missing.map(|(address, mac)| neighbor(link.index, *address, Some(*mac))));
    let stale = former.iter().filter(|address| !wanted.contains_key(*address) && held.contains_key(*address));
    requests.extend(stale.map(|address| neighbor(link.index, *address, None)));
    acknowledge(netlink, &requests)?;
    Ok(changes + u64::try_from(requests.len()).unwrap_or_default())
}

/// Restores the former settings of a link. `name` is its present name. Returns the number of changes.
///
/// # Errors
/// Returns an error if the kernel rejects a change.
pub fn undo(netlink: &mut Netlink, name: &str, record: &LinkRecord) -> io::Result<u64> {
    let LinkRecord { index, was_up, parameters: values, gateways, neighbors, workloads: _ } = record;
    let mut changes = 0;
    let removals = neighbors.iter().map(|address| neighbor(*index, *address, None));
    let removals = removals.chain(gateways.iter().map(|gateway| address(*index, *gateway, false)));
    for request in removals {
        match acknowledge(netlink, &[request]) {
            Ok(()) => changes += 1,
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Both kinds have the parameters of the other, or no value for them.
    for (parameter, _) in parameters(AttachmentKind::Tap).iter().rev() {
        if let Some(value) = values.get(*parameter) {
            changes += u64::from(set_parameter(&parameter.replace("{}", name), value)?);
        }
    }
    if !was_up {
        acknowledge(netlink, &[set_state(*index, false)])?;
        changes += 1;
    }
    Ok(changes)
}

/// True if the kernel has rejected a removal because the object or its link does not exist.
fn is_absent(error: &io::Error) -> bool {
    let absent = [Errno::EADDRNOTAVAIL, Errno::ENODEV, Errno::ENOENT, Errno::ENXIO].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|errno| absent.contains(&errno))
}

/// Builds the request that adds or removes the address of a gateway.
fn address(index: u32, gateway: IpAddr, is_added: bool) -> Message {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.family = family_number(IpFamily::of(gateway));
    if gateway.is_ipv4() {
        message.header.prefix_len = IpFamily::V4.bits();
        message.header.scope = AddressScope::Host;
    } else {
        message.header.prefix_len = LINK_LOCAL_PREFIX;
        // Each link of the node has the same address, on a link of its own.
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes = vec![AddressAttribute::Local(gateway), AddressAttribute::Address(gateway)];
    if is_added {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        return route::request(&RouteNetlinkMessage::NewAddress(message), flags);
    }
    route::request(&RouteNetlinkMessage::DelAddress(message), NLM_F_ACK)
}

/// Builds the request for a permanent neighbor entry or, without a link-layer address, for its removal.
fn neighbor(index: u32, address: IpAddr, mac: Option<[u8; 6]>) -> Message {
    let mut message = NeighbourMessage::default();
    message.header.family = family_number(IpFamily::of(address));
    message.header.ifindex = index;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![NeighbourAttribute::Destination(address.into())];
    let Some(mac) = mac else {
        return route::request(&RouteNetlinkMessage::DelNeighbour(message), NLM_F_ACK);
    };
    message.header.state = NeighbourState::Permanent;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    route::request(&RouteNetlinkMessage::NewNeighbour(message), flags)
}

/// Lists the permanent neighbor entries of a link.
fn permanent_neighbors(netlink: &mut Netlink, index: u32) -> io::Result<BTreeMap<IpAddr, [u8; 6]>> {
    let mut all = BTreeMap::new();
    for family in IpFamily::ALL {
        let mut message = NeighbourMessage::default();
        message.header.family = family_number(family);
        let request = route::request(&RouteNetlinkMessage::GetNeighbour(message), NLM_F_DUMP);
        all.extend(netlink.dump(&request, BTreeMap::new, |found, answer| {
            if let Ok(RouteNetlinkMessage::NewNeighbour(message)) = route::parse(answer)
                && message.header.ifindex == index
                && message.header.state == NeighbourState::Permanent
            {
                found.extend(parse_neighbor(&message));
            }
            Ok(())
        })?);
    }
    Ok(all)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn parse_neighbor(message: &NeighbourMessage) -> Option<(IpAddr, [u8; 6])> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    address.zip(mac)
}

/// Builds the request that sets a link up or down.
fn set_state(index: u32, is_up: bool) -> Message {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.change_mask = LinkFlags::Up;
    if is_up {
        link.header.flags = LinkFlags::Up;
    }
    route::request(&RouteNetlinkMessage::NewLink(link), NLM_F_ACK)
}
