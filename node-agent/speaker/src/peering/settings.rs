//! Settings of the task of a neighbor, derived from the configuration of its peer. Does no I/O.

use std::{net::IpAddr, num::NonZeroU8, time::Duration};

use ::bfd::{Interval, Role as BfdRole};
use ::bgp::{Family, Role, reflector::PeerKind, session};
use bfd_runner::{Reach, SessionConfig};
use ipnet::IpNet;
use model::{
    bgp::settings::{BgpNeighbour, BgpRemote, BgpState},
    kinds::{
        advertisement::InterfaceName,
        bfd_profile::BfdProfileSpec,
        bgp_peer::{BgpFamily, BgpRole, GracefulRestart, PeerAsn},
    },
    primitives::name::Name,
};

use super::socket::Way;

/// Location of a neighbor: its address, or the interface of an unnumbered session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Neighbor with this configured address.
    Address(IpAddr),
    /// Neighbor at the other end of this interface, discovered by Router Advertisements.
    Interface(InterfaceName),
}

/// Settings of one neighbor's task: its session, connection and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) session: session::Config,
    pub(super) place: Place,
    /// TCP destination port of outgoing connections; 179 by default.
    pub(super) port: u16,
    pub(super) way: Way,
    pub(super) bfd: Option<BfdProfileSpec>,
    /// Part of an internal neighbor in route reflection; `None` if this node is no route reflector.
    pub(super) reflection: Option<PeerKind>,
}

/// Identity of this node in its sessions, in addition to the peer configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) node: &'a Name,
    pub(super) state: &'a BgpState,
    /// True if the agent has just started, so that neighbors may have stale routes from the previous process.
    pub(super) is_restarted: bool,
}

/// Returns the settings for a static peer, or for the neighbor of a dynamic peer at `address`. Returns
/// `None` for a dynamic peer without `address`.
pub(super) fn of(
    neighbour: &BgpNeighbour,
    identity: Identity<'_>,
    address: Option<IpAddr>,
) -> Option<Settings> {
    let BgpNeighbour {
        remote,
        peer_asn,
        local_asn,
        port,
        source_address,
        device,
        hold_time,
        keepalive_time,
        connect_time,
        password,
        ttl,
        ttl_security,
        passive,
        families,
        graceful_restart,
        role,
        bfd,
        max_prefixes,
        route_reflector_client: _,
    } = neighbour;
    let (place, is_dynamic) = match remote {
        BgpRemote::Address(address) => (Place::Address(*address), false),
        BgpRemote::Interface(interface) => (Place::Interface(interface.clone()), false),
        BgpRemote::Network { network: _, limit: _ } => (Place::Address(address?), true),
    };
    let is_ipv6 = match &place {
        Place::Address(address) => address.is_ipv6(),
        Place::Interface(_) => true,
    };
    let device = match &place {
        // Packets can take only this interface, and the kernel needs the scope of link-local addresses.
        Place::Interface(interface) => Some(interface.clone()),
        Place::Address(_) => device.clone(),
    };
    let session = session::Config {
        local_asn: *local_asn,
        peer_asn: match peer_asn {
            PeerAsn::Number(asn) => session::PeerAsn::Number(*asn),
            PeerAsn::Internal => session::PeerAsn::Internal,
            PeerAsn::External => session::PeerAsn::External,
        },
        router_id: identity.state.router_id,
        hold_time: *hold_time,
        keepalive_time: *keepalive_time,
        connect_time: *connect_time,
        passive: *passive || is_dynamic,
        families: families.iter().map(|family| family_of(*family)).collect(),
        graceful_restart: graceful_restart.map(|GracefulRestart { restart_time }| restart_time),
        is_restarted: identity.is_restarted,
        // Not offered on IPv4 sessions, where it is unnecessary and unexpected.
        extended_next_hop: is_ipv6,
        role: role.map(role_of),
        host_name: Some(identity.node.to_string()),
        max_prefixes: *max_prefixes,
    };
    let way = Way {
        source: *source_address,
        device,
        hop_limit: *ttl,
        // RFC 5082 §3: every router on the path decrements the initial hop limit of 255.
        hop_limit_min: ttl_security.map(|hops| u8::MAX - (hops.max(1) - 1)),
        password: password.clone(),
        silence_max: (*hold_time > 0).then(|| Duration::from_secs((*hold_time).into())),
    };
    let reflection = reflection(neighbour, identity.state);
    Some(Settings { session, place, port: *port, way, bfd: bfd.clone(), reflection })
}

