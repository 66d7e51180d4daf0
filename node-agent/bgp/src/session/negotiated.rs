//! Session properties negotiated by the OPEN messages of both speakers.

use std::{collections::BTreeSet, net::Ipv4Addr};

use crate::{
    capability::{Capability, GracefulRestart, Role},
    family::Family,
    message::Open,
    session::{Config, check::families_of},
    wire,
};

/// Maximum number of entries in each of the lists `capabilities` and `other_capabilities`. A neighbor may
/// advertise more capabilities; the others are not listed.
const NAMED_MAX: usize = 64;

/// Properties of an established session, derived from the OPEN messages of this speaker and the neighbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiatedSession {
    /// AS number in the neighbor's OPEN.
    pub peer_asn: u32,
    /// BGP Identifier in the neighbor's OPEN.
    pub peer_router_id: Ipv4Addr,
    /// True if the neighbor is in a different AS (EBGP).
    pub is_external: bool,
    /// Hold Time in seconds; 0 disables the Hold Timer.
    pub hold_time: u16,
    /// Keepalive interval in seconds, before jitter; 0 disables KEEPALIVE messages.
    pub keepalive_time: u16,
    /// Address families that both speakers advertise; not empty.
    pub families: BTreeSet<Family>,
    /// True if `AS_PATH` has 4-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// True if both sides support Route Refresh (RFC 2918).
    pub route_refresh: bool,
    /// True if both sides support Enhanced Route Refresh (RFC 7313).
    pub enhanced_refresh: bool,
    /// True if messages may have up to 65,535 bytes (RFC 8654).
    pub extended_messages: bool,
    /// True if IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// Graceful Restart capability of the neighbor; `None` if one of the speakers does not advertise it.
    pub graceful_restart: Option<GracefulRestart>,
    /// BGP Role of the neighbor, if both speakers advertise a role (RFC 9234).
    pub role: Option<Role>,
    /// Host name in the neighbor's FQDN capability; `None` without this capability.
    pub host_name: Option<String>,
    /// Names of the capabilities that both this speaker and the neighbor advertise.
    pub capabilities: Vec<String>,
    /// Names of the capabilities that only the neighbor advertises.
    pub other_capabilities: Vec<String>,
}

impl NegotiatedSession {
    /// Returns the context for encoding and decoding messages of this session.
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

    /// Computes the negotiated properties from the configuration of this speaker and the neighbor's validated
    /// OPEN.
    pub(super) fn new(config: &Config, open: &Open) -> Self {
        let Open { asn, hold_time, router_id, capabilities } = open;
        let offers = |wanted: &Capability| capabilities.contains(wanted);
        let families = families_of(capabilities);
        let families: BTreeSet<_> = families.intersection(&config.families).copied().collect();
        let hold_time = config.hold_time.min(*hold_time);
        let extended_next_hop = config.offers_extended_next_hop()
            && families.contains(&Family::Ipv4Unicast)
            && capabilities.iter().any(takes_ipv6_next_hops);
        let mut negotiated = Self {
            peer_asn: *asn,
            peer_router_id: *router_id,
            is_external: *asn != config.local_asn,
            hold_time,
            keepalive_time: keepalive_time(config, hold_time),
            families,
            four_octet_as: capabilities.iter().any(|each| matches!(each, Capability::FourOctetAs(_))),
            route_refresh: offers(&Capability::RouteRefresh),
            enhanced_refresh: offers(&Capability::EnhancedRouteRefresh),
            extended_messages: offers(&Capability::ExtendedMessage),
            extended_next_hop,
            graceful_restart: config.graceful_restart.and_then(|_| restart_of(capabilities)),
            role: config.offered_role().and_then(|_| role_of(capabilities)),
            host_name: host_name_of(capabilities),
            capabilities: Vec::new(),
            other_capabilities: Vec::new(),
        };
        negotiated.name(capabilities);
        negotiated
    }

    /// Returns true if the neighbor retains this speaker's routes after a connection was lost without a
    /// NOTIFICATION (RFC 4724 §4.2).
    pub(super) const fn is_graceful(&self) -> bool {
        self.graceful_restart.is_some()
    }

    /// Returns true if the neighbor also retains this speaker's routes after a NOTIFICATION or the expiry of
    /// the Hold Timer (RFC 8538 §4).
    pub(super) fn is_graceful_over_notifications(&self) -> bool {
        self.graceful_restart.as_ref().is_some_and(|restart| restart.notification)
    }

