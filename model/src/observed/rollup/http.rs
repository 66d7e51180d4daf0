//! Status of Gateways and HttpRoutes, derived from the stored objects.

use std::collections::BTreeMap;

use super::{no, saturating, yes};
use crate::{
    cluster::snapshot::Snapshot,
    http::{AttachProblem, BackendKey, BackendProblem, HttpObjects, attach, resolve_backend},
    kinds::{
        condition_reason::ConditionReason,
        gateway::GatewaySpec,
        http_route::{HttpRouteSpec, ParentRef},
        metadata::Metadata,
        resource::{Kind, ObjectKey, ServiceKey},
    },
    observed::status::{Condition, ConditionType, GatewayStatus, HttpRouteStatus},
    primitives::name::Namespace,
};

/// Computes the status of a Gateway from the stored objects.
#[must_use]
pub fn gateway_status(snapshot: &Snapshot, metadata: &Metadata, spec: &GatewaySpec) -> GatewayStatus {
    let mut attached: BTreeMap<_, usize> =
        spec.listeners.iter().map(|listener| (listener.name.clone(), 0)).collect();
    let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
    for route in snapshot.routes_naming(&ObjectKey { kind: Kind::Gateway, namespace, name }) {
        let (Some(namespace), Some(spec)) = (&route.metadata.namespace, route.as_http_route()) else {
            continue;
        };
        let is_own = |parent: &&ParentRef| {
            parent.name == metadata.name
                && parent.namespace.as_ref().or(Some(namespace)) == metadata.namespace.as_ref()
        };
        let objects = HttpObjects::parents_of(snapshot, namespace, spec);
        let listeners = spec.parent_refs.iter().filter(is_own);
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
        no(ConditionType::Used, ConditionReason::NoRoutes, "no HttpRoute is attached to it".to_owned())
            .hint("name it in spec.parentRefs of an HttpRoute")
    } else {
        yes(ConditionType::Used, ConditionReason::RoutesAttached)
    };
    GatewayStatus {
        conditions: vec![yes(ConditionType::Accepted, ConditionReason::Valid), used],
        attached_routes: attached.into_iter().map(|(name, count)| (name, saturating(count))).collect(),
    }
}

/// Computes the status of an HttpRoute in `namespace` from the stored objects.
#[must_use]
pub fn http_route_status(
    snapshot: &Snapshot,
    namespace: &Namespace,
    spec: &HttpRouteSpec,
) -> HttpRouteStatus {
    let objects = HttpObjects::parents_of(snapshot, namespace, spec);
    let refused = spec.parent_refs.iter().find_map(|parent| refused(&objects, namespace, spec, parent));
    let accepted = refused.unwrap_or_else(|| yes(ConditionType::Accepted, ConditionReason::Valid));
    let backends = spec.rules.iter().flat_map(|rule| &rule.backend_refs);
    let unresolved = backends.into_iter().find_map(|backend| {
        let service = ServiceKey { namespace: namespace.clone(), name: backend.name.clone() };
        unresolved(snapshot, &BackendKey { service, port: backend.port })
    });
    let resolved =
        unresolved.unwrap_or_else(|| yes(ConditionType::ResolvedRefs, ConditionReason::BackendsFound));
    HttpRouteStatus { conditions: vec![accepted, resolved] }
}

/// Returns the condition for a parent that does not accept the route; `None` if the parent accepts the route.
fn refused(
    objects: &HttpObjects<'_>,
    namespace: &Namespace,
    spec: &HttpRouteSpec,
    parent: &ParentRef,
) -> Option<Condition> {
    let problem = attach(objects, namespace, spec, parent).err()?;
    let gateway = format!("{}/{}", parent.namespace.as_ref().unwrap_or(namespace), parent.name);
    let (reason, message, hint) = match problem {
        AttachProblem::NoMatchingParent => (
            ConditionReason::NoMatchingParent,
            format!("no listener of Gateway {gateway} has the name and port of the reference"),
            "create the Gateway, or correct spec.parentRefs",
        ),
        AttachProblem::NotAllowedByListeners => (
            ConditionReason::NotAllowedByListeners,
            format!("the listeners of Gateway {gateway} do not allow routes of namespace {namespace}"),
            "set allowedRoutes.namespaces.from of the listener to All",
        ),
        AttachProblem::NoMatchingListenerHostname => (
            ConditionReason::NoMatchingListenerHostname,
            format!("no listener of Gateway {gateway} has a host name in common with the route"),
            "correct spec.hostnames, or add a listener",
        ),
    };
    Some(no(ConditionType::Accepted, reason, message).hint(hint))
}

/// Returns the condition for a backend that cannot receive requests; `None` if the backend can.
fn unresolved(snapshot: &Snapshot, backend: &BackendKey) -> Option<Condition> {
    let problem = resolve_backend(snapshot, backend).err()?;
    let BackendKey { service, port } = backend;
    let (reason, message, hint) = match problem {
        BackendProblem::NoService => (
            ConditionReason::BackendNotFound,
            format!("Service {service} does not exist or has no addresses"),
            "create the Service, or correct backendRefs; its share of the requests fails with 500",
        ),
        BackendProblem::NoPort => (
            ConditionReason::BackendNotFound,
            format!("Service {service} has no single TCP port {port}"),
            "correct the port of the backend; its share of the requests fails with 500",
        ),
        BackendProblem::ProxyProtocol => (
            ConditionReason::UnsupportedProtocol,
            format!("Service {service} has spec.proxyProtocol, which gateways do not send"),
            "use a Service without spec.proxyProtocol; the share of the requests fails with 500",
        ),
    };
    Some(no(ConditionType::ResolvedRefs, reason, message).hint(hint))
}
