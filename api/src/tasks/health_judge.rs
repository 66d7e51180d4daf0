//! Health judge task: derives the set of endpoints in service from the probe results of the agents.
//!
//! ```text
//! commits ───────┐
//! reports ───────┼─▶ affected Services ─▶ decisions ─▶ guard ─▶ SetEndpointHealth, in batches ─▶ writer
//! time (1 s) ────┘
//! ```
//! The function `judge` of the crate `model` decides about one Service. The guard keeps unhealthy endpoints in
//! service if too many fail at once. The operation `SetEndpointHealth` stores the decision. The guard ignores
//! endpoints on lost Nodes, whose number the leases of Nodes limit.
//!
//! Decisions are stored as objects; probe results are not stored, because agents report them again. A server
//! that has just started has no results and keeps the last decisions. The loop of the task is in `leader_task`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use model::{
    admission::admit::Operation,
    cluster::compiled::CompiledService,
    kinds::{
        endpoint_health::{CheckKey, EndpointVerdict},
        resource::{Kind, Object, ServiceKey},
    },
    observed::health::{
        Guard, HealthBook, HealthDecision, HealthInputs, checks, dead_nodes, judge, lost_nodes, unchecked,
    },
    primitives::{
        name::{Name, Namespace},
        quantity::{Position, Revision, Timestamp},
    },
};

use super::leader_task::{LeaderTask, write};
use crate::{
    context::server_state::ServerState,
    state::{compiled_set::Delta, published::Published},
};

/// Maximum number of Services whose health is decided in one write. The task yields to others after each write.
const BATCH_MAX: usize = 128;
/// Interval at which the health of all Services is decided again, in case an affected Service was missed.
const SWEEP: Duration = Duration::from_secs(300);

/// State of the health judge task, which decides about the endpoints in service.
pub(crate) struct HealthJudge {
    app: Arc<ServerState>,
    /// Position of the published state from which the following fields are derived.
    seen: Position,
    checkers: BTreeSet<Name>,
    connected: BTreeSet<Name>,
    /// Services with endpoints in slow start, with the time at which their share of connections next increases.
    growing: BTreeMap<ServiceKey, Timestamp>,
    /// Services with endpoints on lost Nodes, each with these Nodes.
    suspected: BTreeMap<ServiceKey, BTreeSet<Name>>,
    /// Lost Nodes whose checked endpoints are all unreachable. Their unchecked endpoints leave as well.
    dead: BTreeSet<Name>,
    /// Services whose health must be decided again.
    due: BTreeSet<ServiceKey>,
    swept: Instant,
}

impl LeaderTask for HealthJudge {
    fn new(app: Arc<ServerState>) -> Self {
        Self {
            app,
            seen: Position::default(),
            checkers: BTreeSet::new(),
            connected: BTreeSet::new(),
            growing: BTreeMap::new(),
            suspected: BTreeMap::new(),
            dead: BTreeSet::new(),
            due: BTreeSet::new(),
            swept: Instant::now(),
        }
    }

    fn seen(&mut self) -> &mut Position {
        &mut self.seen
    }

    async fn triggered(app: &ServerState) {
        app.observations.health.bell.notified().await;
    }

    fn apply_changes(&mut self, published: &Published, since: Revision) -> Option<()> {
        let commits: Vec<_> = published.recent.since(since)?.map(Arc::clone).collect();
        let forms: Vec<_> = published.compiled.since(since)?.collect();
        for delta in forms {
            match delta {
                Delta::Changed(entry) => self.apply_form(published, &entry.form),
                Delta::Removed(service, _) => self.forget(&service),
            }
        }
        for change in commits.iter().flat_map(|commit| &commit.changes) {
            self.apply_record(published, &change.object);
        }
        self.update_checkers(published);
        Some(())
    }

