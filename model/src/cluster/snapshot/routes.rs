//! Index of HttpRoutes by the Gateways that they name.

use imbl::{OrdMap, OrdSet};

use super::{Entry, Snapshot};
use crate::kinds::{
    http_route::HttpRouteSpec,
    resource::{Kind, Object, ObjectKey},
};

/// Index of HttpRoutes in a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RouteIndex {
    by_gateway: OrdMap<ObjectKey, OrdSet<ObjectKey>>,
}

impl RouteIndex {
    /// Adds or removes the entries of the HttpRoute `key`, which has a namespace.
    pub(super) fn index_route(&mut self, key: &ObjectKey, spec: &HttpRouteSpec, entry: Entry) {
        // A set, because several parents may be listeners of one Gateway.
        let gateways: OrdSet<_> = spec
            .parent_refs
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
    }
}

impl Snapshot {
    /// Returns the HttpRoutes that name a Gateway as a parent, in the order of their keys.
    pub fn routes_naming<'a>(&'a self, gateway: &ObjectKey) -> impl Iterator<Item = &'a Object> + 'a {
        let routes = self.routes.by_gateway.get(gateway).into_iter().flatten();
        routes.filter_map(|key| self.objects.get(key)).map(|object| &**object)
    }
}
