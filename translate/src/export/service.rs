//! Export of a Service to Kubernetes. Load balancer settings become annotations that MetalLB and the adapter
//! read.

use model::{
    kinds::{
        metadata::Metadata,
        service::{
            ClusterIp, ForwardingMethod, LoadBalancer, Protocol, RemovalPolicy, ServicePort, ServiceSpec,
            ServiceType, SessionAffinity, SourceRangesScope, TrafficPolicy,
        },
    },
    primitives::domain_name::DomainName,
};
use serde_json::{Map, Value, json};

use super::{DocumentDraft, ExportResult, document, metadata_of};
use crate::{kubernetes::HOSTNAMES, report::Report};

const NOTHING: &str = "not supported by Kubernetes";

pub(super) fn service(made: &mut ExportResult, metadata: &Metadata, spec: &ServiceSpec) {
    if spec.disabled {
        made.report.ignored("spec.disabled", "left out: Kubernetes Services cannot be disabled");
        return;
    }
    let ports: Vec<Value> =
        spec.ports.iter().enumerate().filter_map(|(at, each)| port(at, each, &mut made.report)).collect();
    if ports.is_empty() && !spec.ports.is_empty() {
        made.report.ignored("spec.ports", "left out: no port remains");
        return;
    }
    let mut theirs = metadata_of(metadata, metadata.namespace.as_ref().map(|name| name.as_str()));
    annotations(spec.load_balancer.as_deref(), &mut theirs, &mut made.report);
    hostnames(spec, &mut theirs, &mut made.report);
    let mut line = DocumentDraft::new(made);
    addresses(&mut line, spec);
    line.put("ports", "ports", Value::Array(ports));
    traffic(&mut line, spec);
    only_here(&mut line, spec);
    let spec = line.spec;
    made.documents.push(document("v1", "Service", theirs, spec));
}

fn addresses(line: &mut DocumentDraft<'_>, spec: &ServiceSpec) {
    let is_other = spec.service_type != ServiceType::ClusterIP;
    line.same("type", json!(spec.service_type), is_other);
    let ips: Vec<&ClusterIp> = spec.cluster_ips.iter().collect();
    line.same("clusterIP", json!(spec.cluster_ip.as_ref().or(ips.first().copied())), true);
    line.put("clusterIPs", "clusterIPs", json!(ips));
    line.put("ipFamilies", "ipFamilies", json!(spec.ip_families));
    line.put("ipFamilyPolicy", "ipFamilyPolicy", json!(spec.ip_family_policy));
    line.put("externalIPs", "externalIPs", json!(spec.external_ips));
    line.put("externalName", "externalName", json!(spec.external_name));
    source_ranges(line, spec);
    let allocate = spec.allocate_load_balancer_node_ports;
    line.put("allocateLoadBalancerNodePorts", "allocateLoadBalancerNodePorts", json!(allocate));
    line.put("healthCheckNodePort", "healthCheckNodePort", json!(spec.health_check_node_port));
}

fn source_ranges(line: &mut DocumentDraft<'_>, spec: &ServiceSpec) {
    let ranges = &spec.load_balancer_source_ranges;
    if ranges.is_empty() {
        return;
    }
    let field = "loadBalancerSourceRanges";
    match spec.source_ranges_scope {
        SourceRangesScope::LoadBalancerOnly => line.put(field, field, json!(ranges)),
        SourceRangesScope::AllExternal => {
            let said = "Kubernetes leaves node ports, external IPs and an IP family without ranges open";
            line.made.report.approximated("spec.loadBalancerSourceRanges", said);
            line.spec.insert(field.to_owned(), json!(ranges));
        }
    }
}

fn traffic(line: &mut DocumentDraft<'_>, spec: &ServiceSpec) {
    if !spec.selector.is_empty() {
        let said = "selects pods in Kubernetes, Workloads in Tidegate";
        line.made.report.approximated("spec.selector", said);
        line.spec.insert("selector".to_owned(), json!(spec.selector));
    }
    let has_affinity = spec.session_affinity != SessionAffinity::None;
    line.same("sessionAffinity", json!(spec.session_affinity), has_affinity);
    line.put("sessionAffinityConfig", "sessionAffinityConfig", json!(spec.session_affinity_config));
    let [external, internal] = [spec.external_traffic_policy, spec.internal_traffic_policy];
    line.same("externalTrafficPolicy", json!(external), external != TrafficPolicy::Cluster);
    line.same("internalTrafficPolicy", json!(internal), internal != TrafficPolicy::Cluster);
    let not_ready = spec.publish_not_ready_addresses;
    line.same("publishNotReadyAddresses", json!(not_ready), not_ready);
    line.put("trafficDistribution", "trafficDistribution", json!(spec.traffic_distribution));
}

