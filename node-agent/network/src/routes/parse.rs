//! Parser of rtnetlink messages about routes and links. Does no I/O.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::AddressMessage,
    link::{InfoData, InfoIpTunnel, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteIp6Tunnel, RouteIpTunnel, RouteLwTunnelEncap, RouteMessage,
        RouteProtocol, RouteType,
    },
};

use super::{HeldHop, PORT, PROTOCOL, RouteKey, TunnelIndexes};
use crate::{desired::TunnelKind, plan::Hop};

/// Parses a route of the agent. Returns `None` for other messages, and for routes of other programs. `tunnels` has the
/// indexes of the tunnel devices.
#[must_use]
pub fn own_route(message: &RouteNetlinkMessage, tunnels: &TunnelIndexes) -> Option<(RouteKey, HeldHop)> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    if message.header.protocol != RouteProtocol::Other(PROTOCOL) {
        return None;
    }
    let attributes = RouteAttributes::of(message);
    let address = attributes.destination?;
    let destination = IpNet::new(address, message.header.destination_prefix_length).ok()?;
    let table = attributes.table.unwrap_or_else(|| u32::from(message.header.table));
    let key = RouteKey { destination, table, metric: attributes.metric };
    Some((key, attributes.hop(message.header.kind, tunnels)))
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
    /// Identifier in the encapsulation; 0 if it has none.
    id: u64,
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
                RouteLwTunnelEncap::Ip(RouteIpTunnel::Id(id)) => self.id = *id,
                RouteLwTunnelEncap::Ip6(RouteIp6Tunnel::Id(id)) => self.id = *id,
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

    fn hop(&self, kind: RouteType, tunnels: &TunnelIndexes) -> HeldHop {
        if kind == RouteType::BlackHole {
            return HeldHop::Known(Hop::Blackhole);
        }
        if kind != RouteType::Unicast {
            return HeldHop::Unknown;
        }
        if self.has_encapsulation {
            let device = tunnels.iter().find(|(_, index)| self.interface == Some(**index));
            let kind = device.map(|(kind, _)| *kind).filter(|kind| self.id == kind.id());
            return match (kind, self.remote) {
                (Some(kind), Some(remote)) => HeldHop::Known(Hop::Tunnel(kind, remote)),
                (None, _) | (_, None) => HeldHop::Unknown,
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
    /// Kind of the tunnel, if the link is one without fixed peers, as the agent creates it.
    pub tunnel: Option<TunnelKind>,
    /// True if the link receives IPIP packets from every machine: it has no fixed peer.
    pub is_open_ipip: bool,
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
        tunnel: tunnel(message),
        is_open_ipip: is_open_ipip(message),
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
fn tunnel(message: &LinkMessage) -> Option<TunnelKind> {
    match info_data(message)? {
        InfoData::Vxlan(data) => {
            let expected = [InfoVxlan::CollectMetadata(true), InfoVxlan::Gpe, InfoVxlan::Port(PORT)];
            expected.iter().all(|item| data.contains(item)).then_some(TunnelKind::Vxlan)
        }
        InfoData::IpTunnel(data) if is_ipip(message) => {
            data.contains(&InfoIpTunnel::CollectMetadata).then_some(TunnelKind::Ipip)
        }
        _ => None,
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn is_open_ipip(message: &LinkMessage) -> bool {
    let has_peer = |data: &[InfoIpTunnel]| {
        data.iter().any(|item| matches!(item, InfoIpTunnel::Remote(peer) if !peer.is_unspecified()))
    };
    match info_data(message) {
        Some(InfoData::IpTunnel(data)) => is_ipip(message) && !has_peer(data),
        _ => false,
    }
}

fn is_ipip(message: &LinkMessage) -> bool {
    link_info(message).contains(&LinkInfo::Kind(InfoKind::IpIp))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn info_data(message: &LinkMessage) -> Option<&InfoData> {
    link_info(message).iter().find_map(|item| match item {
        LinkInfo::Data(data) => Some(data),
        _ => None,
    })
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn link_info(message: &LinkMessage) -> &[LinkInfo] {
    let info = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(info) => Some(info.as_slice()),
        _ => None,
    });
    info.unwrap_or_default()
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
