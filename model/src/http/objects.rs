//! Objects from which HTTP routing is compiled.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        gateway::{GatewaySpec, ListenerProtocol},
        http_route::HttpRouteSpec,
        resource::{Kind, Object, ObjectKey},
    },
    primitives::{
        name::{Name, Namespace},
        quantity::{Port, Timestamp},
    },
};

/// Namespace and name of a Gateway or HttpRoute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpObjectKey {
    /// Namespace of the object.
    pub namespace: Namespace,
    /// Name of the object.
    pub name: Name,
}

impl fmt::Display for HttpObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for HttpObjectKey {
    type Err = String;

    /// Parses `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').ok_or("must have the form NAMESPACE/NAME")?;
        let namespace = Namespace::parse(namespace).map_err(|error| error.to_string())?;
        Ok(Self { namespace, name: Name::parse(name).map_err(|error| error.to_string())? })
    }
}

/// HttpRoute with the time of its creation, on which its precedence depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteObject<'a> {
    /// Time of the creation. Routes without a time are the newest.
    pub created: Option<Timestamp>,
    /// Desired state of the route.
    pub spec: &'a HttpRouteSpec,
}

/// Gateways and HttpRoutes of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpObjects<'a> {
    /// Gateways whose listeners accept requests.
    pub gateways: BTreeMap<HttpObjectKey, &'a GatewaySpec>,
    /// Routes of all Gateways.
    pub routes: BTreeMap<HttpObjectKey, RouteObject<'a>>,
}

impl<'a> HttpObjects<'a> {
    /// Returns all HttpRoutes of a state, and the Gateways for which `is_served` returns true.
    #[must_use]
    pub fn of(snapshot: &'a Snapshot, is_served: impl Fn(&HttpObjectKey) -> bool) -> Self {
        let routes = snapshot.list(Kind::HttpRoute, None, None);
        let routes =
            routes.filter_map(|object| Some((key_of(object)?, object))).filter_map(|(key, object)| {
                let created = object.metadata.creation_timestamp;
                Some((key, RouteObject { created, spec: object.as_http_route()? }))
            });
        Self { routes: routes.collect(), ..Self::gateways_of(snapshot, is_served) }
    }

    /// Returns the Gateways of a state for which `is_served` returns true, without routes.
    pub(crate) fn gateways_of(snapshot: &'a Snapshot, is_served: impl Fn(&HttpObjectKey) -> bool) -> Self {
        let gateways = snapshot.list(Kind::Gateway, None, None);
        let gateways = gateways.filter_map(|object| Some((key_of(object)?, object.as_gateway()?)));
        Self { gateways: gateways.filter(|(key, _)| is_served(key)).collect(), routes: BTreeMap::new() }
    }

    /// Returns the protocol of each port: that of its first listener, in the order of the Gateways. Listeners of the port with
    /// another protocol are not served.
    pub(crate) fn protocols(&self) -> BTreeMap<Port, ListenerProtocol> {
        let listeners = self.gateways.values().rev().flat_map(|spec| spec.listeners.iter().rev());
        listeners.map(|listener| (listener.port, listener.protocol)).collect()
    }

    /// Returns the Gateways that a route in `namespace` names, without routes.
    #[must_use]
    pub fn parents_of(snapshot: &'a Snapshot, namespace: &Namespace, route: &HttpRouteSpec) -> Self {
        let keys = route.parent_refs.iter().map(|parent| HttpObjectKey {
            namespace: parent.namespace.as_ref().unwrap_or(namespace).clone(),
            name: parent.name.clone(),
        });
        let gateways = keys.filter_map(|key| {
            let (namespace, name) = (Some(key.namespace.clone()), key.name.clone());
            let object = snapshot.get(&ObjectKey { kind: Kind::Gateway, namespace, name })?;
            Some((key, object.as_gateway()?))
        });
        Self { gateways: gateways.collect(), routes: BTreeMap::new() }
    }
}

fn key_of(object: &Object) -> Option<HttpObjectKey> {
    let namespace = object.metadata.namespace.clone()?;
    Some(HttpObjectKey { namespace, name: object.metadata.name.clone() })
}
