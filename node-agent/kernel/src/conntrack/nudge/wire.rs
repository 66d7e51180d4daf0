//! Encoding of the TCP segment that provokes a challenge ACK (RFC 5961) from a client. Does no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PROTOCOL_TCP: u8 = 6;
const HOP_LIMIT: u8 = 64;
const TCP_HEADER_BYTES: u8 = 20;
/// Don't Fragment flag in the IPv4 header (RFC 791 §3.1).
const DONT_FRAGMENT: u8 = 0x40;
/// TCP flags SYN and ACK (RFC 9293 §3.1).
const FLAGS: u8 = 0x12;

/// Client from which a challenge ACK (RFC 5961) is to be provoked, and the server address to which it is
/// connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nudge {
    /// Address and port to which the client is connected, such as a virtual address.
    pub server: SocketAddr,
    /// Address and port of the client.
    pub client: SocketAddr,
}

impl Nudge {
    /// Encodes the whole packet: an out-of-window SYN+ACK. A client with an established connection responds
    /// with a challenge ACK that carries the next expected sequence number (RFC 5961 §4.2), and keeps the
    /// connection. Connection tracking creates no entry for a SYN+ACK. Returns `None` if the addresses are
    /// of different families.
    #[must_use]
    pub fn packet(&self) -> Option<Vec<u8>> {
        match (self.server.ip(), self.client.ip()) {
            (IpAddr::V4(server), IpAddr::V4(client)) => Some(self.packet_v4(server, client)),
            (IpAddr::V6(server), IpAddr::V6(client)) => Some(self.packet_v6(server, client)),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// Encodes the IPv4 packet. The kernel fills in total length, identification and header checksum.
    fn packet_v4(&self, server: Ipv4Addr, client: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, DONT_FRAGMENT, 0, HOP_LIMIT, PROTOCOL_TCP, 0, 0];
        packet.extend(server.octets());
        packet.extend(client.octets());
        packet.extend(self.segment(&server.octets(), &client.octets()));
        packet
    }

    fn packet_v6(&self, server: Ipv6Addr, client: Ipv6Addr) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, TCP_HEADER_BYTES, PROTOCOL_TCP, HOP_LIMIT];
        packet.extend(server.octets());
        packet.extend(client.octets());
        packet.extend(self.segment(&server.octets(), &client.octets()));
        packet
    }

    fn segment(&self, server: &[u8], client: &[u8]) -> Vec<u8> {
        let mut segment = Vec::with_capacity(TCP_HEADER_BYTES.into());
        segment.extend(self.server.port().to_be_bytes());
        segment.extend(self.client.port().to_be_bytes());
        // Sequence and acknowledgement number do not matter, so both are 0.
        segment.extend([0; 8]);
        // Data offset, flags, window, checksum, urgent pointer.
        segment.extend([(TCP_HEADER_BYTES / 4) << 4, FLAGS, 0, 0, 0, 0, 0, 0]);
        let [high, low] = checksum(server, client, &segment).to_be_bytes();
        segment[16] = high;
        segment[17] = low;
        segment
    }
}

/// Computes the TCP checksum (RFC 9293 §3.1). For a segment with checksum field 0 this is the value to send;
/// for a segment with a correct checksum it is 0.
fn checksum(server: &[u8], client: &[u8], segment: &[u8]) -> u16 {
    let pseudo_header = [0, PROTOCOL_TCP, 0, TCP_HEADER_BYTES];
    let all = [server, client, &pseudo_header, segment].concat();
    let words = all.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(server: &str, client: &str) -> Option<Vec<u8>> {
        Nudge { server: server.parse().unwrap(), client: client.parse().unwrap() }.packet()
    }

    #[test]
    fn the_segment_is_a_syn_with_ack_whose_checksum_is_right() {
        let v4 = packet("10.96.0.1:80", "10.1.1.2:40000").unwrap();
        assert_eq!(v4[..20], [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 96, 0, 1, 10, 1, 1, 2]);
        assert_eq!(v4[20..24], [0, 80, 0x9c, 0x40]);
        assert_eq!(v4[32..36], [0x50, 0x12, 0, 0]);
        assert_eq!(checksum(&v4[12..16], &v4[16..20], &v4[20..]), 0);
        let v6 = packet("[fd00:96::1]:80", "[fd00::2]:40000").unwrap();
        assert_eq!(v6[..8], [0x60, 0, 0, 0, 0, 20, 6, 64]);
        assert_eq!((v6.len(), checksum(&v6[8..24], &v6[24..40], &v6[40..])), (60, 0));
        assert_eq!(packet("10.96.0.1:80", "[fd00::2]:40000"), None);
    }
}
