//! Translation of a Kubernetes Service.

use crate::json::{items, text};
use serde_json::{Map, Value, json};

use super::{
    Mode, Settings, Severity, Surroundings, TranslationResult, annotations, document, fields, labels_of,
};

/// Label of a Service that assigns it to a proxy other than kube-proxy.
const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";
/// Service fields copied unchanged in load-balancer mode and in proxy mode.
const SAME: [&str; 8] = [
    "ipFamilies",
    "ipFamilyPolicy",
    "sessionAffinity",
    "sessionAffinityConfig",
    "loadBalancerSourceRanges",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "publishNotReadyAddresses",
];
/// Service fields copied unchanged in proxy mode, but not in load-balancer mode.
const SAME_AS_PROXY: [&str; 5] =
    ["clusterIP", "clusterIPs", "externalIPs", "externalName", "allocateLoadBalancerNodePorts"];
/// Values of `spec.trafficDistribution` that Tidegate supports.
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Handling of a Kubernetes Service by Tidegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Not handled by Tidegate, so no object is created.
    None,
    /// Proxied, without a load balancer address of Tidegate.
    Proxied,
    /// Gets a load balancer address, and its status is written back.
    Addressed,
}

/// Decides how Tidegate handles a Kubernetes Service, by the mode of the adapter, the type and class of the
/// Service, and the label that selects another proxy.
#[must_use]
pub fn claim(settings: &Settings, service: &Value) -> Claim {
    let is_other =
        service.pointer("/metadata/labels").is_some_and(|labels| labels.get(PROXY_NAME_LABEL).is_some());
    let class = service.pointer("/spec/loadBalancerClass").and_then(Value::as_str);
    let is_addressed = text(service, "/spec/type") == "LoadBalancer" && class == settings.class.as_deref();
    match (settings.mode, is_addressed) {
        (Mode::Proxy, _) if is_other => Claim::None,
        (_, true) => Claim::Addressed,
        (Mode::Proxy, false) => Claim::Proxied,
        (Mode::LoadBalancer, false) => Claim::None,
    }
}

/// Translates a Kubernetes Service. The result contains no object if Tidegate does not handle the Service.
#[must_use]
pub fn service(settings: &Settings, around: &Surroundings, service: &Value) -> TranslationResult {
    let claim = claim(settings, service);
    if claim == Claim::None {
        return TranslationResult::default();
    }
    let mut made = TranslationResult::begin(fields::Kind::Service, service);
    let theirs = service.get("spec").unwrap_or(&Value::Null);
    let mut spec = Map::new();
    let carried = SAME.iter().chain(SAME_AS_PROXY.iter().filter(|_| settings.mode == Mode::Proxy));
    for key in carried {
        if let Some(value) = theirs.get(*key).filter(|value| !value.is_null() && **value != json!("")) {
            spec.insert((*key).to_owned(), value.clone());
        }
    }
    spec.insert("type".to_owned(), json!(service_type(claim, theirs, &mut made)));
    spec.insert(
        "ports".to_owned(),
        Value::Array(items(theirs, "/ports").iter().map(|at| port(settings, at)).collect()),
    );
    if let Some(ranges) = spec.get_mut("loadBalancerSourceRanges").and_then(Value::as_array_mut) {
        for range in ranges.iter_mut() {
            *range = json!(crate::json::scalar(range).trim());
        }
        if !ranges.is_empty() {
            // Kubernetes leaves node ports, external IPs and an IP family without ranges open.
            spec.insert("sourceRangesScope".to_owned(), json!("LoadBalancerOnly"));
        }
    }
    distribution(theirs, &mut spec, &mut made);
    addressed(settings, around, service, claim, &mut spec, &mut made);
    let labels = labels_of(settings, service);
    let namespace = settings.name(&text(service, "/metadata/namespace"));
    let name = text(service, "/metadata/name");
    made.finish(&document("Service", Some(&namespace), &name, &labels, Value::Object(spec)));
    made
}

