//! TLS connections that routes forward as bytes: the choice of the TlsRoute and its backend by the server name.
//!
//! A connection belongs to the listener of its port with the most specific host name, and in it to the route with the most
//! specific host name; of several such routes the oldest one applies, then the one whose namespace and name come first.

use std::{collections::BTreeMap, fmt, sync::Arc};

use imbl::OrdMap;

use super::{
    backend::{BackendEndpoints, BackendKey},
    hosts::HostMap,
    objects::{ConnectionUse, HttpObjectKey, HttpObjects, ListenerUses, RouteObject},
    table::{HttpTable, places, ports_of, subtract},
    tls::TlsProblem,
};
use crate::{
    kinds::{resource::ServiceKey, route::RouteSpec, tls_route::TlsRouteSpec},
    primitives::quantity::{Port, Timestamp},
};

/// Backends of a TlsRoute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledTlsRoute {
    /// Identity of the route.
    pub key: HttpObjectKey,
    /// Creation of the route; routes without a time are the newest.
    created: (bool, Option<Timestamp>),
    /// Service ports with their weights.
    pub backends: Vec<(BackendKey, u32)>,
}

impl fmt::Display for CompiledTlsRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

/// TlsRoutes of the listeners of one port, by the host names of the listeners and then of the routes; the route that applies
/// is the first one.
type PortTlsRoutes = HostMap<HostMap<Vec<Arc<CompiledTlsRoute>>>>;

/// State of a TlsRoute before and after a change; `None` stands for a route that does not exist.
pub(super) type TlsRouteChange<'a> =
    (Option<RouteObject<'a, TlsRouteSpec>>, Option<RouteObject<'a, TlsRouteSpec>>);

/// TlsRoutes of all listeners. Clones share all data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsRoutes {
    ports: BTreeMap<Port, PortTlsRoutes>,
    /// Number of references of the routes to each backend.
    backends: OrdMap<BackendKey, usize>,
}

impl TlsRoutes {
    /// Compiles the TlsRoutes of Gateways.
    #[must_use]
    pub fn compile(objects: &HttpObjects<'_>) -> Self {
        let mut routes = Self::default();
        let uses = objects.uses();
        for (key, route) in &objects.tls_routes {
            routes.add(objects, key, *route, &uses);
        }
        routes
    }

    /// Returns the backends of all routes.
    pub fn backends(&self) -> impl Iterator<Item = &BackendKey> {
        self.backends.keys()
    }

    pub(super) fn has_backend(&self, backend: &BackendKey) -> bool {
        self.backends.contains_key(backend)
    }

    /// Returns the backends of all routes that are ports of a Service.
    pub(super) fn backends_of<'a>(&'a self, service: &ServiceKey) -> impl Iterator<Item = &'a BackendKey> {
        ports_of(&self.backends, service)
    }

    /// Replaces a route by its new state, and returns the backends of both states. The Gateways are the same as when the old
    /// state was added.
    pub(super) fn replace(
        &mut self,
        gateways: &HttpObjects<'_>,
        key: &HttpObjectKey,
        (old, new): TlsRouteChange<'_>,
    ) -> Vec<BackendKey> {
        let uses = gateways.uses();
        if let Some(old) = old {
            self.remove(gateways, key, old, &uses);
        }
        if let Some(new) = new {
            self.add(gateways, key, new, &uses);
        }
        let specs = [old, new].into_iter().flatten().map(|route| RouteSpec::Tls(route.spec));
        specs.flat_map(|spec| spec.backends(&key.namespace)).collect()
    }

    fn add(
        &mut self,
        objects: &HttpObjects<'_>,
        key: &HttpObjectKey,
        route: RouteObject<'_, TlsRouteSpec>,
        uses: &ListenerUses,
    ) {
        let RouteObject { created, spec } = route;
        let places = places(objects, key, spec, uses);
        if places.is_empty() {
            return;
        }
        let backends: Vec<_> = RouteSpec::Tls(spec).shares(&key.namespace).into_iter().flatten().collect();
        for (backend, _) in &backends {
            *self.backends.entry(backend.clone()).or_default() += 1;
        }
        let compiled = CompiledTlsRoute { key: key.clone(), created: (created.is_none(), created), backends };
        let compiled = Arc::new(compiled);
        for (port, listener, hostname) in places {
            let routes = self.ports.entry(port).or_default().entry(listener).entry(hostname);
            let at = routes
                .partition_point(|other| (other.created, &other.key) < (compiled.created, &compiled.key));
            routes.insert(at, Arc::clone(&compiled));
        }
    }

    fn remove(
        &mut self,
        objects: &HttpObjects<'_>,
        key: &HttpObjectKey,
        route: RouteObject<'_, TlsRouteSpec>,
        uses: &ListenerUses,
    ) {
        let places = places(objects, key, route.spec, uses);
        if places.is_empty() {
            return;
        }
        for backend in RouteSpec::Tls(route.spec).backends(&key.namespace) {
            subtract(&mut self.backends, &backend);
        }
        for (port, listener, hostname) in places {
            self.ports.entry(port).or_default().entry(listener).change(hostname, |routes| {
                routes.retain(|other| other.key != *key);
                !routes.is_empty()
            });
        }
    }

    /// Returns the route of a listener, which is given by its host name as matched by the server name.
    fn find<'a>(
        &'a self,
        port: Port,
        server_name: &'a str,
        listener: usize,
    ) -> Option<&'a Arc<CompiledTlsRoute>> {
        let mut listeners = self.ports.get(&port)?.ranked(server_name);
        let (_, routes) = listeners.find(|(rank, _)| *rank == listener)?;
        routes.candidates(server_name).next()?.first()
    }
}

