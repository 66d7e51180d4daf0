//! Admission of write requests. Computes the state after a request, or returns all reasons for refusing it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use crate::{
    cluster::{
        change::{Action, Change, ChangeKind},
        config::ClusterConfig,
        snapshot::{PendingService, Snapshot},
    },
    http::HttpObjectKey,
    kinds::{
        address::{AddressSpec, Announcement},
        certificate::{AcmeSettings, IssuanceRecord},
        endpoint_health::{CheckKey, EndpointVerdict},
        metadata::Labels,
        resource::{Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{
        name::{Name, Namespace},
        quantity::{Revision, Timestamp},
        secret::Secret,
        violation::{Violation, ViolationCode},
    },
    wire::attachments::AttachmentChanges,
};

mod addresses;
mod attachments;
mod bgp;
mod blocks;
mod entropy;
mod families;
mod guard;
mod health;
mod interfaces;
mod issuance;
mod networks;
mod pools;
mod quota;
mod registration;
mod rules;
mod service;
mod staged_object;

pub use self::addresses::RETRIES_MAX;
pub use self::attachments::refused_attachments;
pub use self::blocks::{BLOCK_GRACE_SECONDS, BLOCKS_GIVEN_MAX, next_block_change};
pub use self::guard::{ENDPOINTS_FREE, GuardRefusal, NAMED_MAX, RemovalGuard, VIPS_FREE};
pub use self::pools::EVICTIONS_MAX;
pub use self::quota::usage;
pub(crate) use self::staged_object::is_same;

use self::{
    addresses::Ledger, attachments::AttachmentLedger, blocks::BlockLedger, staged_object::StagedObject,
};

/// Maximum number of operations in one request.
pub const OPERATIONS_MAX: usize = 5000;
/// Number of apply set members that a request may always prune (delete because it no longer names them) if it
/// sets no limit. The built-in limit is this number or a fifth of the set, whichever is larger.
pub const PRUNE_FREE: usize = 5;

/// Write request. Either all operations are accepted together as one revision, or none is.
///
/// Every request, even one without operations, also deletes expired address quarantines. If addresses have become
/// free, it allocates them to pending Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Operations in the order of the request.
    pub operations: Vec<Operation>,
    /// Apply set (as in `kubectl apply --applyset`) to which the written objects belong after the request.
    pub apply_set: Option<ApplySet>,
    /// True if a pool change may take addresses from Services, which then receive other addresses or become
    /// pending. If false, such a change is refused.
    pub evict: bool,
    /// True if the caller has confirmed a large removal, so that the guards against such removals are skipped.
    pub confirmed: bool,
    /// Former records of load balancer addresses; set by rollbacks only. The Services in a record may claim
    /// its address first, and the former order of the announcing nodes is restored.
    pub former: Vec<AddressSpec>,
    /// Labels that the join token of a node permits; set if the agent of the node registers it. Properties of
    /// the Node that the agent is not entitled to are moved to `spec.requested`.
    pub registration: Option<Labels>,
}

