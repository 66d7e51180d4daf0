//! Builder of rtnetlink requests for the routes and the tunnel devices. Does no I/O.

use std::net::IpAddr;

use ipnet::IpNet;
use kernel::netlink::{
    route,
    uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE},
    wire::Message,
};
use model::primitives::net::IpFamily;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{InfoData, InfoIpTunnel, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{
        RouteAttribute, RouteIp6Tunnel, RouteIpTunnel, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage,
        RouteProtocol, RouteScope, RouteType,
    },
};

use super::{PORT, PROTOCOL, RouteKey, TunnelIndexes, diff::RouteChange};
use crate::{desired::TunnelKind, plan::Hop};

/// Returns the number of an address family in messages.
#[must_use]
pub const fn family_number(family: IpFamily) -> AddressFamily {
    match family {
        IpFamily::V4 => AddressFamily::Inet,
        IpFamily::V6 => AddressFamily::Inet6,
    }
}

/// Builds the request for a change of a route. `tunnels` has the indexes of the tunnel devices; the request for a route
/// through a device that is not among them is `None`.
#[must_use]
pub fn change(change: &RouteChange, tunnels: &TunnelIndexes) -> Option<Message> {
    let (message, flags) = match change {
        RouteChange::Add(destination, hop) => {
            (route_to(*destination, *hop, tunnels)?, NLM_F_CREATE | NLM_F_EXCL)
        }
        RouteChange::Replace(destination, hop) => {
            (route_to(*destination, *hop, tunnels)?, NLM_F_CREATE | NLM_F_REPLACE)
        }
        RouteChange::Remove(key) => {
            return Some(route::request(&RouteNetlinkMessage::DelRoute(removed(key)), NLM_F_ACK));
        }
    };
    Some(route::request(&RouteNetlinkMessage::NewRoute(message), NLM_F_ACK | flags))
}

/// Builds the request for all routes of a family.
#[must_use]
pub fn dump_routes(family: IpFamily) -> Message {
    let mut message = RouteMessage::default();
    message.header.address_family = family_number(family);
    route::request(&RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)
}

fn at(key: &RouteKey) -> RouteMessage {
    let RouteKey { destination, table, metric } = *key;
    let mut message = RouteMessage::default();
    message.header.address_family = family_number(IpFamily::of_net(&destination));
    message.header.destination_prefix_length = destination.prefix_len();
    message.header.protocol = RouteProtocol::Other(PROTOCOL);
    message.attributes = vec![
        RouteAttribute::Destination(destination.network().into()),
        RouteAttribute::Table(table),
        RouteAttribute::Priority(metric),
    ];
    message
}

/// Returns the message that removes the route of the agent at a position, whatever its next hop is.
fn removed(key: &RouteKey) -> RouteMessage {
    let mut message = at(key);
    message.header.scope = RouteScope::NoWhere;
    message
}

fn route_to(destination: IpNet, hop: Hop, tunnels: &TunnelIndexes) -> Option<RouteMessage> {
    let mut message = at(&RouteKey::of(destination));
    message.header.kind = RouteType::Unicast;
    let is_v4 = destination.network().is_ipv4();
    let on_link = if is_v4 { RouteScope::Link } else { RouteScope::Universe };
    match hop {
        Hop::Blackhole => message.header.kind = RouteType::BlackHole,
        Hop::Gateway(address) => message.attributes.push(RouteAttribute::Gateway(address.into())),
        Hop::Interface(index) => {
            message.header.scope = on_link;
            message.attributes.push(RouteAttribute::Oif(index));
        }
        Hop::Tunnel(kind, remote) => {
            message.header.scope = on_link;
            message.attributes.push(RouteAttribute::Oif(*tunnels.get(&kind)?));
            message.attributes.extend(encapsulation(kind, remote));
        }
    }
    Some(message)
}

/// Returns the attributes that encapsulate packets to a node (`LWTUNNEL_ENCAP_IP`). The kernel selects the source address.
fn encapsulation(kind: TunnelKind, remote: IpAddr) -> [RouteAttribute; 2] {
    let id = kind.id();
    let (encapsulation, list) = match remote {
        IpAddr::V4(remote) => {
            let list = [RouteIpTunnel::Id(id), RouteIpTunnel::Destination(remote)];
            (RouteLwEnCapType::Ip, list.map(RouteLwTunnelEncap::Ip).to_vec())
        }
        IpAddr::V6(remote) => {
            let list = [RouteIp6Tunnel::Id(id), RouteIp6Tunnel::Destination(remote)];
            (RouteLwEnCapType::Ip6, list.map(RouteLwTunnelEncap::Ip6).to_vec())
        }
    };
    [RouteAttribute::EncapType(encapsulation), RouteAttribute::Encap(list)]
}

/// Builds the request that creates a tunnel device, which is down at first.
#[must_use]
pub fn add_tunnel(kind: TunnelKind, mtu: u32) -> Message {
    let mut link = LinkMessage::default();
    let (info_kind, data) = match kind {
        TunnelKind::Vxlan => {
            let data = [
                InfoVxlan::CollectMetadata(true),
                InfoVxlan::Gpe,
                InfoVxlan::Learning(false),
                InfoVxlan::Port(PORT),
            ];
            (InfoKind::Vxlan, InfoData::Vxlan(data.to_vec()))
        }
        TunnelKind::Ipip => (InfoKind::IpIp, InfoData::IpTunnel(vec![InfoIpTunnel::CollectMetadata])),
    };
    link.attributes = vec![
        LinkAttribute::IfName(kind.device().to_owned()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(info_kind), LinkInfo::Data(data)]),
    ];
    route::request(&RouteNetlinkMessage::NewLink(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
}

/// Builds the request that sets a link up with an MTU.
#[must_use]
pub fn set_up(index: u32, mtu: u32) -> Message {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes = vec![LinkAttribute::Mtu(mtu)];
    route::request(&RouteNetlinkMessage::NewLink(link), NLM_F_ACK)
}

/// Builds the request that removes a link, and with it its routes and addresses.
#[must_use]
pub fn remove_link(index: u32) -> Message {
    let mut link = LinkMessage::default();
    link.header.index = index;
    route::request(&RouteNetlinkMessage::DelLink(link), NLM_F_ACK)
}
