//! Quotas of namespaces: a write is refused if it would make a namespace use more of a resource than its quota
//! allows. Writes that reduce or keep the use are accepted even if it exceeds a quota that was lowered.

use std::collections::{BTreeMap, BTreeSet};

use super::{AdmittedWrite, Refusal, staged_object::StagedObject};
use crate::{
    cluster::{
        change::Change,
        quota::{QuotaResource, Quotas, Usage},
        snapshot::Snapshot,
    },
    compile::{affected, compile},
    kinds::resource::{Kind, Object, ObjectKey, ServiceKey},
    observed::health::checks,
    primitives::{
        name::Namespace,
        violation::{Violation, ViolationCode},
    },
};

/// Returns the positions of the objects in the request, as prefixes of JSON pointers. Returns none if there are no
/// quotas.
pub(super) fn places(quotas: &Quotas, staged: &[StagedObject]) -> BTreeMap<ObjectKey, String> {
    let limited = staged.iter().filter(|_| !quotas.is_empty());
    limited.map(|staged_object| (staged_object.key.clone(), staged_object.at().to_owned())).collect()
}

/// Refuses a write after which a namespace uses more of a resource than before and than its quota allows. `places`
/// are the positions of the objects in the request, as prefixes of JSON pointers.
pub(super) fn check(
    before: &Snapshot,
    admitted: &AdmittedWrite,
    quotas: &Quotas,
    places: &BTreeMap<ObjectKey, String>,
) -> Result<(), Refusal> {
    if quotas.is_empty() {
        return Ok(());
    }
    let changed = admitted.changes.iter().filter(|change| change.object.spec.kind() != Kind::EndpointHealth);
    let namespaces: BTreeSet<_> =
        changed.filter_map(|change| change.object.metadata.namespace.as_ref()).collect();
    let mut violations = Vec::new();
    for namespace in namespaces {
        for resource in QuotaResource::ALL {
            let Some(limit) = quotas.limit(namespace, resource) else { continue };
            let check = QuotaCheck { before, admitted, namespace, resource, limit };
            violations.extend(check.violations(places));
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(Refusal::QuotaExceeded(violations)) }
}

/// Returns the amounts that the objects of a namespace use.
#[must_use]
pub fn usage(snapshot: &Snapshot, namespace: &Namespace) -> Usage {
    let mut usage = snapshot.usage(namespace);
    let services = snapshot.list(Kind::Service, Some(namespace), None);
    let checked = services.filter_map(|service| ServiceKey::of_object_key(&service.key()));
    usage.set(QuotaResource::CheckedEndpoints, checked.map(|service| checked_of(snapshot, &service)).sum());
    usage
}

fn checked_of(snapshot: &Snapshot, service: &ServiceKey) -> usize {
    let has_check = |object: &Object| object.as_service().is_some_and(|spec| spec.health_check.is_some());
    if !snapshot.service(service).is_some_and(|object| has_check(object)) {
        return 0;
    }
    compile(snapshot, service).map_or(0, |compiled| checks(&compiled).len())
}

/// Comparison of one resource in one namespace before and after a write.
struct QuotaCheck<'a> {
    before: &'a Snapshot,
    admitted: &'a AdmittedWrite,
    namespace: &'a Namespace,
    resource: QuotaResource,
    limit: usize,
}

impl QuotaCheck<'_> {
    /// Returns a violation for each object of the request that exceeds the quota. The objects that fit, in the
    /// order of the request, have none, so that an adapter can send them again without the others.
    fn violations(&self, places: &BTreeMap<ObjectKey, String>) -> Vec<Violation> {
        let Some((before, after)) = self.growth() else { return Vec::new() };
        if after <= self.limit {
            return Vec::new();
        }
        let changes: Vec<_> = self.changes().map(|change| (change, self.difference(change))).collect();
        let lost: usize = changes.iter().map(|(_, (old, new))| old.saturating_sub(*new)).sum();
        let mut used = before.saturating_sub(lost);
        let mut violations = Vec::new();
        for (change, (old, new)) in changes {
            let growth = new.saturating_sub(old);
            if used + growth <= self.limit {
                used += growth;
            } else if growth > 0 {
                let at = places.get(&change.object.key()).cloned().unwrap_or_default();
                violations.push(self.violation(at, before, after));
            }
        }
        if violations.is_empty() {
            // No single object exceeds the quota, but several do together.
            violations.push(self.violation(String::new(), before, after));
        }
        violations
    }

    fn violation(&self, at: String, before: usize, after: usize) -> Violation {
        let Self { namespace, resource, limit, .. } = self;
        let message = format!(
            "must fit into the quota of namespace {namespace}: {limit} {}; {before} are in use, with this write it \
             would be {after}",
            resource.words()
        );
        Violation::new(at, ViolationCode::QuotaExceeded, message).hint(format!(
            "delete objects that are not needed, or have the operator raise `quota` of tidegate-api, for example \
             {namespace}/{resource}={after}"
        ))
    }

    /// Returns the amount before and after the write, or `None` if it does not increase.
    fn growth(&self) -> Option<(usize, usize)> {
        let (before, after) = match self.resource {
            QuotaResource::CheckedEndpoints => {
                // All Services of the namespace are counted only if those of the write check more endpoints.
                let services: BTreeSet<_> = self.changes().flat_map(|change| self.services(change)).collect();
                let of = |snapshot| services.iter().map(|service| checked_of(snapshot, service)).sum();
                let (old, new): (usize, usize) = (of(self.before), of(&self.admitted.snapshot));
                if new <= old {
                    return None;
                }
                let after = usage(&self.admitted.snapshot, self.namespace).get(self.resource);
                (after + old - new, after)
            }
            QuotaResource::Services
            | QuotaResource::EndpointSets
            | QuotaResource::Workloads
            | QuotaResource::Endpoints
            | QuotaResource::NodePorts
            | QuotaResource::LoadBalancerAddresses => {
                let of = |snapshot: &Snapshot| snapshot.usage(self.namespace).get(self.resource);
                (of(self.before), of(&self.admitted.snapshot))
            }
        };
        (after > before).then_some((before, after))
    }

    fn changes(&self) -> impl Iterator<Item = &Change> {
        let is_in = |change: &&Change| change.object.metadata.namespace.as_ref() == Some(self.namespace);
        self.admitted.changes.iter().filter(is_in)
    }

    /// Returns the amounts that a changed object uses before and after the write. Endpoints that the checks of
    /// several changed objects have in common are attributed to each of them.
    fn difference(&self, change: &Change) -> (usize, usize) {
        if self.resource == QuotaResource::CheckedEndpoints {
            let services = self.services(change);
            let of = |snapshot| services.iter().map(|service| checked_of(snapshot, service)).sum();
            return (of(self.before), of(&self.admitted.snapshot));
        }
        let key = change.object.key();
        let of =
            |snapshot: &Snapshot| snapshot.get(&key).map_or(0, |object| Usage::of(object).get(self.resource));
        (of(self.before), of(&self.admitted.snapshot))
    }

    fn services(&self, change: &Change) -> BTreeSet<ServiceKey> {
        affected(self.before, &self.admitted.snapshot, change)
    }
}
