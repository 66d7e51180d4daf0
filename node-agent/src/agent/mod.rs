//! The loop of a node, without a clock and without threads of its own: observe → plan → apply → verify, again and again.
//!
//! ```text
//!            batch ──▶ state ──▶ journal ──▶ derived ──▶ dirty Services
//!                                                             │
//!   start, drift, failure ──▶ observe + everything ─▶ pass ◀──┘ only these
//!                                     ▲                │
//!                                     └── failed ──────┴──▶ outcomes, watermarks ──▶ status
//! ```
//! One path: start, change, drift and recovery run the same pass over more or less. What must not happen here: a kernel
//! write before a first complete state is held, and work for a small change that grows with the number of Services.

mod outcomes;
pub mod thread;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use model::{name::Name, quantity::Position, resource::ServiceKey};
use tracing::{debug, error, warn};

use self::outcomes::Outcomes;
use crate::{
    backoff::Backoff,
    dataplane::{Dataplane, KernelError, Pass, Scope},
    desired::Derived,
    feed::machine::Batch,
    journal::Journal,
    state::{State, Touched},
    status::Status,
    tally::Tally,
};

/// Time between two questions whether somebody else changed the kernel: the bound on how long drift lasts.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// A full look at the kernel may take at most one part in this many of the time, however often strangers change it.
const PROBE_SHARE: u32 = 10;
/// Wait after the first failed pass, and the longest one.
const RECOVERY_FLOOR: Duration = Duration::from_millis(100);
const RECOVERY_CAP: Duration = Duration::from_secs(30);
/// Wait before failed Services are tried again, and the longest one.
const RETRY_FLOOR: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(60);
/// Longest time without a turn, for the upkeep of the journal.
const TURN_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The loop of a node.
pub struct Agent {
    dataplane: Box<dyn Dataplane>,
    journal: Journal,
    tally: Tally,
    state: State,
    derived: Derived,
    dirty: BTreeSet<ServiceKey>,
    are_networks_dirty: bool,
    full_look: Option<FullLook>,
    recovery: Backoff,
    outcomes: Outcomes,
    retry: Backoff,
    retry_at: Option<Instant>,
    probe_at: Instant,
    verified: Option<Position>,
    last_failure: Option<String>,
    has_other_mode: bool,
}

/// Everything is to be observed and looked at.
#[derive(Debug, Clone, Copy)]
struct FullLook {
    cause: Cause,
    not_before: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Start,
    Drift,
    Failure,
}

/// What an agent begins with.
pub struct Beginning {
    /// Its node.
    pub node: Name,
    /// Its kernel.
    pub dataplane: Box<dyn Dataplane>,
    /// Its journal.
    pub journal: Journal,
    /// What the journal held.
    pub state: State,
    /// Where it counts.
    pub tally: Tally,
}

impl Agent {
    /// Begins with the state of the journal; the kernel is not touched before the first [`Self::turn`].
    #[must_use]
    pub fn new(beginning: Beginning, now: Instant) -> Self {
        let Beginning { node, dataplane, journal, state, tally } = beginning;
        let mut derived = Derived::new(node);
        let services = state.services().keys().cloned().collect();
        let _first_look_covers_everything =
            derived.update(&state, Touched { services, network: true, node: true });
        let mut agent = Self {
            dataplane,
            journal,
            tally,
            state,
            derived,
            dirty: BTreeSet::new(),
            are_networks_dirty: false,
            full_look: Some(FullLook { cause: Cause::Start, not_before: now }),
            recovery: Backoff::new(RECOVERY_FLOOR, RECOVERY_CAP),
            outcomes: Outcomes::default(),
            retry: Backoff::new(RETRY_FLOOR, RETRY_CAP),
            retry_at: None,
            probe_at: now + PROBE_INTERVAL,
            verified: None,
            last_failure: None,
            has_other_mode: false,
        };
        agent.check_mode();
        agent
    }

    /// Takes a batch into state and journal. The kernel follows at the next [`Self::turn`].
    pub fn receive(&mut self, batch: Batch, now: Instant) {
        let previous = self.state.position();
        let touched = match self.state.apply(batch) {
            Ok(touched) => touched,
            Err(fault) => {
                self.tally.feed_refusals.inc();
                error!(%fault, "a batch was refused; the last good state stays");
                return;
            }
        };
        self.journal.append(previous, &self.state, &touched, now);
        if touched.node {
            self.check_mode();
        }
        debug!(services = touched.services.len(), position = ?self.state.position(), "received");
        let followed = self.derived.update(&self.state, touched);
        self.are_networks_dirty |= followed.networks;
        self.dirty.extend(followed.services);
    }

    /// Does what is due. `random` spreads retries.
    pub fn turn(&mut self, now: Instant, random: u64) {
        self.journal.maintain(&self.state, now);
        if self.state.position().is_none() {
            return;
        }
        if let Some(look) = self.full_look {
            if now >= look.not_before {
                self.look_at_everything(look.cause, now, random);
            }
            return;
        }
        if self.retry_at.take_if(|at| now >= *at).is_some() {
            self.dirty.extend(self.outcomes.refused().cloned());
        }
        self.follow_changes(now, random);
        if self.full_look.is_none() && now >= self.probe_at {
            self.probe(now, random);
        }
    }

    /// When the next [`Self::turn`] has something to do, if nothing is received before.
    #[must_use]
    pub fn next_turn(&self, now: Instant) -> Instant {
        let upkeep = now + TURN_INTERVAL_MAX;
        if self.state.position().is_none() {
            return upkeep;
        }
        // While a full look waits, nothing else is done before it.
        let next = self.full_look.map_or_else(
            || self.retry_at.map_or(self.probe_at, |retry_at| retry_at.min(self.probe_at)),
            |look| look.not_before,
        );
        next.min(upkeep)
    }

