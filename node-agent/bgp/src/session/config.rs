//! What a session is told by its owner, and the OPEN that follows from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
};

use crate::{
    capability::{Capability, GracefulRestart, Role},
    family::Family,
    message::Open,
};

/// Longest host name that is told, in bytes.
const HOST_NAME_BYTES_MAX: usize = 64;

/// The settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Our AS towards the neighbour; not 0.
    pub local_asn: u32,
    /// What the neighbour's AS has to be.
    pub peer_asn: PeerAsn,
    /// Our BGP Identifier; not zero.
    pub router_id: Ipv4Addr,
    /// Longest silence that we propose, in seconds: 0 (none is too long) or 3–65535.
    pub hold_time: u16,
    /// Time between keepalives in seconds, where it is shorter than a third of the agreed hold time.
    pub keepalive_time: Option<u16>,
    /// Wait after a first failure, in seconds, 1–65535; doubles with each further one up to a minute.
    pub connect_time: u16,
    /// Wait for the neighbour's connection and make none.
    pub passive: bool,
    /// Whose routes are exchanged; not empty.
    pub families: BTreeSet<Family>,
    /// Ask the neighbour to keep our routes this many seconds, 1–4095, while we are away (RFC 4724).
    pub graceful_restart: Option<u16>,
    /// The agent has restarted, and the neighbour may still have routes of before: said until the session was established once.
    pub is_restarted: bool,
    /// IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// What we are to the neighbour (RFC 9234); towards other AS only.
    pub role: Option<Role>,
    /// What we are called; cut after 64 bytes. Another name is told with the next session.
    pub host_name: Option<String>,
    /// The session ends when the neighbour announces more prefixes than this. Above 10,000 they are counted to about one
    /// percent, and no limit above 1,000,000 is held.
    pub max_prefixes: u32,
}

/// What the AS of a neighbour has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAsn {
    /// This one.
    Number(u32),
    /// Ours.
    Internal,
    /// Any but ours.
    External,
}

impl PeerAsn {
    /// Whether a neighbour of this AS is the one meant, where `local` is ours. AS 0 is nobody's (RFC 7607).
    #[must_use]
    pub const fn accepts(self, asn: u32, local: u32) -> bool {
        asn != 0
            && match self {
                Self::Number(wanted) => wanted == asn,
                Self::Internal => asn == local,
                Self::External => asn != local,
            }
    }
}

impl fmt::Display for PeerAsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(asn) => write!(f, "AS {asn}"),
            Self::Internal => f.write_str("our own AS"),
            Self::External => f.write_str("another AS than ours"),
        }
    }
}

impl Config {
    /// Whether the neighbour is of another AS.
    #[must_use]
    pub const fn is_external(&self) -> bool {
        match self.peer_asn {
            PeerAsn::Number(asn) => asn != self.local_asn,
            PeerAsn::Internal => false,
            PeerAsn::External => true,
        }
    }

    /// What of `next` cannot take effect while a session with these settings lasts, in words: what OPEN has said, and who
    /// the neighbour may be. Our host name is no reason.
    #[must_use]
    pub fn needs_reset(&self, next: &Self) -> Option<&'static str> {
        let Self {
            local_asn,
            peer_asn,
            router_id,
            hold_time,
            keepalive_time: _,
            connect_time: _,
            passive: _,
            families,
            graceful_restart,
            is_restarted: _,
            extended_next_hop,
            role,
            host_name: _,
            max_prefixes: _,
        } = self;
        [
            (*local_asn != next.local_asn, "our AS"),
            (*peer_asn != next.peer_asn, "the neighbour's AS"),
            (*router_id != next.router_id, "our router ID"),
            (*hold_time != next.hold_time, "the hold time"),
            (*families != next.families, "the address families"),
            (*graceful_restart != next.graceful_restart, "graceful restart"),
            (*extended_next_hop != next.extended_next_hop, "extended next hops"),
            (*role != next.role, "our role"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }

    /// The OPEN that says all this. `is_restarted` is the R bit of graceful restart.
    pub(super) fn open(&self, is_restarted: bool) -> Open {
        let mut capabilities: Vec<_> = self.families.iter().copied().map(Capability::MultiProtocol).collect();
        capabilities.push(Capability::RouteRefresh);
        if self.offers_extended_next_hop() {
            capabilities.push(Capability::ExtendedNextHop(vec![Family::Ipv4Unicast]));
        }
        capabilities.push(Capability::ExtendedMessage);
        capabilities.extend(self.offered_role().map(Capability::Role));
        if let Some(restart_time) = self.graceful_restart {
            capabilities.push(Capability::GracefulRestart(GracefulRestart {
                is_restarted,
                notification: true,
                restart_time,
                // What carries packets is in the kernel and outlives the agent: forwarding is always kept.
                families: self.families.iter().map(|family| (*family, true)).collect::<BTreeMap<_, _>>(),
            }));
        }
        capabilities.push(Capability::FourOctetAs(self.local_asn));
        capabilities.push(Capability::EnhancedRouteRefresh);
        if let Some(name) = &self.host_name {
            let host = name[..name.floor_char_boundary(HOST_NAME_BYTES_MAX)].to_owned();
            capabilities.push(Capability::HostName { host, domain: String::new() });
        }
        Open { asn: self.local_asn, hold_time: self.hold_time, router_id: self.router_id, capabilities }
    }

    /// Without IPv4 routes there is nothing to say about their next hops.
    pub(super) fn offers_extended_next_hop(&self) -> bool {
        self.extended_next_hop && self.families.contains(&Family::Ipv4Unicast)
    }

    /// A role is between AS (RFC 9234 §4.1).
    pub(super) fn offered_role(&self) -> Option<Role> {
        self.role.filter(|_| self.is_external())
    }
}
