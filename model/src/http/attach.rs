//! Attachment of HttpRoutes and TlsRoutes to the listeners of Gateways.

use super::objects::{HttpObjectKey, HttpObjects};
use crate::{
    kinds::{
        condition_reason::ConditionReason,
        gateway::{GatewayListener, GatewaySpec, NamespacesFrom},
        http_route::ParentRef,
        route::RouteSpec,
    },
    primitives::{hostname_pattern::HostnamePattern, name::Namespace},
};

/// Listener to which a route is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedListener<'a> {
    /// Listener of the Gateway.
    pub listener: &'a GatewayListener,
    /// Host names that the listener and the route have in common; `None` stands for every host name.
    pub hostnames: Vec<Option<&'a HostnamePattern>>,
}

/// Reason for which a route is not attached to a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachProblem {
    /// The Gateway does not exist, or has no listener with the name and port of the parent.
    NoMatchingParent,
    /// No such listener allows routes of the kind and namespace.
    NotAllowedByListeners,
    /// No such listener has a host name in common with the route.
    NoMatchingListenerHostname,
}

impl AttachProblem {
    /// Returns the reason of the condition Accepted of a route in `namespace`, with a message and a remedy.
    pub(crate) fn describe(
        self,
        gateway: &str,
        namespace: &Namespace,
    ) -> (ConditionReason, String, &'static str) {
        match self {
            Self::NoMatchingParent => (
                ConditionReason::NoMatchingParent,
                format!("no listener of Gateway {gateway} has the name and port of the reference"),
                "create the Gateway, or correct spec.parentRefs",
            ),
            Self::NotAllowedByListeners => (
                ConditionReason::NotAllowedByListeners,
                format!(
                    "the listeners of Gateway {gateway} do not allow routes of this kind in namespace {namespace}"
                ),
                "set allowedRoutes.namespaces.from of the listener to All, or its protocol to TLS for TlsRoutes and to HTTP or \
                 HTTPS for HttpRoutes",
            ),
            Self::NoMatchingListenerHostname => (
                ConditionReason::NoMatchingListenerHostname,
                format!("no listener of Gateway {gateway} has a host name in common with the route"),
                "correct spec.hostnames, or add a listener",
            ),
        }
    }
}

/// Returns the listeners of a parent to which a route in `namespace` is attached, at least one.
///
/// # Errors
/// Returns the reason if the route is attached to none.
pub fn attach<'a>(
    objects: &HttpObjects<'a>,
    namespace: &Namespace,
    route: impl Into<RouteSpec<'a>>,
    parent: &ParentRef,
) -> Result<Vec<AttachedListener<'a>>, AttachProblem> {
    let route = route.into();
    let of = parent.namespace.as_ref().unwrap_or(namespace);
    let key = HttpObjectKey { namespace: of.clone(), name: parent.name.clone() };
    let spec: &'a GatewaySpec = objects.gateways.get(&key).ok_or(AttachProblem::NoMatchingParent)?;
    let is_named = |listener: &&GatewayListener| {
        parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
            && parent.port.is_none_or(|port| port == listener.port)
    };
    let named: Vec<_> = spec.listeners.iter().filter(is_named).collect();
    if named.is_empty() {
        return Err(AttachProblem::NoMatchingParent);
    }
    let is_allowed = |listener: &&GatewayListener| {
        let is_allowed_namespace = match listener.allowed_routes.namespaces.from {
            NamespacesFrom::All => true,
            NamespacesFrom::Same => of == namespace,
        };
        route.is_for(listener.protocol) && is_allowed_namespace
    };
    let allowed: Vec<_> = named.into_iter().filter(is_allowed).collect();
    if allowed.is_empty() {
        return Err(AttachProblem::NotAllowedByListeners);
    }
    let attached = allowed.into_iter().map(|listener| AttachedListener {
        listener,
        hostnames: common_hostnames(listener.hostname.as_ref(), route.hostnames()),
    });
    let attached: Vec<_> = attached.filter(|one| !one.hostnames.is_empty()).collect();
    if attached.is_empty() { Err(AttachProblem::NoMatchingListenerHostname) } else { Ok(attached) }
}

fn common_hostnames<'a>(
    listener: Option<&'a HostnamePattern>,
    route: &'a [HostnamePattern],
) -> Vec<Option<&'a HostnamePattern>> {
    match listener {
        listener if route.is_empty() => vec![listener],
        None => route.iter().map(Some).collect(),
        Some(listener) => route.iter().filter_map(|one| one.intersection(listener)).map(Some).collect(),
    }
}