    /// Ends: what was recorded is synced, the kernel stays exactly as it is.
    ///
    /// # Errors
    /// When the journal cannot be synced.
    pub fn stop(self) -> std::io::Result<()> {
        self.journal.close()
    }

    /// Where the agent is.
    #[must_use]
    pub fn status(&mut self) -> Status {
        let (failures, failures_total) = self.outcomes.failures(&self.derived);
        let mut problems = Vec::new();
        if self.state.position().is_none() {
            problems
                .push("no state has been loaded: control has not been heard and nothing is saved".to_owned());
        } else if self.verified.is_none() && self.last_failure.is_none() {
            problems.push("the kernel has not been read and programmed since the start".to_owned());
        }
        problems.extend(self.last_failure.clone());
        let mut warnings = Vec::new();
        if self.journal.is_broken() {
            warnings.push("the state cannot be saved to the state directory".to_owned());
        }
        if let Some(mode) = self.state.node().mode.filter(|_| self.has_other_mode) {
            let (wanted, running) = (mode.as_str(), self.dataplane.mode().as_str());
            warnings.push(format!(
                "the Node asks for mode {wanted}, which needs a start with --mode {wanted}; {running} runs"
            ));
        }
        Status {
            mode: self.dataplane.mode(),
            received: self.state.position(),
            verified: self.verified,
            services: self.state.services().len(),
            failures,
            failures_total,
            problems,
            warnings,
            kernel: self.dataplane.counters(),
            journal_bytes: self.journal.bytes(),
        }
    }

    /// The state held.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    fn check_mode(&mut self) {
        let running = self.dataplane.mode();
        let differs = self.state.node().mode.is_some_and(|wanted| wanted != running);
        if differs && !self.has_other_mode {
            let wanted = self.state.node().mode.map_or("", model::node::ProxyMode::as_str);
            warn!(
                wanted,
                running = running.as_str(),
                "the Node asks for another mode; start the agent with it"
            );
        }
        self.has_other_mode = differs;
    }

    /// Programs what batches touched, without looking at anything else.
    fn follow_changes(&mut self, now: Instant, random: u64) {
        if self.dirty.is_empty() && !self.are_networks_dirty {
            self.verified = self.state.position();
            return;
        }
        let scope = Scope::Services(std::mem::take(&mut self.dirty));
        let _writes = self.pass(&scope, now, random);
    }

    fn probe(&mut self, now: Instant, random: u64) {
        self.probe_at = now + PROBE_INTERVAL;
        match self.dataplane.is_disturbed() {
            Ok(false) => {}
            Ok(true) => self.look_at_everything(Cause::Drift, now, random),
            Err(error) => self.fail(&error, now, random),
        }
    }

    fn look_at_everything(&mut self, cause: Cause, now: Instant, random: u64) {
        let begun = Instant::now();
        // A pass may have failed because somebody took the ground from under it; then the repair is one of drift.
        let is_drift = match cause {
            Cause::Start => false,
            Cause::Drift => true,
            Cause::Failure => self.dataplane.is_disturbed().unwrap_or(false),
        };
        if let Err(error) = self.dataplane.observe() {
            return self.fail(&error, now, random);
        }
        let Some(writes) = self.pass(&Scope::Everything, now, random) else { return };
        self.full_look = None;
        self.dirty.clear();
        self.probe_at = now + PROBE_INTERVAL.max(begun.elapsed() * PROBE_SHARE);
        if is_drift && writes > 0 {
            self.tally.drift_repairs.inc();
            warn!(writes, "the kernel had been changed by somebody else and was repaired");
        }
    }

    /// Runs one pass; answers the kernel writes, or nothing when it failed as a whole.
    fn pass(&mut self, scope: &Scope, now: Instant, random: u64) -> Option<u64> {
        let begun = Instant::now();
        let Pass { outcomes, writes, failed } = self.dataplane.apply(self.derived.desired(), scope);
        self.tally.passes.inc();
        self.tally.kernel_writes.inc_by(writes);
        self.tally.pass_seconds.observe(begun.elapsed().as_secs_f64());
        debug!(writes, services = outcomes.len(), everything = *scope == Scope::Everything, "pass");
        if let Some(error) = failed {
            self.fail(&error, now, random);
            return None;
        }
        self.are_networks_dirty = false;
        self.last_failure = None;
        self.recovery.reset();
        let has_new_failure = self.outcomes.take(scope, outcomes, self.derived.desired());
        if self.outcomes.refused().next().is_none() {
            self.retry_at = None;
            self.retry.reset();
        } else if has_new_failure || self.retry_at.is_none() {
            if has_new_failure {
                self.retry.reset();
            }
            self.retry_at = Some(now + self.retry.next_delay(random));
        }
        self.verified = self.state.position();
        Some(writes)
    }

    /// After a failure of the whole nothing is known of the kernel; everything is looked at again, but not at once.
    fn fail(&mut self, error: &KernelError, now: Instant, random: u64) {
        self.tally.pass_failures.inc();
        let delay = self.recovery.next_delay(random);
        let cause = match &self.full_look {
            Some(FullLook { cause: Cause::Start, .. }) => Cause::Start,
            Some(_) | None => Cause::Failure,
        };
        self.full_look = Some(FullLook { cause, not_before: now + delay });
        let text = format!("{error}: {}", error.source);
        if self.last_failure.as_ref() != Some(&text) {
            warn!(error = text, retry_after_ms = delay.as_millis(), "the kernel could not be programmed");
        }
        self.last_failure = Some(text);
    }
}
