//! The control loop of a node: observe → plan → apply → verify. The caller supplies the time and the thread.
//!
//! ```text
//!            batch ──▶ state ──▶ journal ──▶ derived ──▶ dirty Services
//!                                                             │
//!   start, drift, failure ──▶ observe + everything ─▶ pass ◀──┘ only these
//!                                     ▲                │
//!                                     └── failed ──────┴──▶ outcomes, watermarks ──▶ status
//!                                                      └──▶ stale flows, health check node ports
//! ```
//! The desired kernel state (`derived`) is computed from the received state; dirty Services are those for
//! which it has changed. A pass updates the kernel for the Services in its scope and reads the written
//! objects back. Watermarks are the positions (epoch and revision) up to which the state has been received
//! and verified. Start, change, drift (a change of the kernel by another program) and recovery from a
//! failure run the same pass with a different scope. A change of the proxy mode runs the pass with a
//! different backend (`backends`). Invariants: the kernel is not written before the first complete state,
//! and the work for a small change does not grow with the number of Services.

pub mod announcement_preview;
mod answers;
mod backends;
mod gates;
mod guarding;
mod outcomes;
mod passes;
mod rates;
mod refusals;
mod routes;
mod segments;
mod spans;
mod status;
pub mod thread;
pub mod traffic;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use announce::Announcing;
use base::{backoff::Backoff, events::Events};
use conntrack::{Cleaner, FlowTable};
use dataplane::{OpenError, Opener};
use health::Checking;
use kernel::service_routes::ServiceRoutes;
use model::{
    kinds::resource::ServiceKey,
    primitives::{name::Name, quantity::Position},
};
use network::desired::DesiredNetwork;
use speaker::routing::Routing;
use tokio::sync::watch;
use traces::Tracer;
use tracing::debug;

use self::{
    backends::Backends,
    outcomes::Outcomes,
    traffic::{Readings, SampleInputs},
};
use crate::{
    feed::machine::Batch,
    health_port::HealthPorts,
    hold::Guard,
    journal::Journal,
    policy::PolicyLink,
    state::{
        ChangedObjects, State, defaults::ProxyDefaults, desired::DesiredBuilder, workload_networks::desired,
    },
    tally::Tally,
};

/// Interval between drift checks: the maximum time for which drift (a change of the kernel by another
/// program) goes undetected.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Divisor that limits the time spent on full passes (reading and applying everything) after changes by other
/// programs: a full pass of duration d is followed by a pause of at least 10 d.
const PROBE_SHARE: u32 = 10;
/// Minimum delay after a failed pass (update of the kernel) before the next one. The maximum is
/// `RECOVERY_CAP`.
const RECOVERY_FLOOR: Duration = Duration::from_millis(100);
const RECOVERY_CAP: Duration = Duration::from_secs(30);
/// Minimum delay before rejected Services are programmed again. The maximum is `RETRY_CAP`.
const RETRY_FLOOR: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(60);
/// Maximum time between two iterations of the loop, so that the journal is maintained.
const TURN_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Interval at which the loop checks if the network policy is in the kernel, after which the state counts as verified.
const POLICY_INTERVAL: Duration = Duration::from_millis(20);

/// Control loop of a node, run by its own thread.
pub struct Agent {
    backends: Backends,
    defaults: ProxyDefaults,
    cleaner: Cleaner,
    routes: routes::RouteKeeper,
    health_ports: HealthPorts,
    readings: Readings,
    events: Events,
    journal: Journal,
    tally: Tally,
    state: State,
    guard: Guard,
    derived: DesiredBuilder,
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
    /// True after a change of the proxy mode, when conntrack entries of the replaced backend may be left.
    has_mode_changed: bool,
    announcing: Announcing,
    /// BGP announcements; `None` in agents without BGP.
    routing: Option<Routing>,
    checking: Checking,
    refusals: refusals::Watch,
    /// Setting of the control server for checks by default that the health checker follows.
    has_default_checks: bool,
    spans: spans::ApplySpans,
    /// Time of the next look at the networks of the interfaces.
    segments_at: Instant,
    /// Input of the workload network; `None` in agents without it.
    workload_network: Option<watch::Sender<Option<DesiredNetwork>>>,
    /// Thread that programs the network policy; `None` in agents without it.
    policy: Option<PolicyLink>,
}

/// Pending full pass, which reads the kernel and applies the whole state: the cause of the pass, and the
/// earliest time for it.
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

/// Parameters for the construction of an agent.
pub struct Beginning {
    /// Name of this node.
    pub node: Name,
    /// Backends and conntrack table of the machine; in-memory implementations in tests.
    pub kernel: Kernel,
    /// Proxy settings used where the Node object has none.
    pub defaults: ProxyDefaults,
    /// Opened journal, to which received changes are appended.
    pub journal: Journal,
    /// State restored from the journal; empty at the first start.
    pub state: State,
    /// Metric counters of the agent, updated by the loop.
    pub tally: Tally,
}

/// Access to the kernel of the machine; in-memory implementations in tests.
pub struct Kernel {
    /// Factory that opens the backend of a proxy mode.
    pub open: Opener,
    /// Access to the kernel's conntrack table.
    pub flows: Box<dyn FlowTable>,
    /// Keeper of the routes to the Service ranges.
    pub routes: Box<dyn ServiceRoutes>,
}

