//! Who checks which endpoint, and what a node says of those that it checks.
//!
//! ```text
//! Service.spec.healthCheck ─▶ compiled Service ─▶ each agent: is it mine? ─▶ checks ─▶ report
//!                                                                                        │
//!      compiled Service (ready, weight) ◀─ record of what is down ◀─ merge, quorum ◀─────┘
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
    book::{HealthBook, HealthNews, WORDS_KEPT_MAX, Word},
    guard::{GUARD_ENDPOINTS_MIN, GUARD_PERCENT_DEFAULT, GUARD_WINDOW_SECS, Guard, Held},
    judge::{Bench, Judgement, Tally, judge},
};

/// Nodes that check an endpoint without a Node of its own; most of them decide.
pub const CHECKERS: usize = 3;
/// The endpoints of a Service that are to be checked, each with its Node; none of a Service without a check, and none that is
/// on its way out: whatever the answer, it takes no new connections.
#[must_use]
pub fn checks(service: &CompiledService) -> BTreeMap<CheckKey, Option<Name>> {
    let Some(check) = &service.health_check else { return BTreeMap::new() };
    let endpoints = service.ports.iter().flat_map(|port| &port.endpoints);
    let endpoints = endpoints.filter(|endpoint| !endpoint.terminating);
    let key = |address, port: Port| CheckKey { address, port: check.port.unwrap_or(port) };
    endpoints.map(|endpoint| (key(endpoint.address, endpoint.port), endpoint.node.clone())).collect()
}

/// The Nodes that check an endpoint: its own where that has an agent, else [`CHECKERS`] of all, each chosen by its score for the
/// endpoint, so that a Node that comes or goes changes no other's (rendezvous hashing).
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
