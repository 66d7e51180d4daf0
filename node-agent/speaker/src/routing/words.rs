//! Formats routes and sessions as texts for the status output.

use std::fmt::Display;

use ::bgp::{Attributes, Segment, attributes::NextHop, export::Route};
use model::{
    bgp::report::{BgpSession, BgpSessionState},
    primitives::community::Community,
};

/// Describes the attributes of an advertised route.
pub(super) fn attributes(attributes: &Attributes) -> String {
    let Attributes {
        origin: _,
        as_path,
        next_hop,
        med,
        local_pref,
        is_atomic_aggregate: _,
        aggregator: _,
        communities,
        originator_id,
        cluster_list,
        extended_communities,
        large_communities,
        only_to_customer,
    } = attributes;
    let mut parts = vec![match next_hop {
        NextHop::V4(address) => format!("next hop {address}"),
        NextHop::V6 { global, link_local: Some(link_local) } => format!("next hop {global} ({link_local})"),
        NextHop::V6 { global, link_local: None } => format!("next hop {global}"),
    }];
    let path: Vec<_> = as_path.0.iter().flat_map(Segment::numbers).map(u32::to_string).collect();
    if !path.is_empty() {
        parts.push(format!("AS path {}", path.join(" ")));
    }
    let number = |name: &str, value: &Option<u32>| value.map(|value| format!("{name} {value}"));
    parts.extend(number("MED", med));
    parts.extend(number("local preference", local_pref));
    parts.extend(number("only to customers of AS", only_to_customer));
    parts.extend(originator_id.map(|id| format!("originator {id}")));
    if !cluster_list.is_empty() {
        parts.push(format!("clusters {}", join(cluster_list.iter())));
    }
    let standard = communities.iter().map(|community| Community::Standard(community.0));
    let extended = extended_communities.iter().map(|community| Community::Extended(community.0));
    let large = large_communities.iter().map(|community| Community::Large(community.0));
    let communities = join(standard.chain(extended).chain(large));
    if !communities.is_empty() {
        parts.push(format!("communities {communities}"));
    }
    parts.join(", ")
}

/// Describes the attributes that Advertisements configure for a route.
#[must_use]
pub fn route(route: &Route) -> String {
    let Route { med, local_pref, prepend, communities, extended_communities, large_communities } = route;
    let number = |name: &str, value: Option<u32>| value.map(|value| format!("{name} {value}"));
    let mut parts: Vec<_> = [
        number("MED", *med),
        number("local preference", *local_pref),
        number("prepended", (*prepend > 0).then(|| u32::from(*prepend))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let standard = communities.iter().map(|community| Community::Standard(community.0));
    let extended = extended_communities.iter().map(|community| Community::Extended(community.0));
    let large = large_communities.iter().map(|community| Community::Large(community.0));
    let communities = join(standard.chain(extended).chain(large));
    if !communities.is_empty() {
        parts.push(format!("communities {communities}"));
    }
    parts.join(", ")
}

fn join(items: impl Iterator<Item = impl Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}

/// Returns the reason why a neighbor has not received a route.
pub(super) fn untold(session: &BgpSession) -> String {
    match session.state {
        BgpSessionState::Established => {
            "it is not told yet, or cannot be by this session; the session's reason may say more".to_owned()
        }
        BgpSessionState::Idle
        | BgpSessionState::Connect
        | BgpSessionState::Active
        | BgpSessionState::OpenSent
        | BgpSessionState::OpenConfirm => "the session is not established".to_owned(),
    }
}

/// Describes a session by address, AS number and host name.
pub(super) fn session(session: &BgpSession) -> String {
    let mut parts: Vec<_> = session.address.iter().map(ToString::to_string).collect();
    parts.extend(session.remote_asn.map(|asn| format!("AS {asn}")));
    parts.extend(session.host_name.clone());
    if parts.is_empty() {
        session.peer.to_string()
    } else {
        format!("{} ({})", session.peer, parts.join(", "))
    }
}
