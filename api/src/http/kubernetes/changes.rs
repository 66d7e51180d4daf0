//! Search for the Kubernetes objects that recent commits affect. The cost depends on the number of changed
//! objects, not on the number of stored objects.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    admission::rollback::{self, FormerStates},
    cluster::snapshot::Snapshot,
    kinds::resource::{Kind, Object, ServiceKey},
    primitives::quantity::Revision,
};

use super::{catalogue::Resource, show::Unit};
use crate::state::{
    change_ring::{Before, RecentChange},
    compiled_set::Delta,
    published::Published,
};

/// Returns the Tidegate entities ([`Unit`]) whose Kubernetes objects may have changed after a revision, or
/// `None` if the commits after this revision are no longer in memory.
pub(super) fn since(published: &Published, resource: Resource, revision: Revision) -> Option<BTreeSet<Unit>> {
    if matches!(resource, Resource::Endpoints | Resource::EndpointSlices) {
        let delta = published.compiled.since(revision)?;
        let keys = delta.map(|one| match one {
            Delta::Changed(entry) => entry.form.service.clone(),
            Delta::Removed(key, _) => key,
        });
        let mut units: BTreeSet<_> = keys.map(|key| Unit::Object(key.object_key())).collect();
        // Endpoints carry the labels of their Service.
        for change in changes(published, revision)? {
            if change.object.spec.kind() == Kind::Service {
                units.insert(Unit::Object(change.object.key()));
            }
        }
        return Some(units);
    }
    let mut units = BTreeSet::new();
    for change in changes(published, revision)? {
        concerned(published, resource, change, &mut units);
    }
    Some(units)
}

fn changes(published: &Published, revision: Revision) -> Option<impl Iterator<Item = &RecentChange>> {
    Some(published.recent.since(revision)?.flat_map(|commit| &commit.changes))
}

fn concerned(published: &Published, resource: Resource, change: &RecentChange, units: &mut BTreeSet<Unit>) {
    let object = &change.object;
    let kind = object.spec.kind();
    match resource {
        Resource::Namespaces => units.extend(object.metadata.namespace.clone().map(Unit::Namespace)),
        Resource::Services if kind == Kind::Address => {
            let before = match &change.before {
                Before::Object(before) => Some(before),
                Before::Nothing | Before::Unknown => None,
            };
            let records = before.into_iter().chain([object]).filter_map(|state| state.as_address());
            let holders = records.flat_map(|record| &record.services).map(ServiceKey::object_key);
            units.extend(holders.map(Unit::Object));
        }
        // The representation of a Workload depends on its Node.
        Resource::Pods if kind == Kind::Node => {
            let workloads = published.snapshot.workloads_on(&object.metadata.name);
            units.extend(workloads.map(|workload| Unit::Object(workload.key())));
        }
        Resource::Nodes
        | Resource::Services
        | Resource::Pods
        | Resource::Endpoints
        | Resource::EndpointSlices
        | Resource::Events
        | Resource::Ingresses
        | Resource::Gateways
        | Resource::HttpRoutes => {
            if resource.of() == Some(kind) {
                units.insert(Unit::Object(object.key()));
            }
        }
    }
}

/// Returns the state of the objects at an earlier revision, by undoing the commits after it. Returns `None`
/// if these commits are no longer in memory.
pub(super) fn state_at(published: &Published, revision: Revision) -> Option<Snapshot> {
    let mut former = FormerStates::new();
    for change in changes(published, revision)? {
        let before: Option<Arc<Object>> = match &change.before {
            Before::Nothing => None,
            Before::Object(object) => Some(Arc::clone(object)),
            Before::Unknown => return None,
        };
        former.entry(change.object.key()).or_insert(before);
    }
    Some(rollback::state(&published.snapshot, &former).0)
}
