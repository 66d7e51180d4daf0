//! Deletion of stale flows, with deadlines and retries. The caller provides the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use base::backoff::Backoff;
use kernel::conntrack::nudge::wire::Nudge;
use model::{
    kinds::resource::ServiceKey,
    primitives::quantity::Timestamp,
    program::{Frontend, Program, Target, oracle::Networks},
};
use tracing::{debug, warn};

use super::{
    FlowTable,
    account::{Account, Flows, Reading},
    plan::{Depth, Dues, Judgement, LocalAddresses, ProgrammedState, When},
    risk,
};

/// Minimum delay before a failed walk of the conntrack table is repeated.
const RETRY_FLOOR: Duration = Duration::from_millis(100);
const RETRY_CAP: Duration = Duration::from_secs(30);
/// Maximum number of removed targets with a pending deadline, which limits memory if a node loses many targets in
/// a day. Connections to further targets are terminated at once.
const DRAINS_MAX: usize = 100_000;

/// Time at which the connections to a removed target are terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deadline {
    /// Deadline set by the removal policy, a fixed time after the target was removed.
    After(Instant),
    /// Deadline set by the user as wall-clock time.
    At(Timestamp),
}

impl Deadline {
    fn is_over(self, now: Instant, wall: Timestamp) -> bool {
        match self {
            Self::After(at) => now >= at,
            Self::At(at) => wall >= at,
        }
    }
}

/// Cleaner of the conntrack table: deletes flows to targets that the packet programs (frontends of the
/// Services with their targets) in the kernel no longer contain.
pub struct Cleaner {
    table: Box<dyn FlowTable>,
    programmed: ProgrammedState,
    dues: Dues,
    /// Removed targets whose connections may still finish, each with the deadline.
    deadlines: BTreeMap<(Frontend, Target), Deadline>,
    account: Account,
    retry: Backoff,
    not_before: Option<Instant>,
    deleted: u64,
}

impl Cleaner {
    /// Creates a cleaner without packet programs. After the first full pass (reconciliation of the kernel),
    /// [`Self::follow`] supplies those that the kernel has.
    #[must_use]
    pub fn new(table: Box<dyn FlowTable>) -> Self {
        Self {
            table,
            programmed: ProgrammedState::default(),
            dues: Dues::default(),
            deadlines: BTreeMap::new(),
            account: Account::default(),
            retry: Backoff::new(RETRY_FLOOR, RETRY_CAP),
            not_before: None,
            deleted: 0,
        }
    }

    /// Returns the number of flows deleted since the cleaner was created.
    #[must_use]
    pub const fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Applies the result of a pass (update of the kernel). `programs` contains the updated Services, each with
    /// the packet program that the kernel now has for it, or `None` if the kernel has none. `depth` is
    /// [`Depth::Everything`] if flows may be stale for reasons other than this pass.
    pub fn follow(
        &mut self,
        programs: impl IntoIterator<Item = (ServiceKey, Option<Arc<Program>>)>,
        depth: Depth,
    ) {
        for (service, program) in programs {
            self.programmed.replace(&service, program, depth, &mut self.dues);
        }
    }

    /// Counts the flows to these targets of frontends. Returns `None` if counting would take a walk of the
    /// whole table.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read.
    pub fn count(&mut self, targets: &BTreeSet<(Frontend, Target)>) -> io::Result<Option<u64>> {
        if targets.is_empty() {
            return Ok(Some(0));
        }
        let Some(filter) = risk::filter(targets) else { return Ok(None) };
        let mut count = 0;
        let _none = self.table.remove(&filter, &mut |flow| {
            count += u64::from(risk::is_on(targets, flow));
            false
        })?;
        Ok(Some(count))
    }

    /// Cancels all pending deletions and deadlines.
    fn forget_dues(&mut self) {
        self.dues = Dues::default();
        self.deadlines.clear();
        self.not_before = None;
    }

