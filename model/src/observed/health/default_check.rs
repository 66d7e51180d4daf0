//! Health check by default: a TCP connection to endpoints that nobody else checks.
//!
//! ```text
//! tidegate-api --default-health-check tcp ─▶ NetworkState.defaultCheck ─▶ agents ─┐
//!                                        └─▶ CompiledService.defaultCheck ────────┴─▶ endpoints of single TCP ports
//! ```
//! Agents follow the setting in the network state, because they receive it with every connection; compiled Services are
//! only sent again if they change.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    cluster::compiled::{CompiledService, DefaultCheck},
    kinds::{
        endpoint_health::CheckKey,
        health_check::{HealthCheck, HealthCheckType},
    },
    primitives::name::Name,
};

/// Interval of the check in milliseconds: long, because every endpoint that nobody else checks has such a check.
const INTERVAL_MS: u32 = 10_000;
/// Timeout of the check in milliseconds.
const TIMEOUT_MS: u32 = 3000;

/// Returns the check by default: a TCP connection every 10 s, with refused connections of clients in userspace mode. Three
/// consecutive failures make an endpoint unhealthy, one success makes it healthy again.
#[must_use]
pub fn default_check() -> HealthCheck {
    HealthCheck {
        check_type: HealthCheckType::Tcp,
        port: None,
        interval_ms: INTERVAL_MS,
        timeout_ms: TIMEOUT_MS,
        rise: 1,
        fall: 3,
        start_delay_ms: 0,
        panic_threshold: 0,
        slow_start_seconds: 0,
        passive: true,
        http: None,
        tls: None,
        grpc: None,
        udp: None,
    }
}

/// Returns true if agents check an endpoint of the Service by default.
#[must_use]
pub fn has_default_check(service: &CompiledService) -> bool {
    endpoints(service).next().is_some()
}

/// Returns true if endpoints of the Service qualify for checks by default and the Service is not exempt, whatever the
/// setting of the control server.
#[must_use]
pub fn may_have_default_check(service: &CompiledService) -> bool {
    service.health_check.is_none() && service.default_check != DefaultCheck::Exempt && {
        let mut ports = service.ports.iter();
        ports.any(|port| port.endpoints.iter().any(|endpoint| port.may_check_by_default(endpoint)))
    }
}

/// Returns the Service with the checks by default that the setting of the control server (`is_on`) demands. An agent may
/// have received the Service before the setting changed.
#[must_use]
pub fn with_default_check(service: Arc<CompiledService>, is_on: bool) -> Arc<CompiledService> {
    let default_check = match service.default_check {
        DefaultCheck::Exempt => return service,
        DefaultCheck::On | DefaultCheck::Off if is_on => DefaultCheck::On,
        DefaultCheck::On | DefaultCheck::Off => DefaultCheck::Off,
    };
    if default_check == service.default_check || !may_have_default_check(&service) {
        return service;
    }
    Arc::new(CompiledService { default_check, ..CompiledService::clone(&service) })
}

/// Returns the endpoints that agents check by default, each with its Node if known.
pub(super) fn checks(service: &CompiledService) -> BTreeMap<CheckKey, Option<Name>> {
    endpoints(service).collect()
}

fn endpoints(service: &CompiledService) -> impl Iterator<Item = (CheckKey, Option<Name>)> {
    let all =
        service.ports.iter().flat_map(|port| port.endpoints.iter().map(move |endpoint| (port, endpoint)));
    let checked =
        all.filter(|(port, endpoint)| !endpoint.terminating && service.is_checked_by_default(port, endpoint));
    checked.map(|(_, one)| (CheckKey { address: one.address, port: one.port }, one.node.clone()))
}
