//! Passes (updates of the kernel) of the agent loop: for changed Services, for the whole state, and through a
//! new backend.

use std::time::Instant;

use base::{chain, clock::wall_clock};
use conntrack::plan::Depth;
use dataplane::{BackendOptions, KernelError, Outcome, Pass, Scope};
use model::{
    kinds::event::EventReason,
    wire::{feed::NodeState, report::FailureReason},
};
use tracing::{debug, warn};

use super::{Agent, Cause, FullLook, PROBE_INTERVAL, PROBE_SHARE, backends::Change, spans::PassResult};

impl Agent {
    /// Programs the Services changed since the last update of the kernel. Without changes, only the verified
    /// position (epoch and revision) advances.
    pub(super) fn follow_changes(&mut self, now: Instant, random: u64) {
        if self.dirty.is_empty() && !self.are_networks_dirty {
            self.verified = self.verified_position();
            self.spans.finish();
            return;
        }
        let scope = Scope::Services(std::mem::take(&mut self.dirty));
        let begun = Instant::now();
        let pass = self.backends.current().apply(self.derived.desired(), &scope);
        let _writes = self.conclude(pass, &scope, |_| Depth::Changes, begun, now, random);
    }

    pub(super) fn probe(&mut self, now: Instant, random: u64) {
        self.probe_at = now + PROBE_INTERVAL;
        let kept = self.backends.current().upkeep();
        match kept.and_then(|()| self.backends.current().is_disturbed()) {
            Ok(false) => {}
            Ok(true) => self.look_at_everything(Cause::Drift, now, random),
            Err(error) => self.fail(&error, now, random),
        }
    }

    pub(super) fn look_at_everything(&mut self, cause: Cause, now: Instant, random: u64) {
        let begun = Instant::now();
        // If the failed pass was caused by another program's change, count the repair as drift.
        let is_drift = match cause {
            Cause::Start => false,
            Cause::Drift => true,
            Cause::Failure => self.backends.current().is_disturbed().unwrap_or(false),
        };
        if let Err(error) = self.backends.current().observe() {
            return self.fail(&error, now, random);
        }
        let pass = self.backends.current().apply(self.derived.desired(), &Scope::Everything);
        // If only other programs' rules changed, our flows are unaffected.
        let depth = |writes| if is_drift && writes == 0 { Depth::Changes } else { Depth::Everything };
        let Some(writes) = self.conclude(pass, &Scope::Everything, depth, begun, now, random) else { return };
        self.full_look = None;
        self.dirty.clear();
        self.probe_at = now + PROBE_INTERVAL.max(begun.elapsed() * PROBE_SHARE);
        if is_drift && writes > 0 {
            self.tally.drift_repairs.inc();
            warn!(writes, "the kernel state had been changed by another program and was repaired");
            let message = format!("somebody else had changed the kernel; {writes} objects were put right");
            self.events.record(EventReason::DriftRepaired, message);
        }
    }

    /// Tries to replace the active backend by the one that the Node selects.
    pub(super) fn change_backend(&mut self, now: Instant, random: u64) {
        let begun = Instant::now();
        let refused: std::collections::BTreeSet<_> = self.outcomes.refused().cloned().collect();
        let was_refused = |service: &_| refused.contains(service);
        match self.backends.try_change(self.derived.desired(), was_refused, now, random) {
            Change::Taken { message, pass } => {
                self.tally.mode_changes.inc();
                self.has_mode_changed = true;
                self.events.record(EventReason::ModeChanged, message);
                let everything = Scope::Everything;
                if self.conclude(pass, &everything, |_| Depth::Everything, begun, now, random).is_some() {
                    self.full_look = None;
                    self.dirty.clear();
                    self.probe_at = now + PROBE_INTERVAL;
                }
            }
            Change::Refused { message, is_disturbed } => {
                self.tally.mode_change_failures.inc();
                warn!(message, "the proxy mode has not changed");
                self.events.record(EventReason::ModeChangeFailed, message);
                if is_disturbed {
                    self.full_look.get_or_insert(FullLook { cause: Cause::Failure, not_before: now });
                }
            }
        }
    }

