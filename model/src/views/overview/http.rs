//! Findings (deviations from the desired state) of Certificates, Gateways and routes, and of the gateways that serve
//! them.

use std::collections::BTreeMap;

use super::{
    Impact, affects,
    memory::{Basis, StatusFinding},
};
use crate::{
    cluster::snapshot::Snapshot,
    http::{BackendKey, HttpObjects, attach, certificate_refs},
    kinds::{
        condition_reason::ConditionReason,
        gateway::GatewaySpec,
        resource::{Kind, Object, ObjectKey},
        route::RouteSpec,
    },
    observed::{
        http_gateways::GatewayReports,
        status::{CertificateStatus, Condition, ConditionStatus, ConditionType, GatewayStatus},
    },
    primitives::{
        http_object_key::HttpObjectKey,
        name::{Name, Namespace},
    },
};

/// Returns the finding of a Certificate from its status, or `None` if it is valid for long enough or not in use. `gateways`
/// are the Gateways that name the Certificate.
#[must_use]
pub fn certificate(
    object: &Object,
    status: &CertificateStatus,
    gateways: &[ObjectKey],
) -> Option<StatusFinding> {
    let ready = condition(&status.conditions, ConditionType::Ready)?;
    if gateways.is_empty() || (ready.status == ConditionStatus::True && ready.hint.is_none()) {
        return None;
    }
    let impact = if ready.status == ConditionStatus::True { Impact::Risk } else { Impact::Unreachable };
    let found = finding(object, "Ready", impact, ready);
    let (affects, affects_more) = affects::listed(gateways.iter().cloned());
    Some(StatusFinding { affects, affects_more, ..found })
}

/// Returns the Gateways that name each Certificate.
#[must_use]
pub fn users_of_certificates(snapshot: &Snapshot) -> BTreeMap<HttpObjectKey, Vec<ObjectKey>> {
    let mut users: BTreeMap<_, Vec<ObjectKey>> = BTreeMap::new();
    for object in snapshot.list(Kind::Gateway, None, None) {
        let (Some(spec), Some(namespace)) = (object.as_gateway(), &object.metadata.namespace) else {
            continue;
        };
        for one in spec.listeners.iter().flat_map(certificate_refs) {
            let key = HttpObjectKey { namespace: namespace.clone(), name: one.name.clone() };
            let users = users.entry(key).or_default();
            if users.last() != Some(&object.key()) {
                users.push(object.key());
            }
        }
    }
    users
}

/// Returns the findings of a Gateway from its status, which includes the reports of the gateways.
#[must_use]
pub fn gateway(
    object: &Object,
    spec: &GatewaySpec,
    status: &GatewayStatus,
    reports: &GatewayReports,
) -> Vec<StatusFinding> {
    let Some(namespace) = object.metadata.namespace.clone() else { return Vec::new() };
    let key = HttpObjectKey { namespace, name: object.metadata.name.clone() };
    let is_used = condition(&status.conditions, ConditionType::Used)
        .is_some_and(|used| used.status == ConditionStatus::True);
    let impact = |impact| if is_used { impact } else { Impact::Notice };
    let mut findings = Vec::new();
    let of_listeners = |wanted| {
        status.listeners.values().filter_map(move |listener| condition(&listener.conditions, wanted))
    };
    let is_whole = !of_listeners(ConditionType::Programmed).any(|one| one.status == ConditionStatus::True);
    let programmed = condition(&status.conditions, ConditionType::Programmed);
    // Shortly after the start of the control server, the state is unknown.
    let programmed = programmed.filter(|one| one.reason != ConditionReason::NoReport);
    let refs = condition(&status.conditions, ConditionType::ResolvedRefs)
        .filter(|refs| refs.status != ConditionStatus::True);
    if let Some(programmed) =
        programmed.filter(|one| one.status != ConditionStatus::True || one.hint.is_some())
    {
        let is_refused = programmed.reason == ConditionReason::Invalid;
        let cause = refs.filter(|_| is_refused).unwrap_or(programmed);
        let worst = if is_whole { Impact::Unreachable } else { Impact::Degraded };
        let mut found = finding(object, "Programmed", impact(worst), cause);
        if matches!(programmed.reason, ConditionReason::NoGateway | ConditionReason::NotListening) {
            (found.basis, found.is_passing) = (Basis::Reports, true);
        } else {
            found.concerns.keys.extend(certificates_of(&key.namespace, spec));
        }
        findings.push(found);
    } else if let Some(refs) = refs {
        let mut found = finding(object, "ResolvedRefs", impact(Impact::Degraded), refs);
        found.concerns.keys.extend(certificates_of(&key.namespace, spec));
        findings.push(found);
    }
    findings.extend(without_keys(object, &key, reports, impact(Impact::Degraded)));
    findings
}

