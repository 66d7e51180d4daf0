//! Which backend programs the kernel, and how another one takes over while traffic goes on.
//!
//! ```text
//! running ──Node asks for another──▶ open ─▶ observe ─▶ apply everything ─▶ verified ─▶ running (new)
//!    ▲                                 └─────────┴────────────┴─ failed: the new one cleans up   │
//!    └──────────── waits, tries again ◀───────────────────────────────┘                          │
//!                                               old: retire, once a second, until nothing is left ┘
//! ```
//! Both program the same for a moment, so that no new connection meets a node without rules. Where old and new share
//! their kernel objects (another mark in the same mode) the new one takes them over in place and the old one is
//! forgotten. What must not happen here: the old one retires before everything of the new is read back.

use std::time::{Duration, Instant};

use model::{
    kinds::{
        node::{Naming, ProxyMode},
        resource::ServiceKey,
    },
    wire::report::FailureReason,
};
use tracing::{debug, info, warn};

use crate::{
    backoff::Backoff,
    dataplane::{
        BackendOptions, Dataplane, Desired, KernelCounters, KernelError, OpenError, Outcome, Pass, Scope,
    },
    defaults::Backend,
    feed::chain,
};

/// Makes backends, in the network namespace of the calling thread.
pub type Opener = Box<dyn FnMut(ProxyMode, &BackendOptions) -> Result<Box<dyn Dataplane>, OpenError> + Send>;

/// Wait after the first failed change, and the longest one.
const CHANGE_FLOOR: Duration = Duration::from_secs(1);
const CHANGE_CAP: Duration = Duration::from_secs(60);
/// Time between two questions to a backend that leaves.
const LEAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a relay is kept in any case, for connections that were just on their way to it.
const RELAY_TIME_MIN: Duration = Duration::from_secs(5);
/// Time that established connections have to end before what is left of their backend is removed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// The backend that runs, the one that is wanted, and those that leave.
pub(super) struct Backends {
    open: Opener,
    current: Box<dyn Dataplane>,
    running: Backend,
    wanted: Backend,
    change: Backoff,
    change_at: Option<Instant>,
    problem: Option<String>,
    leaving: Vec<Leaving>,
    leave_at: Instant,
    past: KernelCounters,
}

/// A backend whose place another has taken.
struct Leaving {
    dataplane: Box<dyn Dataplane>,
    backend: Backend,
    since: Instant,
    /// Its kernel objects are another's now; it only keeps the connections that it relays.
    is_superseded: bool,
    last_error: Option<String>,
}

/// A change of backend that would come.
pub(super) struct Takeover {
    /// From what to what, in words.
    pub(super) words: String,
    /// Whether the new one goes on with the kernel objects of the old one.
    pub(super) is_in_place: bool,
}

/// What came of an attempt to change.
pub(super) enum Change {
    /// The new backend runs, and this is what came of its first pass.
    Taken {
        /// What changed, in words.
        message: String,
        /// The pass over everything.
        pass: Pass,
    },
    /// The old backend goes on.
    Refused {
        /// Why, in words.
        message: String,
        /// Whether the kernel objects of the old one may have been written.
        is_disturbed: bool,
    },
}

impl Backends {
    /// Opens the backend that is wanted; if that fails, the one that the agent was started with.
    pub(super) fn open(
        mut open: Opener,
        wanted: Backend,
        fallback: &Backend,
        now: Instant,
    ) -> Result<Self, OpenError> {
        let mut change = Backoff::new(CHANGE_FLOOR, CHANGE_CAP);
        let mut begin = |backend: &Backend| -> Result<Box<dyn Dataplane>, OpenError> {
            let mut dataplane = open(backend.mode, &backend.options)?;
            dataplane.begin()?;
            Ok(dataplane)
        };
        let (current, running, problem) = match begin(&wanted) {
            Ok(current) => (current, wanted.clone(), None),
            Err(error) if *fallback == wanted => return Err(error),
            Err(error) => {
                let problem = chain(&error);
                warn!(wanted = wanted.mode.as_str(), error = problem, "the Node's mode cannot be used");
                (begin(fallback)?, fallback.clone(), Some(problem))
            }
        };
        let change_at = problem.is_some().then(|| now + change.next_delay(0));
        Ok(Self {
            open,
            current,
            running,
            wanted,
            change,
            change_at,
            problem,
            leaving: Vec::new(),
            leave_at: now,
            past: KernelCounters::default(),
        })
    }

    /// The backend that runs.
    pub(super) fn current(&mut self) -> &mut dyn Dataplane {
        &mut *self.current
    }

    /// The mode that runs.
    pub(super) const fn mode(&self) -> ProxyMode {
        self.running.mode
    }

    /// The options of the mode that runs.
    pub(super) fn options(&self) -> BackendOptions {
        self.running.options.clone()
    }

