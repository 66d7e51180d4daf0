//! Agent side of a relay process: a dataplane that forwards calls to it.
//!
//! ```text
//! unlinked ──observe──▶ linked ──apply everything──▶ complete ──▶ predecessors resign
//!    ▲                     │                            │
//!    └──── connection lost, or the relay has left ──────┘
//! ```
//! Linked: connected to a relay process. Complete: the relay has the packet programs of all Services.
//! Predecessors are older relay processes, which resign: they accept no more connections and end with their
//! last one. Single changes are only sent to a relay that has the complete state. Invariant: a predecessor
//! does not resign while rules still redirect to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::unix::net::UnixStream,
};

use kernel::conntrack::nudge::wire::Nudge;
use model::{
    kinds::{node::ProxyMode, resource::ServiceKey},
    program::oracle::Networks,
    wire::{
        plan::LineChange,
        report::FailureReason,
        trace::{Packet, PacketTrace},
    },
};
use tracing::{info, warn};

use super::{
    Relays, frames,
    link::RelayConnection,
    place::{self, RelayDirectory},
    start,
    wire::{Failure, Farewell, Intent, PROTOCOL, Refusal, Reply, Request, Welcome},
};
use crate::{
    Dataplane, DesiredState, KernelCounters, KernelError, Outcome, Pass, Refusals, Scope, Traffic,
    nftables::NftablesBackend, userspace::capture_options,
};

const ASKING: &str = "asking the relay process";

/// Backend of userspace mode as the agent uses it: the relay is a separate process in the network namespace
/// of the calling thread.
pub struct RelayClient {
    relays: Relays,
    place: RelayDirectory,
    mark: u32,
    /// nftables backend that removes the redirecting rules of relay processes that are gone.
    capture: NftablesBackend,
    link: Option<RelayConnection>,
    /// Process id of the relay to which this client was last connected; `None` before the first connection.
    own: Option<u32>,
    /// True if this client started the relay process and the process has never had the packet programs of
    /// all Services, so that it can be ended without loss.
    is_tentative: bool,
    /// True if the rules have been removed, so that `retire` only waits for the last connections.
    is_withdrawn: bool,
    /// Process ids of older relays. These relays must resign (accept no more connections) once this client's
    /// relay has the packet programs of all Services.
    predecessors: BTreeSet<u32>,
    /// Services whose rules may still redirect to an older relay, because the new one has not programmed
    /// them.
    behind: BTreeSet<ServiceKey>,
    counters: KernelCounters,
}

impl RelayClient {
    /// Opens the backend, without connecting to or starting a process. `mark` is the packet mark of the
    /// rules that redirect connections to the relay.
    ///
    /// # Errors
    /// Returns an error if the kernel denies access.
    pub fn open(relays: Relays, mark: u32) -> Result<Self, KernelError> {
        let capture = NftablesBackend::open(capture_options(mark))?;
        Ok(Self {
            place: RelayDirectory::of(&relays.state_dir),
            relays,
            mark,
            capture,
            link: None,
            own: None,
            is_tentative: false,
            is_withdrawn: false,
            predecessors: BTreeSet::new(),
            behind: BTreeSet::new(),
            counters: KernelCounters::default(),
        })
    }

    /// Returns the id of the relay process that accepts new connections for this backend; `None` if this
    /// client has not connected to any.
    #[must_use]
    pub const fn process(&self) -> Option<u32> {
        self.own
    }

    /// Connects to a relay process of the same executable, protocol and packet mark, or starts one.
    fn connect(&mut self) -> io::Result<()> {
        self.place.make()?;
        let build = place::build(&self.relays.program)?;
        let mut others = BTreeSet::new();
        let mut found = None;
        for (pid, stream, welcome) in self.active()? {
            let Welcome { protocol, build: its_build, mark, .. } = welcome;
            if found.is_none() && (protocol, mark) == (PROTOCOL, self.mark) && its_build == build {
                found = Some((pid, stream));
            } else {
                others.insert(pid);
            }
        }
        let (pid, stream) = match found {
            Some(found) => found,
            None => {
                let pid = start::start(&self.relays, self.mark, !others.is_empty())?;
                (self.own, self.is_tentative) = (Some(pid), true);
                let greeted = frames::greet(&self.place, pid, Intent::Serve)?;
                let (stream, _) = greeted.ok_or_else(|| io::Error::other("it exited at once"))?;
                info!(pid, predecessors = ?others, "a relay process was started");
                (pid, stream)
            }
        };
        (self.own, self.link, self.predecessors) = (Some(pid), Some(RelayConnection::new(stream)?), others);
        self.is_withdrawn = false;
        Ok(())
    }

