//! Parts that routes of all kinds have in common.

use std::collections::BTreeSet;

use super::{
    gateway::ListenerProtocol,
    http_route::{HttpRouteSpec, ParentRef},
    resource::{Kind, Object, ServiceKey},
    tls_route::TlsRouteSpec,
};
use crate::primitives::{
    hostname_pattern::HostnamePattern,
    name::{Name, Namespace},
    quantity::Port,
};

/// Spec of a route of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteSpec<'a> {
    /// Spec of an HttpRoute.
    Http(&'a HttpRouteSpec),
    /// Spec of a TlsRoute.
    Tls(&'a TlsRouteSpec),
}

/// Port of a Service that receives a share of the requests or connections of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightedPort<'a> {
    /// Name of the Service, which is in the namespace of the route.
    pub service: &'a Name,
    /// Number of the port.
    pub port: Port,
    /// Share relative to the other ports of the rule.
    pub weight: u32,
}

impl<'a> From<&'a HttpRouteSpec> for RouteSpec<'a> {
    fn from(spec: &'a HttpRouteSpec) -> Self {
        Self::Http(spec)
    }
}

impl<'a> From<&'a TlsRouteSpec> for RouteSpec<'a> {
    fn from(spec: &'a TlsRouteSpec) -> Self {
        Self::Tls(spec)
    }
}

impl<'a> RouteSpec<'a> {
    /// Returns the spec of a route, or `None` for an object of another kind.
    #[must_use]
    pub fn of(object: &'a Object) -> Option<Self> {
        let http = object.as_http_route().map(Self::Http);
        http.or_else(|| object.as_tls_route().map(Self::Tls))
    }

    /// Returns the kind of the route.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Http(_) => Kind::HttpRoute,
            Self::Tls(_) => Kind::TlsRoute,
        }
    }

    /// Returns the Gateways and listeners to which the route attaches.
    #[must_use]
    pub fn parent_refs(self) -> &'a [ParentRef] {
        match self {
            Self::Http(spec) => &spec.parent_refs,
            Self::Tls(spec) => &spec.parent_refs,
        }
    }

    /// Returns the host names of the route; empty if they are those of the listeners.
    #[must_use]
    pub fn hostnames(self) -> &'a [HostnamePattern] {
        match self {
            Self::Http(spec) => &spec.hostnames,
            Self::Tls(spec) => &spec.hostnames,
        }
    }

    /// Returns true if listeners with a protocol have routes of the kind.
    #[must_use]
    pub const fn is_for(self, protocol: ListenerProtocol) -> bool {
        match (self, protocol) {
            (Self::Http(_), ListenerProtocol::Http | ListenerProtocol::Https)
            | (Self::Tls(_), ListenerProtocol::Tls) => true,
            (Self::Http(_), ListenerProtocol::Tls)
            | (Self::Tls(_), ListenerProtocol::Http | ListenerProtocol::Https) => false,
        }
    }

    /// Returns the Service ports of each rule with their weights, without those of mirrors.
    #[must_use]
    pub fn rules(self) -> Vec<Vec<WeightedPort<'a>>> {
        match self {
            Self::Http(spec) => {
                let rules = spec.rules.iter().map(|rule| {
                    let ports = rule.backend_refs.iter();
                    let ports = ports.map(|one| WeightedPort {
                        service: &one.name,
                        port: one.port,
                        weight: one.weight,
                    });
                    ports.collect()
                });
                rules.collect()
            }
            Self::Tls(spec) => {
                let rules = spec.rules.iter().map(|rule| {
                    let ports = rule.backend_refs.iter();
                    let ports = ports.map(|one| WeightedPort {
                        service: &one.name,
                        port: one.port,
                        weight: one.weight,
                    });
                    ports.collect()
                });
                rules.collect()
            }
        }
    }

    /// Returns the Services that the rules of the route in a namespace name, without those of mirrors.
    #[must_use]
    pub fn services(self, namespace: &Namespace) -> BTreeSet<ServiceKey> {
        let ports = self.rules().into_iter().flatten();
        ports.map(|one| ServiceKey { namespace: namespace.clone(), name: one.service.clone() }).collect()
    }
}
