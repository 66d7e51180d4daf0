//! The one gate for every write: what is asked, against what is, gives what will be, or every reason why not.

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
    kinds::{
        address::{AddressSpec, Announcement},
        endpoint_health::{CheckKey, EndpointVerdict},
        resource::{Object, ObjectKey, ServiceKey, Spec},
    },
    primitives::{
        name::Name,
        quantity::{Revision, Timestamp},
        violation::{Violation, ViolationCode},
    },
};

mod addresses;
mod bgp;
mod candidate;
mod entropy;
mod families;
mod guard;
mod health;
mod pools;
mod rules;
mod service;

pub use self::addresses::RETRIES_MAX;
pub(crate) use self::candidate::is_same;
pub use self::guard::{ENDPOINTS_FREE, Guarded, Held, NAMED_MAX, VIPS_FREE};
pub use self::pools::EVICTIONS_MAX;

use self::{addresses::Ledger, candidate::Candidate};

/// Operations in one request; more belong into several.
pub const OPERATIONS_MAX: usize = 5000;
/// Members that a prune may remove without an explicit limit: this many, or a fifth of the set if that is more.
pub const PRUNE_FREE: usize = 5;

/// A write: all of it is accepted, as one revision, or none.
///
/// With every write, and by one without operations, quarantines of addresses that have ended are cleared away, and
/// Services that wait for an address are served when there is one for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// What to do, in the order of the input.
    pub operations: Vec<Operation>,
    /// The set that owns the written objects afterwards.
    pub apply_set: Option<ApplySet>,
    /// Give Services other addresses, or leave them waiting, when a pool loses the ones they have; refused otherwise.
    pub evict: bool,
    /// Do it even if it removes more at once than the guards allow.
    pub confirmed: bool,
    /// Records of addresses as they were: the Services of the request that were in one have the first claim on the
    /// address, and who answered for it comes first again. Only a rollback has them.
    pub former: Vec<AddressSpec>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Make an object that must not exist.
    Create(Object),
    /// Replace an object that must exist.
    Replace {
        /// Its new state. Allocated values that it leaves out are kept.
        object: Object,
        /// The revision it must still have; `None` overwrites whatever there is.
        if_revision: Option<Revision>,
    },
    /// Make or replace.
    Apply(Object),
    /// Remove an object that must exist.
    Delete {
        /// Which.
        key: ObjectKey,
        /// The revision it must still have; `None` removes whatever there is.
        if_revision: Option<Revision>,
    },
    /// Make an object what it was, with everything that it had been given and that is free; only a rollback asks for this.
    Restore {
        /// What it was.
        object: Object,
        /// The revision it must still have; `None` when it must not exist.
        if_revision: Option<Revision>,
    },
    /// Try to serve Services that wait for an address, after one of them if one is given. Only the server itself asks.
    RetryPending {
        /// The last that had its turn.
        after: Option<PendingService>,
    },
    /// Set who answers for an address; only the server itself asks for this. Nothing happens when the record is gone or
    /// has another epoch by now.
    SetAnnouncer {
        /// Which address.
        address: IpAddr,
        /// The epoch of the record that the decision rests on.
        if_epoch: u64,
        /// Who answers; its epoch is raised to the next unless it is higher.
        announcement: Announcement,
    },
    /// Set whether a Node counts as gone; only the server itself asks for this. Nothing happens when there is no such
    /// Node.
    SetNodeLost {
        /// Which Node.
        node: Name,
        /// Since when; `None` when it is back.
        since: Option<Timestamp>,
    },
    /// Set what health checks have taken out of a Service; only the server itself asks for this. Nothing happens when there
    /// is no such Service, or its endpoints are not checked.
    SetEndpointHealth {
        /// Which Service.
        service: ServiceKey,
        /// The endpoints that are not fully in service; without any, the record is deleted.
        endpoints: BTreeMap<CheckKey, EndpointVerdict>,
    },
}

/// The set of objects that one source applies together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplySet {
    /// Its name.
    pub name: Name,
    /// Remove the members that the request does not name.
    pub prune: bool,
    /// How many may be removed; the built-in bound when `None`.
    pub prune_limit: Option<usize>,
    /// Take objects that exist and belong to no set; refused otherwise.
    pub adopt: bool,
}

/// Time and randomness of one admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entropy {
    /// When the write is admitted.
    pub now: Timestamp,
    /// Unpredictable to clients; fixes the uids.
    pub seed: u64,
}

