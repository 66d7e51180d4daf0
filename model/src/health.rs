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

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    compiled::CompiledService,
    name::Name,
    quantity::{Port, Timestamp},
};

pub use self::{
    book::{HealthBook, HealthNews, WORDS_KEPT_MAX, Word},
    guard::{GUARD_ENDPOINTS_MIN, GUARD_PERCENT_DEFAULT, GUARD_WINDOW_SECS, Guard, Held},
    judge::{Bench, Judgement, Tally, judge},
};

/// Nodes that check an endpoint without a Node of its own; most of them decide.
pub const CHECKERS: usize = 3;
/// Endpoints with their health in one report; what is left over comes with the next.
pub const CHECKS_REPORTED_MAX: usize = 5000;
/// Longest result of a check in words, in bytes.
pub const CHECK_MESSAGE_BYTES_MAX: usize = 512;

/// What is checked: an address and a port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckKey {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The port of the check.
    pub port: Port,
}

impl fmt::Display for CheckKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port.get()).fmt(f)
    }
}

impl TryFrom<String> for CheckKey {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<SocketAddr>().ok();
        let key = parsed.and_then(|at| Some(Self { address: at.ip(), port: Port::new(at.port())? }));
        key.ok_or_else(|| format!("must be an address and a port, such as 10.1.13.2:8080, not `{text}`"))
    }
}

impl From<CheckKey> for String {
    fn from(key: CheckKey) -> Self {
        key.to_string()
    }
}

/// What a node says of an endpoint that it checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckReport {
    /// The endpoint's address.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// The port of the check.
    pub port: Port,
    /// What the node holds of it.
    pub state: CheckState,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The result that led there, in words, such as `answered 500 Internal Server Error`; never empty.
    #[schema(max_length = 512)]
    pub message: String,
}

/// What a node holds of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum CheckState {
    /// Not decided yet: too few answers.
    Pending,
    /// `rise` good answers in a row.
    Healthy,
    /// `fall` bad answers in a row.
    Unhealthy,
}

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
        nodes.iter().map(|node| (crate::assign::rendezvous(key.address, node), node)).collect();
    ranked.sort_unstable();
    ranked.into_iter().rev().take(CHECKERS).map(|(_, node)| node).collect()
}
