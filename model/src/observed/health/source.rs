//! Origin of the health of an endpoint: a health check, other nodes, the source of the endpoint, or nobody.
//!
//! An endpoint without any of these is *not checked*: it counts as ready because its object says so, and nothing shows
//! that it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::endpoint_health::CheckKey,
    primitives::name::Name,
};

/// Origin of the health of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthSource {
    /// Agents run the health check of the Service.
    HealthCheck,
    /// Other nodes connect to the endpoint, because its Node is lost.
    OtherNodes,
    /// The source of the endpoint checks it and sets its readiness (annotation
    /// [`CHECKED_BY`](crate::kinds::metadata::CHECKED_BY)).
    Source,
    /// Agents connect to the endpoint by TCP, because nobody else checks it.
    DefaultCheck,
    /// No check: the endpoint may be dead.
    Nobody,
}

/// Returns the origin of the health of an endpoint of a port.
#[must_use]
pub fn health_source(
    service: &CompiledService,
    port: &CompiledPort,
    endpoint: &CompiledEndpoint,
) -> HealthSource {
    if service.health_check.is_some() {
        HealthSource::HealthCheck
    } else if endpoint.node_lost && port.has_tcp_check() {
        HealthSource::OtherNodes
    } else if endpoint.checked_by_source {
        HealthSource::Source
    } else if service.is_checked_by_default(port, endpoint) {
        HealthSource::DefaultCheck
    } else {
        HealthSource::Nobody
    }
}

/// Returns the endpoints of a Service that receive new connections although nobody checks them, each with its Node if
/// known.
#[must_use]
pub fn not_checked(service: &CompiledService) -> BTreeMap<CheckKey, Option<Name>> {
    let all = endpoints(service).filter(|(port, endpoint)| is_used_unchecked(service, port, endpoint));
    all.map(|(_, one)| (CheckKey { address: one.address, port: one.port }, one.node.clone())).collect()
}

/// Returns the addresses of a Service that receive new connections although nobody checks any of their ports.
#[must_use]
pub fn addresses_not_checked(service: &CompiledService) -> BTreeSet<IpAddr> {
    let mut addresses: BTreeSet<_> = endpoints(service)
        .filter(|(port, endpoint)| is_used_unchecked(service, port, endpoint))
        .map(|(_, endpoint)| endpoint.address)
        .collect();
    if addresses.is_empty() {
        return addresses;
    }
    for (port, endpoint) in endpoints(service) {
        if health_source(service, port, endpoint) != HealthSource::Nobody {
            addresses.remove(&endpoint.address);
        }
    }
    addresses
}

fn endpoints(service: &CompiledService) -> impl Iterator<Item = (&CompiledPort, &CompiledEndpoint)> {
    service.ports.iter().flat_map(|port| port.endpoints.iter().map(move |endpoint| (port, endpoint)))
}

/// Returns true if an endpoint receives new connections and nobody checks it.
fn is_used_unchecked(service: &CompiledService, port: &CompiledPort, endpoint: &CompiledEndpoint) -> bool {
    endpoint.ready
        && !endpoint.terminating
        && endpoint.weight.0 > 0
        && health_source(service, port, endpoint) == HealthSource::Nobody
}
