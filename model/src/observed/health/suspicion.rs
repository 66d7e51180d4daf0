//! Endpoints on lost Nodes. The silence of an agent is no failure of the endpoints on its Node: they stay in service
//! until other nodes find them unhealthy.
//!
//! ```text
//! Node silent ─▶ lostSince ─▶ endpoints `nodeLost` ─▶ other nodes check them ─▶ healthy: stays in service
//!                                                                            ├─▶ unhealthy: leaves, unless it is the last
//!                                                                            └─▶ unchecked: leaves with a dead Node only
//! ```
//! The check is the health check of the Service, otherwise a TCP connection to the endpoint. Endpoints of other
//! protocols cannot be checked without a health check.

use std::collections::{BTreeMap, BTreeSet};

use super::{HealthInputs, Tally, checks as checks_of, has_default_check};
use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{
        endpoint_health::CheckKey,
        health_check::{HealthCheck, HealthCheckType},
    },
    primitives::name::Name,
    wire::report::{CONNECTION_REFUSED, CheckState},
};

/// Interval and timeout in milliseconds of a check that only runs while the Node of an endpoint is lost. The checks
/// are few and temporary, so they can be frequent.
const SUSPICION_CHECK_MS: u32 = 1000;

/// Returns the check of endpoints on lost Nodes that have no health check: a TCP connection.
#[must_use]
pub fn suspicion_check() -> HealthCheck {
    HealthCheck {
        check_type: HealthCheckType::Tcp,
        port: None,
        interval_ms: SUSPICION_CHECK_MS,
        timeout_ms: SUSPICION_CHECK_MS,
        rise: 1,
        fall: 3,
        start_delay_ms: 0,
        panic_threshold: 0,
        slow_start_seconds: 0,
        passive: false,
        http: None,
        tls: None,
        grpc: None,
        udp: None,
    }
}

/// Returns true if nodes check endpoints of the Service: it has a health check, an endpoint on a lost Node, or an
/// endpoint that is checked by default.
#[must_use]
pub fn is_watched(service: &CompiledService) -> bool {
    service.health_check.is_some() || is_suspected(service) || has_default_check(service)
}

/// Returns true if an endpoint of the Service is on a lost Node.
#[must_use]
pub fn is_suspected(service: &CompiledService) -> bool {
    suspects(service).next().is_some()
}

/// Returns the lost Nodes of a Service's endpoints.
#[must_use]
pub fn lost_nodes(service: &CompiledService) -> BTreeSet<&Name> {
    suspects(service).filter_map(|(_, endpoint)| endpoint.node.as_ref()).collect()
}

/// Returns the endpoints of a Service on lost Nodes that agents check by a TCP connection, because the Service has
/// no health check.
pub(super) fn checks(service: &CompiledService) -> BTreeMap<CheckKey, Option<Name>> {
    let checked = suspects(service).filter(|(port, _)| port.has_tcp_check());
    checked.map(|(_, endpoint)| (key_of(endpoint), endpoint.node.clone())).collect()
}

/// Returns the endpoints of a Service on lost Nodes that nobody can check, each with its Node. Empty if the Service
/// has a health check.
#[must_use]
pub fn unchecked(service: &CompiledService) -> BTreeMap<CheckKey, Name> {
    if service.health_check.is_some() {
        return BTreeMap::new();
    }
    let checked = checks(service);
    let all = suspects(service).filter_map(|(_, endpoint)| Some((key_of(endpoint), endpoint.node.clone()?)));
    all.filter(|(key, _)| !checked.contains_key(key)).collect()
}

/// Returns the lost Nodes whose data path is dead as well: other nodes check at least one endpoint of the Node, and
/// all of these endpoints are unreachable. A refused connection is an answer of the Node.
#[must_use]
pub fn dead_nodes<'a>(
    inputs: &HealthInputs<'_>,
    services: impl Iterator<Item = &'a CompiledService>,
) -> BTreeSet<Name> {
    let mut nodes: BTreeMap<Name, bool> = BTreeMap::new();
    for service in services {
        let lost = lost_nodes(service);
        for (key, own) in checks_of(service) {
            let Some(own) = own.filter(|own| lost.contains(own)) else { continue };
            let tally = Tally::of(inputs, &service.service, &key, Some(&own));
            let Some(state) = tally.state() else { continue };
            let has_answered =
                tally.results.values().any(|result| result.message.contains(CONNECTION_REFUSED));
            let is_dead = state == CheckState::Unhealthy && !has_answered;
            nodes.entry(own.clone()).and_modify(|dead| *dead &= is_dead).or_insert(is_dead);
        }
    }
    nodes.into_iter().filter(|(_, is_dead)| *is_dead).map(|(node, _)| node).collect()
}

fn suspects(service: &CompiledService) -> impl Iterator<Item = (&CompiledPort, &CompiledEndpoint)> {
    let all =
        service.ports.iter().flat_map(|port| port.endpoints.iter().map(move |endpoint| (port, endpoint)));
    all.filter(|(_, endpoint)| endpoint.node_lost && !endpoint.terminating)
}

const fn key_of(endpoint: &CompiledEndpoint) -> CheckKey {
    CheckKey { address: endpoint.address, port: endpoint.port }
}
