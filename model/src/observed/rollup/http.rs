//! Status of Gateways, HttpRoutes and TlsRoutes, derived from the stored objects.

use std::collections::BTreeMap;

use super::{condition, no, saturating, yes};
use crate::{
    cluster::snapshot::Snapshot,
    http::{
        BackendKey, BackendProblem, HttpObjectKey, HttpObjects, ListenerUses, attach, certificate_refs,
        resolve_certificate,
    },
    kinds::{
        condition_reason::ConditionReason,
        gateway::{GatewayListener, GatewaySpec},
        http_route::{HttpRouteSpec, ParentRef},
        metadata::Metadata,
        resource::{Kind, ObjectKey},
        route::RouteSpec,
        tls_route::TlsRouteSpec,
    },
    observed::{
        http_gateways::{GatewayReports, ListenerProblem},
        status::{
            Condition, ConditionStatus, ConditionType, GatewayStatus, HttpRouteStatus, ListenerStatus,
            TlsRouteStatus,
        },
    },
    primitives::name::{Label, Namespace},
};

/// Computes the status of a Gateway from the stored objects.
#[must_use]
pub fn gateway_status(snapshot: &Snapshot, metadata: &Metadata, spec: &GatewaySpec) -> GatewayStatus {
    gateway_status_among(snapshot, &listener_uses(snapshot), metadata, spec)
}

/// Returns the uses of the ports and host names of all Gateways.
#[must_use]
pub fn listener_uses(snapshot: &Snapshot) -> ListenerUses {
    HttpObjects::gateways_of(snapshot, |_| true).uses()
}

/// Computes the status of one of many Gateways from the stored objects and the uses of all ports.
#[must_use]
pub fn gateway_status_among(
    snapshot: &Snapshot,
    uses: &ListenerUses,
    metadata: &Metadata,
    spec: &GatewaySpec,
) -> GatewayStatus {
    let mut attached: BTreeMap<_, usize> =
        spec.listeners.iter().map(|listener| (listener.name.clone(), 0)).collect();
    let Some(namespace) = metadata.namespace.clone() else { return GatewayStatus::default() };
    let (of, name) = (Some(namespace.clone()), metadata.name.clone());
    for route in snapshot.routes_naming(&ObjectKey { kind: Kind::Gateway, namespace: of, name }) {
        let (Some(namespace), Some(spec)) = (&route.metadata.namespace, RouteSpec::of(route)) else {
            continue;
        };
        let is_own = |parent: &&ParentRef| {
            parent.name == metadata.name
                && parent.namespace.as_ref().or(Some(namespace)) == metadata.namespace.as_ref()
        };
        let objects = HttpObjects::parents_of(snapshot, namespace, spec);
        let listeners = spec.parent_refs().iter().filter(is_own);
        let listeners =
            listeners.flat_map(|parent| attach(&objects, namespace, spec, parent).unwrap_or_default());
        let mut names: Vec<_> = listeners.map(|one| &one.listener.name).collect();
        names.sort();
        names.dedup();
        for name in names {
            *attached.entry(name.clone()).or_default() += 1;
        }
    }
    let used = if attached.values().all(|count| *count == 0) {
        no(ConditionType::Used, ConditionReason::NoRoutes, "no route is attached to it".to_owned())
            .hint("name it in spec.parentRefs of an HttpRoute or TlsRoute")
    } else {
        yes(ConditionType::Used, ConditionReason::RoutesAttached)
    };
    let own = HttpObjectKey { namespace, name: metadata.name.clone() };
    let listeners = listeners(snapshot, uses, &own, spec);
    let mut conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid)];
    conditions.extend(worst(&listeners, ConditionType::ResolvedRefs));
    conditions.extend(worst(&listeners, ConditionType::Programmed));
    conditions.push(used);
    GatewayStatus {
        conditions,
        listeners,
        attached_routes: attached.into_iter().map(|(name, count)| (name, saturating(count))).collect(),
    }
}

