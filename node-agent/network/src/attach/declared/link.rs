//! Links of the node as far as declared interfaces depend on them, and the decision whether the agent may configure one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use ipnet::IpNet;
use kernel::netlink::{route, socket::Netlink, uapi::NLM_F_DUMP};
use model::{kinds::attachment::AttachmentKind, primitives::net::IpFamily};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::AddressMessage,
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{RouteAttribute, RouteMessage},
};

use crate::{attach::names, routes::render};

/// Prefix of the names of tunnel devices of the agent.
const AGENT_PREFIX: &str = "tg-";

/// Link of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclarableLink {
    /// Index of the link.
    pub index: u32,
    /// Name of the link.
    pub name: String,
    /// True if the link is administratively up.
    pub is_up: bool,
    /// True if the link is the loopback interface.
    pub is_loopback: bool,
    /// True if the link is a TAP or TUN interface.
    pub is_tap: bool,
    /// True if the link is a port of a bridge, bond or VRF.
    pub has_master: bool,
    /// Addresses of the link, link-local ones included.
    pub addresses: BTreeSet<IpNet>,
}

/// Lists the links of the node with their addresses, by name.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn observe(netlink: &mut Netlink) -> io::Result<BTreeMap<String, DeclarableLink>> {
    let request = route::request(&RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
    let mut links: BTreeMap<u32, DeclarableLink> =
        netlink.dump(&request, BTreeMap::new, |found, answer| {
            // One unusual interface must not hide the others.
            if let Ok(RouteNetlinkMessage::NewLink(message)) = route::parse(answer) {
                found.insert(message.header.index, parse_link(&message));
            }
            Ok(())
        })?;
    let request = route::request(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP);
    let addresses = netlink.dump(&request, Vec::new, |found, answer| {
        if let Ok(RouteNetlinkMessage::NewAddress(message)) = route::parse(answer)
            && let Some(address) = kernel::links::parse::address_of(&message)
            && let Ok(net) = IpNet::new(address, message.header.prefix_len)
        {
            found.push((message.header.index, net));
        }
        Ok(())
    })?;
    for (index, net) in addresses {
        if let Some(link) = links.get_mut(&index) {
            link.addresses.insert(net);
        }
    }
    Ok(links.into_values().map(|link| (link.name.clone(), link)).collect())
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn parse_link(message: &LinkMessage) -> DeclarableLink {
    let flags = message.header.flags;
    let mut link = DeclarableLink {
        index: message.header.index,
        is_up: flags.contains(LinkFlags::Up),
        is_loopback: flags.contains(LinkFlags::Loopback),
        ..DeclarableLink::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Controller(master) => link.has_master = *master != 0,
            LinkAttribute::LinkInfo(info) => link.is_tap = info.contains(&LinkInfo::Kind(InfoKind::Tun)),
            _ => {}
        }
    }
    link
}

/// Returns the indexes of the links to which default routes of the node lead, in any table.
///
/// # Errors
/// Returns an error if the kernel cannot be read.
pub fn default_route_links(netlink: &mut Netlink) -> io::Result<BTreeSet<u32>> {
    let mut links = BTreeSet::new();
    for family in IpFamily::ALL {
        links.extend(netlink.dump(&render::dump_routes(family), BTreeSet::new, |found, answer| {
            // Routes of other programs can have attributes that cannot be parsed.
            if let Ok(RouteNetlinkMessage::NewRoute(message)) = route::parse(answer)
                && message.header.destination_prefix_length == 0
            {
                found.extend(outbound(&message));
            }
            Ok(())
        })?);
    }
    Ok(links)
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn outbound(message: &RouteMessage) -> Vec<u32> {
    let links = message.attributes.iter().flat_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    });
    links.collect()
}

/// Returns the reason why the agent must not configure a link, or `None` if it may. Changed settings of an interface that the
/// node itself needs could cut the node off.
#[must_use]
pub fn refusal(link: &DeclarableLink, kind: AttachmentKind, has_default_route: bool) -> Option<String> {
    let name = &link.name;
    let is_own = name.starts_with(AGENT_PREFIX) || names::is_host_interface(name);
    if link.is_loopback || is_own {
        return Some(format!("interface {name} is one of the node or of the agent itself"));
    }
    if kind == AttachmentKind::Tap && !link.is_tap {
        return Some(format!("interface {name} is no TAP interface; declare it with kind Host"));
    }
    if link.has_master {
        return Some(format!(
            "interface {name} is a port of a bridge or bond, to which packets are not routed; declare the bridge"
        ));
    }
    if has_default_route {
        return Some(format!("a default route of the node leads to interface {name}"));
    }
    let is_own_address = |net: &&IpNet| match net.addr() {
        IpAddr::V4(v4) => !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let own = link.addresses.iter().find(is_own_address)?;
    Some(format!(
        "interface {name} has the address {own} of the node; remove it, or declare another interface"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input: a link with one property. Output: the agent configures only links that the node does not need itself.
    #[test]
    fn links_that_the_node_needs_are_refused() {
        let tap = || DeclarableLink {
            index: 7,
            name: "tap0".to_owned(),
            is_tap: true,
            ..DeclarableLink::default()
        };
        let with = |addresses: &[&str]| DeclarableLink {
            addresses: addresses.iter().map(|net| net.parse().unwrap()).collect(),
            ..tap()
        };
        let of = |link: &DeclarableLink, kind| refusal(link, kind, false);
        for kind in [AttachmentKind::Tap, AttachmentKind::Host] {
            assert_eq!(of(&tap(), kind), None);
            assert_eq!(of(&with(&["fe80::1/64", "169.254.1.1/32"]), kind), None);
            for address in ["192.0.2.1/24", "10.0.0.1/32", "2001:db8::1/64", "127.0.0.1/8"] {
                assert!(of(&with(&[address]), kind).unwrap().contains(address), "{address}");
            }
            assert!(refusal(&tap(), kind, true).unwrap().contains("default route"));
            assert!(of(&DeclarableLink { has_master: true, ..tap() }, kind).unwrap().contains("bridge"));
            assert!(of(&DeclarableLink { is_loopback: true, ..tap() }, kind).is_some());
            for own in ["tg-vx", "tgaaaaaaaaaaa"] {
                assert!(of(&DeclarableLink { name: own.to_owned(), ..tap() }, kind).is_some(), "{own}");
            }
        }
        let card = DeclarableLink { is_tap: false, ..tap() };
        assert!(of(&card, AttachmentKind::Tap).unwrap().contains("kind Host"));
        assert_eq!(of(&card, AttachmentKind::Host), None);
    }
}