    /// Records the result of a pass (update of the kernel) in the failures, the verified position (epoch and
    /// revision) and the counters. Returns the number of kernel writes, or `None` if the pass failed as a
    /// whole.
    fn conclude(
        &mut self,
        pass: Pass,
        scope: &Scope,
        depth: impl FnOnce(u64) -> Depth,
        begun: Instant,
        now: Instant,
        random: u64,
    ) -> Option<u64> {
        let Pass { outcomes, writes, failed } = pass;
        self.tally.passes.inc();
        self.tally.kernel_writes.inc_by(writes);
        self.tally.pass_seconds.observe(begun.elapsed().as_secs_f64());
        debug!(writes, services = outcomes.len(), everything = *scope == Scope::Everything, "pass");
        // The agent serves these ports itself, whatever the outcome in the kernel.
        self.health_ports.follow(scope, self.derived.desired());
        let failure = failed.as_ref().map(|error| chain(error));
        let refused = outcomes.values().filter(|outcome| matches!(outcome, Outcome::Failed { .. })).count();
        let took = begun.elapsed();
        self.spans.conclude(PassResult { took, writes, refused, failure: failure.as_deref() });
        if let Some(error) = failed {
            self.fail(&error, now, random);
            return None;
        }
        self.are_networks_dirty = false;
        self.last_failure = None;
        self.recovery.reset();
        let known = self.cleaner.programmed().services();
        let programs = self.derived.desired().programmed(scope, &outcomes, known);
        self.cleaner.follow(programs, depth(writes));
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
        self.announce_outcomes(scope);
        self.verified = self.verified_position();
        Some(writes)
    }

    /// Schedules a full update of the kernel after a backoff, because the kernel state is unknown after a
    /// failed update.
    fn fail(&mut self, error: &KernelError, now: Instant, random: u64) {
        self.tally.pass_failures.inc();
        let delay = self.recovery.next_delay(random);
        let cause = match &self.full_look {
            Some(FullLook { cause: Cause::Start, .. }) => Cause::Start,
            Some(_) | None => Cause::Failure,
        };
        self.full_look = Some(FullLook { cause, not_before: now + delay });
        let text = chain(error);
        if self.last_failure.as_ref() != Some(&text) {
            warn!(error = text, retry_after_ms = delay.as_millis(), "the kernel could not be programmed");
        }
        self.events.record(EventReason::PassFailed, text.clone());
        self.last_failure = Some(text);
    }

    /// Removes conntrack entries of connections to targets that no longer exist.
    pub(super) fn clean_flows(&mut self, now: Instant, random: u64) {
        // Expired connections of the backend are terminated first, so that the notified client does not find
        // the connection still in place.
        if self.cleaner.is_deadline_over(now, wall_clock())
            && let Err(error) = self.backends.current().upkeep()
        {
            self.fail(&error, now, random);
        }
        let networks = &self.derived.desired().networks;
        let cleaned = if self.backends.current().is_tracked() {
            self.cleaner.run(networks, now, wall_clock(), random)
        } else if std::mem::take(&mut self.has_mode_changed) {
            self.cleaner.hand_over_to_relays(networks, now)
        } else {
            self.cleaner.run_for_relays(networks, now, random)
        };
        self.cleaner.tell(self.backends.current().take_cut(), now);
        if let Err(error) = cleaned {
            let message = format!("stale flows were not removed; retrying: {error}");
            self.events.record(EventReason::ConntrackFailed, message);
        }
    }

    pub(super) fn note_health_ports(&mut self) {
        let failures = self.health_ports.failures();
        for message in failures.values() {
            self.events.record(EventReason::PortUnavailable, message.clone());
        }
        let failures = failures.iter().map(|(service, message)| (service, message.as_str()));
        let reason = FailureReason::PortUnavailable;
        self.outcomes.set_aside(failures, reason, self.derived.desired());
    }

    /// Removes kernel objects that a different mode left before the start of this agent. Runs once, after the
    /// whole state has been programmed.
    pub(super) fn remove_leftovers(&mut self) {
        if self.are_leftovers_removed || self.verified.is_none() || self.backends.change_at().is_some() {
            return;
        }
        self.are_leftovers_removed = true;
        let node: NodeState = self.defaults.fill(self.state.node());
        for removed in self.backends.remove_leftovers(&BackendOptions::of(&node.proxy)) {
            let message = format!("leftovers of an earlier proxy mode were removed: {removed}");
            self.events.record(EventReason::LeftoversRemoved, message);
        }
    }
}
