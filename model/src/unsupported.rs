//! Settings that are typed and checked but not carried out yet: said plainly, never ignored.
//!
//! A setting is *blocking* when programming the Service without it would do something else than what was asked; such a
//! Service is not programmed. The others leave the Service working and are reported beside it.

use crate::{
    compiled::UnsupportedField,
    node::{NodeSpec, ProxyMode},
    service::{Protocol, RemovalPolicy, ServiceSpec, ServiceType, SessionAffinity, TrafficPolicy},
};

/// The blocking settings of a Service.
#[must_use]
pub fn blocking(spec: &ServiceSpec) -> Vec<UnsupportedField> {
    let local = TrafficPolicy::Local;
    let sctp = spec.ports.iter().any(|port| port.protocol == Protocol::Sctp);
    collect([
        (
            spec.session_affinity == SessionAffinity::ClientIP,
            "spec.sessionAffinity",
            "ClientIP is not carried out yet",
        ),
        (spec.external_traffic_policy == local, "spec.externalTrafficPolicy", "Local is not carried out yet"),
        (spec.internal_traffic_policy == local, "spec.internalTrafficPolicy", "Local is not carried out yet"),
        (
            !spec.load_balancer_source_ranges.is_empty(),
            "spec.loadBalancerSourceRanges",
            "are not carried out yet",
        ),
        (spec.scheduler.is_some(), "spec.scheduler", "no backend with schedulers is built yet"),
        (sctp, "spec.ports.protocol", "SCTP is not carried out yet"),
    ])
}

/// The settings of a Service that do not keep it from working.
#[must_use]
pub fn reported(spec: &ServiceSpec) -> Vec<UnsupportedField> {
    let is_load_balancer = spec.service_type == ServiceType::LoadBalancer;
    collect([
        (
            is_load_balancer,
            "spec.type",
            "LoadBalancer gets node ports, but no address: there are no address pools yet",
        ),
        (spec.load_balancer.is_some(), "spec.loadBalancer", "there are no address pools yet"),
        (
            spec.traffic_distribution.is_some(),
            "spec.trafficDistribution",
            "endpoints are chosen without regard to zones yet",
        ),
        (spec.health_check.is_some(), "spec.healthCheck", "endpoints are not checked yet"),
        (spec.health_check_node_port.is_some(), "spec.healthCheckNodePort", "is not served yet"),
        (
            spec.removal_policy != RemovalPolicy::Keep,
            "spec.removalPolicy",
            "established TCP connections of removed endpoints are kept, whatever is asked",
        ),
    ])
}

/// The settings of a Node that its agent does not carry out.
#[must_use]
pub fn of_node(spec: &NodeSpec) -> Vec<UnsupportedField> {
    let other_mode = spec.mode.is_some_and(|mode| mode != ProxyMode::Nftables);
    collect([
        (other_mode, "spec.mode", "only nftables is built yet; the agent keeps the mode it was started with"),
        (spec.unschedulable, "spec.unschedulable", "there are no announcements to keep from the Node yet"),
    ])
}

fn collect<const N: usize>(settings: [(bool, &str, &str); N]) -> Vec<UnsupportedField> {
    let asked = settings.into_iter().filter(|(is_asked, _, _)| *is_asked);
    asked
        .map(|(_, field, message)| UnsupportedField { field: field.to_owned(), message: message.to_owned() })
        .collect()
}
