//! Encoder of rtnetlink requests for links and addresses, and parser of the responses. Pure.
//!
//! Only three requests and two responses are needed, and all calls block, so the messages are encoded here
//! instead of using an asynchronous crate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kernel::netlink::{
    uapi::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST},
    wire::{Attributes, MalformedMessage, Message, ReceivedMessage},
};

use super::uapi as u;

/// Size of `struct ifinfomsg` in bytes.
const LINK_HEADER_BYTES: usize = 16;
/// Size of `struct ifaddrmsg` in bytes.
const ADDRESS_HEADER_BYTES: usize = 8;

/// Creates a dummy link that is up. The kernel assigns a link-local address to it, which the mirror ignores.
#[must_use]
pub fn add(name: &str) -> Message {
    let kind = Attributes::default().text(u::IFLA_INFO_KIND, "dummy");
    let attributes = Attributes::default().text(u::IFLA_IFNAME, name).nested(u::IFLA_LINKINFO, &kind);
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    message(u::RTM_NEWLINK, flags, link_header(0, u::IFF_UP), attributes)
}

/// Sets the link with this index up.
#[must_use]
pub fn set_up(index: u32) -> Message {
    message(u::RTM_NEWLINK, NLM_F_ACK, link_header(index, u::IFF_UP), Attributes::default())
}

/// Removes a link with all its addresses.
#[must_use]
pub fn remove(index: u32) -> Message {
    message(u::RTM_DELLINK, NLM_F_ACK, link_header(index, 0), Attributes::default())
}

/// Requests the link with this name.
#[must_use]
pub fn get(name: &str) -> Message {
    let attributes = Attributes::default().text(u::IFLA_IFNAME, name);
    message(u::RTM_GETLINK, NLM_F_ACK, link_header(0, 0), attributes)
}

/// Adds an address to a link, with a prefix length of 32 or 128.
#[must_use]
pub fn add_address(index: u32, address: IpAddr) -> Message {
    let flags = NLM_F_ACK | NLM_F_CREATE;
    message(u::RTM_NEWADDR, flags, address_header(index, address), address_attributes(address))
}

/// Removes an address from a link.
#[must_use]
pub fn remove_address(index: u32, address: IpAddr) -> Message {
    message(u::RTM_DELADDR, NLM_F_ACK, address_header(index, address), address_attributes(address))
}

/// Requests all addresses of all links.
#[must_use]
pub fn dump_addresses() -> Message {
    message(u::RTM_GETADDR, NLM_F_DUMP, vec![0; ADDRESS_HEADER_BYTES], Attributes::default())
}

fn message(kind: u16, flags: u16, header: Vec<u8>, attributes: Attributes) -> Message {
    Message { kind, flags: flags | NLM_F_REQUEST, header, attributes }
}

/// Encodes `struct ifinfomsg`: family, padding, type, index, flags and change mask.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let words = [0, index, flags, flags];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// Encodes `struct ifaddrmsg`: family, prefix length, flags, scope and index. Duplicate address detection is
/// off, because no other machine can respond on a dummy link.
fn address_header(index: u32, address: IpAddr) -> Vec<u8> {
    let (family, length, flags) = match address {
        IpAddr::V4(_) => (u::AF_INET, 32, 0),
        IpAddr::V6(_) => (u::AF_INET6, 128, u::IFA_F_NODAD),
    };
    [vec![family, length, flags, 0], index.to_ne_bytes().to_vec()].concat()
}

fn address_attributes(address: IpAddr) -> Attributes {
    match address {
        IpAddr::V4(v4) => {
            Attributes::default().bytes(u::IFA_LOCAL, &v4.octets()).bytes(u::IFA_ADDRESS, &v4.octets())
        }
        IpAddr::V6(v6) => {
            Attributes::default().bytes(u::IFA_LOCAL, &v6.octets()).bytes(u::IFA_ADDRESS, &v6.octets())
        }
    }
}

/// Parses a link response: returns the index of the link, and true if the link is up.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn index(answer: &ReceivedMessage<'_>) -> Result<(u32, bool), MalformedMessage> {
    let header: &[u8; LINK_HEADER_BYTES] = answer.payload.first_chunk().ok_or(MalformedMessage(
        "truncated link \
                                                                                         header",
    ))?;
    let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    Ok((word(4), word(8) & u::IFF_UP != 0))
}

/// Parses an address response: returns the index of the link and the address, or `None` if the message
/// contains no IP address.
///
/// # Errors
/// Returns an error if the response is malformed.
pub fn address(answer: &ReceivedMessage<'_>) -> Result<Option<(u32, IpAddr)>, MalformedMessage> {
    let header: &[u8; ADDRESS_HEADER_BYTES] =
        answer.payload.first_chunk().ok_or(MalformedMessage("truncated address"))?;
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    let (mut local, mut address) = (None, None);
    for attribute in answer.attributes_behind(ADDRESS_HEADER_BYTES) {
        let attribute = attribute?;
        let place = match attribute.kind {
            u::IFA_LOCAL => &mut local,
            u::IFA_ADDRESS => &mut address,
            _ => continue,
        };
        *place = match header[0] {
            u::AF_INET => {
                attribute.value.first_chunk::<4>().map(|octets| IpAddr::V4(Ipv4Addr::from(*octets)))
            }
            u::AF_INET6 => {
                attribute.value.first_chunk::<16>().map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)))
            }
            _ => None,
        };
    }
    // On a point-to-point link the local address is that of this end (RFC 3549 §3.2.1 leaves it to the
    // family).
    Ok(local.or(address).map(|address| (index, address)))
}
