//! Validation rules of EndpointSets and Workloads, which are the sources of endpoints.

use super::{check_address, check_length, check_one_per_family, check_unique, interface};
use crate::{
    kinds::{
        endpoint_set::{ENDPOINTS_MAX, EndpointSetSpec},
        service::PORTS_MAX,
        workload::{WORKLOAD_ADDRESSES_MAX, WORKLOAD_PORTS_MAX, WorkloadSpec},
    },
    primitives::{
        net::IpFamily,
        violation::{Violation, ViolationCode},
    },
};

pub(super) fn validate_set(spec: &EndpointSetSpec, found: &mut Vec<Violation>) {
    if !spec.service.is_label() {
        let message = "must be the name of a Service: one DNS label of at most 63 characters";
        found.push(Violation::new("/spec/service", ViolationCode::Invalid, message));
    }
    check_length("/spec/ports", spec.ports.len(), PORTS_MAX, found);
    let names = spec.ports.iter().map(|port| (port.name.clone(), port.protocol));
    check_unique(names, |index| format!("/spec/ports/{index}/name"), found);
    if spec.ports.len() > 1 {
        for (index, _) in spec.ports.iter().enumerate().filter(|(_, port)| port.name.is_none()) {
            let message = "must be present when there is more than one port";
            found.push(Violation::new(format!("/spec/ports/{index}/name"), ViolationCode::Required, message));
        }
    }
    if check_length("/spec/endpoints", spec.endpoints.len(), ENDPOINTS_MAX, found) {
        let addresses = spec.endpoints.iter().map(|endpoint| endpoint.address);
        check_unique(addresses, |index| format!("/spec/endpoints/{index}/address"), found);
        for (index, endpoint) in spec.endpoints.iter().enumerate() {
            check_address(format!("/spec/endpoints/{index}/address"), endpoint.address, found);
            if let Some(maintenance) = &endpoint.maintenance {
                maintenance.validate(&format!("/spec/endpoints/{index}/maintenance"), found);
            }
        }
    }
}

pub(super) fn validate_workload(spec: &WorkloadSpec, found: &mut Vec<Violation>) {
    if check_length("/spec/addresses", spec.addresses.len(), WORKLOAD_ADDRESSES_MAX, found) {
        check_one_per_family("/spec/addresses", spec.addresses.iter().map(|ip| IpFamily::of(*ip)), found);
        for (index, address) in spec.addresses.iter().enumerate() {
            check_address(format!("/spec/addresses/{index}"), *address, found);
        }
    }
    check_length("/spec/ports", spec.ports.len(), WORKLOAD_PORTS_MAX, found);
    if let Some(maintenance) = &spec.maintenance {
        maintenance.validate("/spec/maintenance", found);
    }
    if let Some(interface) = &spec.interface {
        interface::validate(interface, found);
        if spec.node.is_none() {
            let message = "must be present with spec.interface: the Node that has the interface";
            found.push(Violation::new("/spec/node", ViolationCode::Required, message));
        }
    }
    if spec.lease_seconds.is_some() {
        let message = "is not supported: no Workload expires";
        found.push(Violation::new("/spec/leaseSeconds", ViolationCode::Invalid, message).hint(
            "remove the field; delete the Workload when it ends, or set a health check on its Service",
        ));
    }
}
