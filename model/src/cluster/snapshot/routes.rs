//! Index of HttpRoutes and TlsRoutes by the Gateways and Services that they name.

use imbl::{OrdMap, OrdSet};

use super::{Entry, Snapshot};
use crate::{
    kinds::{
        resource::{Kind, Object, ObjectKey, ServiceKey},
        route::RouteSpec,
    },
    primitives::non_empty_set::NonEmptySet,
};

/// Index of routes in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RouteIndex {
    by_gateway: OrdMap<ObjectKey, NonEmptySet<ObjectKey>>,
    by_service: OrdMap<ServiceKey, NonEmptySet<ObjectKey>>,
}

impl RouteIndex {
    /// Adds or removes the entries of the route `key`, which has a namespace.
    pub(super) fn index_route(&mut self, key: &ObjectKey, object: &Object, entry: Entry) {
        let Some(spec) = RouteSpec::of(object) else { return };
        // A set, because several parents may be listeners of one Gateway.
        let gateways: OrdSet<_> = spec
            .parent_refs()
            .iter()
            .map(|parent| ObjectKey {
                kind: Kind::Gateway,
                namespace: parent.namespace.clone().or_else(|| key.namespace.clone()),
                name: parent.name.clone(),
            })
            .collect();
        for gateway in gateways {
            entry.set(&mut self.by_gateway, gateway, key.clone());
        }
        let Some(namespace) = &key.namespace else { return };
        for service in spec.services(namespace) {
            entry.set(&mut self.by_service, service, key.clone());
        }
    }
}

impl Snapshot {
    /// Returns the routes that name a Gateway as a parent, in the order of their keys.
    pub fn routes_naming<'a>(&'a self, gateway: &ObjectKey) -> impl Iterator<Item = &'a Object> + 'a {
        let routes = self.routes.by_gateway.get(gateway).into_iter().flatten();
        routes.filter_map(|key| self.objects.get(key)).map(|object| &**object)
    }

    /// Returns true if a route names a Service as a backend.
    #[must_use]
    pub fn is_routed(&self, service: &ServiceKey) -> bool {
        self.routes.by_service.contains_key(service)
    }

    /// Returns the routes that name a Service as a backend, in the order of their keys.
    pub fn routes_to<'a>(&'a self, service: &ServiceKey) -> impl Iterator<Item = &'a Object> + 'a {
        let routes = self.routes.by_service.get(service).into_iter().flatten();
        routes.filter_map(|key| self.objects.get(key)).map(|object| &**object)
    }
}
