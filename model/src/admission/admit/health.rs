//! Admission of EndpointHealth records, which list the unhealthy endpoints of a Service. The server creates
//! and deletes a record from health check results; a record is also deleted with its Service.

use std::{collections::BTreeMap, sync::Arc};

use super::staged_object::StagedObject;
use crate::{
    cluster::snapshot::Snapshot,
    compile::compile,
    kinds::{
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict, record_key},
        metadata::Metadata,
        resource::{Object, ObjectKey, ServiceKey, Spec},
    },
    observed::health::is_watched,
};

/// Returns the staged health record of a Service with the verdicts (health states) in `endpoints`, or its
/// staged deletion if there are none or the endpoints are no longer checked. Returns `None` if there is no
/// record and none is needed.
pub(super) fn judge(
    snapshot: &Snapshot,
    service: &ServiceKey,
    endpoints: &BTreeMap<CheckKey, EndpointVerdict>,
) -> Option<StagedObject> {
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
    Some(StagedObject::of_record(key, old, new))
}

/// Removes the health records of Services that the request deletes or whose endpoints are no longer checked.
/// Returns the deletions as staged objects.
pub(super) fn remove_obsolete(
    before: &Snapshot,
    working: &mut Snapshot,
    staged: &[StagedObject],
    pruned: &[ObjectKey],
) -> Vec<StagedObject> {
    let touched = staged.iter().map(|staged_object| &staged_object.key).chain(pruned);
    let services: Vec<_> = touched.filter_map(ServiceKey::of_object_key).collect();
    let mut records = Vec::new();
    for service in services {
        let key = record_key(&service);
        let Some(old) = before.get(&key).filter(|_| !is_checked(working, &service)) else { continue };
        working.remove(&key);
        records.push(StagedObject::of_record(key, Some(Arc::clone(old)), None));
    }
    records
}

/// True if agents check endpoints of a Service: by its health check, because a Workload of it is on a lost Node, or by
/// default.
fn is_checked(snapshot: &Snapshot, service: &ServiceKey) -> bool {
    compile(snapshot, service).is_some_and(|compiled| is_watched(&compiled))
}
