//! Cache of plans (previewed writes) that can be applied. Each is kept in memory for one hour, and can be applied
//! only while its objects have the versions for which it was computed.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use model::{
    admission::admit::{ApplySet, Operation, Outcome, Request},
    cluster::change::Action,
    kinds::resource::{Object, ObjectKey},
    primitives::quantity::Timestamp,
};

use super::eviction_order::EvictionOrder;
use crate::state::published::Published;

/// Maximum number of cached plans. The caller with most plans loses its oldest one first.
const PLANS_MAX: usize = 64;
/// Maximum total size in bytes of the request bodies of cached plans: eight of the largest. The caller with the
/// largest plans loses its oldest one first.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Cached plans that can be applied, by id.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    inner: Mutex<PlanEntries>,
}

#[derive(Debug, Default)]
struct PlanEntries {
    plans: BTreeMap<String, (Timestamp, CachedPlan)>,
    order: EvictionOrder,
}

/// Write of a plan with preconditions on its objects, and the size of its request body.
#[derive(Debug, Clone)]
pub(crate) struct CachedPlan {
    /// Write with a precondition on the version of each object.
    pub(crate) request: Request,
    /// Size of the original request body in bytes.
    pub(crate) bytes: usize,
}

impl CachedPlan {
    /// Adds preconditions to a request, so that it is rejected if an object has changed since the plan.
    pub(crate) fn of(request: Request, bytes: usize, outcomes: &[Outcome], published: &Published) -> Self {
        let revision = |key: &ObjectKey| published.snapshot.get(key).map(|object| object.metadata.revision());
        let pin = |object: Object| match revision(&object.key()) {
            Some(revision) => Operation::Replace { object, if_revision: Some(revision) },
            None => Operation::Create(object),
        };
        let mut operations: Vec<Operation> = request
            .operations
            .into_iter()
            .map(|operation| match operation {
                Operation::Apply(object) => pin(object),
                Operation::Create(_)
                | Operation::Replace { .. }
                | Operation::Delete { .. }
                | Operation::Restore { .. }
                | Operation::RetryPending { .. }
                | Operation::SetAnnouncer { .. }
                | Operation::SetEndpointHealth { .. }
                | Operation::SetAttachments { .. }
                | Operation::SetIssuance { .. }
                | Operation::SetNodeLost { .. } => operation,
            })
            .collect();
        let pruned = outcomes.iter().filter(|outcome| outcome.action == Action::Pruned);
        operations.extend(pruned.map(|outcome| {
            let key = outcome.object.key();
            Operation::Delete { if_revision: revision(&key), key }
        }));
        // Pruned objects are deleted by name, so that no others are.
        let apply_set = request.apply_set.map(|set| ApplySet { prune: false, prune_limit: None, ..set });
        Self { request: Request { operations, apply_set, ..request }, bytes }
    }
}

impl PlanCache {
    fn lock(&self) -> MutexGuard<'_, PlanEntries> {
        // Every change is complete before the lock is released.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a plan of a caller until it expires or is evicted. `caller` is the unique key of the caller.
    pub(crate) fn keep(&self, caller: &str, id: &str, plan: CachedPlan, expires: Timestamp, now: Timestamp) {
        let mut inner = self.lock();
        inner.order.push(caller, id, plan.bytes);
        inner.plans.insert(id.to_owned(), (expires, plan));
        inner.make_room(now);
    }

    /// Returns the plan with this id, unless it has expired or was evicted.
    pub(crate) fn get(&self, id: &str, now: Timestamp) -> Option<CachedPlan> {
        let inner = self.lock();
        let (expires, plan) = inner.plans.get(id)?;
        (now < *expires).then(|| plan.clone())
    }

    /// Removes the plans that have expired.
    pub(crate) fn forget_old(&self, now: Timestamp) {
        self.lock().make_room(now);
    }
}

impl PlanEntries {
    fn make_room(&mut self, now: Timestamp) {
        let Self { plans, order } = self;
        let is_old = |id: &str| plans.get(id).is_none_or(|(expires, _)| *expires <= now);
        for id in order.evict_old(is_old) {
            plans.remove(&id);
        }
        // A plan larger than the total limit is kept as the only one.
        while order.count() > 1 {
            let evicted = match (order.count() > PLANS_MAX, order.bytes() > BYTES_MAX) {
                (true, _) => order.evict_most_entries(),
                (false, true) => order.evict_most_bytes(),
                (false, false) => return,
            };
            evicted.and_then(|id| plans.remove(&id));
        }
    }
}
