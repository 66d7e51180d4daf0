//! EndpointSlices of a Service: one for each address family and each distinct set of ports.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledService},
    kinds::{metadata::Labels, resource::Object},
    primitives::{net::IpFamily, quantity::Epoch},
};
use serde_json::{Map, Value, json};

use super::{Resource, endpoints::Listening, metadata, put_labels, version};

/// Label of an EndpointSlice with the name of its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Label of an EndpointSlice with the name of the controller that manages it.
const MAKER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

/// Rendered EndpointSlice with its name.
#[derive(Debug)]
pub(in super::super) struct Slice {
    /// Name of the slice, made of the Service, the address family and, except for the first slice, a number.
    pub(in super::super) name: String,
    /// EndpointSlice as JSON.
    pub(in super::super) json: Value,
}

/// Returns the labels of the EndpointSlices of a Service.
pub(in super::super) fn labels(service: &Object) -> Labels {
    let mut labels = service.metadata.labels.clone();
    labels.insert(SERVICE_LABEL.to_owned(), service.metadata.name.to_string());
    labels.insert(MAKER_LABEL.to_owned(), "tidegate".to_owned());
    labels
}

/// Renders the EndpointSlices of a Service. Each address family has at least one, even without endpoints.
pub(in super::super) fn render(
    service: &Object,
    compiled: &CompiledService,
    epoch: Epoch,
    api_version: &str,
) -> Vec<Slice> {
    let mut by_family: BTreeMap<&str, BTreeMap<BTreeSet<Listening>, Vec<&CompiledEndpoint>>> =
        BTreeMap::new();
    for family in &compiled.ip_families {
        by_family.entry(family.as_str()).or_default();
    }
    for (family, ports, endpoint) in grouped(compiled) {
        by_family.entry(family.as_str()).or_default().entry(ports).or_default().push(endpoint);
    }
    let mut slices = Vec::new();
    for (family, mut by_ports) in by_family {
        if by_ports.is_empty() {
            by_ports.insert(BTreeSet::new(), Vec::new());
        }
        for (index, (ports, endpoints)) in by_ports.into_iter().enumerate() {
            let name = name(service, family, index);
            let endpoints = endpoints.into_iter().map(|one| endpoint(one, api_version));
            let json = json!({
                "apiVersion": Resource::EndpointSlices.group().api_version(api_version), "kind": "EndpointSlice",
                "metadata": slice_metadata(service, compiled, &name, epoch),
                "addressType": family,
                "endpoints": endpoints.collect::<Vec<_>>(),
                "ports": ports.iter().map(port).collect::<Vec<_>>(),
            });
            slices.push(Slice { name, json });
        }
    }
    slices
}

/// Merges the endpoints of a Service that differ only in the port. Returns for each group the address family,
/// the set of ports at which it serves, and one endpoint that represents the group.
fn grouped(
    compiled: &CompiledService,
) -> impl Iterator<Item = (IpFamily, BTreeSet<Listening>, &CompiledEndpoint)> {
    let mut by_address: BTreeMap<_, (BTreeSet<Listening>, &CompiledEndpoint)> = BTreeMap::new();
    for port in &compiled.ports {
        for endpoint in &port.endpoints {
            let CompiledEndpoint { address, node, ready, serving, terminating, .. } = endpoint;
            let key = (*address, node.as_ref(), *ready, *serving, *terminating);
            let entry = by_address.entry(key).or_insert_with(|| (BTreeSet::new(), endpoint));
            entry.0.insert(Listening::of(port, endpoint));
        }
    }
    by_address.into_values().map(|(ports, endpoint)| (IpFamily::of(endpoint.address), ports, endpoint))
}

/// Returns the name of an EndpointSlice. The first one of each address family has no number.
fn name(service: &Object, family: &str, index: usize) -> String {
    let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
    format!("{}-{}{number}", service.metadata.name, family.to_ascii_lowercase())
}

fn slice_metadata(
    service: &Object,
    compiled: &CompiledService,
    name: &str,
    epoch: Epoch,
) -> Map<String, Value> {
    let mut shown = metadata(&service.metadata, Resource::EndpointSlices, epoch);
    for field in ["annotations", "generation", "selfLink", "labels"] {
        shown.remove(field);
    }
    // Slices are identified by name and have no uid; the uid of the Service is in the owner reference.
    let owner = json!({
        "apiVersion": "v1", "kind": "Service", "name": service.metadata.name, "uid": service.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    shown.remove("uid");
    shown.insert("name".to_owned(), json!(name));
    shown.insert("resourceVersion".to_owned(), json!(version(epoch, compiled.revision)));
    shown.insert("ownerReferences".to_owned(), json!([owner]));
    put_labels(&mut shown, &labels(service));
    shown
}

fn port(own: &Listening) -> Value {
    let mut json = own.to_json();
    // Clients expect the name, which is empty for an unnamed port.
    json["name"] = json!(own.name.as_deref().unwrap_or_default());
    json
}

fn endpoint(own: &CompiledEndpoint, api_version: &str) -> Value {
    let CompiledEndpoint {
        address,
        port: _,
        node,
        zone,
        weight: _,
        ready,
        serving,
        terminating,
        maintenance: _,
        node_lost: _,
        checked_by_source: _,
    } = own;
    let mut json = json!({
        "addresses": [address],
        "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
    });
    if let Some(node) = node {
        json["nodeName"] = json!(node);
    }
    match (zone, api_version) {
        (Some(zone), "v1beta1") => json["topology"] = json!({ "topology.kubernetes.io/zone": zone }),
        (Some(zone), _) => json["zone"] = json!(zone),
        (None, _) => {}
    }
    json
}