/// Returns the finding for gateways that serve a Gateway and lack private keys of its Certificates.
fn without_keys(
    object: &Object,
    gateway: &HttpObjectKey,
    reports: &GatewayReports,
    impact: Impact,
) -> Option<StatusFinding> {
    let mut lacking = reports.serving(gateway).filter_map(|(name, report)| {
        let of_gateway = |one: &&HttpObjectKey| {
            let refs = object.as_gateway().map(|spec| spec.listeners.iter().flat_map(certificate_refs));
            one.namespace == gateway.namespace
                && refs.into_iter().flatten().any(|other| other.name == one.name)
        };
        Some((name, report.certificates_missing.iter().find(of_gateway)?))
    });
    let (name, certificate) = lacking.next()?;
    let more = lacking.count();
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!(
        "gateway {name}{others} has no private key of Certificate {certificate}; connections that need it are refused"
    );
    let found = StatusFinding::new(object.key(), "CertificateKeys", impact, "NoCertificateKey", message);
    let hint = "see the log of the gateway; its token needs the role gateway";
    let hint = Some(hint.to_owned());
    Some(StatusFinding { hint, basis: Basis::Reports, is_passing: true, ..found })
}

/// Returns the finding for gateways that have stopped reporting while others serve their Gateways; `None` if there are none.
/// `gateways` are the keys of all Gateways.
#[must_use]
pub fn silent_gateways(gateways: &[HttpObjectKey], reports: &GatewayReports) -> Option<StatusFinding> {
    let mut affected: Vec<&HttpObjectKey> = Vec::new();
    let mut silent: BTreeMap<&Name, _> = BTreeMap::new();
    for gateway in gateways {
        let before = affected.len();
        // A Gateway without any gateway has a finding of its own.
        if reports.serving(gateway).next().is_some() {
            for (name, at) in reports.silent_of(gateway) {
                silent.insert(name, at);
                affected.truncate(before);
                affected.push(gateway);
            }
        }
    }
    let (name, at) = silent.first_key_value()?;
    let more = silent.len().saturating_sub(1);
    let others = if more > 0 { format!("; {more} others are silent too") } else { String::new() };
    let message =
        format!("gateway {name} has not reported since {at}{others}; other gateways serve its Gateways");
    let key = |key: &HttpObjectKey| ObjectKey {
        kind: Kind::Gateway,
        namespace: Some(key.namespace.clone()),
        name: key.name.clone(),
    };
    let found =
        StatusFinding::new(key(affected.first()?), "Gateways", Impact::Risk, "GatewaySilent", message);
    let (affects, affects_more) = affects::listed(affected.into_iter().map(key));
    let hint = "start the gateway again; one that was removed is forgotten an hour after its last report";
    Some(StatusFinding { hint: Some(hint.to_owned()), affects, affects_more, basis: Basis::Reports, ..found })
}

/// Returns the findings of a route from the conditions of its status and from the endpoints of its backends.
#[must_use]
pub fn route(
    snapshot: &Snapshot,
    object: &Object,
    spec: RouteSpec<'_>,
    conditions: &[Condition],
) -> Vec<StatusFinding> {
    let Some(namespace) = &object.metadata.namespace else { return Vec::new() };
    let is_untrue = |one: &&Condition| one.status != ConditionStatus::True;
    let mut findings = Vec::new();
    if let Some(accepted) = condition(conditions, ConditionType::Accepted).filter(is_untrue) {
        let objects = HttpObjects::parents_of(snapshot, namespace, spec);
        let is_attached =
            spec.parent_refs().iter().any(|parent| attach(&objects, namespace, spec, parent).is_ok());
        let impact = if is_attached { Impact::Degraded } else { Impact::Unreachable };
        let mut found = finding(object, "Accepted", impact, accepted);
        found.concerns.keys.extend(spec.parent_refs().iter().map(|parent| ObjectKey {
            kind: Kind::Gateway,
            namespace: Some(parent.namespace.as_ref().unwrap_or(namespace).clone()),
            name: parent.name.clone(),
        }));
        findings.push(found);
        if !is_attached {
            // No request reaches its backends.
            return findings;
        }
    }
    let rules = spec.shares(namespace);
    let shares: Vec<_> = rules.iter().map(|rule| RuleShare::of(snapshot, spec, rule)).collect();
    if let Some(resolved) = condition(conditions, ConditionType::ResolvedRefs).filter(is_untrue) {
        let impact = match shares.iter().map(|share| share.unresolved).max() {
            Some(Share::All) => Impact::Unreachable,
            Some(Share::Some) => Impact::Degraded,
            // Copies of requests that mirrors should receive.
            Some(Share::None) | None => Impact::Notice,
        };
        let mut found = finding(object, "ResolvedRefs", impact, resolved);
        found.concerns.keys.extend(services_of(namespace, spec));
        findings.push(found);
    }
    findings.extend(without_endpoints(object, namespace, spec, &shares));
    findings
}

