//! userspace backend: a relay accepts connections and forwards the bytes to the targets.
//!
//! ```text
//!               ┌─ kernel: capture rules ─┐        ┌─ relay ────────────────────────────────┐
//! client ──▶ frontend ──redirect──▶ listener ──▶ balance ──▶ connect, next target if it fails ──▶ target
//! ```
//! The capture rules redirect connections to the relay. The nftables backend writes them into a separate
//! table, from packet programs in which listeners replace the targets ([`desired`]). This is the only mode
//! that tries another target if one does not respond, and the only one whose connections end with the
//! process. Therefore the agent runs it in a separate process ([`process`]), of which this module is
//! independent. Targets see the node as the source of every connection; the PROXY protocol conveys the
//! client address.
//!
//! A listener serves only connections that the capture rules redirected. Numbers of connections, flows and
//! attempts, sizes of queues and tables, and waiting times are limited; backpressure from one side stops
//! reading from the other.

pub mod balance;
mod commit;
pub mod desired;
mod failures;
mod listen;
mod listing;
mod origin;
mod preview;
pub mod process;
mod receive_buffer;
mod relay;
mod tcp;
mod trace;
mod tracking;
mod udp;
pub mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Instant,
};

use kernel::{
    conntrack::nudge::wire::Nudge,
    netlink::socket::{Netlink, Protocol as NetlinkProtocol},
};
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey, service::Protocol},
    primitives::name::Label,
    program::{Frontend, Route, Target},
    wire::{
        plan::LineChange,
        trace::{Packet, PacketTrace},
    },
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{runtime::Runtime, sync::Semaphore};

pub use self::relay::{Limits, RelayCounters};
use self::{
    balance::SharedAffinity,
    desired::RelayId,
    origin::Listeners,
    relay::{Account, Relay, RelayShared, RelayTally},
};
use super::{
    Dataplane, DesiredProgram, DesiredState, KernelCounters, KernelError, Outcome, Pass, Refusals, Scope,
    Traffic,
    nftables::{NftablesBackend, NftablesOptions},
};

/// Name of the nftables table with the rules that redirect connections to the relay. A starting process
/// finds the rules of an earlier one by this name.
pub const TABLE: &str = "tidegate-userspace";

/// Returns the options of the table with the capture rules. The kernel forwards no packets of Services in this
/// mode, so none are dropped in the conntrack state INVALID.
const fn capture_options(mark_bit: u32) -> NftablesOptions {
    NftablesOptions { mark_bit, drop_invalid: false, table: TABLE }
}
/// Maximum number of threads that forward traffic; the number of processors if that is smaller.
const THREADS_MAX: usize = 8;

/// userspace backend of one network namespace: the relay, and the rules that redirect connections to it, in
/// one process.
pub struct UserspaceBackend {
    /// Runtime of the relay's threads; `None` only while the backend is dropped.
    runtime: Option<Runtime>,
    capture: NftablesBackend,
    shared: Arc<RelayShared>,
    /// Desired state from which the nftables backend writes the capture rules (redirects to the listeners).
    lowered: DesiredState,
    services: BTreeMap<ServiceKey, BTreeMap<RelayId, Arc<Relay>>>,
    /// Session affinity of Service ports, which their listeners share.
    affinities: BTreeMap<ServiceKey, BTreeMap<AffinityPort, SharedAffinity>>,
    accounts: Accounts,
    /// Listeners to check once a second: those with connections of removed or draining targets, closed
    /// listeners included.
    lingering: Vec<Arc<Relay>>,
    /// UDP frontends whose flows the kernel may still send to the port of a former listener. The port sets
    /// are filled when the flows are deleted.
    misled: Listeners,
    is_retired: bool,
    conntrack_deletions: u64,
    /// Values of the counters at the last check of the limits, so that only new events are logged.
    counted: RelayCounters,
}

/// Port of a Service whose frontends share session affinity. Frontends with a port range are told apart, because
/// their targets keep the port of the client.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AffinityPort {
    protocol: Protocol,
    name: Option<Label>,
    is_range: bool,
}

impl AffinityPort {
    fn of(frontend: &Frontend, route: &Route) -> Self {
        Self {
            protocol: frontend.protocol,
            name: route.port_name.clone(),
            is_range: frontend.ports.single().is_none(),
        }
    }
}