/// Returns the condition of a type of the first listener for which it is not true, or of the first listener.
fn worst(listeners: &BTreeMap<Label, ListenerStatus>, wanted: ConditionType) -> Option<Condition> {
    let all = || {
        let all = listeners.values().flat_map(|listener| &listener.conditions);
        all.filter(|condition| condition.condition_type == wanted)
    };
    all().find(|condition| condition.status != ConditionStatus::True).or_else(|| all().next()).cloned()
}

/// Adds the reports of the gateways to the status of a Gateway: a listener is programmed only if a gateway serves it.
#[must_use]
pub fn with_gateways(
    status: GatewayStatus,
    gateway: &HttpObjectKey,
    spec: &GatewaySpec,
    reports: &GatewayReports,
) -> GatewayStatus {
    let GatewayStatus { mut conditions, mut listeners, attached_routes } = status;
    for listener in &spec.listeners {
        let Some(found) = listeners.get_mut(&listener.name) else { continue };
        let of_type = |one: &&mut Condition| one.condition_type == ConditionType::Programmed;
        let programmed = found.conditions.iter_mut().find(of_type);
        let programmed = programmed.filter(|one| one.status == ConditionStatus::True);
        if let (Some(programmed), Some(problem)) =
            (programmed, reports.listener_problem(gateway, listener.port))
        {
            *programmed = not_served(&listener.name, problem);
        }
    }
    if let Some(worst) = worst(&listeners, ConditionType::Programmed)
        && let Some(own) = conditions.iter_mut().find(|one| one.condition_type == ConditionType::Programmed)
    {
        *own = worst;
    }
    GatewayStatus { conditions, listeners, attached_routes }
}

/// Returns the condition Programmed of a listener with a problem.
fn not_served(listener: &Label, problem: ListenerProblem) -> Condition {
    let ListenerProblem { reason, message, is_partial } = problem;
    let message = format!("listener {listener}: {message}");
    let (status, hint) = if reason == ConditionReason::NoReport {
        (ConditionStatus::Unknown, "wait for the first reports of the gateways")
    } else if reason == ConditionReason::NoGateway {
        (ConditionStatus::False, "start tidegate-gateway, or see its log")
    } else {
        // A listener that some gateways serve is programmed.
        let status = if is_partial { ConditionStatus::True } else { ConditionStatus::False };
        (status, "stop the program that uses the port, or choose another port or --address of the gateway")
    };
    condition(ConditionType::Programmed, status, reason, message).hint(hint)
}

/// Returns the conditions of the listeners of a Gateway.
fn listeners(
    snapshot: &Snapshot,
    uses: &ListenerUses,
    gateway: &HttpObjectKey,
    spec: &GatewaySpec,
) -> BTreeMap<Label, ListenerStatus> {
    let status = |listener: &GatewayListener| {
        let refs: Vec<_> = certificate_refs(listener)
            .map(|one| resolve_certificate(snapshot, &gateway.namespace, one))
            .collect();
        let name = &listener.name;
        let resolved = match refs.iter().find_map(|found| found.as_ref().err()) {
            Some(problem) => {
                let message = format!("listener {name}: {problem}");
                no(ConditionType::ResolvedRefs, ConditionReason::InvalidCertificateRef, message)
                    .hint("create the Certificate, or correct tls.certificateRefs")
            }
            None => yes(ConditionType::ResolvedRefs, ConditionReason::CertificatesFound),
        };
        let programmed = if !uses.serve(listener) {
            let message = format!("listener {name}: another Gateway uses port {} differently", listener.port);
            no(ConditionType::Programmed, ConditionReason::ProtocolConflict, message).hint(
                "choose another port or host name, or give both listeners the same protocol and TLS mode",
            )
        } else if !refs.is_empty() && refs.iter().all(Result::is_err) {
            let message = format!("listener {name} has no usable Certificate; its connections are refused");
            no(ConditionType::Programmed, ConditionReason::Invalid, message)
                .hint("see the condition ResolvedRefs")
        } else {
            yes(ConditionType::Programmed, ConditionReason::Programmed)
        };
        ListenerStatus { conditions: vec![resolved, programmed] }
    };
    spec.listeners.iter().map(|listener| (listener.name.clone(), status(listener))).collect()
}