    /// Divides the names of the neighbor's capabilities into those that this speaker advertises as well
    /// (`capabilities`) and the others (`other_capabilities`).
    fn name(&mut self, capabilities: &[Capability]) {
        let implied = capabilities.iter().all(|each| !is_multi_protocol(each));
        let implied = implied.then_some(Capability::MultiProtocol(Family::Ipv4Unicast));
        for capability in implied.iter().chain(capabilities) {
            let is_common = match capability {
                Capability::MultiProtocol(family) => self.families.contains(family),
                Capability::RouteRefresh
                | Capability::ExtendedMessage
                | Capability::FourOctetAs(_)
                | Capability::EnhancedRouteRefresh => true,
                Capability::ExtendedNextHop(_) => self.extended_next_hop,
                Capability::Role(_) => self.role.is_some(),
                Capability::GracefulRestart(_) => self.is_graceful(),
                Capability::Unknown { .. } => false,
                // Reported in a field of its own.
                Capability::HostName { .. } => continue,
            };
            let list = if is_common { &mut self.capabilities } else { &mut self.other_capabilities };
            let words = words(capability);
            if list.len() < NAMED_MAX && !list.contains(&words) {
                list.push(words);
            }
        }
    }
}

/// Returns the keepalive interval in seconds: a third of the Hold Time, or the configured value if it is
/// lower; 0 for a Hold Time of 0 (RFC 4271 §4.4).
pub(super) fn keepalive_time(config: &Config, hold_time: u16) -> u16 {
    let third = hold_time / 3;
    config.keepalive_time.map_or(third, |wanted| wanted.min(third))
}

const fn is_multi_protocol(capability: &Capability) -> bool {
    matches!(capability, Capability::MultiProtocol(_) | Capability::Unknown { code: 1, .. })
}

fn takes_ipv6_next_hops(capability: &Capability) -> bool {
    matches!(capability, Capability::ExtendedNextHop(families) if families.contains(&Family::Ipv4Unicast))
}

/// Returns the Graceful Restart capability of the neighbor; if there are several, the last one is used (RFC
/// 4724 §3).
fn restart_of(capabilities: &[Capability]) -> Option<GracefulRestart> {
    capabilities.iter().rev().find_map(|capability| {
        if let Capability::GracefulRestart(restart) = capability { Some(restart.clone()) } else { None }
    })
}

fn role_of(capabilities: &[Capability]) -> Option<Role> {
    capabilities
        .iter()
        .find_map(|capability| if let Capability::Role(role) = capability { Some(*role) } else { None })
}

fn host_name_of(capabilities: &[Capability]) -> Option<String> {
    capabilities.iter().find_map(|capability| {
        let Capability::HostName { host, domain } = capability else { return None };
        Some(if domain.is_empty() { host.clone() } else { format!("{host}.{domain}") })
    })
}

fn words(capability: &Capability) -> String {
    match capability {
        Capability::MultiProtocol(family) => family.to_string(),
        Capability::RouteRefresh => "route refresh".to_owned(),
        Capability::ExtendedNextHop(_) => "IPv6 next hops for IPv4 routes".to_owned(),
        Capability::ExtendedMessage => "extended messages".to_owned(),
        Capability::Role(role) => format!("role {role}"),
        Capability::GracefulRestart(restart) => {
            let over = if restart.notification { ", also over notifications" } else { "" };
            format!("graceful restart within {} s{over}", restart.restart_time)
        }
        Capability::FourOctetAs(_) => "4-octet AS".to_owned(),
        Capability::EnhancedRouteRefresh => "enhanced route refresh".to_owned(),
        Capability::HostName { .. } => "host name".to_owned(),
        Capability::Unknown { code, value } => unknown_words(*code, value),
    }
}

/// Returns the registered name of a capability code that this speaker does not support, or its number.
fn unknown_words(code: u8, value: &[u8]) -> String {
    match (code, value) {
        (1, [high, low, _, safi]) => format!("AFI {} SAFI {safi}", u16::from_be_bytes([*high, *low])),
        (3, _) => "outbound route filtering".to_owned(),
        (69, _) => "additional paths".to_owned(),
        (71, _) => "long-lived graceful restart".to_owned(),
        (74, _) => "BFD strict mode".to_owned(),
        (75, _) => "software version".to_owned(),
        (76, _) => "paths limit".to_owned(),
        (128, _) => "route refresh (before RFC 2918)".to_owned(),
        _ => format!("capability {code}"),
    }
}
