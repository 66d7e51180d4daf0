//! Validation rules of a Service spec, without other objects.

mod delivery;
mod health_check;
mod ports;

use super::{check_address, check_length, check_network, check_one_per_family, check_selector, check_unique};
use crate::{
    kinds::service::{
        ADDRESSES_MAX, AFFINITY_TIMEOUT_SECONDS_MAX, ClusterIp, IpFamilyPolicy, ServiceSpec, ServiceType,
        SessionAffinity, SourceRangesScope, TrafficPolicy,
    },
    primitives::{
        net::IpFamily,
        violation::{
            Violation,
            ViolationCode::{Conflict, Invalid, Required},
        },
    },
};

pub(super) fn validate(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    ports::validate(spec, found);
    addresses(spec, found);
    families(spec, found);
    external_name(spec, found);
    load_balancer(spec, found);
    node_ports(spec, found);
    source_ranges(spec, found);
    policies(spec, found);
    affinity(spec, found);
    delivery::validate(spec, found);
    check_selector("/spec/selector", &spec.selector, found);
    if let Some(check) = &spec.health_check {
        health_check::validate(spec, check, found);
    }
}

fn node_ports(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    if spec.allocate_load_balancer_node_ports.is_some() && spec.service_type != ServiceType::LoadBalancer {
        let message = "must be left out unless type is LoadBalancer";
        found.push(Violation::new("/spec/allocateLoadBalancerNodePorts", Conflict, message));
    }
}

fn addresses(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let first = spec.cluster_ips.first();
    if let (Some(one), Some(first)) = (&spec.cluster_ip, first)
        && one != first
    {
        found.push(Violation::new("/spec/clusterIP", Conflict, "must equal the first of clusterIPs"));
    }
    check_length("/spec/clusterIPs", spec.cluster_ips.len(), 2, found);
    if spec.cluster_ips.len() > 1 && spec.cluster_ips.contains(&ClusterIp::None) {
        found.push(Violation::new(
            "/spec/clusterIPs",
            Conflict,
            "must be only `None` for a headless Service",
        ));
    }
    let cluster_families = spec.cluster_addresses().map(IpFamily::of);
    check_one_per_family("/spec/clusterIPs", cluster_families, found);
    if spec.is_headless() && spec.service_type != ServiceType::ClusterIP {
        found.push(Violation::new(
            "/spec/clusterIP",
            Conflict,
            "must not be `None` unless type is ClusterIP",
        ));
    }
    if spec.is_headless() && !spec.external_ips.is_empty() {
        found.push(Violation::new("/spec/externalIPs", Conflict, "must be empty on a headless Service"));
    }
    if check_length("/spec/externalIPs", spec.external_ips.len(), ADDRESSES_MAX, found) {
        check_unique(spec.external_ips.iter(), |index| format!("/spec/externalIPs/{index}"), found);
        for (index, address) in spec.external_ips.iter().enumerate() {
            check_address(format!("/spec/externalIPs/{index}"), *address, found);
        }
    }
}

fn families(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    check_length("/spec/ipFamilies", spec.ip_families.len(), 2, found);
    check_unique(spec.ip_families.iter(), |index| format!("/spec/ipFamilies/{index}"), found);
    let requested =
        spec.cluster_ips.iter().chain(spec.cluster_ip.iter().filter(|_| spec.cluster_ips.is_empty()));
    for (index, address) in requested.filter_map(|ip| ip.address()).enumerate() {
        let family = IpFamily::of(address);
        if spec.ip_families.get(index).is_some_and(|wanted| *wanted != family) {
            let message =
                format!("must be {} as the cluster IP {address} in the same place", family.as_str());
            found.push(Violation::new(format!("/spec/ipFamilies/{index}"), Conflict, message));
        }
    }
    let two = spec.ip_families.len() > 1 || spec.cluster_ips.len() > 1;
    if two && spec.ip_family_policy == Some(IpFamilyPolicy::SingleStack) {
        let message = "must be PreferDualStack or RequireDualStack when two families are requested";
        found.push(Violation::new("/spec/ipFamilyPolicy", Conflict, message));
    }
}

