//! Status of Gateways and HttpRoutes, derived from the stored objects.

use std::collections::BTreeMap;

use super::{no, saturating, yes};
use crate::{
    cluster::snapshot::Snapshot,
    http::{
        BackendKey, BackendProblem, HttpObjectKey, HttpObjects, attach, backend_keys, certificate_refs,
        resolve_backend, resolve_certificate,
    },
    kinds::{
        condition_reason::ConditionReason,
        gateway::{GatewayListener, GatewaySpec},
        http_route::{HttpRouteSpec, ParentRef},
        metadata::Metadata,
        resource::{Kind, ObjectKey},
    },
    observed::status::{
        Condition, ConditionStatus, ConditionType, GatewayStatus, HttpRouteStatus, ListenerStatus,
    },
    primitives::name::{Label, Namespace},
};

/// Computes the status of a Gateway from the stored objects.
#[must_use]
pub fn gateway_status(snapshot: &Snapshot, metadata: &Metadata, spec: &GatewaySpec) -> GatewayStatus {
    let mut attached: BTreeMap<_, usize> =
        spec.listeners.iter().map(|listener| (listener.name.clone(), 0)).collect();
    let Some(namespace) = metadata.namespace.clone() else { return GatewayStatus::default() };
    let (of, name) = (Some(namespace.clone()), metadata.name.clone());
    for route in snapshot.routes_naming(&ObjectKey { kind: Kind::Gateway, namespace: of, name }) {
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
    let own = HttpObjectKey { namespace, name: metadata.name.clone() };
    let listeners = listeners(snapshot, &own, spec);
    let first = |wanted| {
        let all = listeners.values().flat_map(|listener: &ListenerStatus| &listener.conditions);
        let mut of_type: Vec<_> = all.filter(|condition| condition.condition_type == wanted).collect();
        of_type.sort_by_key(|condition| condition.status == ConditionStatus::True);
        of_type.into_iter().next().cloned()
    };
    let mut conditions = vec![yes(ConditionType::Accepted, ConditionReason::Valid)];
    conditions.extend(first(ConditionType::ResolvedRefs));
    conditions.extend(first(ConditionType::Programmed));
    conditions.push(used);
    GatewayStatus {
        conditions,
        listeners,
        attached_routes: attached.into_iter().map(|(name, count)| (name, saturating(count))).collect(),
    }
}

/// Returns the conditions of the listeners of a Gateway.
fn listeners(
    snapshot: &Snapshot,
    gateway: &HttpObjectKey,
    spec: &GatewaySpec,
) -> BTreeMap<Label, ListenerStatus> {
    let objects = HttpObjects::gateways_of(snapshot, |_| true);
    let protocols = objects.protocols();
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
        let programmed = if protocols.get(&listener.port) != Some(&listener.protocol) {
            let message = format!("listener {name}: another Gateway uses port {} differently", listener.port);
            no(ConditionType::Programmed, ConditionReason::ProtocolConflict, message)
                .hint("choose another port, or give both listeners the same protocol")
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
    let objects = HttpObjects::parents_of(snapshot, namespace, spec);
    let refused = spec.parent_refs.iter().find_map(|parent| refused(&objects, namespace, spec, parent));
    let accepted = refused.unwrap_or_else(|| yes(ConditionType::Accepted, ConditionReason::Valid));
    let backends = spec.rules.iter().flat_map(|rule| backend_keys(namespace, rule));
    let unresolved = backends.into_iter().find_map(|backend| unresolved(snapshot, &backend));
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
    let (reason, message, hint) = problem.describe(&gateway, namespace);
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
        BackendProblem::Protocol => (
            ConditionReason::UnsupportedProtocol,
            format!(
                "port {port} of Service {service} has an appProtocol with TLS, which gateways do not use"
            ),
            "use a port without TLS; the share of the requests fails with 500",
        ),
    };
    Some(no(ConditionType::ResolvedRefs, reason, message).hint(hint))
}
