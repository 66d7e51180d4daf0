//! Effect of health check results on the endpoints of a compiled port.

use std::collections::BTreeSet;

use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort},
    kinds::{
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict},
        health_check::HealthCheck,
    },
    primitives::{net::IpFamily, quantity::Weight},
};

/// Factor by which all weights of a port are multiplied while one of its endpoints is in slow start. The weight of
/// that endpoint is multiplied by its share in tenths instead, so a tenth of weight 1 is still an integer.
const TENTHS: u16 = 10;

/// Marks unhealthy endpoints as not ready and reduces the weights of endpoints in slow start. Leaves the port
/// unchanged if the share of healthy endpoints is below the panic threshold, because then a common cause is more
/// likely than the failure of each endpoint.
///
/// Without a health check (`check`), only the verdicts of endpoints on lost Nodes apply. The last usable endpoints
/// of the port in an IP family stay in service if only other nodes find them unhealthy: the reason may be the path
/// between the nodes.
pub(super) fn apply(check: Option<&HealthCheck>, record: &EndpointHealthSpec, port: &mut CompiledPort) {
    if check.is_some_and(|check| is_panic(check, record, port)) {
        return;
    }
    let verdict = |endpoint: &CompiledEndpoint| verdict_on(check, record, endpoint);
    let is_growing = port.endpoints.iter().filter_map(verdict).any(|verdict| !verdict.is_out());
    let heaviest = port.endpoints.iter().map(|endpoint| endpoint.weight.0).max().unwrap_or(0);
    let factor = if is_growing && heaviest <= u16::MAX / TENTHS { TENTHS } else { 1 };
    let usable = families_with_usable(check, record, port);
    for endpoint in &mut port.endpoints {
        let share = match verdict_on(check, record, endpoint) {
            None => 100,
            Some(verdict) if verdict.is_out() => {
                let is_last = !usable.contains(&IpFamily::of(endpoint.address));
                if !(is_last && is_suspicion(verdict, endpoint)) {
                    endpoint.ready = false;
                    endpoint.serving = false;
                }
                100
            }
            Some(verdict) => verdict.share,
        };
        endpoint.weight = scaled(endpoint.weight, factor, share);
    }
}

/// Returns the IP families in which the port has an endpoint that accepts new connections and is healthy.
fn families_with_usable(
    check: Option<&HealthCheck>,
    record: &EndpointHealthSpec,
    port: &CompiledPort,
) -> BTreeSet<IpFamily> {
    let is_out = |endpoint: &CompiledEndpoint| {
        verdict_on(check, record, endpoint).is_some_and(EndpointVerdict::is_out)
    };
    let usable = port.endpoints.iter().filter(|endpoint| takes_connections(endpoint) && !is_out(endpoint));
    usable.map(|endpoint| IpFamily::of(endpoint.address)).collect()
}

/// Returns true if a verdict about an endpoint is a suspicion: its Node is lost, and only other nodes find the
/// endpoint unhealthy.
fn is_suspicion(verdict: &EndpointVerdict, endpoint: &CompiledEndpoint) -> bool {
    let is_own = endpoint.node.as_ref().is_some_and(|node| verdict.checkers.contains(node));
    endpoint.node_lost && !is_own
}

const fn takes_connections(endpoint: &CompiledEndpoint) -> bool {
    endpoint.ready && !endpoint.terminating && endpoint.weight.0 > 0
}

/// Returns true if the share of healthy endpoints, among those that accept new connections except for their
/// health, is below the panic threshold of the check.
pub(crate) fn is_panic(check: &HealthCheck, record: &EndpointHealthSpec, port: &CompiledPort) -> bool {
    let is_out = |endpoint: &&CompiledEndpoint| {
        verdict_on(Some(check), record, endpoint).is_some_and(EndpointVerdict::is_out)
    };
    let candidates = || port.endpoints.iter().filter(|endpoint| takes_connections(endpoint));
    let (all, out) = (candidates().count(), candidates().filter(is_out).count());
    (all - out) * 100 < all * usize::from(check.panic_threshold)
}

/// Returns the verdict about an endpoint. Without a health check (`check`), only endpoints on lost Nodes have
/// verdicts.
pub(crate) fn verdict_on<'a>(
    check: Option<&HealthCheck>,
    record: &'a EndpointHealthSpec,
    endpoint: &CompiledEndpoint,
) -> Option<&'a EndpointVerdict> {
    let port = match check {
        Some(check) => check.port.unwrap_or(endpoint.port),
        None if endpoint.node_lost => endpoint.port,
        None => return None,
    };
    record.endpoints.get(&CheckKey { address: endpoint.address, port })
}

/// Returns the weight of an endpoint, multiplied by `factor` and reduced to `share` percent. A weight above 0
/// never becomes 0, because weight 0 means a drain.
fn scaled(weight: Weight, factor: u16, share: u8) -> Weight {
    if weight.0 == 0 {
        return weight;
    }
    let scaled = u32::from(weight.0) * u32::from(factor) * u32::from(share) / 100;
    Weight(u16::try_from(scaled.max(1)).unwrap_or(u16::MAX))
}
