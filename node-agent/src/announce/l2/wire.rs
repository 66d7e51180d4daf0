//! Frames of ARP (RFC 826, RFC 5227) and of neighbour discovery (RFC 4861) on Ethernet: bytes to meaning and back.
//!
//! Reading is total: whatever the bytes, it ends, stays within them and answers a packet or the reason why there is none.
//! Only what an announcer needs is understood: requests, replies, solicitations and advertisements.

mod arp;
mod ndp;

use std::net::Ipv6Addr;

pub use arp::{Arp, Operation};
pub use ndp::{Advertisement, Solicitation, solicited_node_group};

use crate::links::Mac;

/// Ethernet header: destination, source, type.
const ETHERNET_BYTES: usize = 14;
/// The shortest frame, without its checksum (IEEE 802.3); shorter ones are filled with zeros.
pub const FRAME_BYTES_MIN: usize = 60;
/// `ETH_P_ARP`.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// `ETH_P_IPV6`.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

/// A packet of the protocols that an announcer speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// An ARP request or reply.
    Arp(Arp),
    /// A neighbour solicitation.
    Solicitation(Solicitation),
    /// A neighbour advertisement.
    Advertisement(Advertisement),
}

/// A frame that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The station, or group of stations, that it was sent to.
    pub destination: Mac,
    /// The station that sent it.
    pub source: Mac,
    /// What it says.
    pub packet: Packet,
}

/// Why a frame says nothing to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreadable {
    /// It ends before what it announces.
    Truncated,
    /// It belongs to a VLAN, and so to another interface.
    Tagged,
    /// It is of another protocol, or a message of ICMPv6 that is not for us.
    Foreign,
    /// It breaks a rule of its protocol.
    Malformed,
    /// A neighbour discovery message that a router has passed on: it is not of this link (RFC 4861 §6.1, §7.1).
    HopLimit,
    /// Its ICMPv6 checksum is wrong.
    Checksum,
}

/// Reads a frame.
///
/// # Errors
/// The reason why it says nothing to us.
pub fn parse(frame: &[u8]) -> Result<Frame, Unreadable> {
    let header: &[u8; ETHERNET_BYTES] = frame.first_chunk().ok_or(Unreadable::Truncated)?;
    let payload = &frame[ETHERNET_BYTES..];
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, kind0, kind1] = *header;
    let packet = match u16::from_be_bytes([kind0, kind1]) {
        ETHERTYPE_ARP => Packet::Arp(arp::parse(payload)?),
        ETHERTYPE_IPV6 => ndp::parse(payload)?,
        ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN => return Err(Unreadable::Tagged),
        _ => return Err(Unreadable::Foreign),
    };
    let source = Mac([s0, s1, s2, s3, s4, s5]);
    if !source.is_unicast() {
        return Err(Unreadable::Malformed);
    }
    Ok(Frame { destination: Mac([d0, d1, d2, d3, d4, d5]), source, packet })
}

impl Frame {
    /// The bytes to send.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let (kind, payload) = match &self.packet {
            Packet::Arp(arp) => (ETHERTYPE_ARP, arp.render()),
            Packet::Solicitation(solicitation) => (ETHERTYPE_IPV6, solicitation.render()),
            Packet::Advertisement(advertisement) => (ETHERTYPE_IPV6, advertisement.render()),
        };
        let mut frame = Vec::with_capacity(FRAME_BYTES_MIN.max(ETHERNET_BYTES + payload.len()));
        frame.extend(self.destination.0);
        frame.extend(self.source.0);
        frame.extend(kind.to_be_bytes());
        frame.extend(payload);
        frame.resize(frame.len().max(FRAME_BYTES_MIN), 0);
        frame
    }
}

/// The Ethernet address of a multicast group (RFC 2464 §7).
#[must_use]
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests;
