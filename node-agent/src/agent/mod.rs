//! The loop of a node, without a clock and without threads of its own: observe → plan → apply → verify, again and again.
//!
//! ```text
//!            batch ──▶ state ──▶ journal ──▶ derived ──▶ dirty Services
//!                                                             │
//!   start, drift, failure ──▶ observe + everything ─▶ pass ◀──┘ only these
//!                                     ▲                │
//!                                     └── failed ──────┴──▶ outcomes, watermarks ──▶ status
//!                                                      └──▶ stale flows, health check node ports
//! ```
//! One path: start, change, drift and recovery run the same pass over more or less; another mode that the Node asks for
//! runs it with another backend (`backends`). What must not happen here: a kernel write before a first complete state is
//! held, and work for a small change that grows with the number of Services.

mod answers;
mod backends;
mod gates;
mod guarding;
mod outcomes;
mod passes;
mod rates;
mod refusals;
mod shown;
pub mod thread;
pub mod traffic;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Position},
};
use tracing::debug;

pub use self::backends::Opener;
use self::{
    backends::Backends,
    outcomes::Outcomes,
    traffic::{Counted, Readings},
};
use crate::{
    announce::{Announcing, bgp::Routing},
    backoff::Backoff,
    conntrack::{Cleaner, FlowTable},
    dataplane::OpenError,
    defaults::ProxyDefaults,
    desired::Derived,
    events::Events,
    feed::machine::Batch,
    health::Checking,
    health_port::HealthPorts,
    hold::Guard,
    journal::Journal,
    state::{State, Touched},
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
    backends: Backends,
    defaults: ProxyDefaults,
    cleaner: Cleaner,
    health_ports: HealthPorts,
    readings: Readings,
    events: Events,
    journal: Journal,
    tally: Tally,
    state: State,
    guard: Guard,
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
    are_leftovers_removed: bool,
    /// Whether flows may be left of a backend whose place another has taken.
    has_mode_changed: bool,
    announcing: Announcing,
    /// Announces to routers; nothing in agents that do not.
    routing: Option<Routing>,
    checking: Checking,
    refusals: refusals::Watch,
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
    pub kernel: Kernel,
    /// What it does where its Node says nothing.
    pub defaults: ProxyDefaults,
    /// Its journal.
    pub journal: Journal,
    /// What the journal held.
    pub state: State,
    /// Where it counts.
    pub tally: Tally,
}

/// The ways to the kernel.
pub struct Kernel {
    /// Makes the backends.
    pub open: Opener,
    /// The flows that it tracks.
    pub flows: Box<dyn FlowTable>,
}

impl Agent {
    /// Begins with the state of the journal and opens the backend that it asks for; the kernel is not touched before the
    /// first [`Self::turn`].
    ///
    /// # Errors
    /// When neither that backend nor the one of the defaults can be opened.
    pub fn new(beginning: Beginning, now: Instant) -> Result<Self, OpenError> {
        let Beginning { node, kernel, defaults, journal, state, tally } = beginning;
        let fallback = defaults.backend(&model::wire::feed::NodeState::default());
        let backends = Backends::open(kernel.open, defaults.backend(state.node()), &fallback, now)?;
        let mut derived = Derived::new(node, defaults.clone());
        let services = state.services().keys().cloned().collect();
        let _first_look_covers_everything =
            derived.update(&state, Touched { services, network: true, node: true, ..Touched::default() });
        Ok(Self {
            backends,
            defaults,
            cleaner: Cleaner::new(kernel.flows),
            health_ports: HealthPorts::default(),
            readings: Readings::new(now),
            events: Events::default(),
            journal,
            tally,
            state,
            guard: Guard::default(),
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
            are_leftovers_removed: false,
            has_mode_changed: false,
            announcing: Announcing::default(),
            routing: None,
            checking: Checking::default(),
            refusals: refusals::Watch::default(),
        })
    }

    /// Takes a batch into state and journal, unless it is held back. The kernel follows at the next [`Self::turn`].
    pub fn receive(&mut self, batch: Batch, now: Instant) {
        if let Some(batch) = self.pass_guard(batch, now) {
            self.take(batch, now);
        }
    }

    fn take(&mut self, batch: Batch, now: Instant) {
        let previous = self.state.position();
        let touched = match self.state.apply(batch) {
            Ok(touched) => touched,
            Err(fault) => return self.refuse(&fault),
        };
        self.journal.append(previous, &self.state, &touched, now);
        if touched.node {
            self.backends.want(self.defaults.backend(self.state.node()), now);
        }
        debug!(services = touched.services.len(), position = ?self.state.position(), "received");
        let followed = self.derived.update(&self.state, touched.clone());
        self.announce_changes(&touched);
        self.check_changes(&touched);
        self.are_networks_dirty |= followed.networks;
        self.dirty.extend(followed.services);
    }

    /// Does what is due. `random` spreads retries.
    pub fn turn(&mut self, now: Instant, random: u64) {
        self.journal.maintain(&self.state, now);
        if self.state.position().is_none() {
            return;
        }
        self.guard_turn(now);
        if self.backends.change_at().is_some_and(|at| now >= at) {
            self.change_backend(now, random);
        }
        if self.full_look.is_none_or(|look| now >= look.not_before) {
            self.turn_kernel(now, random);
        }
        self.turn_rest(now, random);
    }

    fn turn_kernel(&mut self, now: Instant, random: u64) {
        if let Some(look) = self.full_look {
            return self.look_at_everything(look.cause, now, random);
        }
        if self.retry_at.take_if(|at| now >= *at).is_some() {
            self.dirty.extend(self.outcomes.refused().cloned());
        }
        self.follow_changes(now, random);
        if self.full_look.is_none() && now >= self.probe_at {
            self.probe(now, random);
        }
    }

    /// What does not wait for the kernel, and what waits until the kernel is as it should be.
    fn turn_rest(&mut self, now: Instant, random: u64) {
        self.clean_flows(now, random);
        if self.backends.see_off(now) {
            self.look_at_everything(Cause::Start, now, random);
        }
        let is_healthy = self.verified.is_some() && self.last_failure.is_none();
        if self.health_ports.turn(is_healthy, now) {
            self.note_health_ports();
        }
        if self.full_look.is_some() {
            return;
        }
        self.remove_leftovers();
        self.refusals.turn(self.backends.current(), &self.checking, now);
        let counted = Counted {
            cleaner: &mut self.cleaner,
            networks: &self.derived.desired().networks,
            position: self.verified,
        };
        self.readings.read(self.backends.current(), counted, now);
    }

    /// When the next [`Self::turn`] has something to do, if nothing is received before.
    #[must_use]
    pub fn next_turn(&self, now: Instant) -> Instant {
        let upkeep = now + TURN_INTERVAL_MAX;
        if self.state.position().is_none() {
            return upkeep;
        }
        let kernel = match self.full_look {
            // While a full look waits, nothing else is done before it.
            Some(look) => [Some(look.not_before), None, None],
            None => [Some(self.probe_at), self.retry_at, Some(self.readings.next_at(&self.cleaner, now))],
        };
        let rest = [
            self.backends.change_at(),
            self.backends.leave_at(),
            self.cleaner.next_run(),
            self.health_ports.next_turn(),
        ];
        kernel.into_iter().chain(rest).flatten().fold(upkeep, Instant::min)
    }

    /// Ends: what was recorded is synced, the kernel stays exactly as it is.
    ///
    /// # Errors
    /// When the journal cannot be synced.
    pub fn stop(self) -> std::io::Result<()> {
        self.journal.close()
    }

    /// The state held.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }
}
