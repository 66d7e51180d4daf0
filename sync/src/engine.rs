//! Reconciliation engine: keeps a source's objects on the control server equal to the objects that the source
//! desires.
//!
//! ```text
//! DesiredObjects ── differences ──▶ dirty keys ◀── events ── watch of the source's objects in Tidegate
//!                                       │ plan
//!                                       ▼
//!                      write, remove ── responses ──▶ mirror ──▶ ObservedObjects
//! ```
//!
//! A key is dirty if its object may differ from the desired one. Startup, changes of the source, external
//! changes of its objects, and retries of rejected objects only mark keys as dirty; a single loop plans and
//! writes the changes of dirty keys. The mirror is a local copy of the source's objects on the server.
//! Stopping the process changes nothing on the server.

mod follow;
pub mod keep;
pub mod mirror;
pub mod outlet;
pub mod plan;
pub mod progress;
mod statuses;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::Backoff;
use model::{
    kinds::resource::{Kind, ObjectKey},
    primitives::name::Label,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{
    follow::WatchEvent,
    mirror::Mirror,
    plan::{Plan, Rules, SettledObject},
    progress::Progress,
    write::{Fate, Outcome, Writer},
};
use crate::{
    control::{Control, RETRY_MIN},
    wanted::{DesiredObjects, ObservedObjects},
};

/// Maximum number of queued watch events. If the queue is full, no more events are read from the server's
/// stream.
const HEARD_MAX: usize = 1024;
/// Delay after the first change of a source during which related changes are collected into one write.
const COLLECT: Duration = Duration::from_millis(20);
/// Maximum delay before rejected or unsent writes are retried.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Interval at which removals that wait for confirmation are logged again.
const REMIND: Duration = Duration::from_secs(60);
/// Maximum number of objects that one log line names as rejected or waiting for confirmation.
const NAMED_MAX: usize = 10;

/// Settings of the reconciliation engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the source. Used as the name of its apply set and as the value of the source label on its
    /// objects.
    pub source: Label,
    /// Maximum number of objects removed at once without confirmation, not counting [`Self::uncounted`]; by default 5, or a
    /// fifth of the source's counted objects on the server if that is more.
    pub prune_limit: Option<usize>,
    /// True if a source without any objects is accepted: removals then need confirmation only above
    /// [`Self::prune_limit`]. False if every removal for such a source needs confirmation.
    pub allow_empty: bool,
    /// Kind whose removals are neither counted nor held; see [`Rules::uncounted`].
    pub uncounted: Option<Kind>,
}

/// Channels between engine and source, with the state that both share.
pub struct EngineChannels {
    /// Newest desired objects, sent by the source.
    pub wanted: watch::Receiver<DesiredObjects>,
    /// State of the source's objects on the server, published for the source.
    pub observed: watch::Sender<ObservedObjects>,
    /// Confirmations by the operator (SIGUSR1) of removals that wait for one.
    pub consent: mpsc::Receiver<()>,
    /// Status and metrics that the engine updates.
    pub progress: Arc<Progress>,
}

