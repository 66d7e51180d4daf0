//! Status of the health of endpoints: combines check results of nodes, stored verdicts, and unhealthy
//! endpoints that the health guard keeps in service.

use std::collections::{BTreeMap, BTreeSet};

use super::{no, saturating, yes};
use crate::{
    cluster::{
        compiled::{CompiledService, DefaultCheck},
        snapshot::Snapshot,
    },
    compile::{VerdictRule, is_panic},
    kinds::{
        condition_reason::ConditionReason,
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict},
        resource::ServiceKey,
    },
    observed::{
        health::{Guard, HealthInputs, Tally, checks, lost_nodes, not_checked, unchecked},
        service_health::{CheckedEndpoint, Checker, HealthState, ServiceHealth, port_word},
        status::{Condition, ConditionType, EndpointCounts},
    },
    primitives::name::Name,
    wire::report::CheckState,
};

/// Maximum number of endpoints named in a message; `GET …/health` lists all.
const ENDPOINTS_NAMED_MAX: usize = 3;

/// Computes the health of a Service's endpoints from check results, stored verdicts and the health guard.
#[must_use]
pub fn service_health(
    snapshot: &Snapshot,
    compiled: &CompiledService,
    inputs: &HealthInputs<'_>,
    guard: &Guard,
) -> ServiceHealth {
    let service = &compiled.service;
    let record = snapshot.endpoint_health(service);
    let held: BTreeSet<_> = guard.held_of(service).map(|(key, _)| *key).collect();
    let lost = lost_nodes(compiled);
    let kept = record.map(|record| kept(compiled, record)).unwrap_or_default();
    let panic_ports = record.map(|record| panic_ports(compiled, record)).unwrap_or_default();
    let mut endpoints: Vec<_> = checks(compiled)
        .into_iter()
        .map(|(key, node)| CheckedEndpoint {
            held: held.contains(&key),
            node_lost: node.as_ref().is_some_and(|node| lost.contains(node)),
            kept: panic_ports.is_empty() && kept.contains(&key),
            by_default: compiled.health_check.is_none(),
            ..checked(inputs, service, record, key, node)
        })
        .collect();
    if !lost.is_empty() {
        let rest = unchecked(compiled).into_iter().map(|(key, node)| CheckedEndpoint {
            message: format!("the agent of {node} is silent, and no node can check this endpoint"),
            node_lost: true,
            kept: kept.contains(&key),
            checkers: BTreeMap::new(),
            ..checked(inputs, service, record, key, Some(node))
        });
        endpoints.extend(rest);
        endpoints.sort_by_key(|one| (one.address, one.port));
    }
    ServiceHealth { service: service.clone(), endpoints, panic_ports }
}

/// Adds the endpoints that are in use although nobody checks them.
pub fn add_not_checked(health: &mut ServiceHealth, compiled: &CompiledService) {
    let known: BTreeSet<_> = health.endpoints.iter().map(|one| (one.address, one.port)).collect();
    let rest = not_checked(compiled).into_iter().filter(|(key, _)| !known.contains(&(key.address, key.port)));
    health.endpoints.extend(rest.map(|(CheckKey { address, port }, node)| CheckedEndpoint {
        address,
        port,
        node,
        state: HealthState::NotChecked,
        since: None,
        message: why_not_checked(compiled),
        share: 100,
        held: false,
        node_lost: false,
        kept: false,
        by_default: false,
        checkers: BTreeMap::new(),
    }));
    health.endpoints.sort_by_key(|one| (one.address, one.port));
}

fn why_not_checked(compiled: &CompiledService) -> String {
    let why = "the Service has no health check, and the source of the endpoint does not check it";
    let more = match compiled.default_check {
        DefaultCheck::Off => "",
        DefaultCheck::On => "; only single TCP ports are checked by default",
        DefaultCheck::Exempt => "; the Service is exempt from checks by default",
    };
    format!("{why}{more}")
}

/// Returns the unhealthy endpoints, on lost Nodes or checked by default, that are in service because no endpoint of the
/// port is healthy.
fn kept(compiled: &CompiledService, record: &EndpointHealthSpec) -> BTreeSet<CheckKey> {
    let check = compiled.health_check.as_deref();
    let all =
        compiled.ports.iter().flat_map(|port| port.endpoints.iter().map(move |endpoint| (port, endpoint)));
    let kept = all.filter(|(port, one)| {
        let verdict = VerdictRule::of(compiled, port).verdict_on(record, one);
        (one.node_lost || check.is_none()) && one.ready && verdict.is_some_and(EndpointVerdict::is_out)
    });
    let kept = kept.map(|(_, one)| one);
    let port = |own| check.and_then(|check| check.port).unwrap_or(own);
    kept.map(|one| CheckKey { address: one.address, port: port(one.port) }).collect()
}

