//! Merges a desired object with its current state on the server: drains and maintenance set by operators, and
//! values assigned by the server, are preserved unless the source sets them. Does no I/O.

use model::{
    kinds::{
        certificate::CertificateSpec,
        endpoint_set::EndpointSetSpec,
        node::NodeSpec,
        resource::{Object, Spec},
        service::{ServicePort, ServiceSpec},
        workload::WorkloadSpec,
    },
    primitives::name::Label,
};

/// Label of the objects of a source, so that one watch selects exactly them. Ownership is recorded in
/// `applySet`.
pub const SOURCE_LABEL: &str = "tidegate.io/source";

/// Returns the object to write for a desired object: with the label of the source, and with the state of
/// `current` that must be preserved, such as a drain set by an operator.
#[must_use]
pub fn prepared(source: &Label, wanted: &Object, current: Option<&Object>) -> Object {
    let mut object = wanted.clone();
    object.metadata.uid = None;
    object.metadata.resource_version = None;
    object.metadata.generation = None;
    object.metadata.creation_timestamp = None;
    object.metadata.self_link = None;
    object.metadata.apply_set = None;
    object.metadata.apply_set_limited = false;
    object.metadata.labels.insert(SOURCE_LABEL.to_owned(), source.to_string());
    let Some(current) = current else { return object };
    object.metadata.resource_version.clone_from(&current.metadata.resource_version);
    match (&mut object.spec, &current.spec) {
        (Spec::Workload(new), Spec::Workload(old)) => keep_of_workload(new, old),
        (Spec::Service(new), Spec::Service(old)) => {
            if new.maintenance.is_none() {
                new.maintenance.clone_from(&old.maintenance);
            }
        }
        (Spec::EndpointSet(new), Spec::EndpointSet(old)) => keep_of_endpoint_set(new, old),
        (Spec::Node(new), Spec::Node(old)) => keep_of_node(new, old),
        (Spec::Certificate(new), Spec::Certificate(old)) => keep_of_certificate(new, old),
        // These kinds have no preserved state. (Kinds are part of the key, so both sides are of the same
        // kind.)
        (
            Spec::AddressPool(_)
            | Spec::BfdProfile(_)
            | Spec::BgpPeer(_)
            | Spec::Advertisement(_)
            | Spec::DnsZone(_)
            | Spec::Certificate(_)
            | Spec::WorkloadNetwork(_)
            | Spec::NetworkPolicy(_)
            | Spec::Block(_)
            | Spec::Attachment(_)
            | Spec::Gateway(_)
            | Spec::HttpRoute(_)
            | Spec::TlsRoute(_)
            | Spec::Address(_)
            | Spec::EndpointHealth(_)
            | Spec::Workload(_)
            | Spec::Service(_)
            | Spec::EndpointSet(_)
            | Spec::Node(_),
            _,
        ) => {}
    }
    object
}

/// Returns true if writing the object `prepared`, as returned by [`prepared`], would not change the current
/// object.
#[must_use]
pub fn is_as_prepared(prepared: &Object, current: &Object) -> bool {
    let is_same_spec = prepared.spec == current.spec
        || match (&prepared.spec, &current.spec) {
            (Spec::Service(new), Spec::Service(old)) => filled(new, old) == **old,
            _ => false,
        };
    is_same_spec
        && prepared.metadata.labels == current.metadata.labels
        && prepared.metadata.annotations == current.metadata.annotations
}

fn keep_of_workload(new: &mut WorkloadSpec, old: &WorkloadSpec) {
    if new.maintenance.is_none() {
        new.maintenance.clone_from(&old.maintenance);
    }
}

fn keep_of_node(new: &mut NodeSpec, old: &NodeSpec) {
    if new.maintenance.is_none() {
        new.maintenance.clone_from(&old.maintenance);
    }
    new.lost_since = old.lost_since;
    new.requested.clone_from(&old.requested);
}

/// Keeps the results of orders at an ACME server, which the control servers write to the object.
fn keep_of_certificate(new: &mut CertificateSpec, old: &CertificateSpec) {
    if new.acme.is_none() || old.acme.is_none() || !new.certificate.is_empty() {
        return;
    }
    new.certificate.clone_from(&old.certificate);
    new.issuance.clone_from(&old.issuance);
}

