//! Fields of a connection in connection tracking.

use model::primitives::net::IpFamily;

use super::expr::Register;
use crate::netlink::wire::Attributes;

/// Field of the connection to which a packet belongs. An ICMP error belongs to the connection of the packet that it quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConntrackField {
    /// Direction of the packet, one byte: zero for the direction of the first packet, otherwise
    /// [`ConntrackField::REPLY`].
    Direction,
    /// Transport protocol of the connection, one byte.
    Protocol,
    /// Destination address of the first packet, before translation.
    OriginalDestination(IpFamily),
    /// Destination port of the first packet, before translation.
    OriginalDestinationPort,
}

impl ConntrackField {
    /// Value of [`ConntrackField::Direction`] for the direction of replies (`IP_CT_DIR_REPLY`).
    pub const REPLY: u8 = 1;

    /// Returns the attributes of the expression that loads the field into a register.
    pub(super) fn attributes(self, to: Register) -> Attributes {
        let (key, has_direction) = self.key();
        let attributes = Attributes::default().be32(1, to.0).be32(2, key);
        // IP_CT_DIR_ORIGINAL.
        if has_direction { attributes.bytes(3, &[0]) } else { attributes }
    }

    /// Returns the number of the field (`enum nft_ct_keys`), and true if the kernel stores a value for each direction.
    const fn key(self) -> (u32, bool) {
        match self {
            Self::Direction => (1, false),
            Self::Protocol => (10, false),
            Self::OriginalDestinationPort => (12, true),
            Self::OriginalDestination(IpFamily::V4) => (20, true),
            Self::OriginalDestination(IpFamily::V6) => (22, true),
        }
    }
}
