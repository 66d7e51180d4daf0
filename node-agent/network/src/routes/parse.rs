//! Parser of rtnetlink messages about routes and links. Does no I/O.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::AddressMessage,
    link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteIp6Tunnel, RouteIpTunnel, RouteLwTunnelEncap, RouteMessage,
        RouteProtocol, RouteType,
    },
};

use super::{HeldHop, PORT, PROTOCOL, RouteKey, VNI};
use crate::plan::Hop;

/// Parses a route of the agent. Returns `None` for other messages, and for routes of other programs. `tunnel` is the
/// index of the tunnel device.
#[must_use]
pub fn own_route(message: &RouteNetlinkMessage, tunnel: Option<u32>) -> Option<(RouteKey, HeldHop)> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    if message.header.protocol != RouteProtocol::Other(PROTOCOL) {
        return None;
    }
    let attributes = RouteAttributes::of(message);
    let address = attributes.destination?;
    let destination = IpNet::new(address, message.header.destination_prefix_length).ok()?;
    let table = attributes.table.unwrap_or_else(|| u32::from(message.header.table));
    let key = RouteKey { destination, table, metric: attributes.metric };
    Some((key, attributes.hop(message.header.kind, tunnel)))
}

/// Attributes of a route that the agent sets.
#[derive(Default)]
struct RouteAttributes {
    destination: Option<IpAddr>,
    table: Option<u32>,
    metric: u32,
    gateway: Option<IpAddr>,
    interface: Option<u32>,
    remote: Option<IpAddr>,
    vni: Option<u64>,
    has_encapsulation: bool,
}

impl RouteAttributes {
    #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
    fn of(message: &RouteMessage) -> Self {
        let mut found = Self::default();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => found.destination = ip(address),
                RouteAttribute::Table(number) => found.table = Some(*number),
                RouteAttribute::Priority(metric) => found.metric = *metric,
                RouteAttribute::Gateway(address) => found.gateway = ip(address),
                RouteAttribute::Oif(index) => found.interface = Some(*index),
                RouteAttribute::Encap(list) => found.encapsulation(list),
                _ => {}
            }
        }
        found
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
    fn encapsulation(&mut self, list: &[RouteLwTunnelEncap]) {
        self.has_encapsulation = true;
        for attribute in list {
            match attribute {
                RouteLwTunnelEncap::Ip(RouteIpTunnel::Id(id)) => self.vni = Some(*id),
                RouteLwTunnelEncap::Ip6(RouteIp6Tunnel::Id(id)) => self.vni = Some(*id),
                RouteLwTunnelEncap::Ip(RouteIpTunnel::Destination(remote)) => {
                    self.remote = Some((*remote).into())
                }
                RouteLwTunnelEncap::Ip6(RouteIp6Tunnel::Destination(remote)) => {
                    self.remote = Some((*remote).into())
                }
                _ => {}
            }
        }
    }

    fn hop(&self, kind: RouteType, tunnel: Option<u32>) -> HeldHop {
        if kind == RouteType::BlackHole {
            return HeldHop::Known(Hop::Blackhole);
        }
        if kind != RouteType::Unicast {
            return HeldHop::Unknown;
        }
        if self.has_encapsulation {
            let is_ours = self.vni == Some(VNI) && self.interface.is_some() && self.interface == tunnel;
            return match self.remote.filter(|_| is_ours) {
                Some(remote) => HeldHop::Known(Hop::Tunnel(remote)),
                None => HeldHop::Unknown,
            };
        }
        match (self.gateway, self.interface) {
            (Some(gateway), _) => HeldHop::Known(Hop::Gateway(gateway)),
            (None, Some(index)) => HeldHop::Known(Hop::Interface(index)),
            (None, None) => HeldHop::Unknown,
        }
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
pub(crate) const fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

/// Link of the machine with the properties that the workload network uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLink {
    /// Index of the link.
    pub index: u32,
    /// Current name of the link.
    pub name: String,
    /// Maximum size of a packet in bytes.
    pub mtu: u32,
    /// True if the link is administratively up.
    pub is_up: bool,
    /// True if the link is the loopback interface.
    pub is_loopback: bool,
    /// True if the link is a VXLAN-GPE device without fixed peers, as the agent creates it.
    pub is_tunnel: bool,
}

/// Parses a link. Returns `None` for other messages and for a link without a name.
#[must_use]
pub fn link(message: &RouteNetlinkMessage) -> Option<FoundLink> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut found = FoundLink {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        is_loopback: message.header.flags.contains(LinkFlags::Loopback),
        is_tunnel: is_tunnel(message),
    };
    for attribute in &message.attributes {
        if let LinkAttribute::IfName(name) = attribute {
            found.name.clone_from(name);
        }
        if let LinkAttribute::Mtu(mtu) = attribute {
            found.mtu = *mtu;
        }
    }
    (!found.name.is_empty()).then_some(found)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn is_tunnel(message: &LinkMessage) -> bool {
    let info = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(info) => Some(info.as_slice()),
        _ => None,
    });
    let info = info.unwrap_or_default();
    let data = info.iter().find_map(|item| match item {
        LinkInfo::Data(InfoData::Vxlan(data)) => Some(data.as_slice()),
        _ => None,
    });
    let has = |expected: &InfoVxlan| data.unwrap_or_default().contains(expected);
    info.contains(&LinkInfo::Kind(InfoKind::Vxlan))
        && has(&InfoVxlan::CollectMetadata(true))
        && has(&InfoVxlan::Gpe)
        && has(&InfoVxlan::Port(PORT))
}

/// Parses an address with the index of its link and its prefix length. Link-local addresses are `None`, because nodes
/// are not reached at them.
#[must_use]
pub fn address(message: &AddressMessage) -> Option<(u32, IpNet)> {
    let address = kernel::links::parse::address_of(message)?;
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let net = IpNet::new(address, message.header.prefix_len).ok()?;
    (!is_link_local && !address.is_loopback()).then_some((message.header.index, net))
}
