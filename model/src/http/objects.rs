//! Objects from which HTTP routing is compiled.

use std::collections::BTreeMap;

use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        gateway::{GatewayListener, GatewaySpec, ListenerProtocol},
        http_route::HttpRouteSpec,
        resource::{Kind, Object, ObjectKey},
        route::RouteSpec,
        tls_route::TlsRouteSpec,
    },
    primitives::{
        hostname_pattern::HostnamePattern,
        name::Namespace,
        quantity::{Port, Timestamp},
    },
};

pub use crate::primitives::http_object_key::HttpObjectKey;

/// Route with the time of its creation, on which its precedence depends.
#[derive(Debug, PartialEq, Eq)]
pub struct RouteObject<'a, S = HttpRouteSpec> {
    /// Time of the creation. Routes without a time are the newest.
    pub created: Option<Timestamp>,
    /// Desired state of the route.
    pub spec: &'a S,
}

// Derived implementations would require that the spec can be copied.
impl<S> Clone for RouteObject<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for RouteObject<'_, S> {}

/// Gateways, HttpRoutes and TlsRoutes of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpObjects<'a> {
    /// Gateways whose listeners accept requests.
    pub gateways: BTreeMap<HttpObjectKey, &'a GatewaySpec>,
    /// HttpRoutes of all Gateways.
    pub routes: BTreeMap<HttpObjectKey, RouteObject<'a>>,
    /// TlsRoutes of all Gateways.
    pub tls_routes: BTreeMap<HttpObjectKey, RouteObject<'a, TlsRouteSpec>>,
}

/// Uses of the ports and host names of all Gateways: the first listener, in the order of the Gateways, determines the use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerUses {
    /// Ports, each with true if its connections begin with TLS.
    ports: BTreeMap<Port, bool>,
    /// Treatment of the connections for each host name of the ports with TLS.
    hosts: BTreeMap<(Port, Option<HostnamePattern>), ConnectionUse>,
}

/// Treatment of the connections with TLS of a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionUse {
    /// HTTP requests after decryption.
    #[default]
    Requests,
    /// Bytes after decryption, which a TlsRoute forwards.
    Bytes,
    /// Encrypted bytes, which a TlsRoute forwards.
    Passthrough,
}

impl ConnectionUse {
    /// Returns the treatment of the connections of a listener, if they begin with TLS.
    #[must_use]
    pub fn of(listener: &GatewayListener) -> Option<Self> {
        match listener.protocol {
            ListenerProtocol::Http => None,
            ListenerProtocol::Https => Some(Self::Requests),
            ListenerProtocol::Tls if listener.is_passthrough() => Some(Self::Passthrough),
            ListenerProtocol::Tls => Some(Self::Bytes),
        }
    }
}

impl ListenerUses {
    fn add(&mut self, listener: &GatewayListener) {
        let has_tls = listener.protocol.has_tls();
        if *self.ports.entry(listener.port).or_insert(has_tls) == has_tls
            && let Some(of) = ConnectionUse::of(listener)
        {
            self.hosts.entry((listener.port, listener.hostname.clone())).or_insert(of);
        }
    }

    /// Returns true if gateways serve a listener: no listener of an earlier Gateway uses the port, or the host name at the port,
    /// in another way.
    #[must_use]
    pub fn serve(&self, listener: &GatewayListener) -> bool {
        let key = (listener.port, listener.hostname.clone());
        self.ports.get(&listener.port) == Some(&listener.protocol.has_tls())
            && ConnectionUse::of(listener).is_none_or(|of| self.hosts.get(&key) == Some(&of))
    }
}

impl<'a> HttpObjects<'a> {
    /// Returns all HttpRoutes and TlsRoutes of a state, and the Gateways for which `is_served` returns true.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot, is_served: impl Fn(&HttpObjectKey) -> bool) -> Self {
        let routes = snapshot.list(Kind::HttpRoute, None, None);
        let routes =
            routes.filter_map(|object| Some((key_of(object)?, object))).filter_map(|(key, object)| {
                let created = object.metadata.creation_timestamp;
                Some((key, RouteObject { created, spec: object.as_http_route()? }))
            });
        let tls_routes = snapshot.list(Kind::TlsRoute, None, None);
        let tls_routes =
            tls_routes.filter_map(|object| Some((key_of(object)?, object))).filter_map(|(key, object)| {
                let created = object.metadata.creation_timestamp;
                Some((key, RouteObject { created, spec: object.as_tls_route()? }))
            });
        let gateways = Self::gateways_of(snapshot, is_served).gateways;
        Self { gateways, routes: routes.collect(), tls_routes: tls_routes.collect() }
    }

    /// Returns the Gateways of a state for which `is_served` returns true, without routes.
    pub(crate) fn gateways_of(snapshot: &'a Snapshot, is_served: impl Fn(&HttpObjectKey) -> bool) -> Self {
        let gateways = snapshot.list(Kind::Gateway, None, None);
        let gateways = gateways.filter_map(|object| Some((key_of(object)?, object.as_gateway()?)));
        Self { gateways: gateways.filter(|(key, _)| is_served(key)).collect(), ..Self::default() }
    }

    /// Returns the uses of the ports and host names of the Gateways.
    pub(crate) fn uses(&self) -> ListenerUses {
        let mut uses = ListenerUses::default();
        self.gateways.values().flat_map(|spec| &spec.listeners).for_each(|listener| uses.add(listener));
        uses
    }

    /// Returns the Gateways that a route in `namespace` names, without routes.
    #[must_use]
    pub fn parents_of<'b>(
        snapshot: &'a Snapshot,
        namespace: &Namespace,
        route: impl Into<RouteSpec<'b>>,
    ) -> Self {
        let keys = route.into().parent_refs().iter().map(|parent| HttpObjectKey {
            namespace: parent.namespace.as_ref().unwrap_or(namespace).clone(),
            name: parent.name.clone(),
        });
        let gateways = keys.filter_map(|key| {
            let (namespace, name) = (Some(key.namespace.clone()), key.name.clone());
            let object = snapshot.get(&ObjectKey { kind: Kind::Gateway, namespace, name })?;
            Some((key, object.as_gateway()?))
        });
        Self { gateways: gateways.collect(), ..Self::default() }
    }
}

fn key_of(object: &Object) -> Option<HttpObjectKey> {
    let namespace = object.metadata.namespace.clone()?;
    Some(HttpObjectKey { namespace, name: object.metadata.name.clone() })
}