/// Translates a Service that only HTTP routes use: without an address of its own, so that nodes do not program it.
#[must_use]
pub fn backend_service(settings: &Settings, service: &Value) -> TranslationResult {
    let mut made = TranslationResult::default();
    let ports: Vec<_> = items(service, "/spec/ports")
        .iter()
        .map(|theirs| port(&Settings { mode: Mode::LoadBalancer, ..settings.clone() }, theirs))
        .collect();
    let mut spec = json!({ "clusterIP": "None", "ports": ports });
    if service.pointer("/spec/publishNotReadyAddresses") == Some(&json!(true)) {
        spec["publishNotReadyAddresses"] = json!(true);
    }
    let labels = labels_of(settings, service);
    let namespace = settings.name(&text(service, "/metadata/namespace"));
    made.finish(&document("Service", Some(&namespace), &text(service, "/metadata/name"), &labels, spec));
    made
}

/// Returns the type of the translated Service. If another load balancer assigns the addresses, the type is
/// `NodePort` or `ClusterIP`, so that node ports used by that load balancer stay open.
fn service_type(claim: Claim, theirs: &Value, made: &mut TranslationResult) -> String {
    let written =
        Some(text(theirs, "/type")).filter(|word| !word.is_empty()).unwrap_or_else(|| "ClusterIP".to_owned());
    if written != "LoadBalancer" || claim == Claim::Addressed {
        return written;
    }
    made.find(
        Severity::Approximated,
        "spec.loadBalancerClass",
        "of another load balancer: its node ports are opened, its addresses are not served",
    );
    let has_node_ports = items(theirs, "/ports").iter().any(|port| port.get("nodePort").is_some());
    if has_node_ports { "NodePort" } else { "ClusterIP" }.to_owned()
}

fn port(settings: &Settings, theirs: &Value) -> Value {
    let mut port = Map::new();
    for key in ["name", "protocol", "port", "targetPort", "appProtocol"] {
        // 0 and the empty string mean unset in Kubernetes.
        if let Some(value) =
            theirs.get(key).filter(|value| **value != json!("") && **value != json!(0) && !value.is_null())
        {
            port.insert(key.to_owned(), value.clone());
        }
    }
    let node_port =
        theirs.get("nodePort").filter(|value| settings.mode == Mode::Proxy && **value != json!(0));
    if let Some(node_port) = node_port.filter(|value| !value.is_null()) {
        port.insert("nodePort".to_owned(), node_port.clone());
    }
    Value::Object(port)
}

fn distribution(theirs: &Value, spec: &mut Map<String, Value>, made: &mut TranslationResult) {
    let word = text(theirs, "/trafficDistribution");
    if DISTRIBUTIONS.contains(&word.as_str()) {
        spec.insert("trafficDistribution".to_owned(), json!(word));
    } else if !word.is_empty() {
        made.find(Severity::NotSupported, "spec.trafficDistribution", format!("`{word}` is not supported"));
    }
}

/// Sets the fields of a translated Service that gets a load balancer address from Tidegate.
fn addressed(
    settings: &Settings,
    around: &Surroundings,
    service: &Value,
    claim: Claim,
    spec: &mut Map<String, Value>,
    made: &mut TranslationResult,
) {
    match (claim, settings.mode) {
        (Claim::Addressed, Mode::LoadBalancer) => {
            // The cluster's own proxy manages the node ports; those of Tidegate would differ.
            spec.insert("allocateLoadBalancerNodePorts".to_owned(), json!(false));
        }
        (Claim::Addressed, Mode::Proxy) => {
            let port = service
                .pointer("/spec/healthCheckNodePort")
                .and_then(Value::as_u64)
                .filter(|port| *port != 0);
            if let Some(port) = port {
                spec.insert("healthCheckNodePort".to_owned(), json!(port));
            }
        }
        (Claim::None | Claim::Proxied, _) => {
            // Meaningless with another load balancer.
            spec.remove("allocateLoadBalancerNodePorts");
            spec.remove("loadBalancerSourceRanges");
            spec.remove("sourceRangesScope");
            return;
        }
    }
    if let Some(wanted) = annotations::load_balancer(settings, around, service, made) {
        spec.insert("loadBalancer".to_owned(), wanted);
    }
    let hostnames = annotations::hostnames(service, made);
    if !hostnames.is_empty() {
        spec.insert("hostnames".to_owned(), json!(hostnames));
    }
}
