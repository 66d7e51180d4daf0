//! Cache of plans (previewed writes) that can be applied. Each is kept in memory for one hour, and can be applied
//! only while its objects have the versions for which it was computed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use model::{
    admission::admit::{ApplySet, Operation, Outcome, Request},
    cluster::change::Action,
    kinds::resource::{Object, ObjectKey},
    primitives::quantity::Timestamp,
};

use crate::state::published::Published;

/// Maximum number of cached plans; the oldest is evicted first.
const PLANS_MAX: usize = 64;
/// Maximum total size in bytes of the request bodies of cached plans: eight of the largest. The oldest plan is
/// evicted first.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Cached plans that can be applied, by id.
#[derive(Debug, Default)]
pub(crate) struct PlanCache {
    inner: Mutex<PlanEntries>,
}

#[derive(Debug, Default)]
struct PlanEntries {
    plans: BTreeMap<String, (Timestamp, CachedPlan)>,
    order: VecDeque<String>,
    bytes: usize,
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

    /// Stores a plan until it expires or is evicted.
    pub(crate) fn keep(&self, id: &str, plan: CachedPlan, expires: Timestamp, now: Timestamp) {
        let mut inner = self.lock();
        inner.bytes += plan.bytes;
        inner.plans.insert(id.to_owned(), (expires, plan));
        inner.order.push_back(id.to_owned());
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
        while let Some(oldest) = self.order.front() {
            let is_over = self.order.len() > PLANS_MAX || self.bytes > BYTES_MAX;
            let is_old = self.plans.get(oldest).is_none_or(|(expires, _)| *expires <= now);
            // A plan larger than the total limit is kept as the only one.
            let must_go = is_old || (is_over && self.order.len() > 1);
            if !must_go {
                return;
            }
            if let Some((_, plan)) = self.order.pop_front().and_then(|id| self.plans.remove(&id)) {
                self.bytes -= plan.bytes;
            }
        }
    }
}
