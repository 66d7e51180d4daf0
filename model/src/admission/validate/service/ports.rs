//! Validation rules of the ports of a Service: names, ranges and node ports.

use super::super::{check_length, check_unique};
use crate::{
    kinds::service::{PORTS_MAX, ServicePort, ServiceSpec},
    primitives::violation::{
        Violation,
        ViolationCode::{Conflict, Duplicate, Invalid, Overlap, Required},
    },
};

pub(super) fn validate(spec: &ServiceSpec, found: &mut Vec<Violation>) {
    if !check_length("/spec/ports", spec.ports.len(), PORTS_MAX, found) {
        return;
    }
    if spec.ports.is_empty() && !spec.is_headless() && !spec.is_external_name() {
        found.push(Violation::new("/spec/ports", Required, "must have at least one port"));
    }
    let first_ports = spec.ports.iter().map(|port| (port.protocol, port.port));
    check_unique(first_ports, |index| at(index, "port"), found);
    for (index, port) in spec.ports.iter().enumerate() {
        let earlier = &spec.ports[..index];
        name(index, port, spec.ports.len() > 1, earlier, found);
        range(index, port, earlier, found);
        node_port(index, port, spec.has_node_ports(), earlier, found);
    }
}

fn at(index: usize, field: &str) -> String {
    format!("/spec/ports/{index}/{field}")
}

fn name(
    index: usize,
    port: &ServicePort,
    is_needed: bool,
    earlier: &[ServicePort],
    found: &mut Vec<Violation>,
) {
    if port.name.is_none() && is_needed {
        let message = "must be present when there is more than one port";
        found.push(Violation::new(at(index, "name"), Required, message));
    }
    if port.name.is_some() && earlier.iter().any(|other| other.name == port.name) {
        found.push(Violation::new(
            at(index, "name"),
            Duplicate,
            "must not repeat the name of an earlier port",
        ));
    }
}

fn range(index: usize, port: &ServicePort, earlier: &[ServicePort], found: &mut Vec<Violation>) {
    if let Some(last) = port.end_port {
        if last < port.port {
            let message = format!("must be at least `port`, {}, not {last}", port.port);
            let hint = "`port` is the first of the range and `endPort` its last";
            found.push(Violation::new(at(index, "endPort"), Invalid, message).hint(hint));
            return;
        }
        if port.target_port.is_some() {
            let message = "must be left out with `endPort`: clients reach the same port at the endpoint";
            found.push(Violation::new(at(index, "targetPort"), Conflict, message));
        }
    }
    // Two ranges with the same start are reported as duplicates already.
    let overlaps = |other: &&ServicePort| {
        other.protocol == port.protocol && other.port != port.port && other.range().overlaps(port.range())
    };
    if let Some(other) = earlier.iter().find(overlaps) {
        let message =
            format!("must not overlap {}/{} of the same Service", other.range(), port.protocol.as_str());
        let field = if port.end_port.is_some() { "endPort" } else { "port" };
        found.push(Violation::new(at(index, field), Overlap, message));
    }
}

fn node_port(
    index: usize,
    port: &ServicePort,
    has_node_ports: bool,
    earlier: &[ServicePort],
    found: &mut Vec<Violation>,
) {
    let Some(node_port) = port.node_port else { return };
    if port.end_port.is_some() {
        let message = "must be left out with `endPort`: a range has no node ports";
        let hint = "reach the range at the cluster IP, an external IP or a load balancer address";
        found.push(Violation::new(at(index, "nodePort"), Conflict, message).hint(hint));
    } else if !has_node_ports {
        let message = "must be left out unless type is NodePort or LoadBalancer";
        found.push(Violation::new(at(index, "nodePort"), Conflict, message));
    }
    if earlier.iter().any(|other| other.node_port == Some(node_port) && other.protocol == port.protocol) {
        let message = format!("must not repeat {node_port} for the same protocol");
        found.push(Violation::new(at(index, "nodePort"), Duplicate, message));
    }
}
