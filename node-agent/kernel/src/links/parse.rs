//! Parser of rtnetlink messages about interfaces and addresses (`linux/rtnetlink.h`, `linux/if_link.h`,
//! `linux/if_addr.h`).

use std::net::IpAddr;

use super::Mac;
use crate::netlink::wire::{MalformedMessage, ReceivedMessage};

/// Message number of a new or changed interface.
pub const RTM_NEWLINK: u16 = 16;
/// Message number of a removed interface.
pub const RTM_DELLINK: u16 = 17;
/// Message number of a request for interfaces.
pub const RTM_GETLINK: u16 = 18;
/// Message number of a new or changed address.
pub const RTM_NEWADDR: u16 = 20;
/// Message number of a removed address.
pub const RTM_DELADDR: u16 = 21;
/// Message number of a request for addresses.
pub const RTM_GETADDR: u16 = 22;
/// Size of `struct ifinfomsg`, in bytes.
pub const LINK_HEADER_BYTES: usize = 16;
/// Size of `struct ifaddrmsg`, in bytes.
pub const ADDRESS_HEADER_BYTES: usize = 8;

const AF_UNSPEC: u8 = 0;
const ARPHRD_ETHER: u16 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 0x1;
const IFF_NOARP: u32 = 0x80;
const IFF_LOWER_UP: u32 = 0x1_0000;

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

/// Parses one message. Returns `None` for messages about anything other than interfaces and addresses.
///
/// # Errors
/// Returns [`MalformedMessage`] if the message is malformed.
pub fn parse(message: &ReceivedMessage<'_>) -> Result<Option<Change>, MalformedMessage> {
    match message.kind {
        RTM_NEWLINK | RTM_DELLINK => parse_link(message),
        RTM_NEWADDR | RTM_DELADDR => parse_address(message),
        _ => Ok(None),
    }
}

fn parse_link(message: &ReceivedMessage<'_>) -> Result<Option<Change>, MalformedMessage> {
    let header: &[u8; LINK_HEADER_BYTES] =
        message.payload.first_chunk().ok_or(MalformedMessage("interface header cut off"))?;
    // Bridges report their ports in messages of the same type; an interface that leaves a bridge is not
    // removed.
    if header[0] != AF_UNSPEC {
        return Ok(None);
    }
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    if message.kind == RTM_DELLINK {
        return Ok(Some(Change::LinkGone { index }));
    }
    let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    // Interfaces such as dummies have an Ethernet address but no neighbor resolution.
    let is_ethernet = u16::from_ne_bytes([header[2], header[3]]) == ARPHRD_ETHER && flags & IFF_NOARP == 0;
    let (mut name, mut mac) = (None, None);
    for attribute in message.attributes_behind(LINK_HEADER_BYTES) {
        let attribute = attribute?;
        match attribute.kind {
            IFLA_IFNAME => name = Some(attribute.text()?.to_owned()),
            IFLA_ADDRESS if is_ethernet => mac = attribute.value.try_into().ok().map(Mac),
            _ => {}
        }
    }
    let name = name.ok_or(MalformedMessage("an interface without a name"))?;
    let is_up = flags & IFF_UP != 0 && flags & IFF_LOWER_UP != 0;
    Ok(Some(Change::Link { index, name, mac, is_up }))
}

fn parse_address(message: &ReceivedMessage<'_>) -> Result<Option<Change>, MalformedMessage> {
    let header: &[u8; ADDRESS_HEADER_BYTES] =
        message.payload.first_chunk().ok_or(MalformedMessage("address header cut off"))?;
    let prefix = header[1];
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    let (mut local, mut other) = (None, None);
    for attribute in message.attributes_behind(ADDRESS_HEADER_BYTES) {
        let attribute = attribute?;
        match attribute.kind {
            IFA_LOCAL => local = ip(attribute.value),
            IFA_ADDRESS => other = ip(attribute.value),
            _ => {}
        }
    }
    // If both attributes are present, IFA_ADDRESS is the peer of a point-to-point link.
    let Some(address) = local.or(other) else { return Ok(None) };
    Ok(Some(if message.kind == RTM_NEWADDR {
        Change::Address { index, address, prefix }
    } else {
        Change::AddressGone { index, address }
    }))
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    four.or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{links::Links, netlink::wire::Attributes};

    fn link(kind: u16, family: u8, index: u32, flags: u32) -> Vec<u8> {
        let mut payload = vec![family, 0];
        payload.extend(ARPHRD_ETHER.to_ne_bytes());
        payload.extend(index.to_ne_bytes());
        payload.extend(flags.to_ne_bytes());
        payload.extend([0; 4]);
        if kind == RTM_NEWLINK {
            let attributes =
                Attributes::default().text(IFLA_IFNAME, "eth0").bytes(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]);
            payload.extend(attributes.as_bytes());
        }
        payload
    }

    fn address(index: u32, attributes: &Attributes) -> Vec<u8> {
        let mut payload = vec![2, 24, 0, 0];
        payload.extend(index.to_ne_bytes());
        payload.extend(attributes.as_bytes());
        payload
    }

    fn read(kind: u16, payload: &[u8]) -> Option<Change> {
        parse(&ReceivedMessage { kind, flags: 0, sequence: 0, payload }).unwrap()
    }

    #[test]
    fn an_interface_comes_loses_its_carrier_and_goes() {
        let mut links = Links::default();
        let up = read(RTM_NEWLINK, &link(RTM_NEWLINK, AF_UNSPEC, 7, IFF_UP | IFF_LOWER_UP)).unwrap();
        assert!(links.apply(up.clone()));
        assert!(!links.apply(up), "the same again is no change");
        let own = Attributes::default().bytes(IFA_ADDRESS, &[192, 0, 2, 9]).bytes(IFA_LOCAL, &[192, 0, 2, 1]);
        assert!(links.apply(read(RTM_NEWADDR, &address(7, &own)).unwrap()));
        assert!(!links.apply(read(RTM_NEWADDR, &address(8, &own)).unwrap()), "there is no interface 8");
        assert!(
            links.apply(read(RTM_NEWLINK, &link(RTM_NEWLINK, AF_UNSPEC, 7, IFF_UP)).unwrap()),
            "no carrier"
        );
        let held = &links.by_index[&7];
        assert_eq!((held.name.as_str(), held.is_up), ("eth0", false));
        assert_eq!(held.mac, Some(Mac([2, 0, 0, 0, 0, 1])));
        assert_eq!(held.addresses, [([192, 0, 2, 1].into(), 24)].into());
        assert_eq!(
            read(RTM_DELLINK, &link(RTM_DELLINK, 7, 7, 0)),
            None,
            "left its bridge, which is family 7"
        );
        assert!(links.apply(read(RTM_DELADDR, &address(7, &own)).unwrap()));
        assert!(links.apply(read(RTM_DELLINK, &link(RTM_DELLINK, AF_UNSPEC, 7, 0)).unwrap()));
        assert_eq!(links, Links::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(kind in 16u16..23, payload in prop::collection::vec(any::<u8>(), 0..120)) {
            let mut links = Links::default();
            if let Ok(Some(change)) = parse(&ReceivedMessage { kind, flags: 0, sequence: 0, payload: &payload }) {
                links.apply(change);
            }
        }
    }
}