/// Returns the part of a neighbor in route reflection: none if the node has no client, for external neighbors, and for
/// sessions in another AS than that of the node.
fn reflection(neighbour: &BgpNeighbour, state: &BgpState) -> Option<PeerKind> {
    let is_internal = match neighbour.peer_asn {
        PeerAsn::Number(asn) => asn == neighbour.local_asn,
        PeerAsn::Internal => true,
        PeerAsn::External => false,
    };
    let is_reflector = state.peers.values().any(|peer| peer.route_reflector_client);
    let kind = if neighbour.route_reflector_client { PeerKind::Client } else { PeerKind::NonClient };
    (is_internal && is_reflector && neighbour.local_asn == state.asn).then_some(kind)
}

const fn family_of(family: BgpFamily) -> Family {
    match family {
        BgpFamily::IPv4 => Family::Ipv4Unicast,
        BgpFamily::IPv6 => Family::Ipv6Unicast,
    }
}

const fn role_of(role: BgpRole) -> Role {
    match role {
        BgpRole::Provider => Role::Provider,
        BgpRole::RouteServer => Role::RouteServer,
        BgpRole::RouteServerClient => Role::RouteServerClient,
        BgpRole::Customer => Role::Customer,
        BgpRole::Peer => Role::Peer,
    }
}

impl Settings {
    /// Returns the first changed setting of `next` that requires a new TCP connection, or `None`. Settings
    /// that are sent in the OPEN message are not compared here, but by the session.
    pub(super) fn needs_new_connection(&self, next: &Self) -> Option<&'static str> {
        let Self { session: _, place, port, way, bfd: _, reflection } = self;
        let Way { source, device, hop_limit, hop_limit_min, password, silence_max: _ } = way;
        [
            (*place != next.place, "the peer's address"),
            (*port != next.port, "the peer's port"),
            (*source != next.way.source, "our address"),
            (*device != next.way.device, "the interface"),
            (*hop_limit != next.way.hop_limit, "the hop limit"),
            (*hop_limit_min != next.way.hop_limit_min, "TTL security"),
            (password.is_some() != next.way.password.is_some(), "whether there is a password"),
            // Routes that were received before were not stored.
            (*reflection != next.reflection, "route reflection"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }

    /// Returns the BFD configuration for the path to the neighbor, or `None` without BFD. `is_on_link` is
    /// true if both addresses of the connection are in the same network. An internal peer gets single-hop
    /// BFD if this is the case, otherwise multihop BFD. An external peer gets single-hop BFD if the hop
    /// limits of the BGP session restrict the session to one hop, otherwise multihop BFD.
    pub(super) fn watch(&self, is_on_link: bool) -> Option<SessionConfig> {
        let profile = self.bfd.as_ref()?;
        let BfdProfileSpec {
            receive_interval,
            transmit_interval,
            detect_multiplier,
            passive_mode,
            minimum_ttl,
        } = profile;
        let interval = |millis: u32| {
            let duration = Duration::from_millis(millis.into());
            // Control validates the same bounds.
            Interval::new(duration).unwrap_or(if millis < 1000 { Interval::MIN } else { Interval::MAX })
        };
        // RFC 5882 §10.1: multihop BFD if the BGP session is multihop.
        let is_single_hop = if self.session.is_external() {
            self.way.hop_limit_min == Some(u8::MAX)
                || (self.way.hop_limit_min.is_none() && self.way.hop_limit == 1)
        } else {
            is_on_link
        };
        Some(SessionConfig {
            transmit: interval(*transmit_interval),
            receive: interval(*receive_interval),
            multiplier: NonZeroU8::new(*detect_multiplier).unwrap_or(NonZeroU8::MIN),
            role: if *passive_mode { BfdRole::Passive } else { BfdRole::Active },
            reach: if is_single_hop {
                Reach::SingleHop
            } else {
                Reach::Multihop { hop_limit_min: *minimum_ttl }
            },
            auth: None,
        })
    }
}

/// Returns true if a connection from `remote` to `local` may belong to the peer.
pub(super) fn is_from(neighbour: &BgpNeighbour, remote: IpAddr, local: IpAddr) -> bool {
    let is_ours = neighbour.source_address.is_none_or(|source| source == local);
    let is_theirs = match &neighbour.remote {
        BgpRemote::Address(address) => *address == remote,
        BgpRemote::Network { network, limit: _ } => network.contains(&remote),
        // The interface is checked by the caller.
        BgpRemote::Interface(_) => matches!(remote, IpAddr::V6(v6) if v6.is_unicast_link_local()),
    };
    is_ours && is_theirs
}

/// Returns the network from which a peer may connect and for which its MD5 key is set. For an unnumbered
/// session this is the link-local network.
pub(super) fn sources(remote: &BgpRemote) -> IpNet {
    match remote {
        BgpRemote::Address(address) => IpNet::from(*address),
        BgpRemote::Network { network, limit: _ } => network.trunc(),
        BgpRemote::Interface(_) => {
            let prefix = ipnet::Ipv6Net::new(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);
            prefix.map_or_else(|_| unreachable!("10 is a length"), IpNet::V6)
        }
    }
}
