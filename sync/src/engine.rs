//! Makes Tidegate equal to what a source wants, and keeps it so.
//!
//! ```text
//!  Wanted (watch) ──differs──▶ dirty keys ◀──heard── follow: the source's objects in Tidegate
//!                                  │
//!                      plan (pure) ▼
//!                        write, remove ──answers──▶ mirror ──▶ Observed (watch)
//! ```
//!
//! One loop, one path: a start, a change of the source, somebody else's change of its objects and a refusal that may be over
//! all only make keys dirty. A key that is not dirty costs nothing. The end of the process changes nothing in Tidegate.

mod backoff;
mod follow;
pub mod keep;
pub mod mirror;
pub mod plan;
pub mod progress;
mod statuses;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

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
    backoff::Backoff,
    follow::Heard,
    mirror::Mirror,
    plan::{Plan, Rules, Settled},
    progress::Progress,
    write::{Fate, Outcome, Writer},
};
use crate::{
    control::Control,
    wanted::{Observed, Wanted},
};

/// What is heard and not looked at yet; the watch waits beyond it.
const HEARD_MAX: usize = 1024;
/// How long changes of a source are collected after the first, so that what belongs together is one write.
const COLLECT: Duration = Duration::from_millis(20);
/// Longest wait before what was refused, or could not be sent, is tried again.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often held removals are mentioned again.
const REMIND: Duration = Duration::from_secs(60);
/// Held or refused objects named in one line of the log.
const NAMED_MAX: usize = 10;

/// What the engine is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The source: its apply set, and the value of the label of its objects.
    pub source: Label,
    /// Removals at once that nobody needs to confirm.
    pub prune_limit: Option<usize>,
    /// Whether a source without any object is believed.
    pub allow_empty: bool,
}

/// The ends of the channels that the engine works between.
pub struct Ports {
    /// What the source wants.
    pub wanted: watch::Receiver<Wanted>,
    /// What Tidegate says of it.
    pub observed: watch::Sender<Observed>,
    /// Somebody confirms what is held.
    pub consent: mpsc::Receiver<()>,
    /// How it is going.
    pub progress: Arc<Progress>,
}