    /// Returns the relay processes that accept new connections in this network namespace: the process id,
    /// the open connection and the welcome message of each.
    fn active(&self) -> io::Result<Vec<(u32, UnixStream, Welcome)>> {
        let namespace = place::namespace()?;
        let mut active = Vec::new();
        for pid in self.place.pids()? {
            match frames::greet(&self.place, pid, Intent::Serve) {
                Ok(Some((stream, welcome))) if welcome.is_active && welcome.namespace == namespace => {
                    active.push((pid, stream, welcome));
                }
                Ok(_) => {}
                Err(error) => warn!(pid, %error, "a relay process does not respond"),
            }
        }
        Ok(active)
    }

    fn link(&mut self) -> Result<&mut RelayConnection, KernelError> {
        if self.link.is_none() {
            self.connect().map_err(|source| failed("starting the relay process", source))?;
        }
        self.link.as_mut().ok_or_else(gone)
    }

    /// Sends a request to the connected process and extracts the result from its reply with `take`. The
    /// connection is closed if there is no reply, or an unexpected one.
    fn ask<T>(&mut self, request: &Request, take: impl FnOnce(Reply) -> Option<T>) -> Result<T, KernelError> {
        let link = self.link.as_mut().ok_or_else(gone)?;
        let error = match link.ask(request) {
            Ok((reply, risen)) => {
                self.counters = add(self.counters, risen);
                match reply.map(take) {
                    Ok(Some(taken)) => return Ok(taken),
                    Err(Refusal::Failed(failure)) => return Err(failure.into()),
                    Err(Refusal::Left) => gone(),
                    Ok(None) => failed(ASKING, io::Error::other("unexpected reply")),
                }
            }
            Err(error) if frames::is_gone(&error) => gone(),
            Err(error) => failed(ASKING, error),
        };
        self.link = None;
        Err(error)
    }

    fn run(&mut self, desired: &DesiredState, scope: &Scope, pass: &mut Pass) -> Result<(), KernelError> {
        match scope {
            Scope::Everything => {
                self.link()?;
            }
            Scope::Services(_) if !self.link.as_ref().is_some_and(|link| link.is_complete) => {
                return Err(gone());
            }
            Scope::Services(_) => {}
        }
        let too_long = self.stage(desired, scope)?;
        let networks: Networks = desired.networks.clone();
        let take = |reply| match reply {
            Reply::Passed { outcomes, writes, failure } => {
                Some(Pass { outcomes, writes, failed: failure.map(KernelError::from) })
            }
            Reply::Done
            | Reply::Disturbed(_)
            | Reply::Traffic(_)
            | Reply::Preview(_)
            | Reply::Traced(_)
            | Reply::Refusals(_) => None,
        };
        *pass = self.ask(&Request::Apply { networks, scope: scope.clone() }, take)?;
        pass.outcomes.extend(too_long);
        if pass.failed.is_none() {
            self.conclude(&pass.outcomes, scope);
        }
        Ok(())
    }

