//! Rules of a Node.

use super::{check_address, check_length, check_unique};
use crate::{
    net,
    node::{NODE_ADDRESSES_MAX, NODE_WORKLOAD_CIDRS_MAX, NodeSpec},
    violation::{Violation, ViolationCode},
};

pub(super) fn validate(spec: &NodeSpec, found: &mut Vec<Violation>) {
    check_length("/spec/addresses", spec.addresses.len(), NODE_ADDRESSES_MAX, found);
    check_unique(spec.addresses.iter(), |index| format!("/spec/addresses/{index}"), found);
    for (index, address) in spec.addresses.iter().enumerate() {
        check_address(format!("/spec/addresses/{index}"), *address, found);
    }
    if check_length("/spec/workloadCIDRs", spec.workload_cidrs.len(), NODE_WORKLOAD_CIDRS_MAX, found) {
        validate_cidrs(spec, found);
    }
}

fn validate_cidrs(spec: &NodeSpec, found: &mut Vec<Violation>) {
    for (index, cidr) in spec.workload_cidrs.iter().enumerate() {
        let at = format!("/spec/workloadCIDRs/{index}");
        if cidr.trunc() != *cidr {
            let message = format!("must be a network; {cidr} has bits set behind its prefix");
            found.push(
                Violation::new(at, ViolationCode::Invalid, message).hint(format!("write {}", cidr.trunc())),
            );
        } else if let Some(why) = net::forbidden(cidr.network()) {
            let message =
                format!("must be an ordinary unicast network; {cidr} begins with an address that is {why}");
            found.push(Violation::new(at, ViolationCode::AddressNotAllowed, message));
        } else if let Some(other) =
            spec.workload_cidrs[..index].iter().find(|other| net::overlaps(other, cidr))
        {
            let message = format!("must not overlap {other} of the same Node");
            found.push(Violation::new(at, ViolationCode::Overlap, message));
        }
    }
}
