//! Health checks of endpoints: assignment of checks to nodes, and merging of the nodes' results into one
//! decision for each endpoint.
//!
//! ```text
//! Service.spec.healthCheck ─▶ compiled Service ─▶ agents: check endpoints ─▶ reports
//!                                                                               │
//! compiled Service: readiness, weight ◀─ EndpointHealth record ◀─ majority ◀────┘
//! ```

mod book;
mod default_check;
mod guard;
mod judge;
mod source;
mod suspicion;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    cluster::compiled::CompiledService,
    kinds::{endpoint_health::CheckKey, health_check::HealthCheck},
    primitives::{name::Name, quantity::Port},
};

pub use self::{
    book::{CheckResult, HealthBook, HealthUpdate, RESULTS_KEPT_MAX},
    default_check::{default_check, has_default_check, may_have_default_check, with_default_check},
    guard::{GUARD_ENDPOINTS_MIN, GUARD_PERCENT_DEFAULT, GUARD_WINDOW_SECS, Guard, HeldEndpoint},
    judge::{HealthDecision, HealthInputs, Tally, judge},
    source::{HealthSource, addresses_not_checked, health_source, not_checked},
    suspicion::{dead_nodes, is_suspected, is_watched, lost_nodes, suspicion_check, unchecked},
};

/// Number of nodes that check an endpoint if its own Node cannot check it. The majority of their results
/// determines the state of the endpoint.
pub const CHECKERS: usize = 3;

/// Returns the check that agents run for a Service: its health check, otherwise a frequent TCP check if an endpoint is
/// on a lost Node, otherwise the check by default if endpoints have it, otherwise `None`.
#[must_use]
pub fn check_of(service: &CompiledService) -> Option<Cow<'_, HealthCheck>> {
    match &service.health_check {
        Some(check) => Some(Cow::Borrowed(&**check)),
        None if is_suspected(service) => Some(Cow::Owned(suspicion_check())),
        None => has_default_check(service).then(|| Cow::Owned(default_check())),
    }
}

/// Returns the endpoints of a Service that must be checked, each with its Node if known. Without a health check,
/// these are the endpoints of TCP ports on lost Nodes, and those that are checked by default. Terminating endpoints are
/// excluded, because they accept no new connections regardless of the result.
#[must_use]
pub fn checks(service: &CompiledService) -> BTreeMap<CheckKey, Option<Name>> {
    let Some(check) = &service.health_check else {
        let mut checks = default_check::checks(service);
        checks.extend(suspicion::checks(service));
        return checks;
    };
    let endpoints = service.ports.iter().flat_map(|port| &port.endpoints);
    let endpoints = endpoints.filter(|endpoint| !endpoint.terminating);
    let key = |address, port: Port| CheckKey { address, port: check.port.unwrap_or(port) };
    endpoints.map(|endpoint| (key(endpoint.address, endpoint.port), endpoint.node.clone())).collect()
}

/// Returns the nodes that check an endpoint: its own Node if it is in `nodes` (the nodes with a live agent),
/// otherwise at most [`CHECKERS`] of these nodes. Rendezvous hashing selects them, so that few checks move if
/// one node is added or removed.
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
