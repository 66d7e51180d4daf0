//! Whether somebody would answer at the load balancer addresses of a Service, if this node announced them. Pure.

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledService},
    kinds::service::TrafficPolicy,
    primitives::{name::Name, net::IpFamily},
};

use crate::announce::machine::Gate;

/// What is known of one Service on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether the kernel holds it.
    pub programmed: Gate,
    /// Whether somebody answers.
    pub endpoints: Endpoints,
}

/// Whether somebody answers, by the family of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// At IPv4 addresses.
    pub v4: Gate,
    /// At IPv6 addresses.
    pub v6: Gate,
}

impl Endpoints {
    /// Of a Service on this node.
    #[must_use]
    pub fn of(service: &CompiledService, node: &Name) -> Self {
        Self { v4: gate(service, node, IpFamily::V4), v6: gate(service, node, IpFamily::V6) }
    }

    /// Of one family.
    #[must_use]
    pub const fn get(&self, family: IpFamily) -> &Gate {
        match family {
            IpFamily::V4 => &self.v4,
            IpFamily::V6 => &self.v6,
        }
    }

    /// What is left of these when others take their place, before the kernel knows of those: what closes is closed at once,
    /// what opens waits for the kernel.
    #[must_use]
    pub fn narrowed(&self, next: &Self) -> Self {
        let narrower = |before: &Gate, next: &Gate| match next {
            Gate::Open => before.clone(),
            Gate::Closed(_) => next.clone(),
        };
        Self { v4: narrower(&self.v4, &next.v4), v6: narrower(&self.v6, &next.v6) }
    }
}

/// One port that is answered is reason enough: the address as a whole is announced or not.
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
        // The last ones go on while they terminate (KEP-1669), when nobody else is left.
        TrafficPolicy::Cluster => is_any_ready || endpoints().any(is_leaving),
        // Other nodes take over as soon as they can, while what is established here finishes.
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
