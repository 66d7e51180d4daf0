//! Effect of health check results on the endpoints of a compiled port.

use std::collections::BTreeSet;

use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService, DefaultCheck},
    kinds::{
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict},
        health_check::HealthCheck,
    },
    primitives::{net::IpFamily, quantity::Weight},
};

/// Factor by which all weights of a port are multiplied while one of its endpoints is in slow start. The weight of
/// that endpoint is multiplied by its share in tenths instead, so a tenth of weight 1 is still an integer.
const TENTHS: u16 = 10;

/// Origin of the verdicts that apply to the endpoints of one port.
#[derive(Clone, Copy)]
pub(crate) struct VerdictRule<'a> {
    /// Health check of the Service.
    check: Option<&'a HealthCheck>,
    /// True if endpoints of the port are checked by default, unless their source checks them.
    by_default: bool,
}

impl<'a> VerdictRule<'a> {
    /// Returns the rule for a port of a Service with a health check (`check`), or with a check by default. A TCP
    /// connection of a check by default has no meaning for a UDP or SCTP port with the same number.
    pub(crate) fn new(
        check: Option<&'a HealthCheck>,
        default_check: DefaultCheck,
        port: &CompiledPort,
    ) -> Self {
        let by_default = check.is_none() && default_check == DefaultCheck::On && port.has_tcp_check();
        Self { check, by_default }
    }

    /// Returns the rule for a port of a compiled Service.
    pub(crate) fn of(service: &'a CompiledService, port: &CompiledPort) -> Self {
        Self::new(service.health_check.as_deref(), service.default_check, port)
    }

    /// Returns the verdict about an endpoint. Without a health check, only endpoints on lost Nodes and endpoints that
    /// are checked by default have verdicts.
    pub(crate) fn verdict_on(
        self,
        record: &'a EndpointHealthSpec,
        endpoint: &CompiledEndpoint,
    ) -> Option<&'a EndpointVerdict> {
        let port = match self.check {
            Some(check) => check.port.unwrap_or(endpoint.port),
            None if endpoint.node_lost || (self.by_default && !endpoint.checked_by_source) => endpoint.port,
            None => return None,
        };
        record.endpoints.get(&CheckKey { address: endpoint.address, port })
    }
}

/// Marks unhealthy endpoints as not ready and reduces the weights of endpoints in slow start. Leaves the port
/// unchanged if the share of healthy endpoints is below the panic threshold, because then a common cause is more
/// likely than the failure of each endpoint.
///
/// The last usable endpoints of the port in an IP family stay in service if only other nodes find them unhealthy,
/// because the reason may be the path between the nodes, and without a health check in any case, because the user has
/// not stated that a TCP connection shows the health of the endpoint.
pub(super) fn apply(rule: VerdictRule<'_>, record: &EndpointHealthSpec, port: &mut CompiledPort) {
    if rule.check.is_some_and(|check| is_panic(check, record, port)) {
        return;
    }
    let verdict = |endpoint: &CompiledEndpoint| rule.verdict_on(record, endpoint);
    let is_growing = port.endpoints.iter().filter_map(verdict).any(|verdict| !verdict.is_out());
    let heaviest = port.endpoints.iter().map(|endpoint| endpoint.weight.0).max().unwrap_or(0);
    let factor = if is_growing && heaviest <= u16::MAX / TENTHS { TENTHS } else { 1 };
    let usable = families_with_usable(rule, record, port);
    for endpoint in &mut port.endpoints {
        let share = match rule.verdict_on(record, endpoint) {
            None => 100,
            Some(verdict) if verdict.is_out() => {
                let is_last = !usable.contains(&IpFamily::of(endpoint.address));
                if !(is_last && (rule.check.is_none() || is_suspicion(verdict, endpoint))) {
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
    rule: VerdictRule<'_>,
    record: &EndpointHealthSpec,
    port: &CompiledPort,
) -> BTreeSet<IpFamily> {
    let is_out =
        |endpoint: &CompiledEndpoint| rule.verdict_on(record, endpoint).is_some_and(EndpointVerdict::is_out);
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
    let rule = VerdictRule { check: Some(check), by_default: false };
    let is_out =
        |endpoint: &&CompiledEndpoint| rule.verdict_on(record, endpoint).is_some_and(EndpointVerdict::is_out);
    let candidates = || port.endpoints.iter().filter(|endpoint| takes_connections(endpoint));
    let (all, out) = (candidates().count(), candidates().filter(is_out).count());
    (all - out) * 100 < all * usize::from(check.panic_threshold)
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