/// Treatment of one connection with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsDecision<'a> {
    /// The gateway decrypts the connection with a Certificate and serves HTTP requests.
    Serve {
        /// Certificate of the connection.
        certificate: &'a HttpObjectKey,
    },
    /// The gateway forwards the bytes of the connection to one of the endpoints.
    Forward {
        /// Certificate with which the gateway decrypts the connection; `None` if it forwards the connection unchanged.
        certificate: Option<&'a HttpObjectKey>,
        /// Route that applies.
        route: &'a Arc<CompiledTlsRoute>,
        /// Chosen backend.
        backend: &'a BackendKey,
        /// Endpoints of the backend, at least one.
        endpoints: &'a Arc<BackendEndpoints>,
    },
}

/// Decides a connection to a port by its server name in lower case, which is empty if the client sent none. `pick` chooses
/// among the backends of the route: consecutive or uniform random numbers choose them in proportion to their weights.
///
/// # Errors
/// Returns the reason for which the gateway closes the connection.
pub fn route_tls<'a>(
    table: &'a HttpTable,
    port: Port,
    server_name: &'a str,
    pick: u64,
) -> Result<TlsDecision<'a>, TlsProblem> {
    let (listener, of) = table.tls.listener(port, server_name)?;
    let is_passthrough = match of {
        ConnectionUse::Requests => {
            return Ok(TlsDecision::Serve { certificate: table.tls.choose(port, server_name)? });
        }
        ConnectionUse::Bytes => false,
        ConnectionUse::Passthrough => true,
    };
    // Without a server name no route can be chosen, even if it is for every host name.
    let route = Some(server_name).filter(|name| !name.is_empty());
    let route = route.and_then(|name| table.tls_routes.find(port, name, listener));
    let route = route.ok_or(TlsProblem::NoRoute)?;
    let certificate = if is_passthrough { None } else { Some(table.tls.choose(port, server_name)?) };
    let total: u64 = route.backends.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut left = pick.checked_rem(total).ok_or(TlsProblem::NoBackend)?;
    let chosen = route.backends.iter().find(|(_, weight)| match left.checked_sub(u64::from(*weight)) {
        None => true,
        Some(rest) => {
            left = rest;
            false
        }
    });
    let (backend, _) = chosen.ok_or(TlsProblem::NoBackend)?;
    match table.tls_backends.get(backend) {
        Some(Ok(endpoints)) if endpoints.list().is_empty() => Err(TlsProblem::NoEndpoints),
        Some(Ok(endpoints)) => Ok(TlsDecision::Forward { certificate, route, backend, endpoints }),
        Some(Err(_)) | None => Err(TlsProblem::InvalidBackend),
    }
}
