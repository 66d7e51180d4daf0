//! Network policy of the node: the thread that programs it, and its state for reports and metrics.
//!
//! ```text
//!  state ──policy──▶ thread ──▶ table of nf_tables ──▶ forbidden connections are removed
//!                      ▲               │
//!                      └─ every second ┘ another program has changed the ruleset
//! ```
//! The thread keeps the table after a restart as it is until the first state. Invariant: connections are removed only after
//! the table that forbids them is in the kernel.

mod link;

use std::{
    collections::BTreeMap,
    io,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use base::{backoff::Backoff, entropy, limit_message};
use dataplane::policy::{cut::cut, keeper::PolicyKeeper};
use model::{
    kinds::node::ProxyMode,
    policy::{
        identity::PolicyNumbers,
        node_policy::NodePolicy,
        set::{ContentId, PolicyWorkload},
    },
    primitives::name::Name,
    wire::report::{PolicyEnforcement, PolicyReport},
};
use tokio::{runtime::Handle, sync::watch, time::timeout};
use tracing::{debug, info, warn};

use self::link::NumberedPolicy;
pub use self::link::PolicyLink;
use crate::tally::Tally;

/// Interval at which the ruleset is checked for changes by other programs: the maximum time without enforcement after the
/// removal of the table.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two walks of the table of connections, so that a burst of changes costs few walks.
const CUT_INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which counters are read from the kernel, which takes a dump of all decisions.
const COUNTERS_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum delay before a failed pass is repeated. The maximum is `RETRY_CAP`.
const RETRY_FLOOR: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// Time without a look at the ruleset on a node without policy.
const IDLE_TIME: Duration = Duration::from_secs(3600);

/// State of the network policy on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyShown {
    /// True if the kernel has the table, because a local workload has a set.
    pub is_enforced: bool,
    /// Reason why the policy is not in the kernel; `None` if it is.
    pub failure: Option<String>,
    /// Number of sets with too many decisions, which drop all connections.
    pub excessive: usize,
    /// Dropped packets since the start of the agent, by set. Sets that no local workload has any longer are not included.
    pub drops: BTreeMap<ContentId, u64>,
    /// Dropped packets of all sets since the start of the agent.
    pub dropped: u64,
    /// Number of elements written since the start.
    pub writes: u64,
    /// Number of connections removed since the start.
    pub cut: u64,
    /// Number of the last policy that the thread has handled, counted from the start of the agent. The policy is in the kernel
    /// unless there is a `failure`.
    pub handled: u64,
}

impl PolicyShown {
    /// Returns the problems of the policy as text for the status of the Node. `mode` is the active proxy mode.
    #[must_use]
    pub fn problems(&self, mode: ProxyMode) -> Vec<String> {
        let excessive = (self.excessive > 0).then(|| {
            let sets = self.excessive;
            format!(
                "{sets} sets of network policy have too many decisions; their workloads accept no connection"
            )
        });
        self.failed().into_iter().chain(excessive).chain(self.hidden(mode)).collect()
    }

    /// Returns the enforcement for the report of the node. `mode` is the active proxy mode.
    #[must_use]
    pub fn report(&self, mode: ProxyMode) -> PolicyReport {
        let failed = self.failed().map(|reason| (PolicyEnforcement::Failed, reason));
        let hidden = || self.hidden(mode).map(|reason| (PolicyEnforcement::WithoutServices, reason));
        let (enforcement, reason) =
            failed.or_else(hidden).unwrap_or_else(|| (PolicyEnforcement::Full, String::new()));
        PolicyReport { enforcement, reason: limit_message(reason) }
    }

    fn failed(&self) -> Option<String> {
        self.failure.as_ref().map(|failure| format!("network policy is not enforced: {failure}"))
    }

    fn hidden(&self, mode: ProxyMode) -> Option<String> {
        let is_hidden = self.is_enforced && matches!(mode, ProxyMode::Ipvs | ProxyMode::Userspace);
        is_hidden.then(|| {
            let mode = mode.as_str();
            format!(
                "network policy does not apply to connections through Services in mode {mode}, which hides the client or \
                 the endpoint; use mode nftables or iptables on this node"
            )
        })
    }
}

