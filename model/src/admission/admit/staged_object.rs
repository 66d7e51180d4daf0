//! Object of a write request during admission, with its old state, its new state and its position in the request.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use super::{Operation, Refusal, Request, entropy::Random, health, issuance};
use crate::cluster::change::Action;
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        address::Announcement,
        attachment::WorkloadKey,
        resource::{Kind, Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{
        name::Name,
        quantity::{Revision, Timestamp},
        violation::{Violation, ViolationCode},
    },
};

pub(super) struct StagedObject {
    pub(super) key: ObjectKey,
    old: Option<Arc<Object>>,
    /// New state; `None` if the object is deleted.
    pub(super) new: Option<Object>,
    /// Prefix of JSON pointers in violations, such as `/items/3`.
    at: String,
    /// True if a rollback restores this state. Allocated values, such as cluster IPs, are then taken from
    /// this state and not from the current object.
    pub(super) is_restored: bool,
}

/// Converts the operations of a request to staged objects (old and new state of one object each), and checks the
/// preconditions of the operations.
pub(super) fn resolve(
    snapshot: &Snapshot,
    request: &Request,
    violations: &mut Vec<Violation>,
) -> Result<Vec<StagedObject>, Refusal> {
    let mut staged = Vec::with_capacity(request.operations.len());
    let mut seen = BTreeSet::new();
    for (index, operation) in request.operations.iter().enumerate() {
        let Some(staged_object) = resolve_one(snapshot, request, operation, index, violations)? else {
            continue;
        };
        if !seen.insert(staged_object.key.clone()) {
            let message = format!("must not repeat {}, which is in the request already", staged_object.key);
            violations.push(Violation::new(
                format!("{}/metadata/name", staged_object.at),
                ViolationCode::Duplicate,
                message,
            ));
            continue;
        }
        staged.push(staged_object);
    }
    Ok(staged)
}

fn announce(
    snapshot: &Snapshot,
    address: IpAddr,
    if_epoch: u64,
    announcement: &Announcement,
) -> Option<StagedObject> {
    let old = snapshot.address(address)?;
    let mut record = old.as_address().filter(|record| record.announcement.epoch == if_epoch)?.clone();
    let epoch = announcement.epoch.max(if_epoch.saturating_add(1));
    record.announcement = Announcement { epoch, ..announcement.clone() };
    let new = Object { metadata: old.metadata.clone(), spec: Spec::Address(Box::new(record)) };
    Some(StagedObject::of_record(old.key(), Some(Arc::clone(old)), Some(new)))
}

fn lose(snapshot: &Snapshot, node: &Name, since: Option<Timestamp>) -> Option<StagedObject> {
    let old = snapshot.get(&ObjectKey { kind: Kind::Node, namespace: None, name: node.clone() })?;
    let Spec::Node(spec) = &old.spec else { return None };
    let mut spec = spec.clone();
    spec.lost_since = since;
    let new = Object { metadata: old.metadata.clone(), spec: Spec::Node(spec) };
    Some(StagedObject::of_record(old.key(), Some(Arc::clone(old)), Some(new)))
}

/// Keeps the current `lostSince` of a Node, which only the server may change. A request body may omit the
/// field or contain the current value; any other value is a violation.
fn keep_lease(new: &mut Object, old: Option<&Object>, at: &str, violations: &mut Vec<Violation>) {
    let Spec::Node(spec) = &mut new.spec else { return };
    let known = old.and_then(|old| if let Spec::Node(spec) = &old.spec { spec.lost_since } else { None });
    if spec.lost_since.is_some() && spec.lost_since != known {
        let message = "must not be set: the server sets it while the Node's agent is silent";
        violations.push(
            Violation::new(format!("{at}/spec/lostSince"), ViolationCode::Invalid, message)
                .hint("leave the field out"),
        );
    }
    spec.lost_since = known;
}