fn external_name(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    if !spec.is_external_name() {
        if spec.external_name.is_some() {
            let message = "must be left out unless type is ExternalName";
            found.push(Violation::new("/spec/externalName", Conflict, message));
        }
        return;
    }
    if spec.external_name.is_none() {
        found.push(Violation::new(
            "/spec/externalName",
            Required,
            "must be present when type is ExternalName",
        ));
    }
    let set = [
        ("clusterIP", spec.cluster_ip.is_some()),
        ("clusterIPs", !spec.cluster_ips.is_empty()),
        ("externalIPs", !spec.external_ips.is_empty()),
        ("selector", !spec.selector.is_empty()),
    ];
    for (field, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
        let message = "must be left out when type is ExternalName, which is only a DNS name";
        found.push(Violation::new(format!("/spec/{field}"), Conflict, message));
    }
}

fn load_balancer(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let Some(load_balancer) = &spec.load_balancer else { return };
    if spec.service_type != ServiceType::LoadBalancer {
        let message = "must be left out unless type is LoadBalancer";
        found.push(Violation::new("/spec/loadBalancer", Conflict, message));
    }
    let at = "/spec/loadBalancer/addresses";
    if check_length(at, load_balancer.addresses.len(), 2, found) {
        check_one_per_family(at, load_balancer.addresses.iter().map(|ip| IpFamily::of(*ip)), found);
        for (index, address) in load_balancer.addresses.iter().enumerate() {
            check_address(format!("{at}/{index}"), *address, found);
        }
    }
}

fn source_ranges(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let (at, ranges) = ("/spec/loadBalancerSourceRanges", &spec.load_balancer_source_ranges);
    if !ranges.is_empty() && !spec.is_reachable_from_outside() {
        let message = "must be left out on a Service that is not reachable from outside";
        let hint =
            "the ranges guard node ports, externalIPs and load balancer addresses; cluster IPs have none";
        found.push(Violation::new(at, Conflict, message).hint(hint));
    }
    let is_balancer = spec.service_type == ServiceType::LoadBalancer;
    if spec.source_ranges_scope == SourceRangesScope::LoadBalancerOnly && !is_balancer {
        let message = "must be AllExternal unless type is LoadBalancer";
        let hint = "with LoadBalancerOnly the ranges would restrict nothing";
        found.push(Violation::new("/spec/sourceRangesScope", Conflict, message).hint(hint));
    }
    if check_length(at, ranges.len(), ADDRESSES_MAX, found) {
        check_unique(ranges.iter(), |index| format!("{at}/{index}"), found);
        for (index, range) in ranges.iter().enumerate() {
            check_network(format!("{at}/{index}"), range, found);
        }
    }
}

fn policies(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    if spec.external_traffic_policy == TrafficPolicy::Local && !spec.is_reachable_from_outside() {
        let message = "must be Cluster on a Service that is not reachable from outside";
        found.push(Violation::new("/spec/externalTrafficPolicy", Conflict, message));
    }
    if spec.health_check_node_port.is_some() && !spec.has_health_check_node_port() {
        let message = "must be left out unless type is LoadBalancer and externalTrafficPolicy is Local";
        found.push(Violation::new("/spec/healthCheckNodePort", Conflict, message));
    }
}

fn affinity(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    let Some(config) = &spec.session_affinity_config else { return };
    if spec.session_affinity != SessionAffinity::ClientIP {
        let message = "must be left out unless sessionAffinity is ClientIP";
        found.push(Violation::new("/spec/sessionAffinityConfig", Conflict, message));
    }
    let timeout = config.client_ip.as_ref().and_then(|client_ip| client_ip.timeout_seconds);
    if timeout.is_some_and(|seconds| seconds == 0 || seconds > AFFINITY_TIMEOUT_SECONDS_MAX) {
        let message = format!("must be between 1 and {AFFINITY_TIMEOUT_SECONDS_MAX}");
        found.push(Violation::new("/spec/sessionAffinityConfig/clientIP/timeoutSeconds", Invalid, message));
    }
}