/// Works until it is stopped.
pub async fn run(control: &Control, settings: Settings, ports: Ports, stop: CancellationToken) {
    let (sender, mut heard) = mpsc::channel(HEARD_MAX);
    let (statuses_sender, mut statuses) = mpsc::channel(1);
    let source = settings.source.clone();
    let Ports { wanted, observed, mut consent, progress } = ports;
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

/// What one round found.
#[derive(Debug, Default)]
pub struct Round {
    /// What was, or would be, done.
    pub plan: Plan,
    /// What was refused, and why.
    pub refused: BTreeMap<ObjectKey, String>,
}

/// Makes Tidegate equal to a state of the source once, or says what would have to be done.
///
/// # Errors
/// Control cannot be reached.
pub async fn once(
    control: &Control,
    settings: Settings,
    ports: Ports,
    is_dry_run: bool,
) -> anyhow::Result<Round> {
    let (sender, mut heard) = mpsc::channel(HEARD_MAX);
    let source = settings.source.clone();
    let Ports { wanted, observed, consent: _, progress } = ports;
    let mut engine = Engine::new(control, settings, wanted, observed, progress);
    engine.is_dry_run = is_dry_run;
    let listed = async {
        while let Some(heard) = heard.recv().await {
            if let Heard::Lost(cause) = heard {
                anyhow::bail!("{cause}");
            }
            engine.hear(heard);
            if engine.mirror.is_listed() {
                return Ok(());
            }
        }
        anyhow::bail!("nothing was heard")
    };
    tokio::select! {
        listed = listed => listed?,
        () = follow::follow(control, &source, sender) => anyhow::bail!("nothing was heard"),
    }
    engine.take_wanted();
    let plan = engine.plan();
    engine.pass().await;
    if !is_dry_run && !engine.refused.is_empty() {
        // What was refused because of something that has gone meanwhile.
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
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Observed>,
    progress: Arc<Progress>,
    /// The state of the source that dirty keys were taken from.
    taken: Wanted,
    mirror: Mirror,
    /// What may differ.
    dirty: BTreeSet<ObjectKey>,
    /// What waits for the source to be complete.
    waiting: BTreeSet<ObjectKey>,
    /// What waits for somebody to confirm it.
    held: BTreeSet<ObjectKey>,
    /// What of it somebody was told about.
    told: BTreeSet<ObjectKey>,
    told_at: Option<Instant>,
    confirmed: BTreeSet<ObjectKey>,
    refused: BTreeMap<ObjectKey, String>,
    guarded: BTreeSet<ObjectKey>,
    settled: BTreeMap<ObjectKey, Settled>,
    /// When what was refused is tried again.
    retry_at: Option<Instant>,
    /// Until when nothing is tried, because control could not be written to.
    blocked_until: Option<Instant>,
    backoff: Backoff,
    failure: Option<String>,
    is_dry_run: bool,
}

impl<'a> Engine<'a> {
    fn new(
        control: &'a Control,
        settings: Settings,
        wanted: watch::Receiver<Wanted>,
        observed: watch::Sender<Observed>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            control,
            settings,
            wanted,
            observed,
            progress,
            taken: Wanted::default(),
            mirror: Mirror::default(),
            dirty: BTreeSet::new(),
            waiting: BTreeSet::new(),
            held: BTreeSet::new(),
            told: BTreeSet::new(),
            told_at: None,
            confirmed: BTreeSet::new(),
            refused: BTreeMap::new(),
            guarded: BTreeSet::new(),
            settled: BTreeMap::new(),
            retry_at: None,
            blocked_until: None,
            backoff: Backoff::new(RETRY_MAX),
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

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Listed(objects) => {
                let seen = objects.clone();
                let before = self.mirror.list(objects);
                self.dirty.extend(before.keys().chain(seen.keys()).cloned());
                self.dirty.extend(self.taken.objects.keys().cloned());
                let show = |(key, own): (&ObjectKey, &mirror::Own)| (key.clone(), own.published.clone());
                let published = seen.iter().map(show).collect();
                self.observed.send_modify(|observed| observed.objects = published);
                self.progress.control(None);
            }
            Heard::Put(key, own) => {
                let published = own.published.clone();
                if self.mirror.put(key.clone(), *own) {
                    self.observed.send_modify(|observed| {
                        observed.objects.insert(key.clone(), published);
                    });
                    self.dirty.insert(key);
                }
                self.progress.control(None);
            }
            Heard::Gone(key, at) => {
                if self.mirror.remove(&key, at) {
                    self.observed.send_modify(|observed| {
                        observed.objects.remove(&key);
                    });
                    self.dirty.insert(key);
                }
            }
            Heard::Alive => self.progress.control(None),
            Heard::Lost(cause) => {
                tracing::warn!(cause, "nothing is heard from control; trying again");
                self.progress.control(Some(cause));
            }
        }
    }

    /// Takes statuses that changed without a change of intent.
    fn show(&mut self, shown: Vec<(ObjectKey, serde_json::Value)>) {
        let news: Vec<_> =
            shown.into_iter().filter(|(key, published)| self.mirror.show(key, published.clone())).collect();
        if !news.is_empty() {
            self.observed.send_modify(|observed| observed.objects.extend(news));
        }
    }

    /// Somebody confirms what they were told is held.
    fn confirm(&mut self) {
        let told: Vec<_> = self.told.iter().cloned().collect();
        tracing::info!(objects = told.len(), "what was held is confirmed");
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

    /// Has what was refused looked at again.
    fn retry(&mut self) {
        self.retry_at = None;
        self.dirty.extend(self.refused.keys().cloned());
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            source: &self.settings.source,
            prune_limit: self.settings.prune_limit,
            allow_empty: self.settings.allow_empty,
            confirmed: &self.confirmed,
            settled: &self.settled,
        }
    }

    fn plan(&self) -> Plan {
        plan::plan(self.rules(), &self.taken, &self.mirror, self.dirty.union(&self.held))
    }

    /// Makes what is dirty equal, as far as control lets it.
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

    /// Takes note of what became of everything that was to be done.
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
                        self.settled.insert(key.clone(), Settled { wanted: *wanted, revision });
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
                    if !is_stale {
                        tracing::warn!(object = %key, why, "refused");
                    }
                    if by_guard {
                        self.guarded.insert(key.clone());
                    }
                    self.refused.insert(key, why);
                }
            }
        }
        // What was not tried, and what a failure left in doubt.
        self.dirty.append(&mut open);
        match &failure {
            Some(cause) => {
                tracing::warn!(cause, "control cannot be written to; trying again");
                self.control.go_on();
                self.blocked_until = Some(Instant::now() + self.backoff.next());
            }
            None if is_any_changed => self.backoff.reset(),
            None => {}
        }
        if failure.is_none() && !self.refused.is_empty() {
            self.retry_at = Some(Instant::now() + self.backoff.next());
        }
        self.progress.control(failure.clone());
        self.failure = failure;
        let refused: imbl::OrdMap<_, _> = self.refused.clone().into_iter().collect();
        self.observed.send_if_modified(|observed| {
            let is_changed = observed.refused != refused;
            observed.refused = refused;
            is_changed
        });
        self.tell();
    }

    /// Has those who ask know where it stands.
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

    /// The entity tag of an object as it is known.
    fn tag(&self, key: &ObjectKey) -> Option<String> {
        let metadata = &self.mirror.get(key)?.object.metadata;
        Some(format!("\"{}.{}\"", metadata.uid?, metadata.revision()))
    }

    /// Says what is held back, at once and then from time to time.
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
                "HELD BACK: the source no longer has so much of what it had, or a guard of the server says no; nothing \
                 of it is removed. If that is meant, confirm it with `kill -USR1 {}`",
                std::process::id()
            );
        }
        self.told = held;
    }
}