/// Checks `spec.requested` of a Node, which only the server sets: a request body may omit it or contain the
/// current value. Properties that the new state of the Node has are removed from it.
fn settle_requested(new: &mut Object, old: Option<&Object>, at: &str, violations: &mut Vec<Violation>) {
    let Spec::Node(spec) = &mut new.spec else { return };
    let mut requested = std::mem::take(&mut spec.requested);
    let known = old.and_then(Object::as_node).map(|old| &old.requested);
    if !requested.is_empty() && Some(&requested) != known {
        let message = "must not be set: the server records here the requests of the Node's agent";
        violations.push(
            Violation::new(format!("{at}/spec/requested"), ViolationCode::Invalid, message)
                .hint("leave the field out"),
        );
    }
    requested.remove_accepted(&new.metadata.labels, spec);
    spec.requested = requested;
}

/// Keeps the stored BGP password if the request body has none, because responses never contain the password. An
/// empty password removes it.
fn keep_password(new: &mut Object, old: Option<&Object>) {
    let Spec::BgpPeer(spec) = &mut new.spec else { return };
    match &spec.password {
        None => spec.password = old.and_then(Object::as_bgp_peer).and_then(|old| old.password.clone()),
        Some(password) if password.reveal().is_empty() => spec.password = None,
        Some(_) => {}
    }
}

/// Keeps the stored secrets of the keys of a DnsZone that the request body names without one, because responses never
/// contain secrets.
fn keep_secrets(new: &mut Object, old: Option<&Object>, at: &str, violations: &mut Vec<Violation>) {
    let Spec::DnsZone(spec) = &mut new.spec else { return };
    let known = old.and_then(Object::as_dns_zone).map_or(&[][..], |old| &old.keys[..]);
    for (index, key) in spec.keys.iter_mut().enumerate().filter(|(_, key)| key.secret.is_none()) {
        key.secret = known.iter().find(|old| old.name == key.name).and_then(|old| old.secret.clone());
        if key.secret.is_none() {
            let message = format!("must be set: the key {} is new", key.name);
            let at = format!("{at}/spec/keys/{index}/secret");
            violations.push(
                Violation::new(at, ViolationCode::Required, message)
                    .hint("create it with `tsig-keygen` or `openssl rand -base64 32`"),
            );
        }
    }
}

fn resolve_one(
    snapshot: &Snapshot,
    request: &Request,
    operation: &Operation,
    index: usize,
    violations: &mut Vec<Violation>,
) -> Result<Option<StagedObject>, Refusal> {
    let (key, new, at) = match operation {
        Operation::Create(object) | Operation::Replace { object, .. } => {
            (object.key(), Some(object), String::new())
        }
        Operation::Apply(object) => (object.key(), Some(object), format!("/items/{index}")),
        Operation::Delete { key, .. } => (key.clone(), None, String::new()),
        Operation::Restore { object, .. } => {
            let (key, mut new) = (object.key(), object.clone());
            let old = snapshot.get(&key).cloned();
            check_existence(operation, &key, old.as_ref())?;
            issuance::keep_newest(&mut new, old.as_deref());
            return Ok(Some(StagedObject {
                key,
                old,
                new: Some(new),
                at: format!("/items/{index}"),
                is_restored: true,
            }));
        }
        // Attachments and their Workloads are staged when the objects of the request are known.
        Operation::RetryPending { .. } | Operation::SetAttachments { .. } => return Ok(None),
        Operation::SetAnnouncer { address, if_epoch, announcement } => {
            return Ok(announce(snapshot, *address, *if_epoch, announcement));
        }
        Operation::SetNodeLost { node, since } => return Ok(lose(snapshot, node, *since)),
        Operation::SetEndpointHealth { service, endpoints } => {
            return Ok(health::judge(snapshot, service, endpoints));
        }
        Operation::SetIssuance { certificate, settings, record, issued } => {
            return Ok(issuance::record(snapshot, certificate, settings, record, issued.as_ref()));
        }
    };
    if key.kind.is_kept_by_server() {
        let message = format!("must not be {}: the server keeps these records", key.kind);
        violations.push(Violation::new(format!("{at}/kind"), ViolationCode::Invalid, message));
    }
    let old = snapshot.get(&key).cloned();
    check_existence(operation, &key, old.as_ref())?;
    if let Some(new) = new {
        check_identity(new, old.as_ref(), &at, violations)?;
    }
    let mut new = new.cloned();
    if let Some(object) = &mut new {
        keep_lease(object, old.as_deref(), &at, violations);
        settle_requested(object, old.as_deref(), &at, violations);
        keep_password(object, old.as_deref());
        issuance::keep(object, old.as_deref(), &at, violations);
        keep_secrets(object, old.as_deref(), &at, violations);
        let owner = old.as_ref().and_then(|old| old.metadata.apply_set.clone());
        let asked = request.apply_set.as_ref().map(|set| set.name.clone());
        if let (Some(owner), Some(asked)) = (&owner, &asked)
            && owner != asked
        {
            let message = format!("must belong to apply set `{asked}` or to none; it belongs to `{owner}`");
            violations.push(Violation::new(
                format!("{at}/metadata/name"),
                ViolationCode::OwnedByOther,
                message,
            ));
        }
        if let (Some(_), None, Some(set)) = (&old, &owner, &request.apply_set)
            && !set.adopt
            && !is_of_attachment(snapshot, &key)
        {
            let message = format!("must not exist outside of apply set `{}`; it belongs to none", set.name);
            violations.push(
                Violation::new(format!("{at}/metadata/name"), ViolationCode::OwnedByOther, message)
                    .hint("give it another name, or delete the one that is there"),
            );
        }
        // An object that a writer without a scope has added stays in the set of these writers.
        let was_limited = old.as_ref().is_none_or(|old| owner.is_none() || old.metadata.apply_set_limited);
        let is_limited = request.apply_set.as_ref().map_or(owner.is_some(), |set| set.scope.is_some());
        object.metadata.apply_set_limited = is_limited && was_limited;
        object.metadata.apply_set = asked.or(owner);
    }
    Ok(Some(StagedObject { key, old, new, at, is_restored: false }))
}