impl Agent {
    /// Creates an agent with the state restored from the journal and opens the backend that this state
    /// selects. The kernel is not changed before the first [`Self::turn`].
    ///
    /// # Errors
    /// Returns an error if neither the selected nor the default backend can be opened.
    pub fn new(beginning: Beginning, now: Instant) -> Result<Self, OpenError> {
        let Beginning { node, kernel, defaults, journal, state, tally } = beginning;
        let fallback = defaults.backend(&model::wire::feed::NodeState::default());
        let backends = Backends::open(kernel.open, defaults.backend(state.node()), &fallback, now)?;
        let mut derived = DesiredBuilder::new(node, defaults.clone());
        let services = state.services().keys().cloned().collect();
        let _no_service_depends_on_them_yet = derived.set_networks(segments::read(), &state);
        let _first_look_covers_everything = derived.update(
            &state,
            ChangedObjects { services, network: true, node: true, ..ChangedObjects::default() },
        );
        Ok(Self {
            backends,
            defaults,
            cleaner: Cleaner::new(kernel.flows),
            routes: routes::RouteKeeper::new(kernel.routes, now),
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
            has_default_checks: false,
            spans: spans::ApplySpans::default(),
            segments_at: now,
            workload_network: None,
            policy: None,
        })
    }

    /// Applies a batch of state changes to the state and the journal, unless the state guard holds it pending
    /// confirmation. The kernel is updated in the next [`Self::turn`].
    pub fn receive(&mut self, batch: Batch, now: Instant) {
        if let Some(batch) = self.pass_guard(batch, now) {
            self.take(batch, now);
        }
    }

    /// Records the application of traced writes with `tracer`.
    pub fn trace_by(&mut self, tracer: Tracer) {
        self.spans = spans::ApplySpans::new(tracer);
    }

    /// Sends the workload networks and blocks of received states to `desired`.
    pub fn attach_by(&mut self, desired: watch::Sender<Option<DesiredNetwork>>) {
        self.workload_network = Some(desired);
    }

    /// Sends the network policy of received states to the thread that programs it.
    pub fn enforce_by(&mut self, policy: PolicyLink) {
        self.policy = Some(policy);
    }

    fn follow_policy(&self, touched: &ChangedObjects, is_first: bool) {
        let is_changed = !touched.policy_sets.is_empty() || !touched.policy_workloads.is_empty();
        if let Some(policy) = self.policy.as_ref().filter(|_| is_changed || is_first) {
            policy.send(self.state.policy().clone());
        }
    }

    /// Returns the position of the state, if the network policy of the state is in the kernel; otherwise the one that was
    /// verified last.
    fn verified_position(&self) -> Option<Position> {
        let is_current = self.policy.as_ref().is_none_or(PolicyLink::is_current);
        if is_current { self.state.position() } else { self.verified }
    }

    fn follow_workload_networks(&self, touched: &ChangedObjects, is_first: bool) {
        let is_changed =
            !touched.workload_networks.is_empty() || !touched.blocks.is_empty() || touched.interfaces;
        if let Some(sender) = self.workload_network.as_ref().filter(|_| is_changed || is_first) {
            sender.send_replace(Some(desired(&self.state)));
        }
    }

    fn take(&mut self, batch: Batch, now: Instant) {
        let previous = self.state.position();
        self.spans.receive(&batch.traces, batch.position);
        let touched = match self.state.apply(batch) {
            Ok(touched) => touched,
            Err(fault) => return self.refuse(&fault),
        };
        self.journal.append(previous, &self.state, &touched, now);
        if touched.node {
            self.backends.want(self.defaults.backend(self.state.node()), now);
        }
        debug!(services = touched.services.len(), position = ?self.state.position(), "received");
        self.follow_workload_networks(&touched, previous.is_none());
        self.follow_policy(&touched, previous.is_none());
        let followed = self.derived.update(&self.state, touched.clone());
        self.announce_changes(&touched);
        self.check_changes(&touched);
        self.are_networks_dirty |= followed.networks;
        if touched.network {
            self.routes.hurry(now);
        }
        self.dirty.extend(followed.services);
    }

    /// Runs one iteration of the loop: does all work whose scheduled time has come. `random` adds jitter to
    /// retries.
    pub fn turn(&mut self, now: Instant, random: u64) {
        self.journal.maintain(&self.state, now);
        if self.state.position().is_none() {
            return;
        }
        self.guard_turn(now);
        if self.backends.change_at().is_some_and(|at| now >= at) {
            self.change_backend(now, random);
        }
        self.follow_segments(now);
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

    /// Does the work whose time has come and that is independent of kernel updates (conntrack cleaning,
    /// replaced backends, health check ports). Unless a full update is pending, also does work that requires
    /// a programmed kernel (leftovers of other modes, refused connections, traffic samples).
    fn turn_rest(&mut self, now: Instant, random: u64) {
        self.clean_flows(now, random);
        self.routes.turn(self.backends.mode(), self.state.network(), now);
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
        let counted = SampleInputs {
            cleaner: &mut self.cleaner,
            networks: &self.derived.desired().networks,
            position: self.verified,
        };
        self.readings.read(self.backends.current(), counted, now);
    }

    /// Returns the time at which [`Self::turn`] must be called again if no batch of state changes is received
    /// earlier.
    #[must_use]
    pub fn next_turn(&self, now: Instant) -> Instant {
        let is_waiting = self.policy.as_ref().is_some_and(|policy| !policy.is_current());
        let upkeep = now + if is_waiting { POLICY_INTERVAL } else { TURN_INTERVAL_MAX };
        if self.state.position().is_none() {
            return upkeep;
        }
        let kernel = match self.full_look {
            // A pending full pass precedes all other kernel work.
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

    /// Stops the agent: syncs the journal and leaves the kernel unchanged.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be synced.
    pub fn stop(self) -> std::io::Result<()> {
        self.journal.close()
    }

    /// Returns the current state.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }
}