/// Operation of a write request on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Creates the given object; refused if the object exists.
    Create(Object),
    /// Replaces an existing object; refused if the object does not exist.
    Replace {
        /// New state of the object. Allocated values that it omits are kept.
        object: Object,
        /// Revision that the object must have; `None` replaces any revision.
        if_revision: Option<Revision>,
    },
    /// Creates the object, or replaces it if it exists.
    Apply(Object),
    /// Deletes an object; refused if the object does not exist.
    Delete {
        /// Key of the object to delete.
        key: ObjectKey,
        /// Revision that the object must have; `None` deletes any revision.
        if_revision: Option<Revision>,
    },
    /// Restores a former state of an object, with those of its former allocated values (such as addresses)
    /// that are still free. Only a rollback uses this operation.
    Restore {
        /// State of the object to restore.
        object: Object,
        /// Required current revision; `None` if the object must not exist.
        if_revision: Option<Revision>,
    },
    /// Allocates addresses to pending Services (those that lack a load balancer address), starting with the
    /// one that follows `after`. Only the server uses this operation.
    RetryPending {
        /// Last pending Service of the previous retry, after which this one continues; `None` starts with the
        /// oldest.
        after: Option<PendingService>,
    },
    /// Sets the nodes that announce an address. Only the server uses this operation. No effect if the address
    /// record does not exist or its announcement has a different epoch.
    SetAnnouncer {
        /// Load balancer address whose announcement is set.
        address: IpAddr,
        /// Announcement epoch on which the decision is based. If the record has a different one, the operation has
        /// no effect.
        if_epoch: u64,
        /// New announcement. An epoch lower than `if_epoch + 1` is raised to this value.
        announcement: Announcement,
    },
    /// Marks a Node as lost or as present. Only the server uses this operation. No effect if the Node does not
    /// exist.
    SetNodeLost {
        /// Name of the Node.
        node: Name,
        /// Time since which the Node counts as lost; `None` if the Node is present again.
        since: Option<Timestamp>,
    },
    /// Sets the endpoints of a Service that count as unhealthy or are in slow start after their recovery.
    /// Only the server uses this operation. No effect if the Service does not exist or its endpoints are not
    /// checked.
    SetEndpointHealth {
        /// Key of the Service to which the endpoints belong.
        service: ServiceKey,
        /// Endpoints that are unhealthy or in slow start, each with its share of traffic. If empty, the
        /// health record is deleted.
        endpoints: BTreeMap<CheckKey, EndpointVerdict>,
    },
    /// Records the Attachments of a Node as its agent reports them, with their Workloads, and gives the Node blocks.
    /// Entries that cannot be accepted have no effect. Only the server uses this operation, on behalf of the agent.
    SetAttachments {
        /// Name of the Node.
        node: Name,
        /// New, changed and ended Attachments, and requests of blocks.
        changes: Box<AttachmentChanges>,
    },
    /// Sets the state of the orders of a Certificate, and a new certificate. Only the server uses this operation. No effect
    /// if the Certificate does not exist or has other settings for the ACME server.
    SetIssuance {
        /// Key of the Certificate.
        certificate: HttpObjectKey,
        /// Settings on which the order is based.
        settings: Box<AcmeSettings>,
        /// New state of the orders.
        record: IssuanceRecord,
        /// New certificate chain in PEM with its private key; `None` keeps the present one.
        issued: Option<(String, Secret)>,
    },
}

/// Named set of objects that one source applies as a whole, as in `kubectl apply --prune`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySet {
    /// Name of the apply set, which its members contain as `metadata.applySet`.
    pub name: Name,
    /// Namespaces to which the permissions of the writer are limited; `None` if they are not.
    pub scope: Option<BTreeSet<Namespace>>,
    /// True if members that are not in the request are deleted, as far as they belong to the writer's part of the
    /// set: the objects in `scope`, or those that writers without a scope have added.
    pub prune: bool,
    /// Maximum number of members that `prune` may delete; `None` selects the built-in limit (see [`PRUNE_FREE`]).
    pub prune_limit: Option<usize>,
    /// True if the request may add existing objects without an apply set to this set. If false, such a write is
    /// refused, except for Workloads that agents created with Attachments.
    pub adopt: bool,
}

impl ApplySet {
    /// True if an object of this set belongs to the part of the writer. Objects that others have added under the
    /// same name are neither deleted nor counted.
    fn owns(&self, snapshot: &Snapshot, key: &ObjectKey) -> bool {
        match &self.scope {
            Some(scope) => key.namespace.as_ref().is_some_and(|namespace| scope.contains(namespace)),
            None => snapshot.get(key).is_some_and(|object| !object.metadata.apply_set_limited),
        }
    }
}

/// Current time and random seed of one admission. The caller supplies them, because the `model` crate has no clock
/// or random source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entropy {
    /// Current time.
    pub now: Timestamp,
    /// Random seed for the UIDs of new objects; clients cannot predict it.
    pub seed: u64,
}