fn keep_of_endpoint_set(new: &mut EndpointSetSpec, old: &EndpointSetSpec) {
    let kept: std::collections::BTreeMap<_, _> = old
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.drain || endpoint.maintenance.is_some())
        .map(|endpoint| ((endpoint.address, endpoint.node.as_ref()), endpoint))
        .collect();
    if kept.is_empty() {
        return;
    }
    for endpoint in &mut new.endpoints {
        if let Some(old) = kept.get(&(endpoint.address, endpoint.node.as_ref()))
            && !endpoint.drain
            && endpoint.maintenance.is_none()
        {
            endpoint.drain = old.drain;
            endpoint.maintenance.clone_from(&old.maintenance);
        }
    }
}

/// Returns the desired Service `new`, with the values that the server has assigned (in `old`) where the
/// source sets none. Used for comparison only: writes omit these values, so that the server decides which of
/// them can stay.
fn filled(new: &ServiceSpec, old: &ServiceSpec) -> ServiceSpec {
    let mut new = new.clone();
    if new.is_external_name() || old.is_external_name() {
        return new;
    }
    let says_address = new.cluster_ip.or(new.cluster_ips.first().copied());
    if new.cluster_ips.len() < 2 && says_address.is_none_or(|said| Some(said) == old.cluster_ip) {
        new.cluster_ips.clone_from(&old.cluster_ips);
    }
    new.cluster_ip = new.cluster_ip.or(old.cluster_ip);
    if new.ip_family_policy.is_none() {
        new.ip_family_policy = old.ip_family_policy;
    }
    if new.ip_families.is_empty() {
        new.ip_families.clone_from(&old.ip_families);
    }
    new.health_check_node_port = new.health_check_node_port.or(old.health_check_node_port);
    for port in &mut new.ports {
        let same = |old: &&ServicePort| {
            (&old.name, old.protocol, old.port) == (&port.name, port.protocol, port.port)
        };
        if let Some(old) = old.ports.iter().find(same) {
            port.node_port = port.node_port.or(old.node_port);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use model::admission::decode::{Expect, decode};
    use serde_json::{Value, json};

    use super::*;

    fn object(kind: &str, spec: Value) -> Object {
        decode(&json!({ "kind": kind, "metadata": { "name": "web" }, "spec": spec }), &Expect::default())
            .unwrap()
    }

    fn source() -> Label {
        Label::parse("shop").unwrap()
    }

    #[test]
    fn what_the_server_gave_is_no_difference_and_what_the_source_says_is() {
        let given = json!({ "type": "NodePort", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "ports": [{ "port": 80, "nodePort": 30080 }] });
        let current = prepared(&source(), &object("Service", given), None);
        let same = |spec: Value| {
            is_as_prepared(&prepared(&source(), &object("Service", spec), Some(&current)), &current)
        };
        assert!(same(json!({ "type": "NodePort", "ports": [{ "port": 80 }] })));
        for other in [
            json!({ "type": "NodePort", "ports": [{ "port": 81 }] }),
            json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30081 }] }),
            json!({ "ports": [{ "port": 80 }] }),
            json!({ "type": "NodePort", "clusterIP": "10.96.0.8", "ports": [{ "port": 80 }] }),
            json!({ "type": "NodePort", "ports": [{ "port": 80 }], "loadBalancerSourceRanges": ["192.0.2.0/24"] }),
        ] {
            assert!(!same(other.clone()), "{other}");
        }
    }

    #[test]
    fn a_drain_that_an_operator_asked_for_stays_until_the_source_says_something() {
        let drain = json!({ "mode": "Drain", "by": "jo" });
        let set =
            |endpoint: Value| object("EndpointSet", json!({ "service": "web", "endpoints": [endpoint] }));
        let current = set(json!({ "address": "10.1.0.1", "maintenance": drain }));
        let moved = set(json!({ "address": "10.1.0.1", "weight": 2 }));
        let written = prepared(&source(), &moved, Some(&current)).to_json();
        assert_eq!(written["spec"]["endpoints"][0]["maintenance"]["by"], "jo");
        let own = set(json!({ "address": "10.1.0.1", "maintenance": { "mode": "Maintenance" } }));
        let written = prepared(&source(), &own, Some(&current)).to_json();
        assert_eq!(written["spec"]["endpoints"][0]["maintenance"]["mode"], "Maintenance");

        let workload = |spec: Value| object("Workload", spec);
        let current = workload(json!({ "addresses": ["10.1.0.1"], "maintenance": drain }));
        let written = prepared(&source(), &workload(json!({ "addresses": ["10.1.0.1"] })), Some(&current));
        assert!(written.to_json()["spec"]["maintenance"].is_object());
    }
}
