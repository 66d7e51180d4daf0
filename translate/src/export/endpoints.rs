//! Export of an EndpointSet as EndpointSlices: one per address family, because a slice has a single family.

use std::collections::BTreeMap;

use model::{
    kinds::{
        endpoint_set::{Endpoint, EndpointConditions, EndpointPort, EndpointSetSpec},
        metadata::Metadata,
        resource::{Object, ServiceKey, Spec},
        service::{Protocol, TargetPort},
    },
    primitives::{name::Namespace, net::IpFamily, quantity::Weight},
};
use serde_json::{Value, json};

use super::{ExportResult, metadata_of};
use crate::{kubernetes::SERVICE_NAME_LABEL, report::Report};

/// Address families, in the order in which slices are written.
const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

pub(super) fn endpoint_set(
    made: &mut ExportResult,
    metadata: &Metadata,
    spec: &EndpointSetSpec,
    services: &BTreeMap<ServiceKey, &Object>,
) {
    let EndpointSetSpec { service, ports, endpoints } = spec;
    let namespace = metadata.namespace.clone();
    let key = namespace.clone().map(|namespace| ServiceKey { namespace, name: service.clone() });
    let ports = if ports.is_empty() {
        match key.and_then(|key| services.get(&key)).map(|service| ports_of(service)) {
            Some(Ok(ports)) => {
                made.report.approximated("spec.ports", "written as the current ports of the Service");
                ports
            }
            Some(Err(reason)) => return made.report.ignored("spec.ports", &format!("left out: {reason}")),
            None => {
                let reason = "left out: without ports those of the Service apply, and the Service is not \
                              in the input";
                return made.report.ignored("spec.ports", reason);
            }
        }
    } else {
        ports.iter().map(port).collect()
    };
    let several =
        FAMILIES.iter().all(|family| endpoints.iter().any(|at| IpFamily::of(at.address) == *family));
    for family in FAMILIES {
        let of_family: Vec<Value> = endpoints
            .iter()
            .enumerate()
            .filter(|(_, endpoint)| IpFamily::of(endpoint.address) == family)
            .map(|(number, each)| endpoint(number, each, &mut made.report))
            .collect();
        // An empty set becomes an empty slice of the first family.
        if of_family.is_empty() && !(endpoints.is_empty() && family == IpFamily::V4) {
            continue;
        }
        let mut theirs = metadata_of(metadata, namespace.as_ref().map(Namespace::as_str));
        theirs["labels"][SERVICE_NAME_LABEL] = json!(service);
        if several && family == IpFamily::V6 {
            let name = format!("{}-ipv6", metadata.name);
            made.report
                .approximated("spec.endpoints", &format!("both families; those of IPv6 are in {name}"));
            theirs["name"] = json!(name);
        }
        made.documents.push(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": theirs,
            "addressType": family.as_str(),
            "ports": ports,
            "endpoints": of_family,
        }));
    }
    made.report.mapped("spec.service", &format!("metadata.labels[\"{SERVICE_NAME_LABEL}\"]"));
    made.report.mapped("spec.endpoints", "endpoints");
}

fn port(port: &EndpointPort) -> Value {
    let EndpointPort { name, protocol, port } = port;
    json!({ "name": name.as_ref().map_or("", |name| name.as_str()), "protocol": protocol.as_str(), "port": port })
}

/// Returns the target ports of a Service, which the ports of its EndpointSlices must repeat. If slices cannot
/// express one of these ports, returns the reason as the error.
fn ports_of(service: &Object) -> Result<Vec<Value>, &'static str> {
    let Spec::Service(spec) = &service.spec else { return Ok(Vec::new()) };
    let ports = spec.ports.iter().map(|each| {
        if each.end_port.is_some() {
            return Err("the Service has a port range, which a slice cannot have");
        }
        let number = match &each.target_port {
            None => each.port,
            Some(TargetPort::Number(number)) => *number,
            Some(TargetPort::Name(_)) => {
                return Err("the Service uses a named port, whose number is only known from Workloads");
            }
        };
        let protocol: Protocol = each.protocol;
        Ok(port(&EndpointPort { name: each.name.clone(), protocol, port: number }))
    });
    ports.collect()
}

fn endpoint(number: usize, endpoint: &Endpoint, report: &mut Report) -> Value {
    let Endpoint { address, node, zone, hostname, weight, conditions, drain, maintenance } = endpoint;
    let EndpointConditions { ready, serving, terminating } = conditions;
    let at = format!("spec.endpoints[{number}]");
    let is_out = *drain || maintenance.is_some() || *weight == Weight(0);
    if is_out && *ready {
        let said = "drained, in maintenance or of weight 0: exported as not ready";
        report.approximated(&at, said);
    }
    if *weight != Weight::default() && *weight != Weight(0) {
        report.ignored(&format!("{at}.weight"), "Kubernetes endpoints have no weights");
    }
    let mut made = json!({
        "addresses": [address],
        "conditions": { "ready": *ready && !is_out, "serving": serving, "terminating": terminating },
    });
    if let Some(node) = node {
        made["nodeName"] = json!(node);
    }
    if let Some(zone) = zone {
        made["zone"] = json!(zone);
    }
    if let Some(hostname) = hostname {
        made["hostname"] = json!(hostname);
    }
    made
}