/// Result of an accepted write.
#[derive(Debug, Clone)]
pub struct AdmittedWrite {
    /// State after the write, with a revision increased by one if anything changes.
    pub snapshot: Snapshot,
    /// Changed objects; empty if the write has no effect.
    pub changes: Vec<Change>,
    /// Outcome for each object of the request, then for each pruned one (deleted because the request no
    /// longer names it). Records that the server updates as a consequence, such as address records, are not
    /// included.
    pub outcomes: Vec<Outcome>,
}

/// Outcome of a write for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Action taken on the object, such as created or unchanged.
    pub action: Action,
    /// State of the object after the action. For a deleted object, its last state.
    pub object: Arc<Object>,
}

/// Reason for which a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The object to replace or delete does not exist.
    NotFound(ObjectKey),
    /// The object to create already exists; contains the existing object.
    AlreadyExists(Arc<Object>),
    /// The object's revision is not the one that the request requires (`If-Match`). Contains the current object.
    PreconditionFailed(Arc<Object>),
    /// `metadata.resourceVersion` or `metadata.uid` of the body differs from that of the current object. Contains
    /// the current object.
    Conflict(Arc<Object>),
    /// Fields with invalid values. For [`Operation::Apply`], their JSON pointers start with `/items/N`.
    Invalid(Vec<Violation>),
    /// The prune would delete more members of the apply set than the limit allows.
    PruneLimit {
        /// Members of the apply set that the prune would delete.
        would_prune: Vec<ObjectKey>,
        /// Maximum number of members that may be deleted: the limit in the request, or the built-in limit.
        limit: usize,
    },
    /// The write would remove more addresses at once than a removal guard allows without confirmation.
    GuardHeld(GuardRefusal),
    /// The objects of a namespace would use more of a resource than the namespace's quota allows. Contains a
    /// violation for each object that does not fit.
    QuotaExceeded(Vec<Violation>),
    /// The request has more than [`OPERATIONS_MAX`] operations.
    TooManyOperations(usize),
}

/// Admits a request against the state on which it will be committed.
///
/// # Errors
/// Returns the reason for the refusal. Invalid fields are returned together, not only the first.
pub fn admit(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    request: &Request,
    entropy: &Entropy,
) -> Result<AdmittedWrite, Refusal> {
    if request.operations.len() > OPERATIONS_MAX {
        return Err(Refusal::TooManyOperations(request.operations.len()));
    }
    let mut violations = Vec::new();
    let mut staged = staged_object::resolve(snapshot, request, &mut violations)?;
    let pruned = select_pruned(snapshot, request, &staged)?;
    if let Some(permitted) = &request.registration {
        let objects = staged.iter_mut().filter_map(|staged_object| staged_object.new.as_mut());
        objects.for_each(|object| registration::limit(snapshot, config, permitted, object));
    }

    // Values that the request releases are free for its own objects, independent of the order of operations.
    let mut working = snapshot.clone();
    let mut ledger = Ledger::new(snapshot, config, entropy.now);
    ledger.clear_ended(&mut working, &staged);
    for key in staged.iter().map(|staged_object| &staged_object.key).chain(&pruned) {
        if let Some(service) = ServiceKey::of_object_key(key) {
            ledger.detach(&mut working, &service);
        }
        working.remove(key);
    }
    ledger.recall(&request.former);
    settle(&mut working, config, &mut staged, &mut violations);
    if violations.is_empty() {
        settle_addresses(&mut ledger, &mut working, &mut staged, &pruned, request, &mut violations);
    }
    if !violations.is_empty() {
        return Err(Refusal::Invalid(violations));
    }
    let workloads = settle_workloads(&ledger, &mut working, request, &mut staged, &pruned);
    let mut records = ledger.into_staged(&working);
    records.extend(health::remove_obsolete(snapshot, &mut working, &staged, &pruned));
    records.extend(workloads);
    let places = quota::places(config.quotas(), &staged);
    let admitted = conclude(snapshot, working, staged, pruned, records, entropy);
    quota::check(snapshot, &admitted, config.quotas(), &places)?;
    if !request.confirmed {
        guard::check(snapshot, &admitted, config.guards())?;
    }
    Ok(admitted)
}