/// Reports the settings of a Service that Kubernetes lacks. The code names every field, so that a new field
/// causes a compiler error here.
fn only_here(line: &mut DocumentDraft<'_>, spec: &ServiceSpec) {
    let ServiceSpec {
        service_type: _,
        cluster_ip: _,
        cluster_ips: _,
        ip_families: _,
        ip_family_policy: _,
        ports: _,
        selector: _,
        session_affinity: _,
        session_affinity_config: _,
        external_ips: _,
        load_balancer_source_ranges: _,
        source_ranges_scope: _,
        external_traffic_policy: _,
        internal_traffic_policy: _,
        health_check_node_port: _,
        publish_not_ready_addresses: _,
        traffic_distribution: _,
        external_name: _,
        load_balancer: _,
        hostnames: _,
        allocate_load_balancer_node_ports: _,
        disabled: _,
        scheduler,
        scheduler_flags,
        forwarding_method,
        proxy_protocol,
        connections,
        health_check,
        removal_policy,
        drain_seconds,
        maintenance,
    } = spec;
    line.lost(
        "scheduler",
        scheduler.is_some(),
        "configured for each node's proxy in Kubernetes \
                                                 (ipvs.scheduler)",
    );
    line.lost("schedulerFlags", !scheduler_flags.is_empty(), NOTHING);
    line.lost("forwardingMethod", *forwarding_method != ForwardingMethod::Masquerade, NOTHING);
    line.lost("proxyProtocol", proxy_protocol.is_some(), NOTHING);
    line.lost("connections", !connections.is_default(), NOTHING);
    line.lost(
        "healthCheck",
        health_check.is_some(),
        "Kubernetes uses pod probes; other endpoints are not checked",
    );
    line.lost("removalPolicy", *removal_policy != RemovalPolicy::Keep, NOTHING);
    line.lost("drainSeconds", drain_seconds.is_some(), NOTHING);
    line.lost("maintenance", maintenance.is_some(), "Kubernetes would serve it");
}

fn port(number: usize, port: &ServicePort, report: &mut Report) -> Option<Value> {
    let ServicePort { name, protocol, port, end_port, target_port, node_port, app_protocol } = port;
    if end_port.is_some() {
        report.ignored(&format!("spec.ports[{number}]"), "left out: Kubernetes has no port ranges");
        return None;
    }
    let mut made = Map::new();
    let fields = [
        ("name", json!(name)),
        ("protocol", json!(Some(protocol).filter(|protocol| **protocol != Protocol::Tcp))),
        ("port", json!(port)),
        ("targetPort", json!(target_port)),
        ("nodePort", json!(node_port)),
        ("appProtocol", json!(app_protocol)),
    ];
    made.extend(
        fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.to_owned(), value)),
    );
    Some(Value::Object(made))
}

/// Exports the host names as the annotation of ExternalDNS.
fn hostnames(spec: &ServiceSpec, metadata: &mut Value, report: &mut Report) {
    if spec.hostnames.is_empty() {
        return;
    }
    let names: Vec<&str> = spec.hostnames.iter().map(DomainName::as_str).collect();
    report.mapped("spec.hostnames", &format!("metadata.annotations[\"{HOSTNAMES}\"]"));
    metadata["annotations"][HOSTNAMES] = json!(names.join(","));
}

fn annotations(wanted: Option<&LoadBalancer>, metadata: &mut Value, report: &mut Report) {
    let Some(LoadBalancer { pool, addresses, sharing_key, dns_weight }) = wanted else { return };
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let fields = [
        ("pool", "metallb.io/address-pool", pool.as_ref().map(ToString::to_string)),
        (
            "addresses",
            "metallb.io/loadBalancerIPs",
            Some(addresses.join(",")).filter(|text| !text.is_empty()),
        ),
        ("sharingKey", "metallb.io/allow-shared-ip", sharing_key.as_ref().map(ToString::to_string)),
    ];
    for (ours, theirs, value) in fields {
        if let Some(value) = value {
            report
                .mapped(&format!("spec.loadBalancer.{ours}"), &format!("metadata.annotations[\"{theirs}\"]"));
            metadata["annotations"][theirs] = json!(value);
        }
    }
    if dns_weight.is_some() {
        report.ignored("spec.loadBalancer.dnsWeight", "Kubernetes has no weights for answers to names");
    }
}