    fn begin_anew(&mut self, published: &Published) {
        let known: Vec<_> = self.app.observations.health.guard().services().cloned().collect();
        known.iter().for_each(|service| self.forget(service));
        self.suspected.clear();
        for (service, entry) in published.compiled.after(None) {
            // The results of the time before are unknown, so that all endpoints count as proven.
            let endpoints = guarded(&entry.form);
            if !endpoints.is_empty() {
                self.app.observations.health.guard().record_checked(service, endpoints.clone(), &endpoints);
            }
            self.apply_form(published, &entry.form);
        }
        for record in published.snapshot.list(Kind::EndpointHealth, None, None) {
            self.apply_record(published, record);
        }
        self.update_checkers(published);
    }

    fn apply_triggers(&mut self) {
        self.due.extend(self.app.observations.health.drain_triggers());
    }

    async fn tick(&mut self, _: bool) {
        self.mark_by_time();
    }

    async fn decide(&mut self) {
        while !self.due.is_empty() {
            let batch: Vec<_> = self.due.iter().take(BATCH_MAX).cloned().collect();
            let operations = self.decide_batch(&batch);
            if !operations.is_empty() && write(&self.app, operations).await.is_err() {
                // The Services stay marked for a decision; the next tick (after 1 s) retries.
                return;
            }
            for service in &batch {
                self.due.remove(service);
            }
            tokio::task::yield_now().await;
        }
    }

    fn discard(&mut self) {
        self.due.clear();
    }
}

impl HealthJudge {
    /// Marks all Services for a new decision if the set of nodes that run health checks has changed.
    fn update_checkers(&mut self, published: &Published) {
        if self.checkers != published.network.checkers {
            self.checkers.clone_from(&published.network.checkers);
            self.mark_all();
        }
    }

    /// Updates the health guard with the checked endpoints of a Service, and marks the Service for a decision.
    fn apply_form(&mut self, published: &Published, form: &CompiledService) {
        let lost = lost_nodes(form);
        let endpoints = guarded(form);
        let is_checked = !endpoints.is_empty();
        let is_suspected = !lost.is_empty();
        // A record without checks remains from a Node that was lost; a decision deletes it.
        let has_record = published.snapshot.endpoint_health(&form.service).is_some();
        if is_checked {
            self.record_checked(published, form, endpoints);
        } else {
            self.forget(&form.service);
        }
        if is_suspected {
            self.suspected.insert(form.service.clone(), lost.into_iter().cloned().collect());
        } else {
            self.suspected.remove(&form.service);
        }
        if is_checked || is_suspected || has_record {
            self.due.insert(form.service.clone());
        }
    }

    fn record_checked(&self, published: &Published, form: &CompiledService, endpoints: BTreeSet<CheckKey>) {
        let health = &self.app.observations.health;
        let book = health.book();
        let mut guard = health.guard();
        let passed = if guard.has_service(&form.service) || has_new_spec(published, &form.service) {
            let has_passed = |key: &&CheckKey| book.has_passed(&form.service, key);
            endpoints.iter().filter(has_passed).copied().collect()
        } else {
            // A check was added to endpoints that are already in service.
            endpoints.clone()
        };
        guard.record_checked(&form.service, endpoints, &passed);
    }

    fn forget(&mut self, service: &ServiceKey) {
        self.app.observations.health.guard().forget(service);
        self.growing.remove(service);
        self.suspected.remove(service);
        self.due.remove(service);
    }

    /// Updates the health guard with the endpoints that are out of service according to the stored
    /// EndpointHealth object of a Service, and marks the Service for a new decision. Ignores objects of other
    /// kinds.
    fn apply_record(&mut self, published: &Published, object: &Object) {
        let Some(_) = object.as_endpoint_health() else { return };
        let Some(service) = service_of(object.metadata.namespace.as_ref(), &object.metadata.name) else {
            return;
        };
        let record = published.snapshot.endpoint_health(&service);
        let unguarded =
            published.compiled.get(&service).map(|entry| unguarded(&entry.form)).unwrap_or_default();
        let verdicts = record.into_iter().flat_map(|record| &record.endpoints);
        let out = verdicts.filter(|(key, verdict)| verdict.is_out() && !unguarded.contains(key));
        let out = out.map(|(key, verdict)| (*key, verdict.since));
        self.app.observations.health.guard().record_out(&service, out.collect());
        self.due.insert(service);
    }

