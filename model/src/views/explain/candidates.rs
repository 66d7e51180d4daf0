//! Endpoints of a port for one packet, each with the reason why it can or cannot receive the packet.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use super::{About, CANDIDATES_MAX, CandidateEndpoint, Step, StepState};
use crate::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    compile::VerdictRule,
    kinds::{
        endpoint_health::{EndpointHealthSpec, EndpointVerdict},
        maintenance::MaintenanceMode,
        service::TrafficPolicy,
    },
    observed::health::{HealthSource, health_source},
    primitives::{
        net::IpFamily,
        quantity::{Port, Weight},
    },
    program::{NodeLocation, Role, oracle::Class},
};

/// Maximum number of endpoints that a step names.
const SILENT_NAMED_MAX: usize = 3;

/// Inputs for [`Choice::listed`], which lists the endpoints of a Service port for one packet.
pub(super) struct Choice<'a> {
    pub(super) service: &'a CompiledService,
    pub(super) port: &'a CompiledPort,
    pub(super) place: &'a NodeLocation,
    pub(super) family: IpFamily,
    /// Targets that the oracle (the interpreter of packet programs) returns for the packet.
    pub(super) targets: &'a BTreeMap<(IpAddr, Port), Weight>,
    pub(super) role: Role,
    pub(super) class: Class,
    /// Health record of the Service, which lists its unhealthy endpoints; `None` if there is none.
    pub(super) health: Option<&'a EndpointHealthSpec>,
}