    /// Sends the packet programs of the Services in `scope`, which the next update of the kernel will use.
    /// Returns a failure for each program that exceeds the message size.
    fn stage(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Vec<(ServiceKey, Outcome)>, KernelError> {
        let link = self.link.as_ref().ok_or_else(gone)?;
        let staged = desired.programs.iter().filter(|(service, _)| match scope {
            Scope::Everything => true,
            Scope::Services(services) => services.contains(service),
        });
        match link.stage(staged) {
            Ok(too_long) => Ok(too_long),
            Err(error) => {
                self.link = None;
                Err(failed("sending programs to the relay process", error))
            }
        }
    }

    /// Finishes an update of the kernel: records Services that are not programmed yet. Once all are
    /// programmed, makes the older relays resign (accept no more connections).
    fn conclude(&mut self, outcomes: &BTreeMap<ServiceKey, Outcome>, scope: &Scope) {
        if let (Some(link), Scope::Everything) = (self.link.as_mut(), scope) {
            link.is_complete = true;
            self.is_tentative = false;
            self.behind.clear();
        }
        for (service, outcome) in outcomes {
            let is_behind = match outcome {
                Outcome::Failed { reason, .. } => match reason {
                    FailureReason::KernelRefused | FailureReason::VerificationFailed => true,
                    FailureReason::Unsupported
                    | FailureReason::PartlyUnsupported
                    | FailureReason::PortUnavailable
                    | FailureReason::SurvivalUnavailable => false,
                },
                Outcome::Verified => false,
            };
            if is_behind {
                self.behind.insert(service.clone());
            } else {
                self.behind.remove(service);
            }
        }
        self.let_predecessors_go();
    }

    fn let_predecessors_go(&mut self) {
        if !self.behind.is_empty() || !self.link.as_ref().is_some_and(|link| link.is_complete) {
            return;
        }
        let place = &self.place;
        self.predecessors.retain(|pid| match frames::send_away(place, *pid, Intent::Resign) {
            Ok(_) => {
                info!(pid, "a relay process has resigned; its connections go on until they end");
                false
            }
            Err(error) => {
                warn!(pid, %error, "a relay process did not resign; retrying");
                true
            }
        });
    }

    /// Removes the capture rules (redirects to a relay) of relay processes that are gone. Returns the number
    /// of removed kernel objects.
    fn clean_kernel(&mut self) -> Result<u64, KernelError> {
        self.capture.cleanup()
    }

    /// Makes a relay process remove its rules. Returns the number of removed objects, and a flag that is
    /// true if no connection is left, or `None` if the process is gone.
    fn withdraw(&self, pid: u32) -> Result<Option<(u64, bool)>, KernelError> {
        let action = "withdrawing the relay process";
        match frames::send_away(&self.place, pid, Intent::Retire).map_err(|source| failed(action, source))? {
            Some(Farewell { failure: Some(failure), .. }) => Err(failure.into()),
            Some(Farewell { objects, is_drained, failure: None }) => Ok(Some((objects, is_drained))),
            None => Ok(None),
        }
    }
}

impl Dataplane for RelayClient {
    fn mode(&self) -> ProxyMode {
        ProxyMode::Userspace
    }

    fn begin(&mut self) -> Result<(), KernelError> {
        self.link().map(|_| ())
    }

    fn observe(&mut self) -> Result<(), KernelError> {
        self.link()?;
        self.ask(&Request::Observe, |reply| matches!(reply, Reply::Done).then_some(()))
    }

    /// Returns true if another program may have changed the rules of the relay. If the process has ended,
    /// returns an error, so that the caller updates the whole kernel state, which starts a new process.
    fn is_disturbed(&mut self) -> Result<bool, KernelError> {
        self.ask(&Request::IsDisturbed, |reply| match reply {
            Reply::Disturbed(is_disturbed) => Some(is_disturbed),
            Reply::Done
            | Reply::Passed { .. }
            | Reply::Traffic(_)
            | Reply::Preview(_)
            | Reply::Traced(_)
            | Reply::Refusals(_) => None,
        })
    }

    fn apply(&mut self, desired: &DesiredState, scope: &Scope) -> Pass {
        let mut pass = Pass::default();
        if let Err(error) = self.run(desired, scope, &mut pass) {
            pass.failed = Some(error);
        }
        if pass.failed.is_some()
            && let Some(link) = &mut self.link
        {
            link.is_complete = false;
        }
        pass
    }

    /// Makes older relays resign (accept no more connections) if that is still pending. The relay process
    /// runs its own periodic work.
    fn upkeep(&mut self) -> Result<(), KernelError> {
        self.let_predecessors_go();
        Ok(())
    }

    fn take_cut(&mut self) -> Vec<Nudge> {
        Vec::new()
    }

    fn retire(&mut self) -> Result<bool, KernelError> {
        self.link = None;
        let mut pids = std::mem::take(&mut self.predecessors);
        pids.extend(self.own);
        let mut is_drained = true;
        let withdrawn: Result<(), KernelError> = pids.iter().try_for_each(|pid| {
            if let Some((_, is_idle)) = self.withdraw(*pid)? {
                self.is_withdrawn = true;
                is_drained &= is_idle;
            }
            Ok(())
        });
        self.predecessors = pids;
        withdrawn?;
        if !self.is_withdrawn {
            self.clean_kernel()?;
            self.is_withdrawn = true;
        }
        Ok(is_drained)
    }

    fn abandon(&mut self) {
        self.link = None;
        self.is_tentative = false;
        let Some(pid) = self.own.take() else { return };
        if let Err(error) = frames::send_away(&self.place, pid, Intent::Resign) {
            warn!(pid, %error, "a relay process that is no longer needed was not terminated");
        }
    }