    /// Deletes TCP connections without an answer that are older than a new frontend, so that the next SYN segment
    /// of the client reaches the relay. Cancels all other deletions and deadlines, because the targets of a relay
    /// are not visible in the conntrack table. `random` are the random bits for a retry delay.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read or written; the work is retried later.
    pub fn run_for_relays(&mut self, networks: &Networks, now: Instant, random: u64) -> io::Result<()> {
        self.dues.keep_new();
        self.deadlines.clear();
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Ok(());
        }
        self.sweep_dues(networks, true, now, random)
    }

    /// Deletes flows of connectionless protocols when a backend that relays connections in userspace takes
    /// over, so that the next packets of these flows reach the relay. Afterwards the real targets are no
    /// longer visible in the table.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read or written.
    pub fn hand_over_to_relays(&mut self, networks: &Networks, now: Instant) -> io::Result<()> {
        let swept = if self.dues.is_empty() { Ok(0) } else { self.sweep(networks, true, now) };
        self.forget_dues();
        self.deleted += swept?;
        Ok(())
    }

    /// Deletes all stale flows in a single walk of the table, or without a walk if there are none. `wall` is
    /// the node's wall-clock time, `random` the random bits for a retry delay.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read or written; the work is retried later.
    pub fn run(&mut self, networks: &Networks, now: Instant, wall: Timestamp, random: u64) -> io::Result<()> {
        self.table.tell_again(now);
        self.schedule_drains(now);
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Ok(());
        }
        self.take_deadlines(now, wall);
        self.sweep_dues(networks, false, now, random)
    }

    fn sweep_dues(
        &mut self,
        networks: &Networks,
        have_relays: bool,
        now: Instant,
        random: u64,
    ) -> io::Result<()> {
        if self.dues.is_empty() {
            self.not_before = None;
            return Ok(());
        }
        match self.sweep(networks, have_relays, now) {
            Ok(deleted) => {
                debug!(deleted, frontends = self.dues.len(), "conntrack table cleaned");
                self.deleted += deleted;
                self.dues = Dues::default();
                self.not_before = None;
                self.retry.reset();
                Ok(())
            }
            Err(error) => {
                let delay = self.retry.next_delay(random);
                self.not_before = Some(now + delay);
                let frontends = self.dues.len();
                warn!(%error, frontends, retry_after_ms = delay.as_millis(), "stale flows were not removed");
                Err(error)
            }
        }
    }

    /// Sends a challenge (a TCP segment that provokes an ACK) to each of these clients; the ACK is then
    /// answered by a reset. The connections of the clients were terminated by means other than this cleaner.
    pub fn tell(&mut self, clients: Vec<Nudge>, now: Instant) {
        self.table.tell(clients, now);
    }

    /// Returns true if any removed target has passed its deadline, so that [`Self::run`] has work to do.
    #[must_use]
    pub fn is_deadline_over(&self, now: Instant, wall: Timestamp) -> bool {
        self.deadlines.values().any(|deadline| deadline.is_over(now, wall))
    }

    /// Returns the time at which [`Self::run`] next has work to do if nothing changes. Excludes wall-clock
    /// deadlines, because the clock may be set; for these, [`Self::is_deadline_over`] must be checked about once a
    /// second.
    #[must_use]
    pub fn next_run(&self) -> Option<Instant> {
        let after = |deadline: &Deadline| match deadline {
            Deadline::After(at) => Some(*at),
            Deadline::At(_) => None,
        };
        self.not_before.or_else(|| self.deadlines.values().filter_map(after).min())
    }

    /// Reads the traffic and number of all flows into the sums. Returns true if the kernel counts packets and
    /// bytes.
    ///
    /// # Errors
    /// Returns an error if the table cannot be read; the sums then keep their previous values.
    pub fn read_flows(&mut self, networks: &Networks) -> io::Result<bool> {
        let is_counted = self.table.count();
        let local = self.local_addresses(networks, false)?;
        let (programmed, account) = (&self.programmed, &self.account);
        let mut reading = Reading::default();
        self.table.show(&mut |sighting| {
            if let Some(at) = programmed.attribute(&sighting.flow, &local) {
                account.see(&mut reading, at, sighting);
            }
        })?;
        let is_current = |frontend: &Frontend, target: &Target| programmed.is_current(frontend, target);
        self.account.conclude(reading, is_current);
        Ok(is_counted)
    }

    /// Iterates over the sums of the latest reading, by owning Service, frontend and target.
    pub fn flows(&self) -> impl Iterator<Item = (&ServiceKey, &Frontend, &Target, &Flows)> {
        let flows = self.account.flows();
        flows.filter_map(|(frontend, target, flows)| {
            Some((self.programmed.owner(frontend)?, frontend, target, flows))
        })
    }

    /// Returns the packet programs that the kernel has, as applied by [`Self::follow`].
    #[must_use]
    pub const fn programmed(&self) -> &ProgrammedState {
        &self.programmed
    }

    fn schedule_drains(&mut self, now: Instant) {
        for (frontend, target, when) in std::mem::take(&mut self.dues.drains) {
            match when {
                When::After(seconds) => {
                    let at = Deadline::After(now + Duration::from_secs(seconds.into()));
                    self.schedule(frontend, target, at);
                }
                When::At(time) => {
                    self.deadlines.remove(&(frontend, target));
                    self.schedule(frontend, target, Deadline::At(time));
                }
                When::Never => {
                    self.deadlines.remove(&(frontend, target));
                }
            }
        }
    }

    fn schedule(&mut self, frontend: Frontend, target: Target, at: Deadline) {
        if self.deadlines.len() >= DRAINS_MAX && !self.deadlines.contains_key(&(frontend, target)) {
            warn!(
                ?frontend,
                ?target,
                "too many targets drain; the connections of this target are cut at \
                                       once"
            );
            self.dues.add_gone(frontend, target);
            return;
        }
        self.deadlines.entry((frontend, target)).or_insert(at);
    }

    /// Schedules the deletion of flows to targets past their deadline. A target that has been added again
    /// keeps its connections.
    fn take_deadlines(&mut self, now: Instant, wall: Timestamp) {
        let (programmed, dues) = (&self.programmed, &mut self.dues);
        self.deadlines.retain(|(frontend, target), at| {
            if programmed.is_current(frontend, target) {
                return false;
            }
            let is_over = at.is_over(now, wall);
            if is_over {
                dues.add_gone(*frontend, *target);
            }
            !is_over
        });
    }

    fn sweep(&mut self, networks: &Networks, have_relays: bool, now: Instant) -> io::Result<u64> {
        let local = self.local_addresses(networks, have_relays)?;
        let mut later = BTreeMap::new();
        let (programmed, dues) = (&self.programmed, &self.dues);
        let deleted =
            self.table.remove(&dues.filter(), &mut |flow| match programmed.judge(dues, flow, &local) {
                Judgement::Keep => false,
                Judgement::Delete => true,
                Judgement::DeleteLater(frontend, target, seconds) => {
                    let at = Deadline::After(now + Duration::from_secs(seconds.into()));
                    later.insert((frontend, target), at);
                    false
                }
            })?;
        for ((frontend, target), at) in later {
            self.schedule(frontend, target, at);
        }
        Ok(deleted)
    }

    fn local_addresses(&mut self, networks: &Networks, have_relays: bool) -> io::Result<LocalAddresses> {
        let all = self.table.local_addresses()?;
        let answers = |address: &IpAddr| networks.node_ports.iter().any(|net| net.contains(address));
        let node_ports = all.iter().copied().filter(answers).collect();
        Ok(LocalAddresses { all, node_ports, have_relays })
    }
}
