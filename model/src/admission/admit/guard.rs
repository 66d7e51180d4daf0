//! Guards: a write that would take away much at once is held until somebody confirms it.
//!
//! What is counted is what a mistake takes away and users notice: virtual addresses that nobody answers at afterwards, and
//! addresses of endpoints. What only moves from one object to another is not taken away. Costs what the write changes.

use std::{collections::BTreeMap, net::IpAddr};

use super::{Admitted, Refusal};
use crate::{
    cluster::{change::Change, config::Guards, snapshot::Snapshot},
    kinds::resource::{Object, ServiceKey, Spec},
};

/// Virtual addresses that may always be removed at once: in a small cluster every removal is a large share.
pub const VIPS_FREE: usize = 2;
/// Endpoint addresses that may always be removed at once.
pub const ENDPOINTS_FREE: usize = 9;
/// Names of what would be removed that a refusal lists.
pub const NAMED_MAX: usize = 100;

/// What a guard guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarded {
    /// Cluster addresses and load balancer addresses of Services.
    Vips,
    /// Addresses of Workloads and of the endpoints in EndpointSets.
    Endpoints,
}

/// What a guard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which guard.
    pub guarded: Guarded,
    /// The first [`NAMED_MAX`] of what would be removed.
    pub named: Vec<String>,
    /// How many would be removed.
    pub removed: usize,
    /// How many there are.
    pub total: usize,
    /// The share that may be removed at once, in percent.
    pub limit_percent: u8,
}

/// Holds a write that removes more than the guards allow.
pub(super) fn check(before: &Snapshot, admitted: &Admitted, guards: Guards) -> Result<(), Refusal> {
    let Guards { vips_percent, endpoints_percent } = guards;
    let vips = || removed_vips(before, admitted);
    judge(Guarded::Vips, before.vips(), VIPS_FREE, vips_percent, vips)?;
    let endpoints = || removed_endpoints(before, admitted);
    judge(Guarded::Endpoints, before.endpoint_addresses(), ENDPOINTS_FREE, endpoints_percent, endpoints)
}

fn judge(
    guarded: Guarded,
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
    Err(Refusal::GuardHeld(Held { guarded, named, removed, total, limit_percent }))
}

/// The states of a changed object before and after.
fn states<'a>(
    before: &'a Snapshot,
    admitted: &'a Admitted,
    change: &Change,
) -> (Option<&'a Object>, Option<&'a Object>) {
    let key = change.object.key();
    let state = |snapshot: &'a Snapshot| snapshot.get(&key).map(AsRef::as_ref);
    (state(before), state(&admitted.snapshot))
}

/// The addresses at which no Service answers any longer.
fn removed_vips(before: &Snapshot, admitted: &Admitted) -> Vec<String> {
    let after = &admitted.snapshot;
    let mut removed = Vec::new();
    for change in &admitted.changes {
        let (Some(old), _) = states(before, admitted, change) else { continue };
        match &old.spec {
            Spec::Service(spec) => {
                let gone = spec.cluster_addresses().filter(|vip| after.cluster_ip_holder(*vip).is_none());
                removed.extend(gone.map(|vip| format!("{vip} of {}", old.key())));
            }
            Spec::Address(spec) => {
                if let Some(holder) = spec.services.first()
                    && after.load_balancer_ip_holder(spec.address).is_none()
                {
                    removed.push(format!("{} of Service {holder}", spec.address));
                }
            }
            Spec::Node(_)
            | Spec::AddressPool(_)
            | Spec::BfdProfile(_)
            | Spec::BgpPeer(_)
            | Spec::Advertisement(_)
            | Spec::EndpointHealth(_)
            | Spec::Workload(_)
            | Spec::EndpointSet(_) => {}
        }
    }
    removed
}

/// The endpoint addresses that are in no object any longer that the write changes.
fn removed_endpoints(before: &Snapshot, admitted: &Admitted) -> Vec<String> {
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

/// The endpoint addresses of an object, with the Service where it names one.
fn endpoints_of(object: &Object) -> Vec<(Option<ServiceKey>, IpAddr)> {
    match &object.spec {
        Spec::Workload(spec) => spec.addresses.iter().map(|address| (None, *address)).collect(),
        Spec::EndpointSet(spec) => {
            let namespace = object.metadata.namespace.clone();
            let service = namespace.map(|namespace| ServiceKey { namespace, name: spec.service.clone() });
            spec.endpoints.iter().map(|endpoint| (service.clone(), endpoint.address)).collect()
        }
        Spec::Node(_)
        | Spec::AddressPool(_)
        | Spec::BfdProfile(_)
        | Spec::BgpPeer(_)
        | Spec::Advertisement(_)
        | Spec::Address(_)
        | Spec::EndpointHealth(_)
        | Spec::Service(_) => Vec::new(),
    }
}
