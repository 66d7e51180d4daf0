//! Assembles the status of the control loop: position of the state (epoch and revision), backend, failures
//! and counters.

use base::{clock::wall_clock, limit_message};
use dataplane::KernelCounters;

use super::Agent;
use crate::status::Status;

impl Agent {
    /// Returns the current status for reports and for the local status server.
    #[must_use]
    pub fn status(&mut self) -> Status {
        let (failures, failures_total) = self.outcomes.failures(&self.derived);
        let mut problems = Vec::new();
        if self.state.position().is_none() {
            problems
                .push("no state has been loaded: control has not been heard and nothing is saved".to_owned());
        } else if self.verified.is_none() && self.last_failure.is_none() {
            problems.push("the kernel has not been read and programmed since the start".to_owned());
        }
        problems.extend(self.last_failure.clone());
        let mut warnings = Vec::new();
        if self.journal.is_broken() {
            warnings.push("the state cannot be saved to the state directory".to_owned());
        }
        warnings.extend(self.backends.warning());
        let held = self.guard.held(self.state.position(), wall_clock());
        warnings.extend(held.map(|held| limit_message(held.message())));
        warnings.extend(self.refusals.warning(self.backends.current()));
        let policy = self.policy.as_ref().map(|policy| policy.problems(self.backends.mode()));
        warnings.extend(policy.unwrap_or_default().into_iter().map(limit_message));
        let kernel = self.backends.counters();
        Status {
            mode: self.backends.mode(),
            options: self.backends.options(),
            received: self.state.position(),
            verified: self.verified,
            held,
            services: self.state.services().len(),
            failures,
            failures_total,
            problems,
            warnings,
            policy: self.policy.as_ref().map(|policy| policy.report(self.backends.mode())),
            kernel: KernelCounters {
                conntrack_deletions: kernel.conntrack_deletions + self.cleaner.deleted(),
                ..kernel
            },
            relay_heap_bytes: self.backends.current().relay_heap_bytes(),
            journal_bytes: self.journal.bytes(),
            events: self.events.all(),
            traffic: self.readings.last(),
            traffic_at: self.readings.position(),
        }
    }
}