/// What an accepted write does.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The state after the write. Its revision is the next one if anything changes, else that of before.
    pub snapshot: Snapshot,
    /// What changes; empty when everything was so already.
    pub changes: Vec<Change>,
    /// What happened to each object named, then to each object pruned. Records that change with them are not among
    /// them.
    pub outcomes: Vec<Outcome>,
}

/// What happened to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verb.
    pub action: Action,
    /// The state after (for removals: the last state).
    pub object: Arc<Object>,
}

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// An object that must exist does not.
    NotFound(ObjectKey),
    /// An object that must not exist does.
    AlreadyExists(Arc<Object>),
    /// The precondition of the request (`If-Match`) names another revision than the current one.
    PreconditionFailed(Arc<Object>),
    /// The body's `metadata.resourceVersion` or `metadata.uid` is not the current one.
    Conflict(Arc<Object>),
    /// Fields that must change. Those of [`Operation::Apply`] have pointers that start with `/items/N`.
    Invalid(Vec<Violation>),
    /// The prune would remove more than allowed.
    PruneLimit {
        /// What it would remove.
        would_prune: Vec<ObjectKey>,
        /// How many it may.
        limit: usize,
    },
    /// It would remove more at once than a guard allows.
    GuardHeld(Held),
    /// More operations than [`OPERATIONS_MAX`].
    TooManyOperations(usize),
}

/// Admits a request on the state it will be committed on.
///
/// # Errors
/// Every reason that is known at once.
pub fn admit(
    snapshot: &Snapshot,
    config: &ClusterConfig,
    request: &Request,
    entropy: &Entropy,
) -> Result<Admitted, Refusal> {
    if request.operations.len() > OPERATIONS_MAX {
        return Err(Refusal::TooManyOperations(request.operations.len()));
    }
    let mut violations = Vec::new();
    let mut candidates = candidate::resolve(snapshot, request, &mut violations)?;
    let pruned = select_pruned(snapshot, request, &candidates)?;

    // What the request gives up is free for what it asks for, in whatever order the input names them.
    let mut working = snapshot.clone();
    let mut ledger = Ledger::new(snapshot, config, entropy.now);
    ledger.clear_ended(&mut working, &candidates);
    for key in candidates.iter().map(|candidate| &candidate.key).chain(&pruned) {
        if let Some(service) = ServiceKey::of_object_key(key) {
            ledger.detach(&mut working, &service);
        }
        working.remove(key);
    }
    ledger.recall(&request.former);
    settle(&mut working, config, &mut candidates, &mut violations);
    if violations.is_empty() {
        settle_addresses(&mut ledger, &mut working, &mut candidates, &pruned, request, &mut violations);
    }
    if !violations.is_empty() {
        return Err(Refusal::Invalid(violations));
    }
    let mut records = ledger.into_candidates(&working);
    records.extend(health::useless(snapshot, &mut working, &candidates, &pruned));
    let admitted = conclude(snapshot, working, candidates, pruned, records, entropy);
    if !request.confirmed {
        guard::check(snapshot, &admitted, config.guards())?;
    }
    Ok(admitted)
}

/// What depends on the request as a whole: references, and load balancer addresses.
fn settle_addresses(
    ledger: &mut Ledger<'_>,
    working: &mut Snapshot,
    candidates: &mut [Candidate],
    pruned: &[ObjectKey],
    request: &Request,
    violations: &mut Vec<Violation>,
) {
    for candidate in candidates.iter_mut() {
        violations.extend(candidate.check(|_, object, found| {
            if let Spec::Advertisement(spec) = &object.spec {
                pools::check_advertisement(working, spec, found);
            }
        }));
    }
    pools::check_removed(working, candidates, pruned, violations);
    bgp::check(working, ledger.config, candidates, pruned, violations);
    let displaced = pools::settle(ledger, working, candidates, pruned, request.evict, violations);
    let retry = request.operations.iter().find_map(|operation| match operation {
        Operation::RetryPending { after } => Some(after.as_ref()),
        Operation::Create(_)
        | Operation::Replace { .. }
        | Operation::Apply(_)
        | Operation::Restore { .. }
        | Operation::Delete { .. }
        | Operation::SetAnnouncer { .. }
        | Operation::SetNodeLost { .. }
        | Operation::SetEndpointHealth { .. } => None,
    });
    let retry = retry.or_else(|| request.operations.is_empty().then_some(None));
    ledger.settle(working, candidates, !pruned.is_empty(), &displaced, retry, violations);
    bgp::check_addresses(ledger.before, working, candidates, violations);
}

