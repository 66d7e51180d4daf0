//! The userspace backend: a process of ours accepts connections and carries them to the targets.
//!
//! ```text
//!               ┌─ kernel: capture rules ─┐        ┌─ relay ────────────────────────────────┐
//! client ──▶ frontend ──redirect──▶ listener ──▶ balance ──▶ connect, next target if it fails ──▶ target
//! ```
//! The capture rules are the nftables backend with a table of its own and a lowered program ([`lower`]). It is the only
//! mode that tries another target when one does not answer, and the only one whose connections end with the process; so
//! an agent has it in another process than its own ([`process`]), and what is here knows nothing of that.
//! Targets see the node as the source of every connection; the PROXY protocol tells them the client.
//!
//! A listener answers only what the capture rules brought to it. Nothing here waits without a bound: connections, flows,
//! queues, tries and tables have limits, and a side that does not read stops the other one.

pub mod balance;
mod commit;
pub mod desired;
mod failures;
mod listen;
mod listing;
mod origin;
mod preview;
pub mod process;
mod relay;
mod room;
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

use model::{
    kinds::{node::ProxyMode, resource::ServiceKey, service::Protocol},
    program::Target,
    wire::{
        plan::LineChange,
        trace::{Packet, Traced},
    },
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{runtime::Runtime, sync::Semaphore};

pub use self::relay::{Limits, RelayCounters};
use self::{
    desired::RelayId,
    origin::Listeners,
    relay::{Account, Relay, RelayTally, Shared},
};
use super::{
    Dataplane, Desired, DesiredProgram, KernelCounters, KernelError, Pass, Refusals, Scope, Traffic,
    nftables::{NftablesBackend, NftablesOptions},
};
use crate::{
    conntrack::nudge::wire::Nudge,
    netlink::socket::{Netlink, Protocol as NetlinkProtocol},
};

/// The table of the capture rules. It is how a fresh process recognises them.
pub const TABLE: &str = "tidegate-userspace";
/// Threads that carry traffic, unless the machine has fewer processors.
const THREADS_MAX: usize = 8;

/// The userspace backend of one network namespace.
pub struct UserspaceBackend {
    /// Taken when the backend is dropped.
    runtime: Option<Runtime>,
    capture: NftablesBackend,
    shared: Arc<Shared>,
    /// What the capture rules should say.
    lowered: Desired,
    services: BTreeMap<ServiceKey, BTreeMap<RelayId, Arc<Relay>>>,
    accounts: Accounts,
    /// Listeners on which something drains, or that are gone and still carry.
    lingering: Vec<Arc<Relay>>,
    /// Whose flows the kernel may still lead elsewhere.
    misled: Listeners,
    is_retired: bool,
    conntrack_deletions: u64,
    /// The counters when they were last looked at.
    counted: RelayCounters,
}

type Accounts = BTreeMap<(ServiceKey, Protocol, Target), Arc<Account>>;

impl UserspaceBackend {
    /// Opens the backend in the network namespace of the calling thread, where its own threads will be. Raises the
    /// limit of open files as far as it may be. Programs nothing. `mark_bit` is the packet mark of the capture rules.
    ///
    /// # Errors
    /// When the kernel gives no socket (which takes `CAP_NET_ADMIN`) or no thread.
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
        let shared = Shared {
            limits,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            flows: Arc::new(Semaphore::new(limits.flows_max)),
            netlink: Mutex::new(netlink),
            tally: RelayTally::default(),
        };
        Ok(Self {
            runtime: Some(runtime),
            capture: NftablesBackend::open(NftablesOptions { mark_bit, table: TABLE })?,
            shared: Arc::new(shared),
            lowered: Desired::default(),
            services: BTreeMap::new(),
            accounts: Accounts::new(),
            lingering: Vec::new(),
            misled: Listeners::new(),
            is_retired: false,
            conntrack_deletions: 0,
            counted: RelayCounters::default(),
        })
    }

    /// What could not be carried since the backend was opened.
    #[must_use]
    pub fn relay_counters(&self) -> RelayCounters {
        self.shared.tally.read()
    }

    /// Leaves the rules to another relay that has taken them over: takes no new connection, touches nothing of the kernel's.
    pub fn resign(&mut self) {
        for relay in self.services.values().flat_map(BTreeMap::values) {
            relay.closing.cancel();
        }
        self.is_retired = true;
    }

    /// Removes the rules, once, and takes no new connection; answers how many kernel objects went.
    ///
    /// # Errors
    /// When the kernel refuses; then everything goes on.
    pub fn withdraw(&mut self) -> Result<u64, KernelError> {
        if self.is_retired {
            return Ok(0);
        }
        let objects = self.capture.cleanup()?;
        self.close_listeners();
        self.is_retired = true;
        Ok(objects)
    }

    /// Whether there is no connection and no flow.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let Shared { limits, connections, flows, .. } = &*self.shared;
        connections.available_permits() == limits.connections_max
            && flows.available_permits() == limits.flows_max
    }

    fn in_scope(&self, desired: &Desired, scope: &Scope) -> BTreeSet<ServiceKey> {
        match scope {
            Scope::Everything => desired.programs.keys().chain(self.services.keys()).cloned().collect(),
            Scope::Services(services) => services.clone(),
        }
    }

    /// Says when limits were met.
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
                "the relay is full: connections or flows were refused"
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

    /// Listeners come before the rules that lead to them, and go after them.
    fn apply(&mut self, desired: &Desired, scope: &Scope) -> Pass {
        let services = self.in_scope(desired, scope);
        if *scope == Scope::Everything {
            self.lowered.programs.clear();
        }
        self.lowered.networks = preview::captured(&desired.networks);
        let mut failures = BTreeMap::new();
        for service in &services {
            self.lowered.programs.remove(service);
            let Some(DesiredProgram { revision, program }) = desired.programs.get(service) else { continue };
            match self.prepare(service, program) {
                Ok(program) => {
                    let lowered = DesiredProgram { revision: *revision, program: Arc::new(program) };
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
        pass.outcomes.extend(failures);
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
        // Nobody else can count on an account that only this holds: it is read a last time, and then forgotten. Whether it is has to
        // be known before it is read, or what is counted in between would be lost.
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

    fn preview(&mut self, desired: &Desired, scope: &Scope) -> Result<Option<Vec<LineChange>>, KernelError> {
        self.previewed(desired, scope)
    }

    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<Traced>>, KernelError> {
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
        self.lowered = Desired::default();
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
            // Waiting for tasks is not possible where the agent drops its backend, and they have nothing to finish.
            runtime.shutdown_background();
        }
    }
}

/// Every connection takes two descriptors, and the usual limit of a shell is 1024. What is not granted shows as pauses in
/// accepting.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}
