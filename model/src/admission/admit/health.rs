//! Records of endpoint health: written by the server's own judgement, deleted with what they are about.

use std::{collections::BTreeMap, sync::Arc};

use super::candidate::Candidate;
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict, record_key},
        metadata::Metadata,
        resource::{Object, ObjectKey, ServiceKey, Spec},
    },
};

/// The record that a judgement makes, changes or ends; nothing where there is nothing to judge or to change.
pub(super) fn judge(
    snapshot: &Snapshot,
    service: &ServiceKey,
    endpoints: &BTreeMap<CheckKey, EndpointVerdict>,
) -> Option<Candidate> {
    let key = record_key(service);
    let old = snapshot.get(&key).cloned();
    let is_wanted = is_checked(snapshot, service) && !endpoints.is_empty();
    if old.is_none() && !is_wanted {
        return None;
    }
    let metadata = match &old {
        Some(old) => old.metadata.clone(),
        None => Metadata::named(key.name.clone(), key.namespace.clone()),
    };
    let spec = EndpointHealthSpec { endpoints: endpoints.clone() };
    let new = is_wanted.then_some(Object { metadata, spec: Spec::EndpointHealth(spec) });
    Some(Candidate::of_record(key, old, new))
}

/// The records of Services that the write removes, or whose endpoints are no longer checked after it. They are taken out of
/// the state here.
pub(super) fn useless(
    before: &Snapshot,
    working: &mut Snapshot,
    candidates: &[Candidate],
    pruned: &[ObjectKey],
) -> Vec<Candidate> {
    let touched = candidates.iter().map(|candidate| &candidate.key).chain(pruned);
    let services: Vec<_> = touched.filter_map(ServiceKey::of_object_key).collect();
    let mut records = Vec::new();
    for service in services {
        let key = record_key(&service);
        let Some(old) = before.get(&key).filter(|_| !is_checked(working, &service)) else { continue };
        working.remove(&key);
        records.push(Candidate::of_record(key, Some(Arc::clone(old)), None));
    }
    records
}

/// Whether agents check the endpoints of a Service.
fn is_checked(snapshot: &Snapshot, service: &ServiceKey) -> bool {
    let spec = snapshot.service(service).and_then(|object| object.as_service());
    spec.is_some_and(|spec| spec.health_check.is_some() && !spec.disabled)
}