fn checked(
    inputs: &HealthInputs<'_>,
    service: &ServiceKey,
    record: Option<&EndpointHealthSpec>,
    key: CheckKey,
    node: Option<Name>,
) -> CheckedEndpoint {
    let tally = Tally::of(inputs, service, &key, node.as_ref());
    let verdict = record.and_then(|record| record.endpoints.get(&key));
    let (state, decided) = match tally.state() {
        Some(CheckState::Healthy) => (HealthState::Healthy, Some(CheckState::Healthy)),
        Some(CheckState::Unhealthy) => (HealthState::Unhealthy, Some(CheckState::Unhealthy)),
        Some(CheckState::Pending) => (HealthState::Pending, None),
        None => (HealthState::Unknown, None),
    };
    let newest = decided.and_then(|state| tally.with_state(state).max_by_key(|(_, result)| result.since));
    let since = newest.map(|(_, result)| result.since);
    let message = newest.map_or_else(|| why_undecided(&tally), |(_, result)| result.message.clone());
    let share = verdict.map_or(100, |verdict| verdict.share);
    let checkers = tally.chosen.iter().map(|name| ((*name).clone(), checker(inputs, service, &key, name)));
    let checkers = checkers.collect();
    let CheckKey { address, port } = key;
    let (held, node_lost, kept, by_default) = (false, false, false, false);
    CheckedEndpoint {
        address,
        port,
        state,
        since,
        message,
        share,
        held,
        node_lost,
        kept,
        by_default,
        checkers,
        node,
    }
}

fn checker(inputs: &HealthInputs<'_>, service: &ServiceKey, key: &CheckKey, node: &Name) -> Checker {
    let result = inputs.book.result(service, key, node);
    Checker {
        is_reporting: (inputs.is_reporting)(node),
        state: result.map(|result| result.state),
        since: result.map(|result| result.since),
        message: result.map(|result| result.message.clone()),
    }
}

fn why_undecided(tally: &Tally<'_>) -> String {
    let names = |names: Vec<&str>| names.join(", ");
    if !tally.results.is_empty() {
        let said: Vec<_> =
            tally.results.iter().map(|(node, result)| format!("{node}: {}", result.message)).collect();
        return said.join("; ");
    }
    match tally.chosen.len() {
        0 => "no Node could check it".to_owned(),
        1 => format!(
            "{} checks it and has not reported a result",
            names(tally.chosen.iter().map(|one| one.as_str()).collect())
        ),
        _ => format!(
            "{} check it and have not reported a result",
            names(tally.chosen.iter().map(|one| one.as_str()).collect())
        ),
    }
}

/// Returns the ports of which all endpoints receive connections, even unhealthy ones, because the share of healthy
/// endpoints is below the panic threshold.
fn panic_ports(compiled: &CompiledService, record: &EndpointHealthSpec) -> Vec<String> {
    let Some(check) = &compiled.health_check else { return Vec::new() };
    let has_one_out = record.endpoints.values().any(EndpointVerdict::is_out);
    let ports = compiled.ports.iter().filter(|port| has_one_out && is_panic(check, record, port));
    ports.map(|port| port_word(port.range(), port.protocol)).collect()
}

/// Sets in `counts` the number of unhealthy endpoint addresses, and the number of addresses whose health is
/// unknown.
pub(super) fn count(health: &ServiceHealth, counts: &mut EndpointCounts) {
    let addresses = |wanted: &dyn Fn(&CheckedEndpoint) -> bool| {
        let found = health.endpoints.iter().filter(|one| wanted(one));
        saturating(found.map(|one| one.address).collect::<BTreeSet<_>>().len())
    };
    counts.unhealthy = addresses(&CheckedEndpoint::is_out);
    counts.unknown = addresses(&|one| one.state == HealthState::Unknown);
}