/// Running thread, which ends when all links to it are dropped.
pub struct PolicyThread {
    /// Link of the control loop.
    pub link: PolicyLink,
    thread: JoinHandle<()>,
}

impl PolicyThread {
    /// Starts the thread in the network namespace of the calling thread, with the policy of the state on disk; `None` if there is
    /// no state. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be created.
    pub fn start(own: Name, first: Option<NodePolicy>, tally: &Tally) -> io::Result<Self> {
        let first = first.map(NumberedPolicy::first);
        let (sender, mut policy) = watch::channel(first);
        let (publish, shown) = watch::channel(PolicyShown::default());
        let (runtime, tally) = (Handle::current(), tally.clone());
        let thread = std::thread::Builder::new()
            .name("policy".to_owned())
            .spawn(move || Enforcer::new(own, publish, tally).run(&mut policy, &runtime))?;
        Ok(Self { link: PolicyLink::new(sender, shown), thread })
    }

    /// Waits until the thread has ended. The kernel stays as it is.
    pub async fn join(self) {
        let Self { link, thread } = self;
        drop(link);
        // The panic message was already printed by the thread.
        let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
    }
}

struct Enforcer {
    own: Name,
    keeper: PolicyKeeper,
    publish: watch::Sender<PolicyShown>,
    tally: Tally,
    /// Number of the policy in `numbers`; 0 before the first one.
    number: u64,
    numbers: PolicyNumbers,
    /// Sets of the cells in the kernel.
    cells: BTreeMap<u32, ContentId>,
    /// Counters of the cells as last read; `None` before the first reading.
    counters: Option<BTreeMap<u32, u64>>,
    counted_at: Instant,
    /// Time of the next walk of the table of connections, if one is due.
    cut_at: Option<Instant>,
    last_cut: Option<Instant>,
    retry: Backoff,
    retry_at: Option<Instant>,
}

impl Enforcer {
    fn new(own: Name, publish: watch::Sender<PolicyShown>, tally: Tally) -> Self {
        Self {
            own,
            keeper: PolicyKeeper::default(),
            publish,
            tally,
            number: 0,
            numbers: PolicyNumbers::default(),
            cells: BTreeMap::new(),
            counters: None,
            counted_at: Instant::now(),
            cut_at: None,
            last_cut: None,
            retry: Backoff::new(RETRY_FLOOR, RETRY_CAP),
            retry_at: None,
        }
    }

    fn run(mut self, policy: &mut watch::Receiver<Option<NumberedPolicy>>, runtime: &Handle) {
        let mut is_new = true;
        loop {
            let current = policy.borrow_and_update().clone();
            if let Some(current) = current.filter(|_| is_new) {
                self.number = current.number();
                let policy = current.with_attachments(&self.own);
                let own = self.own.clone();
                // A workload without a node is local to none: otherwise, whoever writes workloads could have the packets to
                // any address dropped that nodes forward.
                let is_local = |workload: &PolicyWorkload| workload.node.as_ref() == Some(&own);
                self.numbers = PolicyNumbers::flatten(&policy, is_local);
                self.pass();
            } else {
                self.check();
            }
            if self.cut_at.is_some_and(|at| at <= Instant::now()) {
                self.cut();
            }
            let patience = self.patience();
            // The timeout is created inside the runtime, because it needs the runtime's clock.
            is_new = match runtime.block_on(async { timeout(patience, policy.changed()).await }) {
                Ok(Ok(())) => true,
                Ok(Err(_sender_dropped)) => return,
                Err(_elapsed) => false,
            };
        }
    }

    /// Returns the time until the next work if the policy does not change.
    fn patience(&self) -> Duration {
        let next = match self.retry_at {
            Some(at) => at,
            None if self.numbers.is_empty() => Instant::now() + IDLE_TIME,
            None => Instant::now() + CHECK_INTERVAL,
        };
        let next = self.cut_at.map_or(next, |at| at.min(next));
        next.saturating_duration_since(Instant::now())
    }

