//! Validation rules between the fields of one object, independent of other objects.

use std::collections::BTreeSet;

use crate::{
    http::{validate_certificate, validate_gateway, validate_route, validate_tls_route},
    kinds::{
        load_balancer::check_annotations,
        metadata::check_labels,
        resource::{Kind, Object, Spec},
    },
    primitives::{
        net::{self, IpFamily},
        violation::{Violation, ViolationCode, check_length, check_unique},
    },
};

pub(crate) mod bgp;
mod dns_zone;
mod endpoints;
mod interface;
mod network_policy;
mod node;
mod pool;
mod service;
mod workload_network;

/// Returns all violations that can be found in an object without looking at other objects.
#[must_use]
pub(crate) fn validate(object: &Object) -> Vec<Violation> {
    let mut found = Vec::new();
    object.metadata.validate(&mut found);
    let must_be_label = object.spec.kind() == Kind::Service;
    if must_be_label && !object.metadata.name.is_label() {
        let message =
            "must be one DNS label of at most 63 characters without dots, because it becomes a DNS name";
        found.push(Violation::new("/metadata/name", ViolationCode::Invalid, message));
    }
    match &object.spec {
        Spec::Service(spec) => {
            service::validate(spec, &mut found);
            dns_zone::validate_hostnames(spec, &mut found);
            check_annotations(spec, &object.metadata, &mut found);
        }
        Spec::EndpointSet(spec) => endpoints::validate_set(spec, &mut found),
        Spec::Workload(spec) => endpoints::validate_workload(spec, &mut found),
        Spec::Node(spec) => node::validate(spec, &mut found),
        Spec::AddressPool(spec) => pool::validate(spec, &mut found),
        Spec::Advertisement(spec) => {
            pool::validate_advertisement(spec, &mut found);
            bgp::validate_advertisement(spec, &mut found);
        }
        Spec::BgpPeer(spec) => bgp::validate_peer(spec, &mut found),
        Spec::BfdProfile(spec) => bgp::validate_profile(spec, &mut found),
        Spec::DnsZone(spec) => dns_zone::validate(spec, &mut found),
        Spec::Certificate(spec) => validate_certificate(spec, &mut found),
        Spec::Gateway(spec) => validate_gateway(spec, &mut found),
        Spec::HttpRoute(spec) => validate_route(spec, &mut found),
        Spec::TlsRoute(spec) => validate_tls_route(spec, &mut found),
        Spec::WorkloadNetwork(spec) => workload_network::validate(spec, &mut found),
        Spec::NetworkPolicy(spec) => network_policy::validate(spec, &mut found),
        Spec::Address(_) => found.push(
            Violation::new(
                "/kind",
                ViolationCode::Invalid,
                "must not be `Address`: the server keeps these records",
            )
            .hint("ask for an address in spec.loadBalancer of a Service; move one with `tidegate move`"),
        ),
        Spec::EndpointHealth(_) => found.push(
            Violation::new(
                "/kind",
                ViolationCode::Invalid,
                "must not be `EndpointHealth`: the server keeps these records",
            )
            .hint("configure health checks in spec.healthCheck of a Service"),
        ),
        Spec::Block(_) => found.push(
            Violation::new(
                "/kind",
                ViolationCode::Invalid,
                "must not be `Block`: the server keeps these records",
            )
            .hint("create a WorkloadNetwork: nodes get blocks of it by themselves"),
        ),
        Spec::Attachment(_) => found.push(
            Violation::new(
                "/kind",
                ViolationCode::Invalid,
                "must not be `Attachment`: the server keeps these records",
            )
            .hint("agents report the Attachments of their nodes"),
        ),
    }
    found
}

/// Reports an address that may never be an endpoint, a virtual address or a node address, such as a loopback
/// address.
fn check_address(at: String, address: std::net::IpAddr, found: &mut Vec<Violation>) {
    if let Some(why) = net::forbidden(address) {
        let message = format!("must be an ordinary unicast address; {address} is {why}");
        found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
    }
}

/// Adds a violation if a network has bits set beyond its prefix length. Returns true if the network is valid.
fn check_network(at: String, network: &ipnet::IpNet, found: &mut Vec<Violation>) -> bool {
    let is_network = network.trunc() == *network;
    if !is_network {
        let message = format!("must be a network; {network} has bits set behind its prefix");
        let hint = format!("write {}", network.trunc());
        found.push(Violation::new(at, ViolationCode::Invalid, message).hint(hint));
    }
    is_network
}

/// Adds one violation if several addresses have the same IP family.
fn check_one_per_family(at: &str, families: impl Iterator<Item = IpFamily>, found: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    if !families.into_iter().all(|family| seen.insert(family)) {
        found.push(Violation::new(
            at,
            ViolationCode::Conflict,
            "must have at most one address per IP family",
        ));
    }
}

fn check_selector(at: &str, selector: &crate::kinds::metadata::Labels, found: &mut Vec<Violation>) {
    check_labels(at, selector, found);
}