    /// Says which backend would take over from which, if another would be asked for.
    pub(super) fn would_change(&self, wanted: &Backend) -> Option<Takeover> {
        (*wanted != self.wanted).then(|| Takeover {
            words: format!("the node would change from {} to {}", shown(&self.wanted), shown(wanted)),
            is_in_place: wanted.shares_objects(&self.running),
        })
    }

    /// Asks for a backend, from here on.
    pub(super) fn want(&mut self, wanted: Backend, now: Instant) {
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        self.change.reset();
        self.problem = None;
        self.change_at = (self.wanted != self.running).then_some(now);
    }

    /// When a change is to be tried.
    pub(super) const fn change_at(&self) -> Option<Instant> {
        self.change_at
    }

    /// When backends that leave are to be asked again.
    pub(super) fn leave_at(&self) -> Option<Instant> {
        (!self.leaving.is_empty()).then_some(self.leave_at)
    }

    /// Why the Node does not run as it asks, with what is done about it.
    pub(super) fn warning(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let (wanted, running) = (shown(&self.wanted), shown(&self.running));
        Some(format!(
            "the Node asks for {wanted}, which could not take over ({problem}); {running} runs, and it is tried again"
        ))
    }

    /// What all backends have done to the kernel.
    pub(super) fn counters(&self) -> KernelCounters {
        let leaving = self.leaving.iter().map(|leaving| leaving.dataplane.counters());
        leaving.chain([self.current.counters()]).fold(self.past, add)
    }

    /// Tries to put the wanted backend in the place of the current one. Services of which `was_refused` is true do not
    /// stop it.
    pub(super) fn try_change(
        &mut self,
        desired: &Desired,
        was_refused: impl Fn(&ServiceKey) -> bool,
        now: Instant,
        random: u64,
    ) -> Change {
        let is_in_place = self.wanted.shares_objects(&self.running);
        let attempt = (self.open)(self.wanted.mode, &self.wanted.options).map_err(|error| chain(&error));
        let attempt = attempt.and_then(|mut new| match program(&mut *new, desired, was_refused) {
            Ok(pass) => Ok((new, pass)),
            Err(problem) => {
                if is_in_place {
                    new.abandon();
                } else if let Err(error) = new.cleanup() {
                    warn!(error = chain(&error), "what a failed change of mode left was not removed");
                }
                Err(problem)
            }
        });
        match attempt {
            Ok((new, pass)) => Change::Taken { message: self.take_over(new, is_in_place, now), pass },
            Err(problem) => {
                self.change_at = Some(now + self.change.next_delay(random));
                self.problem = Some(problem);
                let message = self.warning().unwrap_or_default();
                let is_disturbed = is_in_place || self.wanted.clashes_with(&self.running);
                Change::Refused { message, is_disturbed }
            }
        }
    }

    fn take_over(&mut self, new: Box<dyn Dataplane>, is_in_place: bool, now: Instant) -> String {
        let message = format!("{} has taken over from {}", shown(&self.wanted), shown(&self.running));
        info!(message, "the proxy mode has changed");
        let old = std::mem::replace(&mut self.current, new);
        let backend = std::mem::replace(&mut self.running, self.wanted.clone());
        self.change_at = None;
        self.problem = None;
        self.change.reset();
        for leaving in &mut self.leaving {
            leaving.is_superseded |= leaving.backend.shares_objects(&self.running);
        }
        self.leaving.push(Leaving {
            dataplane: old,
            backend,
            since: now,
            is_superseded: is_in_place,
            last_error: None,
        });
        self.leave_at = now;
        message
    }

    /// Lets those that leave do so, about once a second. Answers whether one of them may have taken something that is the
    /// running one's.
    pub(super) fn see_off(&mut self, now: Instant) -> bool {
        if now < self.leave_at {
            return false;
        }
        self.leave_at = now + LEAVE_INTERVAL;
        let (past, running) = (&mut self.past, &self.running);
        let mut is_disturbed = false;
        self.leaving.retain_mut(|leaving| {
            is_disturbed |= !leaving.is_superseded && leaving.backend.clashes_with(running);
            let is_gone = leaving.is_gone(now);
            if is_gone {
                *past = add(*past, leaving.dataplane.counters());
                info!(mode = leaving.backend.mode.as_str(), "the former proxy mode has left the kernel");
            }
            !is_gone
        });
        is_disturbed
    }