/// Runs the engine until `stop` is cancelled: reconciles the server with the source after each change.
pub async fn run(control: &Control, settings: Settings, ports: EngineChannels, stop: CancellationToken) {
    let (sender, mut heard) = mpsc::channel(HEARD_MAX);
    let (statuses_sender, mut statuses) = mpsc::channel(1);
    let source = settings.source.clone();
    let EngineChannels { wanted, observed, mut consent, progress } = ports;
    let mut engine = Engine::new(control, settings, wanted, observed, progress);
    let work = async {
        let mut is_source_there = true;
        loop {
            let wake_at = engine.wake_at();
            tokio::select! {
                changed = engine.wanted.changed(), if is_source_there => {
                    is_source_there = changed.is_ok();
                    tokio::time::sleep(COLLECT).await;
                    engine.take_wanted();
                }
                Some(first) = heard.recv() => {
                    engine.hear(first);
                    while let Ok(next) = heard.try_recv() {
                        engine.hear(next);
                    }
                }
                Some(shown) = statuses.recv() => engine.show(shown),
                Some(()) = consent.recv() => engine.confirm(),
                () = tokio::time::sleep_until(wake_at) => engine.wake(),
            }
            engine.pass().await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow::follow(control, &source, sender) => {}
        () = statuses::follow(control, &source, statuses_sender) => {}
        () = work => {}
    }
}

/// Result of a single reconciliation of the desired objects with the server.
#[derive(Debug, Default)]
pub struct Round {
    /// Changes that were made, or with `--dry-run` would be made.
    pub plan: Plan,
    /// Objects that the server rejected, with the reason of each.
    pub refused: BTreeMap<ObjectKey, String>,
}

/// Reads the source's objects on the server and reconciles them once with the desired ones. In a dry run, the
/// server only validates the changes and stores nothing.
///
/// # Errors
/// Returns an error if the control server is unreachable.
pub async fn once(
    control: &Control,
    settings: Settings,
    ports: EngineChannels,
    is_dry_run: bool,
) -> anyhow::Result<Round> {
    let (sender, mut heard) = mpsc::channel(HEARD_MAX);
    let source = settings.source.clone();
    let EngineChannels { wanted, observed, consent: _, progress } = ports;
    let mut engine = Engine::new(control, settings, wanted, observed, progress);
    engine.is_dry_run = is_dry_run;
    let listed = async {
        while let Some(heard) = heard.recv().await {
            if let WatchEvent::Lost(cause) = heard {
                anyhow::bail!("{cause}");
            }
            engine.hear(heard);
            if engine.mirror.is_listed() {
                return Ok(());
            }
        }
        anyhow::bail!("no objects were received from the control server")
    };
    tokio::select! {
        listed = listed => listed?,
        () = follow::follow(control, &source, sender) => anyhow::bail!("no objects were received from \
                                                                        the control server"),
    }
    engine.take_wanted();
    let plan = engine.plan();
    engine.pass().await;
    if !is_dry_run && !engine.refused.is_empty() {
        // Retry objects that were rejected because of an object that has been removed since.
        engine.retry();
        engine.pass().await;
    }
    if let Some(cause) = engine.failure.take() {
        anyhow::bail!("{cause}");
    }
    Ok(Round { plan, refused: engine.refused })
}

struct Engine<'a> {
    control: &'a Control,
    settings: Settings,
    wanted: watch::Receiver<DesiredObjects>,
    observed: watch::Sender<ObservedObjects>,
    progress: Arc<Progress>,
    /// State of the source from which the dirty keys were computed.
    taken: DesiredObjects,
    mirror: Mirror,
    /// Keys whose desired and observed objects may differ.
    dirty: BTreeSet<ObjectKey>,
    /// Removals delayed until the source has been read completely.
    waiting: BTreeSet<ObjectKey>,
    /// Changes that are not applied until the operator confirms them, because they would remove many objects.
    held: BTreeSet<ObjectKey>,
    /// Changes waiting for confirmation that have been logged; only these can be confirmed.
    told: BTreeSet<ObjectKey>,
    told_at: Option<Instant>,
    confirmed: BTreeSet<ObjectKey>,
    refused: BTreeMap<ObjectKey, String>,
    /// Rejected objects of which the server has a newer state. They are written again when the watch has delivered it.
    stale: BTreeSet<ObjectKey>,
    guarded: BTreeSet<ObjectKey>,
    settled: BTreeMap<ObjectKey, SettledObject>,
    /// Time of the next retry of rejected objects.
    retry_at: Option<Instant>,
    /// Time until which no writes are attempted after a failure.
    blocked_until: Option<Instant>,
    backoff: Backoff,
    failure: Option<String>,
    is_dry_run: bool,
}

