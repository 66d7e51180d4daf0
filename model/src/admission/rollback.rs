//! Rollback: a write that restores former states of objects.
//!
//! A rollback is a normal write: it is admitted or refused with violations, can be a dry run, and creates a
//! revision that can be undone. Address records are not restored as objects, because they follow from
//! Services and pools. The former state of a record only determines the Services that may claim its address
//! first, and the order of the nodes that announce the address.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    admission::admit::{Operation, Request, is_same},
    cluster::{
        change::{Change, ChangeKind},
        history::{Maker, RevisionEntry},
        snapshot::Snapshot,
    },
    kinds::{
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
        service::ServiceSpec,
    },
    primitives::quantity::Revision,
};

/// Former states of objects; `None` if the object did not exist.
pub type FormerStates = BTreeMap<ObjectKey, Option<Arc<Object>>>;

/// Write that changed an object again after the write to undo, so that a rollback conflicts with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterWrite {
    /// Key of the object that was written again.
    pub key: ObjectKey,
    /// Revision of the later write.
    pub revision: Revision,
    /// Name of the author of the later write.
    pub author: String,
}

/// Adds to `former` the states that objects had before the writes in `entries`, which are ordered from the
/// oldest to the newest. If several writes changed an object, its state before the oldest one is added. Skips
/// writes by the server or agents, except changes of address records after the first client write, because
/// these may be its consequences.
pub fn before(former: &mut FormerStates, entries: &[RevisionEntry]) {
    for entry in entries {
        let is_intent = is_intent(entry);
        // An address record older than any client write depends on nothing that is undone.
        let may_follow = !former.is_empty();
        let is_meant = |key: &ObjectKey| is_intent || (may_follow && key.kind == Kind::Address);
        for object in entry.objects.iter().filter(|object| is_meant(&object.key)) {
            former.entry(object.key.clone()).or_insert_with(|| object.before.clone());
        }
    }
}

/// Adds to `former` the states that objects had before the writes in `entries`, like [`before`], but includes
/// all writes that the server or agents made by themselves.
pub fn before_all(former: &mut FormerStates, entries: &[RevisionEntry]) {
    for object in entries.iter().flat_map(|entry| &entry.objects) {
        former.entry(object.key.clone()).or_insert_with(|| object.before.clone());
    }
}

/// Returns the snapshot that follows if the objects get their former states, with the next revision, and the
/// changes from `snapshot` to it. Admission does not check the result; it is for display only.
#[must_use]
pub fn state(snapshot: &Snapshot, former: &FormerStates) -> (Snapshot, Vec<Change>) {
    let mut state = snapshot.clone();
    state.set_revision(snapshot.revision().next());
    let mut changes = Vec::new();
    for (key, target) in former {
        let change = match (snapshot.get(key), target) {
            (None, None) => continue,
            (Some(current), Some(target)) if current == target => continue,
            (Some(current), None) => {
                state.remove(key);
                Change { kind: ChangeKind::Deleted, object: Arc::clone(current) }
            }
            (current, Some(target)) => {
                state.put(Arc::clone(target));
                let kind = if current.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
                Change { kind, object: Arc::clone(target) }
            }
        };
        changes.push(change);
    }
    (state, changes)
}

/// Returns the states that objects had before one write, whether a client or the server made the write.
#[must_use]
pub fn before_only(entry: &RevisionEntry) -> FormerStates {
    entry.objects.iter().map(|object| (object.key.clone(), object.before.clone())).collect()
}

/// Returns, for each object in `former`, the first client write of the object in `entries`, which must be
/// later than the writes to undo. Objects without such a write are omitted.
#[must_use]
pub fn later(former: &FormerStates, entries: &[RevisionEntry]) -> Vec<LaterWrite> {
    let mut found: BTreeMap<&ObjectKey, LaterWrite> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| is_intent(entry)) {
        for object in entry.objects.iter().filter(|object| former.contains_key(&object.key)) {
            found.entry(&object.key).or_insert_with(|| LaterWrite {
                key: object.key.clone(),
                revision: entry.revision,
                author: entry.origin.author.clone(),
            });
        }
    }
    found.into_values().collect()
}

