//! ARP for IPv4 on Ethernet (RFC 826).

use std::net::Ipv4Addr;

use kernel::links::Mac;

use super::Unreadable;

/// Length of an ARP packet for IPv4 on Ethernet, in bytes; the rest of the frame is padding.
const ARP_BYTES: usize = 28;
/// Fixed bytes at the start of an ARP packet, before the operation: hardware type Ethernet, protocol type
/// IPv4, and the lengths of both addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// ARP operation (`ar$op`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Request for the hardware address of the target.
    Request,
    /// Reply with the hardware address of the sender.
    Reply,
}

/// ARP packet for IPv4 addresses on Ethernet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arp {
    /// Request or reply.
    pub operation: Operation,
    /// Sender hardware address; always unicast.
    pub sender_mac: Mac,
    /// Sender protocol address; unspecified in a probe (RFC 5227 §2.1.1).
    pub sender: Ipv4Addr,
    /// Target hardware address; ignored in a request.
    pub target_mac: Mac,
    /// Target protocol address.
    pub target: Ipv4Addr,
}

pub(super) fn parse(payload: &[u8]) -> Result<Arp, Unreadable> {
    let bytes: &[u8; ARP_BYTES] = payload.first_chunk().ok_or(Unreadable::Truncated)?;
    if bytes.first_chunk() != Some(&ETHERNET_IPV4) {
        return Err(Unreadable::Foreign);
    }
    let operation = match [bytes[6], bytes[7]] {
        [0, 1] => Operation::Request,
        [0, 2] => Operation::Reply,
        _ => return Err(Unreadable::Foreign),
    };
    let mac = |at: usize| {
        Mac([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4], bytes[at + 5]])
    };
    let ip = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
    let arp = Arp { operation, sender_mac: mac(8), sender: ip(14), target_mac: mac(18), target: ip(24) };
    if !arp.sender_mac.is_unicast() || arp.sender.is_multicast() || arp.sender.is_broadcast() {
        return Err(Unreadable::Malformed);
    }
    Ok(arp)
}

impl Arp {
    pub(super) fn render(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ARP_BYTES);
        bytes.extend(ETHERNET_IPV4);
        bytes.extend(match self.operation {
            Operation::Request => [0, 1],
            Operation::Reply => [0, 2],
        });
        bytes.extend(self.sender_mac.0);
        bytes.extend(self.sender.octets());
        bytes.extend(self.target_mac.0);
        bytes.extend(self.target.octets());
        bytes
    }
}
