//! Conversion of a Service to a Kubernetes Service. Most fields have the same names and values.

use model::{
    cluster::snapshot::Snapshot,
    kinds::{
        resource::{Object, ServiceKey, Spec},
        service::{ServiceSpec, ServiceType},
    },
    primitives::quantity::Epoch,
};
use serde_json::{Value, json};

use super::{Resource, annotate_rest, metadata, split};

/// Spec fields of a Service that Kubernetes has under the same name.
const KNOWN: [&str; 18] = [
    "type",
    "clusterIP",
    "clusterIPs",
    "ipFamilies",
    "ipFamilyPolicy",
    "ports",
    "selector",
    "sessionAffinity",
    "sessionAffinityConfig",
    "externalIPs",
    "loadBalancerSourceRanges",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "healthCheckNodePort",
    "publishNotReadyAddresses",
    "trafficDistribution",
    "externalName",
    "allocateLoadBalancerNodePorts",
];

/// Renders a Service with its load balancer addresses as status. `endPort` is kept in the ports, although
/// Kubernetes has no such field.
pub(in super::super) fn render(
    object: &Object,
    spec: &ServiceSpec,
    snapshot: &Snapshot,
    epoch: Epoch,
) -> Value {
    let default = Spec::Service(Box::default()).to_json();
    let (mut shown, rest) = split(object.spec.to_json(), &default, &KNOWN);
    let mut metadata = metadata(&object.metadata, Resource::Services, epoch);
    annotate_rest(&mut metadata, &rest);
    let is_from_outside = match spec.service_type {
        ServiceType::NodePort | ServiceType::LoadBalancer => true,
        ServiceType::ClusterIP | ServiceType::ExternalName => !spec.external_ips.is_empty(),
    };
    if !is_from_outside {
        shown.remove("externalTrafficPolicy");
    }
    if shown.get("publishNotReadyAddresses") == Some(&Value::Bool(false)) {
        shown.remove("publishNotReadyAddresses");
    }
    if let Some(Value::Array(ports)) = shown.get_mut("ports") {
        // Defaults to the port; Kubernetes always sets the field.
        for port in ports.iter_mut().filter(|port| port.get("targetPort").is_none()) {
            port["targetPort"] = port["port"].clone();
        }
    }
    let key = object.metadata.namespace.clone().map(|namespace| {
        let name = object.metadata.name.clone();
        ServiceKey { namespace, name }
    });
    let addresses = key.iter().flat_map(|key| snapshot.addresses_of(key));
    let ingress: Vec<Value> = addresses.map(|address| json!({ "ip": address })).collect();
    let balancer = if ingress.is_empty() { json!({}) } else { json!({ "ingress": ingress }) };
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": shown,
        "status": { "loadBalancer": balancer },
    })
}
