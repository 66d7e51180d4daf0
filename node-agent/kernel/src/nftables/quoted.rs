//! Packets that ICMP errors quote.

use model::primitives::net::IpFamily;

/// Field of the packet that an ICMP or ICMPv6 error quotes, whose network header is assumed to have no options or
/// extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotedField {
    /// Type and code of the error itself, one byte each.
    ErrorKind,
    /// First byte of the network header: the version, and in IPv4 the length of the header in words of 4 bytes.
    Version,
    /// Protocol of the payload, one byte.
    Protocol,
    /// Destination address.
    Destination,
    /// Source port of TCP, UDP or SCTP.
    SourcePort,
    /// Destination port of TCP, UDP or SCTP.
    DestinationPort,
}

impl QuotedField {
    /// Returns the offset in the ICMP message and the length, in bytes.
    pub(super) const fn place(self, family: IpFamily) -> (u32, u32) {
        match (self, family) {
            (Self::ErrorKind, _) => (0, 2),
            (Self::Version, _) => (8, 1),
            (Self::Protocol, IpFamily::V4) => (8 + 9, 1),
            (Self::Protocol, IpFamily::V6) => (8 + 6, 1),
            (Self::Destination, IpFamily::V4) => (8 + 16, 4),
            (Self::Destination, IpFamily::V6) => (8 + 24, 16),
            (Self::SourcePort, IpFamily::V4) => (8 + 20, 2),
            (Self::SourcePort, IpFamily::V6) => (8 + 40, 2),
            (Self::DestinationPort, IpFamily::V4) => (8 + 22, 2),
            (Self::DestinationPort, IpFamily::V6) => (8 + 42, 2),
        }
    }
}