/// Share of the requests of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    None,
    Some,
    All,
}

/// Shares of the requests of a rule that no endpoint receives.
struct RuleShare {
    unresolved: Share,
    /// Share without an endpoint, and the first backend without one.
    empty: (Share, Option<BackendKey>),
}

impl RuleShare {
    fn of(snapshot: &Snapshot, spec: RouteSpec<'_>, backends: &[(BackendKey, u32)]) -> Self {
        let weighted = backends.iter().filter(|(_, weight)| *weight > 0);
        let (mut total, mut unresolved, mut empty) = (0, 0, 0);
        let mut first = None;
        for (key, _) in weighted {
            total += 1;
            match spec.resolve(snapshot, key) {
                Err(_) => unresolved += 1,
                Ok(endpoints) if endpoints.list().is_empty() => {
                    empty += 1;
                    first = first.or_else(|| Some(key.clone()));
                }
                Ok(_) => {}
            }
        }
        let share = |count: usize| match count {
            0 => Share::None,
            count if count == total => Share::All,
            _ => Share::Some,
        };
        let is_dead = empty > 0 && empty + unresolved == total;
        let of_empty = if is_dead { Share::All } else { share(empty) };
        Self { unresolved: share(unresolved), empty: (of_empty, first) }
    }
}

/// Returns the finding for rules with backends that have no endpoint.
fn without_endpoints(
    object: &Object,
    namespace: &Namespace,
    spec: RouteSpec<'_>,
    shares: &[RuleShare],
) -> Option<StatusFinding> {
    let worst = shares.iter().filter(|share| share.empty.1.is_some()).max_by_key(|share| share.empty.0)?;
    let (share, Some(BackendKey { service, port })) = &worst.empty else { return None };
    let (impact, outcome) = match (share, spec) {
        (Share::All, RouteSpec::Http(_)) => (Impact::Unreachable, "the requests of a rule fail with 503"),
        (Share::Some | Share::None, RouteSpec::Http(_)) => {
            (Impact::Degraded, "its share of the requests fails with 503")
        }
        (Share::All, RouteSpec::Tls(_)) => (Impact::Unreachable, "the connections of the route are closed"),
        (Share::Some | Share::None, RouteSpec::Tls(_)) => {
            (Impact::Degraded, "its share of the connections is closed")
        }
    };
    let message = format!("Service {service} has no endpoint for new requests at port {port}; {outcome}");
    let reason = ConditionReason::NoEndpoints.as_str();
    let mut found = StatusFinding::new(object.key(), "EndpointsAvailable", impact, reason, message);
    found.concerns.keys.extend(services_of(namespace, spec));
    let (affects, affects_more) = affects::listed(std::iter::once(service.object_key()));
    let hint = format!(
        "see the condition EndpointsAvailable: `tidegate describe service {} -n {namespace}`",
        service.name
    );
    Some(StatusFinding { hint: Some(hint), affects, affects_more, ..found })
}

fn services_of(namespace: &Namespace, spec: RouteSpec<'_>) -> Vec<ObjectKey> {
    let backends = spec.shares(namespace).into_iter().flatten();
    backends.map(|(backend, _)| backend.service.object_key()).collect()
}

fn certificates_of(namespace: &Namespace, spec: &GatewaySpec) -> Vec<ObjectKey> {
    let key = |name: &Name| ObjectKey {
        kind: Kind::Certificate,
        namespace: Some(namespace.clone()),
        name: name.clone(),
    };
    spec.listeners.iter().flat_map(certificate_refs).map(|one| key(&one.name)).collect()
}

fn condition(conditions: &[Condition], wanted: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|one| one.condition_type == wanted)
}

fn finding(object: &Object, aspect: &'static str, impact: Impact, condition: &Condition) -> StatusFinding {
    let Condition { condition_type: _, status: _, reason, message, hint } = condition;
    StatusFinding {
        hint: hint.clone(),
        ..StatusFinding::new(object.key(), aspect, impact, reason.as_str(), message.clone())
    }
}
