//! Neighbor Solicitations and Advertisements (RFC 4861 §4.3, §4.4), with the validation of §7.1.

use std::net::Ipv6Addr;

use kernel::links::Mac;

use super::{Packet, Unreadable};

const IPV6_BYTES: usize = 40;
/// Length in bytes of a message without options: type, code, checksum, flags and target.
const MESSAGE_BYTES: usize = 24;
const NEXT_HEADER_ICMPV6: u8 = 58;
/// Hop limit of valid NDP packets. A packet that a router has forwarded has a lower one.
const HOP_LIMIT: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE_MAC: u8 = 1;
const OPTION_TARGET_MAC: u8 = 2;
/// Length of a link-layer address option, in units of eight bytes.
const MAC_OPTION_UNITS: u8 = 1;
const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;

/// A Neighbor Solicitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solicitation {
    /// Source address; unspecified during duplicate address detection (RFC 4862 §5.4.2).
    pub source: Ipv6Addr,
    /// Destination address: the solicited-node multicast address of the target, or the target itself in a
    /// reachability check.
    pub destination: Ipv6Addr,
    /// Target address, whose link-layer address is requested.
    pub target: Ipv6Addr,
    /// Source Link-Layer Address option; optional in unicast solicitations.
    pub source_mac: Option<Mac>,
}

/// A Neighbor Advertisement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// Source address of the packet.
    pub source: Ipv6Addr,
    /// Destination address of the packet.
    pub destination: Ipv6Addr,
    /// Router flag: true if the sender is a router.
    pub is_router: bool,
    /// Solicited flag: true if the message answers a solicitation.
    pub is_solicited: bool,
    /// Override flag: true if the message replaces an existing cache entry.
    pub is_override: bool,
    /// Target address, whose link-layer address is announced.
    pub target: Ipv6Addr,
    /// Target Link-Layer Address option.
    pub target_mac: Option<Mac>,
}

/// Returns the solicited-node multicast address of `address` (RFC 4291 §2.7.1).
#[must_use]
pub const fn solicited_node_group(address: Ipv6Addr) -> Ipv6Addr {
    let [.., low, last] = address.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (low & 0xff), last)
}

pub(super) fn parse(payload: &[u8]) -> Result<Packet, Unreadable> {
    let header: &[u8; IPV6_BYTES] = payload.first_chunk().ok_or(Unreadable::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(Unreadable::Malformed);
    }
    // Extension headers are not used here, and fragmentation is forbidden (RFC 6980).
    if header[6] != NEXT_HEADER_ICMPV6 {
        return Err(Unreadable::Foreign);
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let message = payload.get(IPV6_BYTES..IPV6_BYTES + length).ok_or(Unreadable::Truncated)?;
    let fixed: &[u8; MESSAGE_BYTES] = message.first_chunk().ok_or(Unreadable::Truncated)?;
    let kind = fixed[0];
    if kind != SOLICITATION && kind != ADVERTISEMENT {
        return Err(Unreadable::Foreign);
    }
    if header[7] != HOP_LIMIT {
        return Err(Unreadable::HopLimit);
    }
    let (source, destination, target) = (ip(header, 8), ip(header, 24), ip(fixed, 8));
    if checksum(source, destination, message) != 0 {
        return Err(Unreadable::Checksum);
    }
    if fixed[1] != 0 || target.is_multicast() || source.is_multicast() {
        return Err(Unreadable::Malformed);
    }
    let options = &message[MESSAGE_BYTES..];
    if kind == SOLICITATION {
        let source_mac = mac_option(options, OPTION_SOURCE_MAC)?;
        // RFC 4861 §7.1.1.
        let is_check = source.is_unspecified();
        if is_check && (source_mac.is_some() || destination != solicited_node_group(target)) {
            return Err(Unreadable::Malformed);
        }
        return Ok(Packet::Solicitation(Solicitation { source, destination, target, source_mac }));
    }
    let has = |flag: u8| fixed[4] & flag != 0;
    // RFC 4861 §7.1.2.
    if destination.is_multicast() && has(FLAG_SOLICITED) {
        return Err(Unreadable::Malformed);
    }
    Ok(Packet::Advertisement(Advertisement {
        source,
        destination,
        is_router: has(FLAG_ROUTER),
        is_solicited: has(FLAG_SOLICITED),
        is_override: has(FLAG_OVERRIDE),
        target,
        target_mac: mac_option(options, OPTION_TARGET_MAC)?,
    }))
}

/// Returns the Ethernet address in the first option of type `wanted`. All options are validated (RFC 4861
/// §4.6).
fn mac_option(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Unreadable> {
    let mut found = None;
    while let [kind, units, ..] = *options {
        if units == 0 {
            return Err(Unreadable::Malformed);
        }
        let (option, rest) = options.split_at_checked(usize::from(units) * 8).ok_or(Unreadable::Truncated)?;
        if let ([_, _, mac @ ..], true) = (option, kind == wanted && units == MAC_OPTION_UNITS) {
            let mac = <[u8; 6]>::try_from(mac).ok().map(Mac).filter(|mac| mac.is_unicast());
            found = found.or(Some(mac.ok_or(Unreadable::Malformed)?));
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(Unreadable::Truncated) }
}

fn ip(bytes: &[u8], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    for (octet, byte) in octets.iter_mut().zip(bytes.iter().skip(at)) {
        *octet = *byte;
    }
    octets.into()
}

impl Solicitation {
    pub(super) fn render(&self) -> Vec<u8> {
        let option = self.source_mac.map(|mac| (OPTION_SOURCE_MAC, mac));
        render(self.source, self.destination, SOLICITATION, 0, self.target, option)
    }
}

impl Advertisement {
    pub(super) fn render(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_router, FLAG_ROUTER)
            | flag(self.is_solicited, FLAG_SOLICITED)
            | flag(self.is_override, FLAG_OVERRIDE);
        let option = self.target_mac.map(|mac| (OPTION_TARGET_MAC, mac));
        render(self.source, self.destination, ADVERTISEMENT, flags, self.target, option)
    }
}

fn render(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    option: Option<(u8, Mac)>,
) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    if let Some((kind, mac)) = option {
        message.extend([kind, MAC_OPTION_UNITS]);
        message.extend(mac.0);
    }
    let [high, low] = checksum(source, destination, &message).to_be_bytes();
    message[2] = high;
    message[3] = low;
    let [length_high, length_low] =
        u16::try_from(message.len()).expect("a message is 24 or 32 bytes").to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length_high, length_low, NEXT_HEADER_ICMPV6, HOP_LIMIT];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    packet
}

/// Computes the ICMPv6 checksum (RFC 4443 §2.3): the value to send for a message whose checksum field is 0,
/// and 0 for a message with a correct checksum.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let sum_of = |bytes: &[u8]| -> u32 {
        let words = bytes.chunks(2).map(|pair| match *pair {
            [high, low] => u32::from(u16::from_be_bytes([high, low])),
            [high] => u32::from(high) << 8,
            _ => 0,
        });
        words.sum()
    };
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut sum = sum_of(&source.octets())
        + sum_of(&destination.octets())
        + (length & 0xffff)
        + u32::from(NEXT_HEADER_ICMPV6)
        + sum_of(message);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}
