//! Objects from which HTTP routing is compiled.

use std::collections::BTreeMap;

use crate::{
    kinds::{gateway::GatewaySpec, http_route::HttpRouteSpec},
    primitives::{
        name::{Name, Namespace},
        quantity::Timestamp,
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