/// Returns true for a Workload that an agent created with an Attachment. No client has declared it yet, so that every apply set
/// may contain it.
fn is_of_attachment(snapshot: &Snapshot, key: &ObjectKey) -> bool {
    let namespace = key.namespace.clone().filter(|_| key.kind == Kind::Workload);
    let Some(namespace) = namespace else { return false };
    let workload = WorkloadKey { namespace, name: key.name.clone() };
    let mut attachments = snapshot.attachments_of_workload(&workload).filter_map(Object::as_attachment);
    attachments.any(|attachment| attachment.owns_workload)
}

fn check_existence(operation: &Operation, key: &ObjectKey, old: Option<&Arc<Object>>) -> Result<(), Refusal> {
    match (operation, old) {
        (Operation::Create(_) | Operation::Restore { if_revision: None, .. }, Some(old)) => {
            Err(Refusal::AlreadyExists(Arc::clone(old)))
        }
        (
            Operation::Replace { .. }
            | Operation::Delete { .. }
            | Operation::Restore { if_revision: Some(_), .. },
            None,
        ) => Err(Refusal::NotFound(key.clone())),
        (
            Operation::Replace { if_revision, .. }
            | Operation::Delete { if_revision, .. }
            | Operation::Restore { if_revision, .. },
            Some(old),
        ) => {
            let is_current = if_revision.is_none_or(|wanted| wanted == old.metadata.revision());
            if is_current { Ok(()) } else { Err(Refusal::PreconditionFailed(Arc::clone(old))) }
        }
        (Operation::Create(_) | Operation::Apply(_), None)
        | (Operation::Apply(_), Some(_))
        | (Operation::Restore { if_revision: None, .. }, None)
        | (
            Operation::SetAnnouncer { .. }
            | Operation::SetNodeLost { .. }
            | Operation::SetEndpointHealth { .. }
            | Operation::SetAttachments { .. }
            | Operation::SetIssuance { .. }
            | Operation::RetryPending { .. },
            _,
        ) => Ok(()),
    }
}