/// Computes the status of an HttpRoute in `namespace` from the stored objects.
#[must_use]
pub fn http_route_status(
    snapshot: &Snapshot,
    namespace: &Namespace,
    spec: &HttpRouteSpec,
) -> HttpRouteStatus {
    HttpRouteStatus { conditions: route_conditions(snapshot, namespace, spec.into()) }
}

/// Computes the status of a TlsRoute in `namespace` from the stored objects.
#[must_use]
pub fn tls_route_status(snapshot: &Snapshot, namespace: &Namespace, spec: &TlsRouteSpec) -> TlsRouteStatus {
    TlsRouteStatus { conditions: route_conditions(snapshot, namespace, spec.into()) }
}

/// Returns the conditions Accepted and ResolvedRefs of a route in `namespace`.
#[must_use]
pub fn route_conditions(snapshot: &Snapshot, namespace: &Namespace, spec: RouteSpec<'_>) -> Vec<Condition> {
    let objects = HttpObjects::parents_of(snapshot, namespace, spec);
    let refused = spec.parent_refs().iter().find_map(|parent| refused(&objects, namespace, spec, parent));
    let accepted = refused.unwrap_or_else(|| yes(ConditionType::Accepted, ConditionReason::Valid));
    let mut backends = spec.backends(namespace).into_iter();
    let unresolved = backends.find_map(|backend| unresolved(snapshot, spec, &backend));
    let resolved =
        unresolved.unwrap_or_else(|| yes(ConditionType::ResolvedRefs, ConditionReason::BackendsFound));
    vec![accepted, resolved]
}

/// Returns the condition for a parent that does not accept the route; `None` if the parent accepts the route.
fn refused(
    objects: &HttpObjects<'_>,
    namespace: &Namespace,
    spec: RouteSpec<'_>,
    parent: &ParentRef,
) -> Option<Condition> {
    let problem = attach(objects, namespace, spec, parent).err()?;
    let gateway = format!("{}/{}", parent.namespace.as_ref().unwrap_or(namespace), parent.name);
    let (reason, message, hint) = problem.describe(&gateway, namespace);
    Some(no(ConditionType::Accepted, reason, message).hint(hint))
}

/// Returns the condition for a backend that cannot receive requests; `None` if the backend can.
fn unresolved(snapshot: &Snapshot, route: RouteSpec<'_>, backend: &BackendKey) -> Option<Condition> {
    let problem = route.resolve(snapshot, backend).err()?;
    let outcome = match route {
        RouteSpec::Http(_) => "its share of the requests fails with 500",
        RouteSpec::Tls(_) => "its share of the connections is closed",
    };
    let BackendKey { service, port } = backend;
    let (reason, message, hint) = match problem {
        BackendProblem::NoService => (
            ConditionReason::BackendNotFound,
            format!("Service {service} does not exist"),
            "create the Service, or correct backendRefs",
        ),
        BackendProblem::ExternalName => (
            ConditionReason::BackendNotFound,
            format!("Service {service} is of type ExternalName, which gateways do not resolve"),
            "use a Service with an EndpointSet",
        ),
        BackendProblem::NoPort => (
            ConditionReason::BackendNotFound,
            format!("Service {service} has no single TCP port {port}"),
            "correct the port of the backend",
        ),
        BackendProblem::ProxyProtocol => (
            ConditionReason::UnsupportedProtocol,
            format!("Service {service} has spec.proxyProtocol, which gateways do not send"),
            "use a Service without spec.proxyProtocol",
        ),
        BackendProblem::Protocol => (
            ConditionReason::UnsupportedProtocol,
            format!(
                "port {port} of Service {service} has an appProtocol with TLS, which gateways do not use"
            ),
            "use a port without TLS",
        ),
    };
    Some(no(ConditionType::ResolvedRefs, reason, message).hint(&format!("{hint}; {outcome}")))
}