    /// Removes what other modes have left in the kernel, as after an end between two steps of a change; answers it in
    /// words. Modes that this machine lacks are passed over.
    pub(super) fn remove_leftovers(&mut self, asked: &BackendOptions) -> Vec<String> {
        let mut removed = Vec::new();
        for backend in candidates(&self.running, asked) {
            let is_ours = |other: &Backend| {
                other.mode == backend.mode && other.options.naming == backend.options.naming
            };
            if self.leaving.iter().any(|leaving| is_ours(&leaving.backend)) {
                continue;
            }
            let name = shown(&backend);
            match (self.open)(backend.mode, &backend.options).map(|mut found| found.cleanup()) {
                Ok(Ok(0)) => {}
                Ok(Ok(count)) => {
                    info!(mode = name, count, "leftovers of another proxy mode were removed");
                    removed.push(format!("{count} objects of {name}"));
                }
                Ok(Err(error)) => {
                    debug!(mode = name, error = chain(&error), "leftovers cannot be looked for")
                }
                Err(error) => debug!(mode = name, error = chain(&error), "leftovers cannot be looked for"),
            }
        }
        removed
    }
}

impl Leaving {
    /// Asks it to leave; answers whether it has.
    fn is_gone(&mut self, now: Instant) -> bool {
        if now >= self.since + LEAVE_TIME_MAX {
            if !self.is_superseded
                && let Err(error) = self.dataplane.cleanup()
            {
                warn!(error = chain(&error), "the rest of a former proxy mode was not removed");
            }
            return true;
        }
        if self.is_superseded {
            return match self.backend.mode {
                // A relay in this process would end with it. One in another process has resigned, and ends by itself.
                ProxyMode::Userspace => now >= self.since + RELAY_TIME_MIN && is_idle(&mut *self.dataplane),
                ProxyMode::Nftables | ProxyMode::Iptables | ProxyMode::Ipvs => true,
            };
        }
        match self.dataplane.retire() {
            Ok(is_gone) => is_gone,
            Err(error) => {
                let text = chain(&error);
                if self.last_error.as_ref() != Some(&text) {
                    warn!(
                        mode = self.backend.mode.as_str(),
                        error = text,
                        "a former proxy mode cannot leave"
                    );
                    self.last_error = Some(text);
                }
                false
            }
        }
    }
}

/// Whether a relay has no connection left.
fn is_idle(dataplane: &mut dyn Dataplane) -> bool {
    let traffic = dataplane.traffic();
    traffic.is_ok_and(|rows| rows.iter().all(|row| row.active.unwrap_or_default() == 0))
}

/// Programs everything through a new backend.
fn program(
    new: &mut dyn Dataplane,
    desired: &Desired,
    was_refused: impl Fn(&ServiceKey) -> bool,
) -> Result<Pass, String> {
    let text = |error: KernelError| chain(&error);
    new.observe().map_err(text)?;
    let mut pass = new.apply(desired, &Scope::Everything);
    if let Some(error) = pass.failed.take() {
        return Err(text(error));
    }
    // What a mode does not do is said of that Service; what the kernel refuses would be worse than before.
    let refused = pass.outcomes.iter().find_map(|(service, outcome)| match outcome {
        Outcome::Failed {
            reason: FailureReason::KernelRefused | FailureReason::VerificationFailed,
            message,
        } if !was_refused(service) => Some(format!("Service {service}: {message}")),
        Outcome::Failed { .. } | Outcome::Verified => None,
    });
    refused.map_or(Ok(pass), Err)
}

/// The backends whose objects could be there beside those of the running one. Names that are also kube-proxy's are looked
/// for only if the node is asked to use them.
fn candidates(running: &Backend, asked: &BackendOptions) -> Vec<Backend> {
    let namings = match asked.naming {
        Naming::Tidegate => vec![Naming::Tidegate],
        Naming::Kube => vec![Naming::Kube, Naming::Tidegate],
    };
    let all = ProxyMode::ALL.iter().flat_map(|mode| {
        let with = |naming: &Naming| Backend::of(*mode, &BackendOptions { naming: *naming, ..asked.clone() });
        namings.iter().map(with).collect::<Vec<_>>()
    });
    let mut candidates: Vec<Backend> = all
        .filter(|candidate| !candidate.shares_objects(running) && !candidate.clashes_with(running))
        .collect();
    candidates.dedup();
    candidates
}

fn shown(backend: &Backend) -> String {
    let BackendOptions { masquerade_mark, drop_mark: _, naming, strict_arp: _ } = backend.options;
    let naming = match naming {
        Naming::Tidegate => "",
        Naming::Kube => ", naming kube",
    };
    let plain = masquerade_mark == BackendOptions::default().masquerade_mark;
    let mark = if plain { String::new() } else { format!(", mark {masquerade_mark:#x}") };
    format!("{}{naming}{mark}", backend.mode.as_str())
}

fn add(sum: KernelCounters, more: KernelCounters) -> KernelCounters {
    let KernelCounters { transactions, messages, bytes, conntrack_deletions } = more;
    KernelCounters {
        transactions: sum.transactions + transactions,
        messages: sum.messages + messages,
        bytes: sum.bytes + bytes,
        conntrack_deletions: sum.conntrack_deletions + conntrack_deletions,
    }
}