/// Checks the Advertisements, pools and BGP objects of a request against the other objects, and allocates
/// load balancer addresses. All objects of the request must already be in `working`, because the allocation
/// depends on all of them.
fn settle_addresses(
    ledger: &mut Ledger<'_>,
    working: &mut Snapshot,
    staged: &mut [StagedObject],
    pruned: &[ObjectKey],
    request: &Request,
    violations: &mut Vec<Violation>,
) {
    for staged_object in staged.iter_mut() {
        violations.extend(staged_object.check(|_, object, found| {
            if let Spec::Advertisement(spec) = &object.spec {
                pools::check_advertisement(working, spec, found);
            }
        }));
    }
    pools::check_removed(working, staged, pruned, violations);
    networks::check_changed(ledger.before, working, staged, pruned, violations);
    bgp::check(working, ledger.config, staged, pruned, violations);
    let displaced = pools::settle(ledger, working, staged, pruned, request.evict, violations);
    let retry = request.operations.iter().find_map(|operation| match operation {
        Operation::RetryPending { after } => Some(after.as_ref()),
        Operation::Create(_)
        | Operation::Replace { .. }
        | Operation::Apply(_)
        | Operation::Restore { .. }
        | Operation::Delete { .. }
        | Operation::SetAnnouncer { .. }
        | Operation::SetNodeLost { .. }
        | Operation::SetEndpointHealth { .. }
        | Operation::SetAttachments { .. }
        | Operation::SetIssuance { .. } => None,
    });
    let retry = retry.or_else(|| request.operations.is_empty().then_some(None));
    ledger.settle(working, staged, !pruned.is_empty(), &displaced, retry, violations);
    bgp::check_addresses(ledger.before, working, staged, violations);
}

/// Records the Attachments of Nodes, sets the addresses of their Workloads, and gives and releases blocks. Returns the changed
/// records and Workloads.
fn settle_workloads(
    ledger: &Ledger<'_>,
    working: &mut Snapshot,
    request: &Request,
    staged: &mut [StagedObject],
    pruned: &[ObjectKey],
) -> Vec<StagedObject> {
    let changed: Vec<_> =
        staged.iter().map(|staged_object| &staged_object.key).chain(pruned).cloned().collect();
    let mut attachments = AttachmentLedger::new(ledger.before, ledger.config.quotas());
    attachments.settle(working, request, &changed);
    attachments.fill_staged(working, staged);
    let mut wanted = Vec::new();
    for operation in &request.operations {
        if let Operation::SetAttachments { node, changes } = operation {
            wanted.extend(changes.wanted.iter().map(|one| (node.clone(), one.clone())));
        }
    }
    let mut blocks = BlockLedger::new(ledger.before, ledger.now);
    let is_retry = |operation: &Operation| matches!(operation, Operation::RetryPending { .. });
    let is_timed = request.operations.iter().all(is_retry);
    blocks.settle(working, changed.iter(), attachments.nodes(), &wanted, is_timed);
    let mut records = attachments.into_staged(working, staged);
    records.extend(blocks.into_staged(working));
    records
}

/// Returns the members of the apply set that the request no longer names and therefore deletes; none if the
/// request does not prune.
fn select_pruned(
    snapshot: &Snapshot,
    request: &Request,
    staged: &[StagedObject],
) -> Result<Vec<ObjectKey>, Refusal> {
    let Some(set) = request.apply_set.as_ref().filter(|set| set.prune) else { return Ok(Vec::new()) };
    let named: BTreeSet<_> = staged.iter().map(|staged_object| &staged_object.key).collect();
    let members: Vec<_> =
        snapshot.apply_set_members(&set.name).filter(|key| set.owns(snapshot, key)).collect();
    let limit = set.prune_limit.unwrap_or_else(|| PRUNE_FREE.max(members.len() / 5));
    let would_prune: Vec<_> = members.into_iter().filter(|key| !named.contains(key)).cloned().collect();
    if would_prune.len() > limit { Err(Refusal::PruneLimit { would_prune, limit }) } else { Ok(would_prune) }
}

