//! Decides if a load balancer address may be announced from this node: the result is an open [`Gate`] if some
//! endpoint would serve traffic that arrives here. Does no I/O.

use base::Gate;
use model::{
    cluster::compiled::{CompiledEndpoint, CompiledService},
    kinds::service::TrafficPolicy,
    primitives::{name::Name, net::IpFamily},
};

/// Conditions for announcing a Service from this node: it is programmed, and has endpoints for traffic that
/// arrives here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Open if the kernel of this node has the rules of the Service.
    pub programmed: Gate,
    /// [`Gate`] of each address family: open if some endpoint serves traffic that arrives at this node.
    pub endpoints: Endpoints,
}

/// Availability of endpoints by address family: open if some endpoint of the Service serves traffic that
/// arrives at this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Open if some endpoint serves IPv4 traffic that arrives at this node.
    pub v4: Gate,
    /// Open if some endpoint serves IPv6 traffic that arrives at this node.
    pub v6: Gate,
}

impl Endpoints {
    /// Computes for each address family if the Service has an endpoint for traffic that arrives at the node
    /// `node`.
    #[must_use]
    pub fn of(service: &CompiledService, node: &Name) -> Self {
        Self { v4: gate(service, node, IpFamily::V4), v6: gate(service, node, IpFamily::V6) }
    }

    /// Returns the [`Gate`] of one address family: open if an endpoint of that family serves traffic that
    /// arrives at this node.
    #[must_use]
    pub const fn get(&self, family: IpFamily) -> &Gate {
        match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        }
    }

    /// Returns the availability of endpoints during an update to `next` that the kernel has not applied yet.
    /// A family that loses its endpoints is closed at once; a family that gains endpoints stays closed until
    /// the update is applied.
    #[must_use]
    pub fn narrowed(&self, next: &Self) -> Self {
        let narrower = |before: &Gate, next: &Gate| match next {
            Gate::Open => before.clone(),
            Gate::Closed(_) => next.clone(),
        };
        Self { v4: narrower(&self.v4, &next.v4), v6: narrower(&self.v6, &next.v6) }
    }
}

/// Computes the [`Gate`] of a Service for one address family on node `node`. The gate is open if at least one
/// port has a serving endpoint, because an address is announced for all ports together.
fn gate(service: &CompiledService, node: &Name, family: IpFamily) -> Gate {
    let endpoints = || {
        let all = service.ports.iter().flat_map(|port| &port.endpoints);
        all.filter(move |endpoint| endpoint.weight.0 > 0 && IpFamily::of(endpoint.address) == family)
    };
    let is_here = |endpoint: &&CompiledEndpoint| endpoint.node.as_ref() == Some(node);
    let is_ready = |endpoint: &CompiledEndpoint| endpoint.ready;
    let is_leaving = |endpoint: &CompiledEndpoint| endpoint.serving && endpoint.terminating;
    let word = family.as_str();
    if endpoints().next().is_none() {
        return Gate::Closed(format!("it has no endpoints of {word}"));
    }
    let is_any_ready = endpoints().any(is_ready);
    let is_answered = match service.external_traffic_policy {
        // Without ready endpoints, terminating endpoints keep serving (KEP-1669).
        TrafficPolicy::Cluster => is_any_ready || endpoints().any(is_leaving),
        // Other nodes take over as soon as they can, while established connections finish here.
        TrafficPolicy::Local if is_any_ready => endpoints().filter(is_here).any(is_ready),
        TrafficPolicy::Local => endpoints().filter(is_here).any(is_leaving),
    };
    if is_answered {
        return Gate::Open;
    }
    Gate::Closed(match service.external_traffic_policy {
        TrafficPolicy::Cluster => format!("none of its endpoints of {word} is ready"),
        TrafficPolicy::Local => {
            format!("externalTrafficPolicy is Local, and no endpoint of {word} on this node is ready")
        }
    })
}