/// The members of the apply set that the request no longer names.
fn select_pruned(
    snapshot: &Snapshot,
    request: &Request,
    candidates: &[Candidate],
) -> Result<Vec<ObjectKey>, Refusal> {
    let Some(set) = request.apply_set.as_ref().filter(|set| set.prune) else { return Ok(Vec::new()) };
    let named: BTreeSet<_> = candidates.iter().map(|candidate| &candidate.key).collect();
    let members: Vec<_> = snapshot.apply_set_members(&set.name).collect();
    let limit = set.prune_limit.unwrap_or_else(|| PRUNE_FREE.max(members.len() / 5));
    let would_prune: Vec<_> = members.into_iter().filter(|key| !named.contains(key)).cloned().collect();
    if would_prune.len() > limit { Err(Refusal::PruneLimit { would_prune, limit }) } else { Ok(would_prune) }
}

/// Checks the candidates against everything else and gives them what they need: first what was asked for by value, then
/// what is free.
fn settle(
    working: &mut Snapshot,
    config: &ClusterConfig,
    candidates: &mut [Candidate],
    violations: &mut Vec<Violation>,
) {
    for candidate in candidates.iter_mut() {
        let is_restored = candidate.is_restored;
        let found = candidate.check(|old, object, found| {
            rules::check(working, config, object, found);
            if let Spec::Service(spec) = &mut object.spec {
                // What is restored says itself what it had.
                let old = old.filter(|_| !is_restored).and_then(Object::as_service);
                service::claim(working, config, old, spec, found);
            }
        });
        if found.is_empty()
            && let Some(object) = &candidate.new
        {
            working.put(Arc::new(object.clone()));
        }
        violations.extend(found);
    }
    if !violations.is_empty() {
        return;
    }
    for candidate in candidates.iter_mut() {
        // Where the search starts depends on the name alone, so that a dry run names what the write then gets.
        let mut random = entropy::Random::of_name(&candidate.key.to_store_key());
        let found = candidate.check(|_, object, found| {
            if let Spec::Service(spec) = &mut object.spec {
                service::allocate(working, config, spec, &mut random, found);
            }
        });
        if let Some(object) = &candidate.new {
            working.put(Arc::new(object.clone()));
        }
        violations.extend(found);
    }
}

/// Gives what differs its revision, and leaves alone what does not.
fn conclude(
    before: &Snapshot,
    mut working: Snapshot,
    candidates: Vec<Candidate>,
    pruned: Vec<ObjectKey>,
    records: Vec<Candidate>,
    entropy: &Entropy,
) -> Admitted {
    let revision = before.revision().next();
    let mut random = entropy::Random::new(entropy.seed);
    let mut changes = Vec::new();
    let mut outcomes = Vec::new();
    let mut conclude_one = |action: Action, object: Arc<Object>| {
        changes.extend(change_kind(action).map(|kind| Change { kind, object: Arc::clone(&object) }));
        outcomes.push(Outcome { action, object });
    };
    for candidate in candidates {
        match candidate.conclude(revision, entropy.now, &mut random) {
            (Action::Deleted, object) => conclude_one(Action::Deleted, object),
            (action, object) => {
                working.put(Arc::clone(&object));
                conclude_one(action, object);
            }
        }
    }
    for old in pruned.iter().filter_map(|key| before.get(key)) {
        conclude_one(Action::Pruned, Arc::new(candidate::with_revision(old, revision)));
    }
    for record in records {
        let (action, object) = record.conclude(revision, entropy.now, &mut random);
        if action != Action::Deleted {
            working.put(Arc::clone(&object));
        }
        changes.extend(change_kind(action).map(|kind| Change { kind, object }));
    }
    if changes.is_empty() {
        return Admitted { snapshot: before.clone(), changes, outcomes };
    }
    working.set_revision(revision);
    Admitted { snapshot: working, changes, outcomes }
}

const fn change_kind(action: Action) -> Option<ChangeKind> {
    match action {
        Action::Created => Some(ChangeKind::Added),
        Action::Updated => Some(ChangeKind::Modified),
        Action::Deleted | Action::Pruned => Some(ChangeKind::Deleted),
        Action::Unchanged => None,
    }
}

/// A violation saying that another object has what was asked for.
fn taken(pointer: String, code: ViolationCode, what: &str, holder: &impl std::fmt::Display) -> Violation {
    Violation::new(pointer, code, format!("must be free; {what} is held by Service {holder}"))
        .hint("leave the field out to get a free one, or change the holder first")
}