/// Returns the condition `EndpointsAvailable` if it follows from health checks; `None` if they have no
/// influence on it.
pub(super) fn endpoints_available(health: &ServiceHealth, counts: EndpointCounts) -> Option<Condition> {
    let at = ConditionType::EndpointsAvailable;
    let out: Vec<_> = health.endpoints.iter().filter(|one| one.is_out()).collect();
    let held = out.iter().filter(|one| one.held).count();
    let total = health.endpoints.len();
    if counts.ready == 0 && !out.is_empty() {
        let message = format!("none of {total} checked endpoints is in service: {}", named(&out));
        let hint = "connections are refused; `tidegate health` lists the results of each node";
        return Some(no(at, ConditionReason::NoHealthyEndpoints, message).hint(hint));
    }
    let good = |reason: ConditionReason, message: String| Some(Condition { message, ..yes(at, reason) });
    if held > 0 {
        let message = format!(
            "{held} of {total} checked endpoints are used although they are unhealthy, because too many became \
             unhealthy at once: {}",
            named(&out)
        );
        let hint = "`tidegate health --confirm` removes them from service";
        return good(ConditionReason::HealthGuardHeld, message).map(|condition| condition.hint(hint));
    }
    let kept = out.iter().filter(|one| one.kept).count();
    if kept > 0 && !out.iter().any(|one| one.kept && one.node_lost) {
        let message = format!(
            "{kept} endpoints are used although they do not answer the check by default, because no endpoint of the port \
             is healthy: {}",
            named(&out)
        );
        let hint = "start the endpoints; if they need another check, set spec.healthCheck";
        return good(ConditionReason::LastEndpointsKept, message).map(|condition| condition.hint(hint));
    }
    if kept > 0 {
        let message = format!(
            "{kept} endpoints are used although other nodes cannot reach them, because their Nodes are silent and no \
             endpoint of the port is healthy: {}",
            named(&out)
        );
        let hint = "restore the agent; if the machine has failed, start the workload elsewhere";
        return good(ConditionReason::LastEndpointsKept, message).map(|condition| condition.hint(hint));
    }
    if !health.panic_ports.is_empty() {
        let message = format!(
            "all endpoints of {} are used although {} of {total} are unhealthy (spec.healthCheck.panicThreshold): {}",
            health.panic_ports.join(", "),
            out.len(),
            named(&out)
        );
        return good(ConditionReason::PanicThreshold, message);
    }
    if !out.is_empty() {
        let message =
            format!("{} of {total} checked endpoints are out of service: {}", out.len(), named(&out));
        return good(ConditionReason::EndpointsReady, message);
    }
    let on_lost: Vec<_> = health.endpoints.iter().filter(|one| one.node_lost).collect();
    if !on_lost.is_empty() {
        return good(ConditionReason::EndpointsReady, on_lost_nodes(&on_lost));
    }
    let unknown = health.endpoints.iter().filter(|one| one.state == HealthState::Unknown).count();
    if unknown > 0 {
        let message = format!("no node reports results for {unknown} of {total} checked endpoints");
        return good(ConditionReason::EndpointsReady, message);
    }
    None
}

/// Describes the endpoints in service on lost Nodes, with the nodes to which each of them answers.
fn on_lost_nodes(endpoints: &[&CheckedEndpoint]) -> String {
    let nodes: BTreeSet<_> = endpoints.iter().filter_map(|one| one.node.as_ref()).map(Name::as_str).collect();
    let answers = |one: &&&CheckedEndpoint| {
        let key = CheckKey { address: one.address, port: one.port };
        let healthy = one.checkers.iter().filter(|(_, checker)| checker.state == Some(CheckState::Healthy));
        let to: Vec<_> = healthy.map(|(node, _)| node.as_str()).collect();
        match (to.is_empty(), one.checkers.is_empty()) {
            (false, _) => format!("{key} answers to {}", to.join(", ")),
            (true, true) => format!("{key} cannot be checked"),
            (true, false) => format!("{key} is not checked yet"),
        }
    };
    let words: Vec<_> = endpoints.iter().take(ENDPOINTS_NAMED_MAX).map(|one| answers(&one)).collect();
    let more = endpoints.len().saturating_sub(ENDPOINTS_NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let nodes: Vec<_> = nodes.into_iter().collect();
    format!(
        "endpoints on Nodes with a silent agent ({}) stay in service: {}{more}",
        nodes.join(", "),
        words.join("; ")
    )
}

fn named(endpoints: &[&CheckedEndpoint]) -> String {
    let mut by_key: BTreeMap<CheckKey, &str> = BTreeMap::new();
    for one in endpoints {
        by_key.insert(CheckKey { address: one.address, port: one.port }, &one.message);
    }
    let words: Vec<_> =
        by_key.iter().take(ENDPOINTS_NAMED_MAX).map(|(key, message)| format!("{key} {message}")).collect();
    let more = endpoints.len().saturating_sub(ENDPOINTS_NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{more}", words.join("; "))
}
