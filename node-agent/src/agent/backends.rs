//! Active backend (implementation of a proxy mode), and its replacement by another backend without
//! interruption of traffic.
//!
//! ```text
//! running ──Node selects another──▶ open ─▶ observe ─▶ apply everything ─▶ verified ─▶ running (new)
//!    ▲                                └─────────┴────────────┴─ failure: the new one cleans up   │
//!    └──────────── backoff, retry ◀──────────────────────────┘                                   │
//!                                               old: retire, once a second, until nothing is left ┘
//! ```
//! For a moment both backends program the same Services, so that no new connection finds a node without
//! rules. If old and new share their kernel objects (a different packet mark in the same mode), the new one
//! takes them over in place and the old one is dropped. Invariant: the old backend is removed only after all
//! kernel objects of the new backend have been read back.

use std::time::{Duration, Instant};

use base::{backoff::Backoff, chain};
use dataplane::{
    BackendOptions, Dataplane, DesiredState, KernelCounters, KernelError, OpenError, Opener, Outcome, Pass,
    Scope,
};
use model::{
    kinds::{
        node::{Naming, ProxyMode},
        resource::ServiceKey,
    },
    wire::report::FailureReason,
};
use tracing::{debug, info, warn};

use crate::state::defaults::Backend;

/// Minimum delay before a failed change of the backend is retried. The maximum is `CHANGE_CAP`.
const CHANGE_FLOOR: Duration = Duration::from_secs(1);
const CHANGE_CAP: Duration = Duration::from_secs(60);
/// Interval between calls that remove the remaining objects of a replaced backend (`retire`).
const LEAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time for which the userspace relay of a replaced backend keeps running, for connections already on
/// their way to it.
const RELAY_TIME_MIN: Duration = Duration::from_secs(5);
/// Maximum time for which established connections of a replaced backend keep its kernel objects. The
/// remaining objects are then removed.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Maximum number of Services with unsupported settings that the message of a mode change names.
const UNSUPPORTED_LISTED_MAX: usize = 5;

/// Active backend, selected backend, and replaced backends that are being removed.
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

/// Replaced backend whose kernel objects or relayed connections are being removed.
struct Leaving {
    dataplane: Box<dyn Dataplane>,
    backend: Backend,
    since: Instant,
    /// True if the new backend has taken over the kernel objects, so that only connections through the old
    /// userspace relay remain.
    is_superseded: bool,
    last_error: Option<String>,
}

/// Change of backend that a different Node setting would cause.
pub(super) struct Takeover {
    /// Description of the old and the new backend for messages.
    pub(super) words: String,
    /// True if the new backend takes over the kernel objects of the old one.
    pub(super) is_in_place: bool,
}

/// Result of an attempt to change the backend.
pub(super) enum Change {
    /// The new backend has replaced the old one.
    Taken {
        /// Description of the change for events and logs.
        message: String,
        /// Result of the new backend's first kernel update, which programs and verifies all Services.
        pass: Pass,
    },
    /// The change failed, and the old backend stays active.
    Refused {
        /// Cause of the failure for events and logs.
        message: String,
        /// True if kernel objects of the old backend may have been overwritten.
        is_disturbed: bool,
    },
}

impl Backends {
    /// Opens the backend that the Node selects, or the default backend if that fails.
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
                warn!(wanted = wanted.mode.as_str(), error = problem, "the mode of the Node cannot be used");
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

    /// Returns the active backend.
    pub(super) fn current(&mut self) -> &mut dyn Dataplane {
        &mut *self.current
    }

    /// Returns the active proxy mode.
    pub(super) const fn mode(&self) -> ProxyMode {
        self.running.mode
    }

    /// Returns the options (packet marks and chain naming) of the active backend.
    pub(super) fn options(&self) -> BackendOptions {
        self.running.options.clone()
    }

    /// Returns the takeover that selecting `wanted` would cause, or `None` if it is already selected.
    pub(super) fn would_change(&self, wanted: &Backend) -> Option<Takeover> {
        (*wanted != self.wanted).then(|| Takeover {
            words: format!("the node would change from {} to {}", shown(&self.wanted), shown(wanted)),
            is_in_place: wanted.shares_objects(&self.running),
        })
    }

    /// Sets the backend that the Node selects. The change is attempted in the next iteration of the loop.
    pub(super) fn want(&mut self, wanted: Backend, now: Instant) {
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        self.change.reset();
        self.problem = None;
        self.change_at = (self.wanted != self.running).then_some(now);
    }

    /// Returns the time of the next attempt to change the backend; `None` if the selected backend is active.
    pub(super) const fn change_at(&self) -> Option<Instant> {
        self.change_at
    }

    /// Returns the time of the next call that removes remaining objects of the replaced backends; `None` if
    /// there is no such backend.
    pub(super) fn leave_at(&self) -> Option<Instant> {
        (!self.leaving.is_empty()).then_some(self.leave_at)
    }

    /// Returns a warning if the last change to the selected backend failed, otherwise `None`.
    pub(super) fn warning(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let (wanted, running) = (shown(&self.wanted), shown(&self.running));
        Some(format!(
            "the Node asks for {wanted}, which could not take over ({problem}); {running} runs, and it is tried again"
        ))
    }

    /// Returns the sum of the kernel counters of the active and all replaced backends.
    pub(super) fn counters(&self) -> KernelCounters {
        let leaving = self.leaving.iter().map(|leaving| leaving.dataplane.counters());
        leaving.chain([self.current.counters()]).fold(self.past, add)
    }

