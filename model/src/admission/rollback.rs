//! Rollback: from what objects were to the write that makes them so again.
//!
//! A rollback is a write like any other: it is admitted, refused with reasons, tried without doing it, and is a revision
//! of its own that can be undone. Records of addresses are not restored as objects, because they follow from Services and
//! pools; what they were tells who has the first claim on which address, and in which order nodes answer for it.

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

/// What objects shall be again; `None` is that there is no such object.
pub type Former = BTreeMap<ObjectKey, Option<Arc<Object>>>;

/// Something that stands in the way of undoing one write: a later write of the same object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Later {
    /// The object.
    pub key: ObjectKey,
    /// The write.
    pub revision: Revision,
    /// Who asked for it.
    pub author: String,
}

/// Adds what the objects were before some writes, which follow those that were added before. What the server and the agents wrote by themselves
/// is no intent, and is not undone; but who had and answered for an address before what somebody asked for comes first again.
pub fn before(former: &mut Former, entries: &[RevisionEntry]) {
    for entry in entries {
        let is_intent = is_intent(entry);
        // Before anybody asked for anything, it followed from nothing that is undone.
        let may_follow = !former.is_empty();
        let is_meant = |key: &ObjectKey| is_intent || (may_follow && key.kind == Kind::Address);
        for object in entry.objects.iter().filter(|object| is_meant(&object.key)) {
            former.entry(object.key.clone()).or_insert_with(|| object.before.clone());
        }
    }
}

/// As [`before`], whoever wrote.
pub fn before_all(former: &mut Former, entries: &[RevisionEntry]) {
    for object in entries.iter().flat_map(|entry| &entry.objects) {
        former.entry(object.key.clone()).or_insert_with(|| object.before.clone());
    }
}

/// The state in which the objects are what they were, one revision on, and the changes that lead there. Nothing is
/// admitted: it is a state to look at.
#[must_use]
pub fn state(snapshot: &Snapshot, former: &Former) -> (Snapshot, Vec<Change>) {
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

/// What the objects of one write were before it, whoever wrote.
#[must_use]
pub fn before_only(entry: &RevisionEntry) -> Former {
    entry.objects.iter().map(|object| (object.key.clone(), object.before.clone())).collect()
}

/// The first of some later writes of each object.
#[must_use]
pub fn later(former: &Former, entries: &[RevisionEntry]) -> Vec<Later> {
    let mut found: BTreeMap<&ObjectKey, Later> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| is_intent(entry)) {
        for object in entry.objects.iter().filter(|object| former.contains_key(&object.key)) {
            found.entry(&object.key).or_insert_with(|| Later {
                key: object.key.clone(),
                revision: entry.revision,
                author: entry.origin.author.clone(),
            });
        }
    }
    found.into_values().collect()
}

/// The write that makes objects what they were. `evict` says that Services may lose addresses by it that the former pools
/// did not have.
#[must_use]
pub fn request(snapshot: &Snapshot, former: &Former, evict: bool) -> Request {
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
    // They were not written, but have another address than they had.
    for service in claimants {
        if let Some(object) = snapshot.service(&service) {
            let if_revision = Some(object.metadata.revision());
            request.operations.push(Operation::Restore { object: Object::clone(object), if_revision });
        }
    }
    request
}

/// Intent: what somebody asked for.
fn is_intent(entry: &RevisionEntry) -> bool {
    match entry.origin.maker {
        Maker::Client => true,
        Maker::Agent | Maker::Server => false,
    }
}

/// The object as it was, but for what is not its author's to say.
fn restored(
    snapshot: &Snapshot,
    former: &Former,
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
        // Who took it meanwhile and is not part of the rollback keeps it; the Service gets another.
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