    fn is_tracked(&self) -> bool {
        false
    }

    /// Returns the traffic counters of the relay process. The counters start at 0 in each process.
    fn traffic(&mut self) -> Result<Vec<Traffic>, KernelError> {
        if self.link.is_none() {
            return Ok(Vec::new());
        }
        self.ask(&Request::Traffic, |reply| match reply {
            Reply::Traffic(traffic) => Some(traffic),
            Reply::Done
            | Reply::Disturbed(_)
            | Reply::Passed { .. }
            | Reply::Preview(_)
            | Reply::Traced(_)
            | Reply::Refusals(_) => None,
        })
    }

    fn sees_refusals(&self) -> bool {
        true
    }

    fn refusals(&mut self) -> Result<Vec<Refusals>, KernelError> {
        if self.link.is_none() {
            return Ok(Vec::new());
        }
        self.ask(&Request::Refusals, |reply| match reply {
            Reply::Refusals(refusals) => Some(refusals),
            Reply::Done
            | Reply::Disturbed(_)
            | Reply::Passed { .. }
            | Reply::Traffic(_)
            | Reply::Preview(_)
            | Reply::Traced(_) => None,
        })
    }

    fn is_counted_by_flows(&self) -> bool {
        false
    }

    /// Returns the lines that an update of the kernel would remove and add. Returns an error if no relay
    /// process with the packet programs of all Services is connected, because none is started for a preview.
    /// `None` if the relay cannot preview its rules.
    fn preview(
        &mut self,
        desired: &DesiredState,
        scope: &Scope,
    ) -> Result<Option<Vec<LineChange>>, KernelError> {
        if !self.link.as_ref().is_some_and(|link| link.is_complete) {
            return Err(gone());
        }
        // A program that exceeds the message size would not be programmed either.
        let _too_long = self.stage(desired, scope)?;
        let networks = desired.networks.clone();
        self.ask(&Request::Preview { networks, scope: scope.clone() }, |reply| match reply {
            Reply::Preview(changes) => Some(changes),
            Reply::Done
            | Reply::Disturbed(_)
            | Reply::Passed { .. }
            | Reply::Traffic(_)
            | Reply::Traced(_)
            | Reply::Refusals(_) => None,
        })
    }

    fn trace(&mut self, packets: &[Packet]) -> Result<Option<Vec<PacketTrace>>, KernelError> {
        let mut trace = |packet: &Packet| {
            self.ask(&Request::Trace(*packet), |reply| match reply {
                Reply::Traced(traced) => Some(traced),
                Reply::Done
                | Reply::Disturbed(_)
                | Reply::Passed { .. }
                | Reply::Traffic(_)
                | Reply::Preview(_)
                | Reply::Refusals(_) => None,
            })
        };
        packets.iter().map(&mut trace).collect()
    }

    /// Removes the rules of all relay processes and stops the processes from accepting connections.
    /// Established connections continue, and each process ends with its last one.
    fn cleanup(&mut self) -> Result<u64, KernelError> {
        self.link = None;
        let active = self.active().map_err(|source| failed("looking for relay processes", source))?;
        let mut objects = 0;
        for (pid, _, _) in active {
            objects += self.withdraw(pid)?.map_or(0, |(objects, _)| objects);
        }
        self.is_tentative = false;
        Ok(objects + self.clean_kernel()?)
    }

    fn counters(&self) -> KernelCounters {
        self.counters
    }

    fn relay_heap_bytes(&self) -> Option<u64> {
        self.link.as_ref()?.heap_bytes
    }
}

impl Drop for RelayClient {
    fn drop(&mut self) {
        if self.is_tentative {
            self.abandon();
        }
    }
}

fn failed(action: &str, source: io::Error) -> KernelError {
    KernelError { action: action.to_owned(), source }
}

fn gone() -> KernelError {
    Failure {
        action: ASKING.to_owned(),
        errno: None,
        message: "it has exited; a new one is started".to_owned(),
    }
    .into()
}

const fn add(sum: KernelCounters, risen: KernelCounters) -> KernelCounters {
    KernelCounters {
        transactions: sum.transactions + risen.transactions,
        messages: sum.messages + risen.messages,
        bytes: sum.bytes + risen.bytes,
        conntrack_deletions: sum.conntrack_deletions + risen.conntrack_deletions,
    }
}
