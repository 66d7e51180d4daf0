//! Conversion of rtnetlink messages about interfaces and addresses into changes of [`super::Links`].

use rtnetlink::packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage},
};
use std::net::IpAddr;

use super::Mac;

/// Change of an interface or address that an rtnetlink message reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Added or changed interface, with its current name, Ethernet address and state.
    Link {
        /// Index of the interface.
        index: u32,
        /// Name of the interface.
        name: String,
        /// Ethernet address; `None` if the interface has none, or does not resolve neighbors.
        mac: Option<Mac>,
        /// True if the interface is administratively up and has carrier.
        is_up: bool,
    },
    /// Removed interface. The kernel removes its addresses with it.
    LinkGone {
        /// Index of the interface.
        index: u32,
    },
    /// Address that was added to an interface.
    Address {
        /// Index of the interface.
        index: u32,
        /// Added address.
        address: IpAddr,
        /// Prefix length of the address's network, in bits.
        prefix: u8,
    },
    /// Address that was removed from an interface.
    AddressGone {
        /// Index of the interface.
        index: u32,
        /// Removed address.
        address: IpAddr,
    },
}

/// Converts one message. Returns `None` for messages about anything other than interfaces and addresses.
#[must_use]
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
pub fn change(message: RouteNetlinkMessage) -> Option<Change> {
    match message {
        // Bridges report their ports in messages of the same type; an interface that leaves a bridge is not
        // removed.
        RouteNetlinkMessage::NewLink(link) if is_interface(&link) => new_link(link),
        RouteNetlinkMessage::DelLink(link) if is_interface(&link) => {
            Some(Change::LinkGone { index: link.header.index })
        }
        RouteNetlinkMessage::NewAddress(message) => {
            let (index, prefix) = (message.header.index, message.header.prefix_len);
            address_of(&message).map(|address| Change::Address { index, address, prefix })
        }
        RouteNetlinkMessage::DelAddress(message) => {
            let index = message.header.index;
            address_of(&message).map(|address| Change::AddressGone { index, address })
        }
        _ => None,
    }
}

fn is_interface(link: &LinkMessage) -> bool {
    link.header.interface_family == AddressFamily::Unspec
}

#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
fn new_link(link: LinkMessage) -> Option<Change> {
    let LinkMessage { header, attributes, .. } = link;
    // Interfaces such as dummies have an Ethernet address but no neighbor resolution.
    let is_ethernet =
        header.link_layer_type == LinkLayerType::Ether && !header.flags.contains(LinkFlags::Noarp);
    let (mut name, mut mac) = (None, None);
    for attribute in attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Address(bytes) if is_ethernet => mac = bytes.try_into().ok().map(Mac),
            _ => {}
        }
    }
    let is_up = header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    name.map(|name| Change::Link { index: header.index, name, mac, is_up })
}

/// Returns the address of an address message, or `None` if it contains no IP address.
#[must_use]
#[allow(clippy::wildcard_enum_match_arm, reason = "not our enum")]
pub fn address_of(message: &AddressMessage) -> Option<IpAddr> {
    let (mut local, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            _ => {}
        }
    }
    // If both attributes are present, IFA_ADDRESS is the peer of a point-to-point link.
    local.or(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::links::Links;

    fn link(family: AddressFamily, index: u32, flags: LinkFlags) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.interface_family = family;
        link.header.link_layer_type = LinkLayerType::Ether;
        link.header.index = index;
        link.header.flags = flags;
        link.attributes =
            vec![LinkAttribute::IfName("eth0".into()), LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1])];
        link
    }

    fn address(index: u32) -> AddressMessage {
        let mut address = AddressMessage::default();
        address.header.family = AddressFamily::Inet;
        address.header.prefix_len = 24;
        address.header.index = index;
        address.attributes = vec![
            AddressAttribute::Address([192, 0, 2, 9].into()),
            AddressAttribute::Local([192, 0, 2, 1].into()),
        ];
        address
    }

    #[test]
    fn an_interface_comes_loses_its_carrier_and_goes() {
        use RouteNetlinkMessage::{DelAddress, DelLink, NewAddress, NewLink};
        let is_interface = AddressFamily::Unspec;
        let mut links = Links::default();
        let up = change(NewLink(link(is_interface, 7, LinkFlags::Up | LinkFlags::LowerUp))).unwrap();
        assert!(links.apply(up.clone()));
        assert!(!links.apply(up), "the same again is no change");
        assert!(links.apply(change(NewAddress(address(7))).unwrap()));
        assert!(!links.apply(change(NewAddress(address(8))).unwrap()), "there is no interface 8");
        assert!(links.apply(change(NewLink(link(is_interface, 7, LinkFlags::Up))).unwrap()), "no carrier");
        let held = &links.by_index[&7];
        assert_eq!((held.name.as_str(), held.is_up), ("eth0", false));
        assert_eq!(held.mac, Some(Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!(held.addresses, [([192, 0, 2, 1].into(), 24)].into());
        let left = DelLink(link(AddressFamily::Bridge, 7, LinkFlags::empty()));
        assert_eq!(change(left), None, "left its bridge");
        assert!(links.apply(change(DelAddress(address(7))).unwrap()));
        assert!(links.apply(change(DelLink(link(is_interface, 7, LinkFlags::empty()))).unwrap()));
        assert_eq!(links, Links::default());
    }

    #[test]
    fn an_interface_without_neighbor_resolution_has_no_ethernet_address() {
        let dummy = link(AddressFamily::Unspec, 7, LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Noarp);
        let change = change(RouteNetlinkMessage::NewLink(dummy));
        assert_eq!(change, Some(Change::Link { index: 7, name: "eth0".into(), mac: None, is_up: true }));
    }
}
