//! Write guards: a write that would remove too many addresses at once is refused until it is confirmed.
//!
//! The guards count the losses that users notice: virtual addresses that no Service has after the write, and
//! addresses of endpoints. Addresses that move to another object do not count. The cost of the check is
//! proportional to the size of the write.

use std::{collections::BTreeMap, net::IpAddr};

use super::{AdmittedWrite, Refusal};
use crate::{
    cluster::{change::Change, config::Guards, snapshot::Snapshot},
    kinds::resource::{Object, ServiceKey},
};

/// Number of virtual addresses that a write may always remove without confirmation, because in a small
/// cluster even one address is a large share.
pub const VIPS_FREE: usize = 9;
/// Number of endpoint addresses that a write may always remove without confirmation.
pub const ENDPOINTS_FREE: usize = 9;
/// Maximum number of removed addresses that a refusal lists.
pub const NAMED_MAX: usize = 100;

/// Type of addresses whose removal a guard limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemovalGuard {
    /// Cluster IPs and load balancer addresses of Services.
    Vips,
    /// Addresses of Workloads and of the endpoints in EndpointSets.
    Endpoints,
}

/// Refusal of a write that would remove more addresses than a guard permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRefusal {
    /// Type of the addresses that would be removed.
    pub guard: RemovalGuard,
    /// Addresses that would be removed, at most [`NAMED_MAX`].
    pub named: Vec<String>,
    /// Number of addresses that the write would remove.
    pub removed: usize,
    /// Number of addresses of this type that existed before the write.
    pub total: usize,
    /// Maximum share of the existing addresses that one write may remove, in percent.
    pub limit_percent: u8,
}

/// Refuses a write that removes a larger share of the addresses than `guards` allows.
pub(super) fn check(before: &Snapshot, admitted: &AdmittedWrite, guards: Guards) -> Result<(), Refusal> {
    let Guards { vips_percent, endpoints_percent } = guards;
    let vips = || removed_vips(before, admitted);
    judge(RemovalGuard::Vips, before.vips(), VIPS_FREE, vips_percent, vips)?;
    let endpoints = || removed_endpoints(before, admitted);
    judge(RemovalGuard::Endpoints, before.endpoint_addresses(), ENDPOINTS_FREE, endpoints_percent, endpoints)
}

fn judge(
    guard: RemovalGuard,
    total: usize,
    free: usize,
    limit_percent: u8,
    removed: impl FnOnce() -> Vec<String>,
) -> Result<(), Refusal> {
    if limit_percent >= 100 || total <= free {
        return Ok(());
    }
    let mut named = removed();
    let removed = named.len();
    if removed <= free || removed * 100 <= total * usize::from(limit_percent) {
        return Ok(());
    }
    named.truncate(NAMED_MAX);
    Err(Refusal::GuardHeld(GuardRefusal { guard, named, removed, total, limit_percent }))
}

/// Returns the states of a changed object before and after the write.
fn states<'a>(
    before: &'a Snapshot,
    admitted: &'a AdmittedWrite,
    change: &Change,
) -> (Option<&'a Object>, Option<&'a Object>) {
    let key = change.object.key();
    let state = |snapshot: &'a Snapshot| snapshot.get(&key).map(AsRef::as_ref);
    (state(before), state(&admitted.snapshot))
}

/// Returns the cluster IPs and load balancer addresses that no Service holds after the write.
fn removed_vips(before: &Snapshot, admitted: &AdmittedWrite) -> Vec<String> {
    let after = &admitted.snapshot;
    let mut removed = Vec::new();
    for change in &admitted.changes {
        let (Some(old), _) = states(before, admitted, change) else { continue };
        if let Some(spec) = old.as_service() {
            let gone = spec.cluster_addresses().filter(|vip| after.cluster_ip_holder(*vip).is_none());
            removed.extend(gone.map(|vip| format!("{vip} of {}", old.key())));
        }
        if let Some(spec) = old.as_address()
            && let Some(holder) = spec.services.first()
            && after.load_balancer_ip_holder(spec.address).is_none()
        {
            removed.push(format!("{} of Service {holder}", spec.address));
        }
    }
    removed
}

/// Returns the endpoint addresses that the write removes from objects and does not add to others.
fn removed_endpoints(before: &Snapshot, admitted: &AdmittedWrite) -> Vec<String> {
    let mut balance: BTreeMap<(Option<ServiceKey>, IpAddr), i64> = BTreeMap::new();
    for change in &admitted.changes {
        let (old, new) = states(before, admitted, change);
        for (object, weight) in [(old, 1), (new, -1)] {
            for endpoint in object.into_iter().flat_map(endpoints_of) {
                *balance.entry(endpoint).or_insert(0) += weight;
            }
        }
    }
    let mut removed = Vec::new();
    for ((service, address), count) in balance {
        let name = match service {
            Some(service) => format!("{address} of Service {service}"),
            None => format!("{address} of a Workload"),
        };
        removed.extend((0..count).map(|_| name.clone()));
    }
    removed
}

/// Returns the endpoint addresses in an EndpointSet or Workload, each with the Service if the object names
/// one.
fn endpoints_of(object: &Object) -> Vec<(Option<ServiceKey>, IpAddr)> {
    let service = object.as_endpoint_set().and_then(|spec| {
        let namespace = object.metadata.namespace.clone()?;
        Some(ServiceKey { namespace, name: spec.service.clone() })
    });
    let addresses = object.spec.endpoint_addresses().into_iter();
    addresses.map(|(_, address)| (service.clone(), address)).collect()
}