type Accounts = BTreeMap<(ServiceKey, Protocol, Target), Arc<Account>>;

impl UserspaceBackend {
    /// Opens the backend in the network namespace of the calling thread, in which its own threads will run.
    /// Raises the limit of open files as far as permitted. Writes no rules yet. `mark_bit` is the packet
    /// mark that the rules use.
    ///
    /// # Errors
    /// Returns an error if the kernel denies a socket (`CAP_NET_ADMIN` is required) or a thread.
    pub fn open(mark_bit: u32, limits: Limits) -> Result<Self, KernelError> {
        let failed = |action: &str| {
            let action = action.to_owned();
            move |source| KernelError { action, source }
        };
        raise_file_limit();
        let netlink =
            Netlink::open(NetlinkProtocol::Netfilter).map_err(failed("opening a conntrack socket"))?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("relay")
            .enable_all()
            .build()
            .map_err(failed("starting the relay's threads"))?;
        let shared = RelayShared {
            limits,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            flows: Arc::new(Semaphore::new(limits.flows_max)),
            netlink: Mutex::new(netlink),
            tally: RelayTally::default(),
        };
        Ok(Self {
            runtime: Some(runtime),
            capture: NftablesBackend::open(capture_options(mark_bit))?,
            shared: Arc::new(shared),
            lowered: DesiredState::default(),
            services: BTreeMap::new(),
            affinities: BTreeMap::new(),
            accounts: Accounts::new(),
            lingering: Vec::new(),
            misled: Listeners::new(),
            is_retired: false,
            conntrack_deletions: 0,
            counted: RelayCounters::default(),
        })
    }

    /// Returns the counters of rejected and failed traffic since the backend was opened.
    #[must_use]
    pub fn relay_counters(&self) -> RelayCounters {
        self.shared.tally.read()
    }

    /// Stops accepting connections, and leaves the rules unchanged because another relay has taken them over.
    pub fn resign(&mut self) {
        for relay in self.services.values().flat_map(BTreeMap::values) {
            relay.closing.cancel();
        }
        self.is_retired = true;
    }

    /// Removes the rules and stops accepting connections. Returns the number of removed kernel objects; 0 if
    /// the backend has already given up the rules ([`Self::resign`]) or removed them.
    ///
    /// # Errors
    /// Returns an error if the kernel rejects the removal; the backend then continues to serve.
    pub fn withdraw(&mut self) -> Result<u64, KernelError> {
        if self.is_retired {
            return Ok(0);
        }
        let objects = self.capture.cleanup()?;
        self.close_listeners();
        self.is_retired = true;
        Ok(objects)
    }

    /// Returns true if the relay forwards no connection and no UDP flow.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let RelayShared { limits, connections, flows, .. } = &*self.shared;
        connections.available_permits() == limits.connections_max
            && flows.available_permits() == limits.flows_max
    }

    fn in_scope(&self, desired: &DesiredState, scope: &Scope) -> BTreeSet<ServiceKey> {
        match scope {
            Scope::Everything => desired.programs.keys().chain(self.services.keys()).cloned().collect(),
            Scope::Services(services) => services.clone(),
        }
    }

    /// Logs a warning if connections or flows were rejected at a limit since the last call.
    fn warn_of_limits(&mut self) {
        let counters = self.relay_counters();
        let RelayCounters { connections_refused, flows_refused, .. } = counters;
        let before = std::mem::replace(&mut self.counted, counters);
        if connections_refused > before.connections_refused || flows_refused > before.flows_refused {
            let Limits { connections_max, flows_max, .. } = self.shared.limits;
            tracing::warn!(
                connections_refused,
                connections_max,
                flows_refused,
                flows_max,
                "the relay is full: connections or flows were rejected"
            );
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("only dropping takes the runtime")
    }
}

