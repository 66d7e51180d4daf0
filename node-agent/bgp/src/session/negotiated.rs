//! What follows from both OPEN together.

use std::{collections::BTreeSet, net::Ipv4Addr};

use crate::{
    capability::{Capability, GracefulRestart, Role},
    family::Family,
    message::Open,
    session::Config,
    wire,
};

/// Capabilities that are named to the owner, of each kind; a neighbour may send more.
const NAMED_MAX: usize = 64;

/// What both sides of a session agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// The neighbour's AS.
    pub peer_asn: u32,
    /// The neighbour's BGP Identifier.
    pub peer_router_id: Ipv4Addr,
    /// The neighbour is of another AS.
    pub is_external: bool,
    /// Longest silence in seconds; 0: none is too long.
    pub hold_time: u16,
    /// Time between our keepalives in seconds, before jitter; 0: none are sent.
    pub keepalive_time: u16,
    /// Whose routes both exchange; not empty.
    pub families: BTreeSet<Family>,
    /// AS numbers have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// Both answer route refreshes (RFC 2918).
    pub route_refresh: bool,
    /// Both frame the answer (RFC 7313).
    pub enhanced_refresh: bool,
    /// Messages may have up to 65,535 bytes (RFC 8654).
    pub extended_messages: bool,
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// What the neighbour said of graceful restart; nothing where either side did not.
    pub graceful_restart: Option<GracefulRestart>,
    /// What the neighbour is to us, where both said something (RFC 9234).
    pub role: Option<Role>,
    /// What the neighbour is called.
    pub host_name: Option<String>,
    /// What both can do, in words.
    pub capabilities: Vec<String>,
    /// What only the neighbour can do, in words.
    pub other_capabilities: Vec<String>,
}

impl Negotiated {
    /// How messages of the session are read and written.
    #[must_use]
    pub fn context(&self) -> wire::Context {
        wire::Context {
            four_octet_as: self.four_octet_as,
            extended_messages: self.extended_messages,
            extended_next_hop: self.extended_next_hop,
            is_external: self.is_external,
            ..wire::Context::default()
        }
    }
}