impl Choice<'_> {
    /// Returns the endpoints of the port, first those that can receive the packet, up to the limit of a path,
    /// and the number of omitted endpoints.
    pub(super) fn listed(&self) -> (Vec<CandidateEndpoint>, u64) {
        let used: BTreeSet<IpAddr> = self.targets.keys().map(|(address, _)| *address).collect();
        let mut all: Vec<_> = self
            .port
            .endpoints
            .iter()
            .map(|endpoint| self.candidate(endpoint, used.contains(&endpoint.address)))
            .collect();
        all.sort_by_key(|one| (!one.used, one.address, one.port));
        let omitted = all.len().saturating_sub(CANDIDATES_MAX);
        all.truncate(CANDIDATES_MAX);
        (all, u64::try_from(omitted).unwrap_or(u64::MAX))
    }

    /// Returns a step if no endpoint that can receive the packet answers its health check. All of them are used then,
    /// because a check can be wrong; one that only opens a connection to the endpoint's port hardly is.
    pub(super) fn silent(&self) -> Option<Step> {
        let used = self.port.endpoints.iter();
        let used: Vec<_> = used.filter(|one| self.targets.contains_key(&(one.address, one.port))).collect();
        let verdicts = used.iter().map(|one| Some((one, self.verdict(one).filter(|it| it.is_out())?)));
        let out: Vec<_> = verdicts.collect::<Option<_>>()?;
        if out.is_empty() {
            return None;
        }
        let named = out.iter().take(SILENT_NAMED_MAX).map(|(endpoint, verdict)| {
            format!("{} ({})", SocketAddr::new(endpoint.address, endpoint.port.get()), verdict.message)
        });
        let named: Vec<_> = named.collect();
        let more = out.len().saturating_sub(SILENT_NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (state, hint) = if self.service.health_check.is_none() {
            (StepState::Broken, "start the endpoints, or correct `targetPort` of the Service")
        } else {
            (StepState::Unknown, "start the endpoints, or correct spec.healthCheck")
        };
        let outcome = format!("no endpoint answers its health check: {}{more}", named.join(", "));
        Some(Step::new(About::Candidates, state, outcome).hint(hint))
    }

    fn candidate(&self, endpoint: &CompiledEndpoint, used: bool) -> CandidateEndpoint {
        let CompiledEndpoint {
            address,
            port,
            node,
            zone,
            weight,
            ready: _,
            serving: _,
            terminating: _,
            maintenance: _,
            node_lost: _,
            checked_by_source: _,
        } = endpoint;
        let not_checked = used && health_source(self.service, self.port, endpoint) == HealthSource::Nobody;
        let why = if used { self.why_used(endpoint) } else { self.why_not(endpoint) };
        CandidateEndpoint {
            address: *address,
            port: *port,
            node: node.clone(),
            zone: zone.clone(),
            weight: *weight,
            used,
            not_checked,
            why,
        }
    }

    /// Returns the health verdict of an endpoint, or `None` if it has none.
    fn verdict(&self, endpoint: &CompiledEndpoint) -> Option<&EndpointVerdict> {
        VerdictRule::of(self.service, self.port).verdict_on(self.health?, endpoint)
    }

    fn why_used(&self, endpoint: &CompiledEndpoint) -> String {
        if let Some(EndpointVerdict { share, since, message, .. }) = self.verdict(endpoint) {
            return if *share == 0 && endpoint.node_lost {
                format!(
                    "the agent of its Node is silent, and other nodes cannot reach it since {since} ({message}); it \
                     stays because no endpoint of the port is healthy"
                )
            } else if *share == 0 && self.service.health_check.is_none() {
                format!(
                    "it does not answer the check by default since {since} ({message}); it stays because no endpoint of \
                     the port is healthy"
                )
            } else if *share == 0 {
                format!("its check fails since {since} ({message}), and so many fail that all are used")
            } else {
                format!("back since {since}: {share} % of its share")
            };
        }
        if !endpoint.ready {
            return "none is ready, and it still serves while it terminates".to_owned();
        }
        let sum: u64 = self.targets.values().map(|weight| u64::from(weight.0)).sum();
        let silent = if endpoint.node_lost {
            "; the agent of its Node is silent, and other nodes do not find it unhealthy"
        } else {
            ""
        };
        let is_unchecked = health_source(self.service, self.port, endpoint) == HealthSource::Nobody;
        let unchecked = if is_unchecked {
            "; not checked"
        } else if self.service.is_checked_by_default(self.port, endpoint) {
            "; checked by default (TCP connection)"
        } else {
            ""
        };
        format!("ready; gets {} of {sum}{silent}{unchecked}", endpoint.weight.0)
    }

    fn why_not(&self, endpoint: &CompiledEndpoint) -> String {
        let CompiledEndpoint { address, weight, ready, serving, terminating, .. } = endpoint;
        if IpFamily::of(*address) != self.family {
            return format!("its address is not {}", self.family.as_str());
        }
        if let Some(maintenance) = &endpoint.maintenance {
            let reason = maintenance.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
            return match maintenance.mode {
                MaintenanceMode::Drain => format!("it is drained{reason}"),
                MaintenanceMode::Maintenance => format!("it is in maintenance{reason}"),
            };
        }
        if weight.0 == 0 {
            return "its weight is 0: it accepts no new connections".to_owned();
        }
        if let Some(EndpointVerdict { since, message, .. }) =
            self.verdict(endpoint).filter(|one| one.is_out())
        {
            return format!("its health check fails since {since}: {message}");
        }
        if !ready {
            return match (terminating, serving) {
                (true, true) => "it terminates, and others are ready".to_owned(),
                (true, false) => "it terminates and does not serve any longer".to_owned(),
                (false, _) => "it is not ready".to_owned(),
            };
        }
        let is_local_only = match (self.role, self.class) {
            (Role::ClusterIp, _) => self.service.internal_traffic_policy == TrafficPolicy::Local,
            (Role::ExternalIp | Role::LoadBalancer | Role::NodePort, Class::Elsewhere) => {
                self.service.external_traffic_policy == TrafficPolicy::Local
            }
            (Role::ExternalIp | Role::LoadBalancer | Role::NodePort, Class::Workload | Class::Node) => false,
        };
        if is_local_only && endpoint.node.as_ref() != Some(&self.place.node) {
            let on = endpoint.node.as_ref().map_or_else(|| "no known node".to_owned(), ToString::to_string);
            return format!("it is on {on}, and the traffic policy is Local");
        }
        match self.service.traffic_distribution {
            Some(near) => format!("nearer ones are preferred ({near:?})"),
            None => "this traffic is not forwarded".to_owned(),
        }
    }
}
