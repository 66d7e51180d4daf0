//! Configuration of a session, and the OPEN message that results from it.

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

/// Maximum length of the advertised host name, in bytes.
const HOST_NAME_BYTES_MAX: usize = 64;

/// Configuration of the session with one neighbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// AS number of this speaker towards the neighbor; not 0.
    pub local_asn: u32,
    /// Rule for the AS number in the neighbor's OPEN.
    pub peer_asn: PeerAsn,
    /// BGP Identifier of this speaker; not zero.
    pub router_id: Ipv4Addr,
    /// Proposed Hold Time in seconds: 0 to disable it, or 3 to 65535.
    pub hold_time: u16,
    /// Keepalive interval in seconds, used if shorter than a third of the negotiated Hold Time; `None` for a
    /// third.
    pub keepalive_time: Option<u16>,
    /// Delay before the next connection attempt after the first failure, in seconds, 1 to 65535. The delay
    /// doubles with each failure, up to one minute.
    pub connect_time: u16,
    /// True if this speaker waits for the neighbor to connect (`PassiveTcpEstablishment`).
    pub passive: bool,
    /// Address families advertised in OPEN; not empty.
    pub families: BTreeSet<Family>,
    /// Restart Time in seconds, 1 to 4095; enables Graceful Restart (RFC 4724). `None` disables it.
    pub graceful_restart: Option<u16>,
    /// True after a restart of the agent, when the neighbor may have stale routes. OPEN advertises the
    /// restart until the session has been established once.
    pub is_restarted: bool,
    /// True if IPv6 next hops are allowed for IPv4 routes (RFC 8950).
    pub extended_next_hop: bool,
    /// BGP Role of this speaker (RFC 9234); not advertised to internal peers.
    pub role: Option<Role>,
    /// Host name to advertise, truncated to 64 bytes. A change takes effect with the next session.
    pub host_name: Option<String>,
    /// Maximum number of prefixes from the neighbor; if exceeded, the session ends. Above 10,000 the count is
    /// accurate to about two percent, and limits above 1,000,000 are not enforced.
    pub max_prefixes: u32,
}

/// Rule for the AS number of a neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAsn {
    /// The neighbor must have this AS number.
    Number(u32),
    /// The neighbor must have the AS number of this speaker (IBGP).
    Internal,
    /// The neighbor may have any AS number except that of this speaker (EBGP).
    External,
}

impl PeerAsn {
    /// Returns true if a neighbor with AS number `asn` is accepted by a speaker with AS number `local`. AS 0
    /// is never accepted (RFC 7607).
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
    /// Returns true if the configuration accepts only neighbors in a different AS.
    #[must_use]
    pub const fn is_external(&self) -> bool {
        match self.peer_asn {
            PeerAsn::Number(asn) => asn != self.local_asn,
            PeerAsn::Internal => false,
            PeerAsn::External => true,
        }
    }

    /// Returns the name of a setting of `next` that cannot take effect during a session with the current
    /// settings, or `None`. Such settings are those in OPEN, except for the host name, and those that
    /// identify the neighbor. For an existing session
    /// [`Session::needs_reset`](crate::session::Session::needs_reset) is more precise.
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

    /// Returns the OPEN for this configuration. `is_restarted` sets the Restart State bit of Graceful
    /// Restart.
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
                // The forwarding plane is in the kernel and outlives the agent, so the Forwarding State bit
                // is always set.
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

    /// Returns true if Extended Next Hop Encoding is advertised, which is only useful for IPv4 routes.
    pub(super) fn offers_extended_next_hop(&self) -> bool {
        self.extended_next_hop && self.families.contains(&Family::Ipv4Unicast)
    }

    /// Returns the BGP Role to advertise, or `None`. Roles apply only between different ASes (RFC 9234 §4.1).
    pub(super) fn offered_role(&self) -> Option<Role> {
        self.role.filter(|_| self.is_external())
    }
}