impl Dataplane for UserspaceBackend {
    fn mode(&self) -> ProxyMode {
        ProxyMode::Userspace
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        self.capture.observe()
    }

    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        self.capture.is_disturbed()
    }

    /// Applies the desired state within the scope. Listeners are opened before the rules that redirect to
    /// them are written, and closed after these are removed.
    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass {
        let services = self.in_scope(desired, scope);
        if *scope == Scope::Everything {
            self.lowered.programs.clear();
        }
        self.lowered.networks = preview::captured(&desired.networks);
        let (mut failures, mut limited) = (BTreeMap::new(), BTreeMap::new());
        for service in &services {
            self.lowered.programs.remove(service);
            let Some(DesiredProgram { revision, program }) = desired.programs.get(service) else { continue };
            match self.prepare(service, program) {
                Ok(lowered) => {
                    if let Some((reason, message)) = desired::limitation(program) {
                        limited.insert(service.clone(), Outcome::Failed { reason, message });
                    }
                    let lowered = DesiredProgram { revision: *revision, program: Arc::new(lowered) };
                    self.lowered.programs.insert(service.clone(), lowered);
                }
                Err(failure) => {
                    failures.insert(service.clone(), failure);
                }
            }
        }
        let mut pass = self.capture.apply(&self.lowered, scope);
        if pass.failed.is_none() {
            for service in &services {
                let program = desired.programs.get(service).filter(|_| !failures.contains_key(service));
                self.conclude(service, program.map(|desired| desired.program.as_ref()));
            }
            self.forget_misled();
        }
        // A failure of the rules precedes a setting that the relay does not support.
        limited.retain(|service, _| pass.outcomes.get(service) == Some(&Outcome::Verified));
        pass.outcomes.extend(failures.into_iter().chain(limited));
        pass
    }

    fn upkeep(&mut self) -> Result<(), KernelError> {
        let now = Instant::now();
        self.lingering.retain(|relay| relay.keep_up(now));
        self.warn_of_limits();
        self.capture.upkeep()
    }

    fn take_cut(&mut self) -> Vec<Nudge> {
        Vec::new()
    }

    fn retire(&mut self) -> Result<bool, KernelError> {
        self.withdraw()?;
        self.upkeep()?;
        Ok(self.is_drained())
    }

    fn abandon(&mut self) {}

    fn is_tracked(&self) -> bool {
        false
    }

    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        let mut traffic = Vec::with_capacity(self.accounts.len());
        // An account with no other reference cannot change any more: it is read a last time and then dropped.
        // The reference count must be checked before reading, or an increment in between would be lost.
        self.accounts.retain(|(service, protocol, target), account| {
            let is_used = Arc::get_mut(account).is_none();
            traffic.push(account.traffic(service.clone(), *protocol, *target));
            is_used
        });
        Ok(traffic)
    }

    fn sees_refusals(&self) -> bool {
        true
    }

    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError> {
        let refusals = self.accounts.iter().map(|((service, _, target), account)| Refusals {
            service: service.clone(),
            target: *target,
            in_a_row: account.failures.refused_in_a_row(),
        });
        Ok(refusals.filter(|refusals| refusals.in_a_row > 0).collect())
    }

    fn is_counted_by_flows(&self) -> bool {
        false
    }

    fn preview(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        self.previewed(desired, scope)
    }

    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        let go_on = |(captured, packet)| trace::go_on(captured, packet, &self.services);
        let captured = self.capture.trace(packets)?;
        Ok(captured.map(|captured| captured.into_iter().zip(packets).map(go_on).collect()))
    }

    fn cleanup(&mut self) -> Result<u64, KernelError> {
        let objects = self.capture.cleanup()?;
        self.close_listeners();
        let services = std::mem::take(&mut self.services);
        for relay in services.into_values().flat_map(BTreeMap::into_values) {
            let is_lingering = relay.dissolve(Instant::now());
            self.linger(&relay, is_lingering);
        }
        self.lowered = DesiredState::default();
        Ok(objects)
    }

    fn counters(&self) -> KernelCounters {
        let capture = self.capture.counters();
        KernelCounters {
            conntrack_deletions: capture.conntrack_deletions + self.conntrack_deletions,
            ..capture
        }
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        None
    }
}

impl Drop for UserspaceBackend {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The agent drops its backend where it cannot wait for tasks, and the tasks have nothing to
            // finish.
            runtime.shutdown_background();
        }
    }
}

/// Raises the limit of open files (`RLIMIT_NOFILE`) as far as permitted. Every connection takes two
/// descriptors, and the usual soft limit is 1024. At the limit, the relay pauses accepting.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}
