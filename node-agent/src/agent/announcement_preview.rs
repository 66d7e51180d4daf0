//! Preview of the announcement changes that a proposed state would cause: the role of this node (announcer or
//! standby) for each load balancer address on its links, and the routes that the node advertises by BGP.
//! Pure: the functions that make the real decisions are applied to the current and the proposed state.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ::bgp::export::Route;
use base::Gate;
use ipnet::IpNet;
use model::{
    bgp::settings::BgpState,
    kinds::resource::ServiceKey,
    primitives::name::Name,
    wire::plan::{LineChange, LineFate},
};
use speaker::routing::{
    endpoints::{Endpoints, Standing},
    plan::{Decisions, Plan},
    words,
};

use crate::state::State;

/// State before or after a change, with a function that determines the Services that the kernel can serve.
pub struct Side<'a> {
    /// State received from the control server, or state that a proposed change would produce.
    pub state: &'a State,
    /// Name of this node.
    pub node: &'a Name,
    /// Function that returns an open [`Gate`] if this node's kernel serves, or would serve, a Service.
    pub gate: &'a dyn Fn(&ServiceKey) -> Gate,
}

/// Returns the output lines, about roles and advertised routes, that a change removes or adds.
#[must_use]
pub fn changes(before: &Side<'_>, after: &Side<'_>) -> Vec<LineChange> {
    let mut lines = differing(&roles(before), &roles(after));
    lines.extend(differing(&routes(before), &routes(after)));
    lines.sort();
    lines
}

/// Pairs of a subject, such as an address or a BGP peer, and an output line about it.
type Lines = BTreeSet<(String, String)>;

fn differing(before: &Lines, after: &Lines) -> Vec<LineChange> {
    let change = |change| {
        move |(place, line): &(String, String)| LineChange {
            change,
            place: place.clone(),
            line: line.clone(),
        }
    };
    let gone = before.difference(after).map(change(LineFate::Removed));
    gone.chain(after.difference(before).map(change(LineFate::Added))).collect()
}

/// Returns the role of this node (announcer or standby) for each load balancer address on its links.
fn roles(side: &Side<'_>) -> Lines {
    let mut lines = Lines::new();
    for (address, state) in side.state.addresses() {
        let candidates = state.announcement.candidates.iter().enumerate();
        for (rank, candidate) in candidates.filter(|(_, candidate)| candidate.node == *side.node) {
            let word = if rank == 0 { "owner".to_owned() } else { format!("standby {rank}") };
            let line = format!("{address} {word}");
            lines.extend(
                candidate.interfaces.iter().map(|interface| (format!("link {interface}"), line.clone())),
            );
        }
    }
    lines
}

/// Returns the routes that this node advertises to each BGP peer.
fn routes(side: &Side<'_>) -> Lines {
    let Some(bgp) = side.state.node().bgp.as_deref() else { return Lines::new() };
    let mut lines = Lines::new();
    for (prefix, decision) in &decisions(side, bgp) {
        for peer in decision.peers.keys() {
            if let Some(route) = decision.route(peer) {
                lines.insert((format!("bgp peer {peer}"), route_line(prefix, route)));
            }
        }
    }
    lines
}

fn decisions(side: &Side<'_>, bgp: &BgpState) -> Decisions {
    let mut plan = Plan::default();
    plan.set_bgp(Some(Arc::new(bgp.clone())));
    let services: BTreeSet<&ServiceKey> =
        side.state.addresses().values().flat_map(|state| &state.services).collect();
    let standing = |service: &ServiceKey| {
        let compiled = side.state.services().get(service)?;
        let endpoints = Endpoints::of(compiled, side.node);
        Some(Standing { programmed: (side.gate)(service), endpoints })
    };
    plan.set_standings(services.into_iter().map(|service| (service.clone(), standing(service))));
    for state in side.state.addresses().values() {
        plan.set_address(Arc::clone(state), &BTreeMap::new());
    }
    let _told_nobody = plan.take_changes();
    plan.decisions().clone()
}

fn route_line(prefix: &IpNet, route: &Route) -> String {
    let attributes = words::route(route);
    if attributes.is_empty() { prefix.to_string() } else { format!("{prefix} ({attributes})") }
}