/// Checks the objects of the request against the rest of the state, and sets the cluster IPs and node ports
/// of Services: first those that Services keep or request, then free ones. All objects are added to
/// `working`.
fn settle(
    working: &mut Snapshot,
    config: &ClusterConfig,
    staged: &mut [StagedObject],
    violations: &mut Vec<Violation>,
) {
    for staged_object in staged.iter_mut() {
        let is_restored = staged_object.is_restored;
        let found = staged_object.check(|old, object, found| {
            rules::check(working, config, object, found);
            if let Spec::Service(spec) = &mut object.spec {
                // A restored object carries its former values itself.
                let old = old.filter(|_| !is_restored).and_then(Object::as_service);
                service::claim(working, config, old, spec, found);
            }
        });
        if found.is_empty()
            && let Some(object) = &staged_object.new
        {
            working.put(Arc::new(object.clone()));
        }
        violations.extend(found);
    }
    if !violations.is_empty() {
        return;
    }
    for staged_object in staged.iter_mut() {
        // The search starts at a point derived from the name alone, so that a dry run returns the same values
        // as the write.
        let mut random = entropy::Random::of_name(&staged_object.key.to_store_key());
        let found = staged_object.check(|old, object, found| {
            interfaces::check(working, old, object, found);
            if let Spec::Service(spec) = &mut object.spec {
                service::allocate(working, config, spec, &mut random, found);
            }
        });
        if let Some(object) = &staged_object.new {
            working.put(Arc::new(object.clone()));
        }
        violations.extend(found);
    }
}

/// Assigns the new revision to the objects that the request changes, and returns the state after the write
/// with all changes and outcomes.
fn conclude(
    before: &Snapshot,
    mut working: Snapshot,
    staged: Vec<StagedObject>,
    pruned: Vec<ObjectKey>,
    records: Vec<StagedObject>,
    entropy: &Entropy,
) -> AdmittedWrite {
    let revision = before.revision().next();
    let mut random = entropy::Random::new(entropy.seed);
    let mut changes = Vec::new();
    let mut outcomes = Vec::new();
    let mut conclude_one = |action: Action, object: Arc<Object>| {
        changes.extend(change_kind(action).map(|kind| Change { kind, object: Arc::clone(&object) }));
        outcomes.push(Outcome { action, object });
    };
    for staged_object in staged {
        match staged_object.conclude(revision, entropy.now, &mut random) {
            (Action::Deleted, object) => conclude_one(Action::Deleted, object),
            (action, object) => {
                working.put(Arc::clone(&object));
                conclude_one(action, object);
            }
        }
    }
    for old in pruned.iter().filter_map(|key| before.get(key)) {
        conclude_one(Action::Pruned, Arc::new(staged_object::with_revision(old, revision)));
    }
    for record in records {
        let (action, object) = record.conclude(revision, entropy.now, &mut random);
        if action != Action::Deleted {
            working.put(Arc::clone(&object));
        }
        changes.extend(change_kind(action).map(|kind| Change { kind, object }));
    }
    if changes.is_empty() {
        return AdmittedWrite { snapshot: before.clone(), changes, outcomes };
    }
    working.set_revision(revision);
    AdmittedWrite { snapshot: working, changes, outcomes }
}

const fn change_kind(action: Action) -> Option<ChangeKind> {
    match action {
        Action::Created => Some(ChangeKind::Added),
        Action::Updated => Some(ChangeKind::Modified),
        Action::Deleted | Action::Pruned => Some(ChangeKind::Deleted),
        Action::Unchanged => None,
    }
}

/// Creates the violation for a requested value, such as a node port, that another Service already has.
fn taken(pointer: String, code: ViolationCode, what: &str, holder: &ServiceKey) -> Violation {
    Violation::new(pointer, code, format!("must be free; {what} is held by Service {holder}"))
        .hint("leave the field out to get a free one, or change the holder first")
        .naming(&holder.namespace, &holder.name)
}