impl<'a> Engine<'a> {
    fn new(
        control: &'a Control,
        settings: Settings,
        wanted: watch::Receiver<DesiredObjects>,
        observed: watch::Sender<ObservedObjects>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            control,
            settings,
            wanted,
            observed,
            progress,
            taken: DesiredObjects::default(),
            mirror: Mirror::default(),
            dirty: BTreeSet::new(),
            waiting: BTreeSet::new(),
            held: BTreeSet::new(),
            told: BTreeSet::new(),
            told_at: None,
            confirmed: BTreeSet::new(),
            refused: BTreeMap::new(),
            stale: BTreeSet::new(),
            guarded: BTreeSet::new(),
            settled: BTreeMap::new(),
            retry_at: None,
            blocked_until: None,
            backoff: Backoff::new(RETRY_MIN, RETRY_MAX),
            failure: None,
            is_dry_run: false,
        }
    }

    fn take_wanted(&mut self) {
        let new = self.wanted.borrow_and_update().clone();
        let before = self.dirty.len();
        for item in self.taken.objects.diff(&new.objects) {
            let key = match item {
                imbl::ordmap::DiffItem::Add(key, _) | imbl::ordmap::DiffItem::Remove(key, _) => key,
                imbl::ordmap::DiffItem::Update { new: (key, _), .. } => key,
            };
            self.dirty.insert(key.clone());
        }
        if new.is_complete && !self.taken.is_complete {
            self.dirty.append(&mut self.waiting);
        }
        if self.dirty.len() > before {
            self.backoff.reset();
            self.retry_at = None;
        }
        self.taken = new;
        self.tell();
        self.progress.source(self.taken.objects.len(), self.taken.is_complete);
    }

    fn hear(&mut self, heard: WatchEvent) {
        match heard {
            WatchEvent::Listed(objects) => {
                let seen = objects.clone();
                let before = self.mirror.list(objects);
                self.dirty.extend(before.keys().chain(seen.keys()).cloned());
                self.dirty.extend(self.taken.objects.keys().cloned());
                let show = |(key, own): (&ObjectKey, &mirror::Own)| (key.clone(), own.published.clone());
                let published = seen.iter().map(show).collect();
                self.observed.send_modify(|observed| observed.objects = published);
                self.progress.control(None);
            }
            WatchEvent::Put(key, own) => {
                let published = own.published.clone();
                if self.mirror.put(key.clone(), *own) {
                    self.observed.send_modify(|observed| {
                        observed.objects.insert(key.clone(), published);
                    });
                    self.dirty.insert(key);
                }
                self.progress.control(None);
            }
            WatchEvent::Gone(key, at) => {
                if self.mirror.remove(&key, at) {
                    self.observed.send_modify(|observed| {
                        observed.objects.remove(&key);
                    });
                    self.dirty.insert(key);
                }
            }
            WatchEvent::Alive => self.progress.control(None),
            WatchEvent::Lost(cause) => {
                tracing::warn!(cause, "the watch of the control server failed; retrying");
                self.progress.control(Some(cause));
            }
        }
    }

    /// Stores and publishes polled statuses of objects whose spec has not changed.
    fn show(&mut self, shown: Vec<(ObjectKey, serde_json::Value)>) {
        let news: Vec<_> =
            shown.into_iter().filter(|(key, published)| self.mirror.show(key, published.clone())).collect();
        if !news.is_empty() {
            self.observed.send_modify(|observed| observed.objects.extend(news));
        }
    }

    /// Confirms the changes that wait for confirmation and have already been logged.
    fn confirm(&mut self) {
        let told: Vec<_> = self.told.iter().cloned().collect();
        tracing::info!(objects = told.len(), "held changes confirmed");
        self.dirty.extend(told.iter().cloned());
        self.confirmed.extend(told);
        self.dirty.append(&mut self.guarded);
    }

    fn wake_at(&self) -> Instant {
        let next = [self.retry_at, self.blocked_until].into_iter().flatten().min();
        next.unwrap_or_else(|| Instant::now() + REMIND)
    }

    fn wake(&mut self) {
        let is_over = |at: &Option<Instant>| at.is_some_and(|at| at <= Instant::now());
        if is_over(&self.blocked_until) {
            self.blocked_until = None;
        }
        if is_over(&self.retry_at) {
            self.retry();
        }
    }

    /// Marks objects that the server rejected as dirty, so that they are sent again.
    fn retry(&mut self) {
        self.retry_at = None;
        self.dirty.extend(self.refused.keys().cloned());
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            source: &self.settings.source,
            prune_limit: self.settings.prune_limit,
            allow_empty: self.settings.allow_empty,
            uncounted: self.settings.uncounted,
            confirmed: &self.confirmed,
            settled: &self.settled,
        }
    }

    fn plan(&self) -> Plan {
        plan::plan(self.rules(), &self.taken, &self.mirror, self.dirty.union(&self.held))
    }

    /// Plans and writes the changes of the dirty keys. Does nothing while writes are blocked after a failure.
    async fn pass(&mut self) {
        if !self.mirror.is_listed() || self.blocked_until.is_some() {
            return;
        }
        if self.dirty.is_empty() {
            self.remind();
            return;
        }
        self.tell();
        let plan = self.plan();
        let looked_at = std::mem::take(&mut self.dirty);
        for key in &looked_at {
            self.refused.remove(key);
            self.stale.remove(key);
            self.guarded.remove(key);
        }
        self.waiting.extend(plan.waiting);
        self.held = plan.held;
        let (names, tags): (BTreeSet<_>, Vec<_>) = (
            plan.writes.iter().map(|write| write.key.clone()).chain(plan.removals.iter().cloned()).collect(),
            plan.removals
                .into_iter()
                .filter_map(|key| Some((self.tag(&key)?, key)))
                .map(|(tag, key)| (key, tag))
                .collect(),
        );
        let writer = Writer {
            control: self.control,
            source: &self.settings.source,
            confirmed: &self.confirmed,
            is_dry_run: self.is_dry_run,
        };
        let written =
            if plan.writes.is_empty() { Outcome::default() } else { writer.write(plan.writes).await };
        let removed = if written.failure.is_none() && !tags.is_empty() {
            writer.remove(tags).await
        } else {
            Outcome::default()
        };
        let failure = written.failure.or(removed.failure);
        self.conclude(names, written.fates.into_iter().chain(removed.fates), failure);
        self.remind();
    }

    /// Records the outcome of each write and removal of a plan. `failure` is the failure that stopped the
    /// plan, if any.
    fn conclude(
        &mut self,
        mut open: BTreeSet<ObjectKey>,
        fates: impl Iterator<Item = (ObjectKey, Fate)>,
        failure: Option<String>,
    ) {
        let mut is_any_changed = false;
        for (key, fate) in fates {
            open.remove(&key);
            match fate {
                Fate::Written { own, is_changed, wanted } => {
                    self.confirmed.remove(&key);
                    let revision = own.object.metadata.revision();
                    if is_changed {
                        is_any_changed = true;
                        tracing::info!(object = %key, "written");
                        self.progress.written();
                        self.settled.remove(&key);
                    } else {
                        self.settled.insert(key.clone(), SettledObject { wanted: *wanted, revision });
                    }
                    if !self.is_dry_run {
                        self.take_answer(key, *own);
                    }
                }
                Fate::Removed(at) => {
                    is_any_changed = true;
                    tracing::info!(object = %key, "removed");
                    self.progress.removed();
                    self.confirmed.remove(&key);
                    self.held.remove(&key);
                    self.settled.remove(&key);
                    if !self.is_dry_run && self.mirror.remove(&key, at) {
                        self.observed.send_modify(|observed| {
                            observed.objects.remove(&key);
                        });
                    }
                }
                Fate::Refused { why, by_guard, is_stale } => {
                    if is_stale {
                        self.stale.insert(key.clone());
                    } else {
                        tracing::warn!(object = %key, why, "refused");
                    }
                    if by_guard {
                        self.guarded.insert(key.clone());
                    }
                    self.refused.insert(key, why);
                }
            }
        }
        // Keys that were not attempted, or whose outcome is unknown after a failure.
        self.dirty.append(&mut open);
        match &failure {
            Some(cause) => {
                tracing::warn!(cause, "writing to the control server failed; retrying");
                self.control.use_next();
                self.blocked_until = Some(Instant::now() + self.backoff.next_random_delay());
            }
            None if is_any_changed => self.backoff.reset(),
            None => {}
        }
        if failure.is_none() && !self.refused.is_empty() {
            self.retry_at = Some(Instant::now() + self.backoff.next_random_delay());
        }
        self.progress.control(failure.clone());
        self.failure = failure;
        let is_reported = |(key, _): &(&ObjectKey, &String)| !self.stale.contains(*key);
        let refused = self.refused.iter().filter(is_reported);
        let refused: imbl::OrdMap<_, _> = refused.map(|(key, why)| (key.clone(), why.clone())).collect();
        self.observed.send_if_modified(|observed| {
            let is_changed = observed.refused != refused;
            observed.refused = refused;
            is_changed
        });
        self.tell();
    }

    /// Publishes the engine's numbers of objects: observed, rejected, waiting for confirmation, and dirty.
    fn tell(&self) {
        if self.mirror.is_listed() {
            let held = self.held.union(&self.guarded).count();
            self.progress.state(self.mirror.objects().len(), self.refused.len(), held, self.dirty.len());
        }
    }

    fn take_answer(&mut self, key: ObjectKey, own: mirror::Own) {
        let published = own.published.clone();
        if self.mirror.put(key.clone(), own) {
            self.observed.send_modify(|observed| {
                observed.objects.insert(key, published);
            });
        }
    }

    /// Returns the entity tag of an object in its last observed state, or `None` if the object is unknown.
    fn tag(&self, key: &ObjectKey) -> Option<String> {
        let metadata = &self.mirror.get(key)?.object.metadata;
        Some(format!("\"{}.{}\"", metadata.uid?, metadata.revision()))
    }

    /// Logs the objects whose removal waits for a confirmation: when they change, and again at the reminder
    /// interval.
    fn remind(&mut self) {
        let held: BTreeSet<_> = self.held.union(&self.guarded).cloned().collect();
        self.tell();
        let is_due = self.told_at.is_none_or(|at| at.elapsed() >= REMIND) || held != self.told;
        if is_due && !held.is_empty() {
            self.told_at = Some(Instant::now());
            let named: Vec<_> = held.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let services = held.iter().filter(|key| key.kind == Kind::Service).count();
            tracing::error!(
                objects = held.len(),
                services,
                first = named.join(", "),
                "REMOVALS HELD: the source lost too many of its objects, or a guard of the server \
                 rejected the change; nothing is removed. If this is intended, confirm it with `kill \
                 -USR1 {}`",
                std::process::id()
            );
        }
        self.told = held;
    }
}