    /// Tries to replace the active backend by the selected one. The change fails if the new backend rejects a
    /// Service for which `was_refused` returns false, that is, a Service that the active backend does not
    /// reject.
    pub(super) fn try_change(
        &mut self,
        desired: &DesiredState,
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
                    warn!(error = chain(&error), "leftovers of a failed mode change were not removed");
                }
                Err(problem)
            }
        });
        match attempt {
            Ok((new, pass)) => {
                let message = self.take_over(new, is_in_place, now) + &unsupported_services(&pass);
                Change::Taken { message, pass }
            }
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

    /// Removes kernel objects of the replaced backends, about once a second. Returns true if the removal may
    /// have affected objects of the active backend.
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

    /// Removes kernel objects that other modes have left, for example after a crash during a change of the
    /// mode. Returns a text for each mode with the number of removed objects. Modes that this machine does
    /// not support, and replaced backends that are still being removed, are skipped.
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
                    debug!(mode = name, error = chain(&error), "cannot check for leftovers")
                }
                Err(error) => debug!(mode = name, error = chain(&error), "cannot check for leftovers"),
            }
        }
        removed
    }
}

impl Leaving {
    /// Removes objects of the replaced backend. Returns true once nothing of it is left.
    fn is_gone(&mut self, now: Instant) -> bool {
        if now >= self.since + LEAVE_TIME_MAX {
            if !self.is_superseded
                && let Err(error) = self.dataplane.cleanup()
            {
                warn!(error = chain(&error), "the remaining objects of a former proxy mode were not removed");
            }
            return true;
        }
        if self.is_superseded {
            // A relay in this process would end when dropped. A relay in a separate process has already handed
            // over and ends by itself.
            let has_relay = self.backend.mode == ProxyMode::Userspace;
            return !has_relay || now >= self.since + RELAY_TIME_MIN && is_idle(&mut *self.dataplane);
        }
        match self.dataplane.retire() {
            Ok(is_gone) => is_gone,
            Err(error) => {
                let text = chain(&error);
                if self.last_error.as_ref() != Some(&text) {
                    warn!(
                        mode = self.backend.mode.as_str(),
                        error = text,
                        "a former proxy mode cannot retire"
                    );
                    self.last_error = Some(text);
                }
                false
            }
        }
    }
}

/// Returns true if the backend's userspace relay has no open connection.
fn is_idle(dataplane: &mut dyn Dataplane) -> bool {
    let traffic = dataplane.traffic();
    traffic.is_ok_and(|rows| rows.iter().all(|row| row.active.unwrap_or_default() == 0))
}

/// Programs the whole desired state through a new backend and verifies it by a read-back.
fn program(
    new: &mut dyn Dataplane,
    desired: &DesiredState,
    was_refused: impl Fn(&ServiceKey) -> bool,
) -> Result<Pass, String> {
    let text = |error: KernelError| chain(&error);
    new.observe().map_err(text)?;
    let mut pass = new.apply(desired, &Scope::Everything);
    if let Some(error) = pass.failed.take() {
        return Err(text(error));
    }
    // Features that the mode does not support are reported per Service. A rejection by the kernel aborts the
    // change, because it would be worse than before.
    let refused = pass.outcomes.iter().find_map(|(service, outcome)| match outcome {
        Outcome::Failed {
            reason: FailureReason::KernelRefused | FailureReason::VerificationFailed,
            message,
        } if !was_refused(service) => Some(format!("Service {service}: {message}")),
        Outcome::Failed { .. } | Outcome::Verified => None,
    });
    refused.map_or(Ok(pass), Err)
}

/// Returns the end of a message on a change of the mode: the Services with settings that the new mode does not
/// support, at most [`UNSUPPORTED_LISTED_MAX`]. Empty if there are none.
fn unsupported_services(pass: &Pass) -> String {
    let unsupported = pass.outcomes.iter().filter(|(_, outcome)| match outcome {
        Outcome::Failed { reason, .. } => reason.is_unsupported(),
        Outcome::Verified => false,
    });
    let names: Vec<_> = unsupported.map(|(service, _)| service.to_string()).collect();
    let more = names.len().saturating_sub(UNSUPPORTED_LISTED_MAX);
    let listed = names.iter().take(UNSUPPORTED_LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match (names.len(), more) {
        (0, _) => String::new(),
        (_, 0) => format!("; it does not support all settings of {listed}"),
        (_, _) => format!("; it does not support all settings of {listed} and {more} other Services"),
    }
}

/// Returns the backends other than the active one that may have left kernel objects. Backends with
/// kube-proxy's chain names are only included if the node is configured to use these names.
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
    let BackendOptions { masquerade_mark, drop_mark: _, naming, strict_arp: _, drop_invalid: _ } =
        backend.options;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_mode_names_the_services_with_settings_that_the_new_mode_lacks() {
        let failed = |reason| Outcome::Failed { reason, message: String::new() };
        let pass = |count: usize, outcome: &Outcome| {
            let service = |n| (format!("default/s{n}").try_into().unwrap(), outcome.clone());
            Pass { outcomes: (0..count).map(service).collect(), ..Pass::default() }
        };
        assert_eq!(unsupported_services(&pass(3, &Outcome::Verified)), "");
        assert_eq!(unsupported_services(&pass(3, &failed(FailureReason::KernelRefused))), "");
        assert_eq!(
            unsupported_services(&pass(2, &failed(FailureReason::PartlyUnsupported))),
            "; it does not support all settings of default/s0, default/s1"
        );
        assert_eq!(
            unsupported_services(&pass(7, &failed(FailureReason::Unsupported))),
            "; it does not support all settings of default/s0, default/s1, default/s2, default/s3, default/s4 and 2 \
             other Services"
        );
    }
}
