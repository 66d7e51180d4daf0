//! Effect of health check results on the endpoints of a compiled port.

use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort},
    kinds::{
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict},
        health_check::HealthCheck,
    },
    primitives::quantity::Weight,
};

/// Factor by which all weights of a port are multiplied while one of its endpoints is in slow start. The weight of
/// that endpoint is multiplied by its share in tenths instead, so a tenth of weight 1 is still an integer.
const TENTHS: u16 = 10;

/// Marks unhealthy endpoints as not ready and reduces the weights of endpoints in slow start. Leaves the port
/// unchanged if the share of healthy endpoints is below the panic threshold, because then a common cause is more
/// likely than the failure of each endpoint.
pub(super) fn apply(check: &HealthCheck, record: &EndpointHealthSpec, port: &mut CompiledPort) {
    if is_panic(check, record, port) {
        return;
    }
    let verdict = |endpoint: &CompiledEndpoint| verdict_on(check, record, endpoint);
    let is_growing = port.endpoints.iter().filter_map(verdict).any(|verdict| !verdict.is_out());
    let heaviest = port.endpoints.iter().map(|endpoint| endpoint.weight.0).max().unwrap_or(0);
    let factor = if is_growing && heaviest <= u16::MAX / TENTHS { TENTHS } else { 1 };
    for endpoint in &mut port.endpoints {
        let share = match verdict_on(check, record, endpoint) {
            None => 100,
            Some(verdict) if verdict.is_out() => {
                endpoint.ready = false;
                endpoint.serving = false;
                100
            }
            Some(verdict) => verdict.share,
        };
        endpoint.weight = scaled(endpoint.weight, factor, share);
    }
}

/// Returns true if the share of healthy endpoints, among those that accept new connections except for their
/// health, is below the panic threshold of the check.
pub(crate) fn is_panic(check: &HealthCheck, record: &EndpointHealthSpec, port: &CompiledPort) -> bool {
    let would_take =
        |endpoint: &&CompiledEndpoint| endpoint.ready && !endpoint.terminating && endpoint.weight.0 > 0;
    let is_out = |endpoint: &&CompiledEndpoint| {
        verdict_on(check, record, endpoint).is_some_and(EndpointVerdict::is_out)
    };
    let candidates = || port.endpoints.iter().filter(would_take);
    let (all, out) = (candidates().count(), candidates().filter(is_out).count());
    (all - out) * 100 < all * usize::from(check.panic_threshold)
}

fn verdict_on<'a>(
    check: &HealthCheck,
    record: &'a EndpointHealthSpec,
    endpoint: &CompiledEndpoint,
) -> Option<&'a EndpointVerdict> {
    let port = check.port.unwrap_or(endpoint.port);
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
