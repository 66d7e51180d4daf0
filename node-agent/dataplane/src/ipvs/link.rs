//! Builder of rtnetlink requests for links and addresses, and parser of the responses, with the types of
//! `netlink-packet-route`. Does no I/O.
//!
//! The requests are sent on a blocking socket instead of an `rtnetlink` handle, because a commit runs on a
//! thread without an async runtime, and because one datagram can then contain up to 64 addresses instead of
//! one.

use std::net::IpAddr;

use kernel::{
    links::parse::address_of,
    netlink::{
        route,
        uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL},
        wire::{MalformedMessage, Message, ReceivedMessage},
    },
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};

/// Builds the request that creates a dummy link that is up. The kernel assigns a link-local address to it,
/// which the mirror (the copy of the kernel state in memory) ignores.
#[must_use]
pub fn add(name: &str) -> Message {
    let mut link = link_up(0);
    let kind = LinkInfo::Kind(InfoKind::Dummy);
    link.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(vec![kind])];
    route::request(&RouteNetlinkMessage::NewLink(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
}

/// Builds the request that sets the link with this index up.
#[must_use]
pub fn set_up(index: u32) -> Message {
    route::request(&RouteNetlinkMessage::NewLink(link_up(index)), NLM_F_ACK)
}

/// Builds the request that removes a link with all its addresses.
#[must_use]
pub fn remove(index: u32) -> Message {
    let mut link = LinkMessage::default();
    link.header.index = index;
    route::request(&RouteNetlinkMessage::DelLink(link), NLM_F_ACK)
}

/// Builds the request for the link with this name.
#[must_use]
pub fn get(name: &str) -> Message {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::IfName(name.to_owned())];
    route::request(&RouteNetlinkMessage::GetLink(link), NLM_F_ACK)
}

/// Builds the request that adds an address to a link, with a prefix length of 32 or 128.
#[must_use]
pub fn add_address(index: u32, address: IpAddr) -> Message {
    let message = RouteNetlinkMessage::NewAddress(address_message(index, address));
    route::request(&message, NLM_F_ACK | NLM_F_CREATE)
}

/// Builds the request that removes an address from a link.
#[must_use]
pub fn remove_address(index: u32, address: IpAddr) -> Message {
    route::request(&RouteNetlinkMessage::DelAddress(address_message(index, address)), NLM_F_ACK)
}

/// Builds the request for all addresses of all links.
#[must_use]
pub fn dump_addresses() -> Message {
    route::request(&RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)
}

fn link_up(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

/// Returns the message of an address. Duplicate address detection is off, because no other machine can
/// respond on a dummy link.
fn address_message(index: u32, address: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    (message.header.family, message.header.prefix_len, message.header.flags) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32, AddressHeaderFlags::empty()),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128, AddressHeaderFlags::Nodad),
    };
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

/// Parses a link response: returns the index of the link, and true if the link is up.
///
/// # Errors
/// Returns an error if the response is malformed or is about another subject.
pub fn index(answer: &ReceivedMessage<'_>) -> Result<(u32, bool), MalformedMessage> {
    let RouteNetlinkMessage::NewLink(link) = route::parse(answer)? else {
        return Err(MalformedMessage("the response is not a link"));
    };
    Ok((link.header.index, link.header.flags.contains(LinkFlags::Up)))
}

/// Parses an address response: returns the index of the link and the address, or `None` if the message
/// contains no IP address.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn address(answer: &ReceivedMessage<'_>) -> Result<Option<(u32, IpAddr)>, MalformedMessage> {
    let RouteNetlinkMessage::NewAddress(message) = route::parse(answer)? else { return Ok(None) };
    Ok(address_of(&message).map(|address| (message.header.index, address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encoded requests have the layouts of `linux/rtnetlink.h`, `linux/if_link.h` and `linux/if_addr.h`.
    #[test]
    fn requests_have_the_layout_of_the_kernel() {
        let [index, up] = [7_u32, 1].map(u32::to_ne_bytes);
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let kind = attribute(1, b"dummy\0");
        let added = add("ipvs0");
        // Without `NLA_F_NESTED`, as iproute2 sends it; the kernel accepts both forms.
        let nested = attribute(18, &kind);
        let expected = [&[0; 8][..], &up, &up, &attribute(3, b"ipvs0\0"), &nested].concat();
        assert_eq!((added.kind, added.flags, added.header), (16, 0x605, expected));
        let raised = set_up(7);
        assert_eq!((raised.kind, raised.flags), (16, 0x5));
        assert_eq!(raised.header, [&[0; 4][..], &index, &up, &up].concat());
        let requested = get("ipvs0");
        assert_eq!((requested.kind, requested.flags), (18, 0x5));
        assert_eq!(requested.header, [&[0; 16][..], &attribute(3, b"ipvs0\0")].concat());
        let removed = remove(7);
        assert_eq!((removed.kind, removed.flags), (17, 0x5));
        assert_eq!(removed.header, [&[0; 4][..], &index, &[0; 8]].concat());

        let v4 = [192, 0, 2, 1];
        let added = add_address(7, v4.into());
        let attributes = [attribute(2, &v4), attribute(1, &v4)].concat();
        assert_eq!((added.kind, added.flags), (20, 0x405));
        assert_eq!(added.header, [&[2, 32, 0, 0][..], &index, &attributes].concat());
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let removed = remove_address(7, v6);
        assert_eq!((removed.kind, removed.flags), (21, 0x5));
        assert_eq!(removed.header[..8], [&[10, 128, 2, 0][..], &index].concat());
        let dump = dump_addresses();
        assert_eq!((dump.kind, dump.flags, dump.header), (22, 0x301, vec![0; 8]));
    }

    #[test]
    fn responses_are_parsed() {
        let received = |request: &Message, kind: u16| {
            let payload = request.header.clone();
            move |read: &dyn Fn(&ReceivedMessage<'_>)| {
                read(&ReceivedMessage { kind, flags: 0, sequence: 0, payload: &payload });
            }
        };
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        received(&set_up(7), 16)(&|answer| assert_eq!(index(answer), Ok((7, true))));
        received(&remove(7), 16)(&|answer| assert_eq!(index(answer), Ok((7, false))));
        received(&remove(7), 17)(&|answer| assert!(index(answer).is_err(), "not the response"));
        received(&add_address(7, v6), 20)(&|answer| assert_eq!(address(answer), Ok(Some((7, v6)))));
        received(&dump_addresses(), 20)(&|answer| assert_eq!(address(answer), Ok(None)));
    }
}