/// Returns the write request that restores the former states. With `evict`, pools get their former ranges
/// even if this takes addresses from Services.
#[must_use]
pub fn request(snapshot: &Snapshot, former: &FormerStates, evict: bool) -> Request {
    let mut request = Request { evict, ..Request::default() };
    let mut claimants: BTreeSet<ServiceKey> = BTreeSet::new();
    for (key, target) in former.iter().filter(|(key, _)| key.kind == Kind::Address) {
        let record = |object: &Arc<Object>| object.as_address().cloned();
        let (was, is) = (target.as_ref().and_then(record), snapshot.get(key).and_then(record));
        let holders = |record: &Option<crate::kinds::address::AddressSpec>| {
            record.as_ref().map(|record| record.services.clone()).unwrap_or_default()
        };
        if holders(&was) != holders(&is) {
            claimants.extend(holders(&was));
            claimants.extend(holders(&is));
        }
        request.former.extend(was);
    }
    for (key, target) in former.iter().filter(|(key, _)| !key.kind.is_kept_by_server()) {
        let claims = ServiceKey::of_object_key(key).is_some_and(|service| claimants.remove(&service));
        match (snapshot.get(key), target) {
            (None, None) => {}
            (Some(current), None) => {
                let if_revision = Some(current.metadata.revision());
                request.operations.push(Operation::Delete { key: key.clone(), if_revision });
            }
            (Some(current), Some(target)) if is_same(current, target) && !claims => {}
            (current, Some(target)) => {
                let object = restored(snapshot, former, key, target, current.map(AsRef::as_ref));
                let if_revision = current.map(|current| current.metadata.revision());
                request.operations.push(Operation::Restore { object, if_revision });
            }
        }
    }
    // These Services were not written, but hold other addresses than before.
    for service in claimants {
        if let Some(object) = snapshot.service(&service) {
            let if_revision = Some(object.metadata.revision());
            request.operations.push(Operation::Restore { object: Object::clone(object), if_revision });
        }
    }
    request
}

/// True if a client requested the write, false if the server decided it.
fn is_intent(entry: &RevisionEntry) -> bool {
    match entry.origin.maker {
        Maker::Client => true,
        Maker::Agent | Maker::Server => false,
    }
}

/// Returns the former state of an object, with two differences: a Node keeps its current `lost_since`, and a
/// Service omits allocated values (such as node ports) that are now in use by Services that the rollback does
/// not restore.
fn restored(
    snapshot: &Snapshot,
    former: &FormerStates,
    key: &ObjectKey,
    target: &Object,
    current: Option<&Object>,
) -> Object {
    let mut object = target.clone();
    if let Spec::Node(spec) = &mut object.spec {
        spec.lost_since = match current.map(|current| &current.spec) {
            Some(Spec::Node(current)) => current.lost_since,
            Some(_) | None => None,
        };
    }
    if let (Spec::Service(spec), Some(service)) = (&mut object.spec, ServiceKey::of_object_key(key)) {
        // A holder outside of the rollback keeps its value; the Service gets another one.
        let is_taken = |holder: Option<&ServiceKey>| {
            holder.is_some_and(|holder| *holder != service && !former.contains_key(&holder.object_key()))
        };
        give_up_taken(snapshot, spec, is_taken);
    }
    object
}

fn give_up_taken(
    snapshot: &Snapshot,
    spec: &mut ServiceSpec,
    is_taken: impl Fn(Option<&ServiceKey>) -> bool,
) {
    let taken: Vec<_> =
        spec.cluster_addresses().filter(|address| is_taken(snapshot.cluster_ip_holder(*address))).collect();
    if !taken.is_empty() {
        spec.cluster_ip = None;
        spec.cluster_ips.clear();
    }
    for port in &mut spec.ports {
        let protocol = port.protocol;
        port.node_port =
            port.node_port.filter(|number| !is_taken(snapshot.node_port_holder(protocol, *number)));
    }
    spec.health_check_node_port = spec
        .health_check_node_port
        .filter(|number| !is_taken(snapshot.node_port_holder(crate::kinds::service::Protocol::Tcp, *number)));
}