    /// Marks Services for a new decision: the ones for which a checking node stopped or resumed reporting,
    /// the ones whose slow start has reached its next step, the ones with endpoints on a lost Node that is now dead
    /// or no longer dead, and the ones with unhealthy endpoints that the guard keeps in service. Marks all
    /// Services once per interval [`SWEEP`].
    fn mark_by_time(&mut self) {
        let published = self.app.hub.load();
        let now = self.app.source.now();
        let table = self.app.observations.nodes.table(&published.snapshot, now);
        let connected: BTreeSet<Name> =
            table.views().iter().filter(|view| view.is_connected).map(|view| view.name.clone()).collect();
        let book = self.app.observations.health.book();
        for node in connected.symmetric_difference(&self.connected) {
            self.due.extend(book.services_of(node).cloned());
        }
        let dead = self.dead_nodes(&published, &book, now);
        drop(book);
        for node in dead.symmetric_difference(&self.dead) {
            let concerned = self.suspected.iter().filter(|(_, nodes)| nodes.contains(node));
            self.due.extend(concerned.map(|(service, _)| service.clone()));
        }
        self.dead = dead;
        self.connected = connected;
        self.due.extend(self.app.observations.health.guard().holding().cloned());
        let grown = self.growing.iter().filter(|(_, next)| **next <= now);
        self.due.extend(grown.map(|(service, _)| service.clone()));
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            self.mark_all();
        }
    }

    fn mark_all(&mut self) {
        self.due.extend(self.app.observations.health.guard().services().cloned());
        self.due.extend(self.suspected.keys().cloned());
    }

    /// Returns the lost Nodes whose checked endpoints are all unreachable.
    fn dead_nodes(&self, published: &Published, book: &HealthBook, now: Timestamp) -> BTreeSet<Name> {
        if self.suspected.is_empty() {
            return BTreeSet::new();
        }
        let table = self.app.observations.nodes.table(&published.snapshot, now);
        let is_reporting = |node: &Name| table.view(node).is_some_and(|view| view.is_connected);
        let checkers = &published.network.checkers;
        let inputs = HealthInputs { book, checkers, is_reporting: &is_reporting, dead: &self.dead, now };
        let forms = self.suspected.keys().filter_map(|service| published.compiled.get(service));
        dead_nodes(&inputs, forms.map(|entry| &*entry.form))
    }

    fn decide_batch(&mut self, services: &[ServiceKey]) -> Vec<Operation> {
        let app = Arc::clone(&self.app);
        let published = app.hub.load();
        let now = app.source.now();
        let table = app.observations.nodes.table(&published.snapshot, now);
        let is_reporting = |node: &Name| table.view(node).is_some_and(|view| view.is_connected);
        let book = app.observations.health.book();
        let inputs = HealthInputs {
            book: &book,
            checkers: &published.network.checkers,
            is_reporting: &is_reporting,
            dead: &self.dead,
            now,
        };
        let mut guard = app.observations.health.guard();
        let held_before = guard.held_count();
        let mut operations = Vec::new();
        for service in services {
            let Some(entry) = published.compiled.get(service) else { continue };
            let record = published.snapshot.endpoint_health(service);
            let mut judgement = judge(&inputs, &entry.form, record);
            let current = record.map(|record| &record.endpoints);
            hold_back(&mut guard, service, &mut judgement, current, now);
            match judgement.next {
                Some(next) => self.growing.insert(service.clone(), next),
                None => self.growing.remove(service),
            };
            if current.unwrap_or(&BTreeMap::new()) != &judgement.endpoints {
                self.log(service, &judgement, current);
                let HealthDecision { endpoints, .. } = judgement;
                operations.push(Operation::SetEndpointHealth { service: service.clone(), endpoints });
            }
        }
        if guard.held_count() > held_before {
            tracing::error!(
                held = guard.held_count(),
                checked = guard.checked(),
                "so many endpoints became unhealthy at once that they stay in service; confirm with \
                 `tidegate health --confirm`, or find the cause of the failing checks"
            );
        }
        operations
    }

    /// Logs each endpoint that a decision takes out of service or returns to it, and counts it in the
    /// metrics.
    fn log(
        &self,
        service: &ServiceKey,
        judgement: &HealthDecision,
        current: Option<&BTreeMap<CheckKey, EndpointVerdict>>,
    ) {
        let out = |of: &BTreeMap<CheckKey, EndpointVerdict>| -> BTreeMap<CheckKey, String> {
            let out = of.iter().filter(|(_, verdict)| verdict.is_out());
            out.map(|(key, verdict)| (*key, verdict.message.clone())).collect()
        };
        let (before, after) = (current.map(out).unwrap_or_default(), out(&judgement.endpoints));
        for (endpoint, result) in after.iter().filter(|(key, _)| !before.contains_key(key)) {
            self.app.metrics.verdict("out");
            tracing::info!(%service, %endpoint, result, "an endpoint is out of service");
        }
        for endpoint in before.keys().filter(|key| !after.contains_key(key)) {
            self.app.metrics.verdict("back");
            tracing::info!(%service, %endpoint, "an endpoint is no longer out of service");
        }
    }
}