/// Checks that the `uid` and `resourceVersion` in a request body, if present, are those of the current
/// object.
fn check_identity(
    new: &Object,
    old: Option<&Arc<Object>>,
    at: &str,
    violations: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let (uid, version) = (&new.metadata.uid, &new.metadata.resource_version);
    let Some(old) = old else {
        for (field, _) in
            [("uid", uid.is_some()), ("resourceVersion", version.is_some())].iter().filter(|(_, set)| *set)
        {
            let message = "must be left out when the object does not exist yet";
            violations.push(Violation::new(
                format!("{at}/metadata/{field}"),
                ViolationCode::Invalid,
                message,
            ));
        }
        return Ok(());
    };
    let same_uid = uid.is_none() || *uid == old.metadata.uid;
    let same_version = version.is_none() || *version == old.metadata.resource_version;
    if same_uid && same_version { Ok(()) } else { Err(Refusal::Conflict(Arc::clone(old))) }
}

impl StagedObject {
    /// Creates a staged object for a record that the server maintains, such as an address record, and changes
    /// as a consequence of the request.
    pub(super) const fn of_record(key: ObjectKey, old: Option<Arc<Object>>, new: Option<Object>) -> Self {
        Self { key, old, new, at: String::new(), is_restored: false }
    }

    /// Returns the position of the object in the request, as prefix of JSON pointers, such as `/items/3`.
    pub(super) fn at(&self) -> &str {
        &self.at
    }

    /// True if the object existed before the request.
    pub(super) const fn is_known(&self) -> bool {
        self.old.is_some()
    }

    /// Returns the Service key of the object, or `None` if the object is not a Service.
    pub(super) fn service_key(&self) -> Option<ServiceKey> {
        ServiceKey::of_object_key(&self.key)
    }

    /// Prefixes the JSON pointer of a violation with the position of this object in the request.
    pub(super) fn place(&self, mut violation: Violation) -> Violation {
        violation.pointer.insert_str(0, &self.at);
        violation
    }

    /// Runs a check on the old and new state, and returns its violations with the position of the object in
    /// the request as prefix of their JSON pointers. Objects to delete are not checked.
    pub(super) fn check(
        &mut self,
        check: impl FnOnce(Option<&Object>, &mut Object, &mut Vec<Violation>),
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        if let Some(new) = &mut self.new {
            check(self.old.as_deref(), new, &mut found);
        }
        found.into_iter().map(|violation| self.place(violation)).collect()
    }

    /// Sets the server-managed metadata. Returns the action on the object (such as created) and its final
    /// state: a changed object with the new revision, an unchanged one as it was, a deleted one in its last
    /// state.
    pub(super) fn conclude(
        self,
        revision: Revision,
        now: Timestamp,
        random: &mut Random,
    ) -> (Action, Arc<Object>) {
        let Self { key, old, new, at: _, is_restored: _ } = self;
        match (old, new) {
            (Some(old), None) => (Action::Deleted, Arc::new(with_revision(&old, revision))),
            (Some(old), Some(new)) if is_same(&old, &new) => (Action::Unchanged, old),
            (Some(old), Some(mut new)) => {
                new.metadata.uid = old.metadata.uid;
                new.metadata.creation_timestamp = old.metadata.creation_timestamp;
                let generation = old.metadata.generation.unwrap_or(1);
                new.metadata.generation = Some(generation + u64::from(old.spec != new.spec));
                new.metadata.self_link = Some(key.path());
                (Action::Updated, Arc::new(with_revision(&new, revision)))
            }
            (None, Some(mut new)) => {
                new.metadata.uid = Some(random.uuid(now.unix_seconds()));
                new.metadata.creation_timestamp = Some(now);
                new.metadata.generation = Some(1);
                new.metadata.self_link = Some(key.path());
                (Action::Created, Arc::new(with_revision(&new, revision)))
            }
            (None, None) => unreachable!("a removal of nothing is refused when operations are resolved"),
        }
    }
}

/// Returns a copy of the object with the given revision.
pub(super) fn with_revision(object: &Object, revision: Revision) -> Object {
    let mut object = object.clone();
    object.metadata.resource_version = Some(revision.to_string());
    object
}

/// True if two states of an object have the same spec, labels, annotations and owner (apply set).
pub(crate) fn is_same(old: &Object, new: &Object) -> bool {
    old.spec == new.spec
        && old.metadata.labels == new.metadata.labels
        && old.metadata.annotations == new.metadata.annotations
        && old.metadata.apply_set == new.metadata.apply_set
        && old.metadata.apply_set_limited == new.metadata.apply_set_limited
}
