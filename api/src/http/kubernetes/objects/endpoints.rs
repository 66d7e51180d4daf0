//! Conversion of the endpoints computed for a Service to a Kubernetes `Endpoints` object. Addresses with the
//! same ports are listed in one subset.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use model::{
    cluster::compiled::{CompiledEndpoint, CompiledPort, CompiledService},
    kinds::{resource::Object, service::Protocol},
    primitives::{name::Name, quantity::Epoch},
};
use serde_json::{Value, json};

use super::{Resource, metadata, version};

/// Port of an endpoint that serves a port of the Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listening {
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) name: Option<String>,
}

impl Listening {
    pub(super) fn of(port: &CompiledPort, endpoint: &CompiledEndpoint) -> Self {
        let name = port.name.as_ref().map(ToString::to_string);
        Self { port: endpoint.port.into(), protocol: port.protocol, name }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut json = json!({ "port": self.port, "protocol": self.protocol });
        if let Some(name) = &self.name {
            json["name"] = json!(name);
        }
        json
    }
}

/// Renders the `Endpoints` object of a Service, with the name, labels and creation time of the Service.
pub(in super::super) fn render(service: &Object, compiled: &CompiledService, epoch: Epoch) -> Value {
    let mut metadata = metadata(&service.metadata, Resource::Endpoints, epoch);
    // Annotations and generation describe the Service, not its endpoints.
    metadata.remove("annotations");
    metadata.remove("generation");
    metadata.insert("resourceVersion".to_owned(), json!(version(epoch, compiled.revision)));
    let mut shown = json!({ "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata });
    let subsets = subsets(compiled);
    if !subsets.is_empty() {
        shown["subsets"] = json!(subsets);
    }
    shown
}

fn subsets(compiled: &CompiledService) -> Vec<Value> {
    type Address<'a> = (IpAddr, Option<&'a Name>, bool);
    let mut by_address: BTreeMap<Address<'_>, BTreeSet<Listening>> = BTreeMap::new();
    for port in &compiled.ports {
        for endpoint in &port.endpoints {
            let address = (endpoint.address, endpoint.node.as_ref(), endpoint.ready);
            by_address.entry(address).or_default().insert(Listening::of(port, endpoint));
        }
    }
    let mut by_ports: BTreeMap<BTreeSet<Listening>, Vec<Address<'_>>> = BTreeMap::new();
    for (address, ports) in by_address {
        by_ports.entry(ports).or_default().push(address);
    }
    let subset = |(ports, addresses): (BTreeSet<Listening>, Vec<Address<'_>>)| {
        let shown = |wanted: bool| -> Vec<Value> {
            let chosen = addresses.iter().filter(|(_, _, is_ready)| *is_ready == wanted);
            chosen.map(|(ip, node, _)| address(*ip, *node)).collect()
        };
        let mut subset = json!({ "ports": ports.iter().map(Listening::to_json).collect::<Vec<_>>() });
        for (field, found) in [("addresses", shown(true)), ("notReadyAddresses", shown(false))] {
            if !found.is_empty() {
                subset[field] = json!(found);
            }
        }
        subset
    };
    by_ports.into_iter().map(subset).collect()
}

fn address(ip: IpAddr, node: Option<&Name>) -> Value {
    let mut json = json!({ "ip": ip });
    if let Some(node) = node {
        json["nodeName"] = json!(node);
    }
    json
}