/// Submits a decision to the health guard. Endpoints that the guard keeps in service get back their previous
/// verdict.
fn hold_back(
    guard: &mut Guard,
    service: &ServiceKey,
    judgement: &mut HealthDecision,
    current: Option<&BTreeMap<CheckKey, EndpointVerdict>>,
    now: Timestamp,
) {
    let leaving: BTreeMap<CheckKey, String> = judgement
        .leaving
        .iter()
        .filter_map(|key| Some((*key, judgement.endpoints.get(key)?.message.clone())))
        .collect();
    for key in guard.weigh(service, leaving, now) {
        judgement.leaving.remove(&key);
        match current.and_then(|current| current.get(&key)) {
            Some(before) => judgement.endpoints.insert(key, before.clone()),
            None => judgement.endpoints.remove(&key),
        };
    }
}

/// Returns the checked endpoints of a Service that the health guard counts: those on Nodes that are not lost.
fn guarded(form: &CompiledService) -> BTreeSet<CheckKey> {
    let lost = lost_nodes(form);
    let is_guarded = |own: &Option<Name>| !own.as_ref().is_some_and(|own| lost.contains(own));
    checks(form).into_iter().filter(|(_, own)| is_guarded(own)).map(|(key, _)| key).collect()
}

/// Returns the endpoints of a Service on lost Nodes, which the health guard ignores.
fn unguarded(form: &CompiledService) -> BTreeSet<CheckKey> {
    let lost = lost_nodes(form);
    if lost.is_empty() {
        return BTreeSet::new();
    }
    let checked =
        checks(form).into_iter().filter(|(_, own)| own.as_ref().is_some_and(|own| lost.contains(own)));
    checked.map(|(key, _)| key).chain(unchecked(form).into_keys()).collect()
}

/// True if the spec of a Service has not changed since its creation.
fn has_new_spec(published: &Published, service: &ServiceKey) -> bool {
    let object = published.snapshot.get(&service.object_key());
    object.is_some_and(|object| object.metadata.generation.is_none_or(|generation| generation <= 1))
}

fn service_of(namespace: Option<&Namespace>, name: &Name) -> Option<ServiceKey> {
    Some(ServiceKey { namespace: namespace?.clone(), name: name.clone() })
}
