//! Health checks: assignment of checks to nodes, and merging of their results.
//!
//! ```text
//! Service.spec.healthCheck ─▶ compiled Service ─▶ each agent: its endpoints ─▶ checks ─▶ report
//!                                                                                         │
//!      compiled Service (ready, weight) ◀─ EndpointHealth record ◀─ merge, majority ◀─────┘
//! ```

mod book;
mod guard;
mod judge;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cluster::compiled::CompiledService,
    kinds::endpoint_health::CheckKey,
    primitives::{name::Name, quantity::Port},
};

pub use self::{
    book::{CheckResult, HealthBook, HealthUpdate, RESULTS_KEPT_MAX},
    guard::{GUARD_ENDPOINTS_MIN, GUARD_PERCENT_DEFAULT, GUARD_WINDOW_SECS, Guard, HeldEndpoint},
    judge::{HealthDecision, HealthInputs, Tally, judge},
};

/// Number of nodes that check an endpoint whose own Node does not check it; the majority of their results
/// determines its state.
pub const CHECKERS: usize = 3;
/// Returns the checked endpoints of a Service with their Nodes. A Service without a health check has none.
/// Terminating endpoints are excluded, because they accept no new connections regardless of the result.
#[must_use]
pub fn checks(service: &CompiledService) -> BTreeMap<CheckKey, Option<Name>> {
    let Some(check) = &service.health_check else { return BTreeMap::new() };
    let endpoints = service.ports.iter().flat_map(|port| &port.endpoints);
    let endpoints = endpoints.filter(|endpoint| !endpoint.terminating);
    let key = |address, port: Port| CheckKey { address, port: check.port.unwrap_or(port) };
    endpoints.map(|endpoint| (key(endpoint.address, endpoint.port), endpoint.node.clone())).collect()
}

/// Returns the Nodes that check an endpoint: its own Node if it has an agent, else [`CHECKERS`] of all Nodes,
/// selected by rendezvous hashing so that a change of one Node affects no other.
#[must_use]
pub fn checkers<'a>(key: &CheckKey, own: Option<&'a Name>, nodes: &'a BTreeSet<Name>) -> BTreeSet<&'a Name> {
    if let Some(own) = own.and_then(|own| nodes.get(own)) {
        return BTreeSet::from([own]);
    }
    let mut ranked: Vec<_> =
        nodes.iter().map(|node| (crate::observed::assign::rendezvous(key.address, node), node)).collect();
    ranked.sort_unstable();
    ranked.into_iter().rev().take(CHECKERS).map(|(_, node)| node).collect()
}
