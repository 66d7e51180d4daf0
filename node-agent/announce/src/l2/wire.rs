//! Codec of ARP (RFC 826, RFC 5227) and NDP (RFC 4861) frames on Ethernet.
//!
//! Parsing is total: for any input the parser terminates, reads only within the input, and returns a packet
//! or an error. Only the messages an announcer needs are supported: ARP requests and replies, Neighbor
//! Solicitations and Neighbor Advertisements.

mod arp;
mod ndp;

use std::net::Ipv6Addr;

use kernel::links::Mac;

pub use arp::{Arp, Operation};
pub use ndp::{Advertisement, Solicitation, solicited_node_group};

/// Length of the Ethernet header in bytes: destination, source and EtherType.
const ETHERNET_BYTES: usize = 14;
/// Minimum frame length without the FCS (IEEE 802.3); shorter frames are padded with zeros.
pub const FRAME_BYTES_MIN: usize = 60;
/// EtherType of ARP (`ETH_P_ARP`).
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of IPv6 (`ETH_P_IPV6`).
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;

/// ARP or NDP packet in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// An ARP request or reply.
    Arp(Arp),
    /// A Neighbor Solicitation.
    Solicitation(Solicitation),
    /// A Neighbor Advertisement.
    Advertisement(Advertisement),
}

/// Ethernet frame with an ARP or NDP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Destination MAC address, of a station or a group.
    pub destination: Mac,
    /// Source MAC address.
    pub source: Mac,
    /// ARP or NDP packet after the Ethernet header.
    pub packet: Packet,
}

/// Reason why received bytes are not a frame that the announcer can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreadable {
    /// The frame is shorter than its headers require.
    Truncated,
    /// The frame has a VLAN tag, so that it belongs to a VLAN interface.
    Tagged,
    /// The frame carries a different protocol, or an ICMPv6 message other than Neighbor Solicitations and
    /// Advertisements.
    Foreign,
    /// A field has a value that its RFC forbids.
    Malformed,
    /// The frame contains an NDP message whose hop limit is not 255, so that a router must have forwarded it
    /// (RFC 4861 §6.1, §7.1).
    HopLimit,
    /// The ICMPv6 checksum is wrong.
    Checksum,
}

/// Parses an Ethernet frame that contains an ARP or NDP packet.
///
/// # Errors
/// Returns [`Unreadable`] if the frame is malformed or contains neither ARP nor NDP.
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
    /// Encodes the frame, padded to the minimum length [`FRAME_BYTES_MIN`].
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

/// Returns the Ethernet address of an IPv6 multicast group (RFC 2464 §7).
#[must_use]
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests;