    /// Repairs the table if another program has changed it, and repeats a failed pass.
    fn check(&mut self) {
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let is_active = !self.numbers.is_empty() || self.retry_at.is_some();
        if is_active && self.keeper.is_disturbed().unwrap_or(true) {
            self.pass();
        }
        if self.counted_at.elapsed() >= COUNTERS_INTERVAL {
            self.count();
        }
    }

    fn pass(&mut self) {
        // Counters of elements that are about to be removed.
        self.count();
        match self.keeper.follow(&self.numbers) {
            Ok(writes) => {
                debug!(writes, "network policy");
                self.retry.reset();
                self.retry_at = None;
                self.cells.clone_from(&self.numbers.cells);
                if self.counters.is_none() {
                    self.count();
                }
                // An earlier process may have ended between the table and the connections.
                if writes > 0 || self.last_cut.is_none() {
                    let earliest = self.last_cut.map_or_else(Instant::now, |at| at + CUT_INTERVAL);
                    self.cut_at.get_or_insert(earliest);
                }
                self.show(None, writes);
            }
            // Without a policy, a kernel without nf_tables is no problem.
            Err(error) if self.numbers.is_empty() => {
                debug!(%error, "no table of network policy can be removed");
                self.show(None, 0);
            }
            Err(error) => {
                self.retry_at = Some(Instant::now() + self.retry.next_delay(entropy()));
                self.show(Some(error.to_string()), 0);
            }
        }
    }

    fn show(&self, failure: Option<String>, writes: u64) {
        let (is_enforced, excessive) = (!self.numbers.is_empty(), self.numbers.excessive.len());
        self.publish.send_modify(|shown| {
            match &failure {
                Some(failure) if shown.failure.as_ref() != Some(failure) => {
                    warn!(failure, "network policy could not be programmed");
                }
                None if shown.failure.is_some() => info!("network policy is programmed again"),
                Some(_) | None => {}
            }
            shown.handled = self.number;
            shown.is_enforced = is_enforced;
            shown.excessive = excessive;
            shown.failure = failure;
            shown.drops.retain(|set, _| self.cells.values().any(|other| other == set));
            shown.writes += writes;
        });
    }

    fn cut(&mut self) {
        self.cut_at = None;
        self.last_cut = Some(Instant::now());
        match cut(&self.numbers) {
            Ok(0) => {}
            Ok(removed) => {
                info!(removed, "removed connections that network policy forbids");
                self.tally.policy_cut.inc_by(removed);
                self.publish.send_modify(|shown| shown.cut += removed);
            }
            Err(error) => {
                warn!(%error, "connections that network policy forbids could not be removed; retrying");
                self.cut_at = Some(Instant::now() + CHECK_INTERVAL);
            }
        }
    }

    /// Adds the increase of counters to the sums of their sets.
    fn count(&mut self) {
        self.counted_at = Instant::now();
        // Without counters of this reading, the next one has the increase.
        let Ok(Some(counters)) = self.keeper.drops() else { return };
        let former = self.counters.replace(counters.clone());
        // The table may have counters of an earlier process.
        let Some(former) = former else { return };
        let mut increases: BTreeMap<ContentId, u64> = BTreeMap::new();
        for (cell, packets) in &counters {
            let before = former.get(cell).copied().unwrap_or_default();
            // A lower counter is one of a new element.
            let increase = packets.checked_sub(before).unwrap_or(*packets);
            if let Some(set) = self.cells.get(cell).filter(|_| increase > 0) {
                *increases.entry(*set).or_default() += increase;
            }
        }
        if !increases.is_empty() {
            self.tally.policy_drops.inc_by(increases.values().sum());
            self.publish.send_modify(|shown| {
                for (set, increase) in increases {
                    *shown.drops.entry(set).or_default() += increase;
                    shown.dropped += increase;
                }
            });
        }
    }
}
