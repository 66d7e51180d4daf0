//! Counters of the agent, used for metrics and reports.

use std::sync::atomic::AtomicI64;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Counters since the start of the agent. Clones share the same counters.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Number of changes of Services and addresses (added, changed or removed) received from the feed, the
    /// stream of state from a control server.
    pub objects_received: Counter,
    /// Bytes received by the feed, after decompression.
    pub feed_bytes: Counter,
    /// Number of feed streams opened.
    pub feed_connects: Counter,
    /// Number of feed streams that ended with an error.
    pub feed_errors: Counter,
    /// Number of feed streams that the agent closed because they would have led to an older state, plus the
    /// number of rejected batches.
    pub feed_refusals: Counter,
    /// Number of times that the state guard withheld a received state until an operator confirms it.
    pub states_held: Counter,
    /// 1 while a feed stream from a control server is open, otherwise 0.
    pub feed_connected: Gauge<i64, AtomicI64>,
    /// Number of updates of the kernel (passes), without those that had no Service to program.
    pub passes: Counter,
    /// Number of passes (updates of the kernel) that failed as a whole.
    pub pass_failures: Counter,
    /// Number of kernel objects changed by updates of the kernel (passes).
    pub kernel_writes: Counter,
    /// Number of times that the agent found and repaired changes of its kernel objects by another program.
    pub drift_repairs: Counter,
    /// Number of completed changes to a different backend.
    pub mode_changes: Counter,
    /// Number of failed changes to a different backend.
    pub mode_change_failures: Counter,
    /// Duration of passes (updates of the kernel) in seconds.
    pub pass_seconds: Histogram,
    /// Number of reports accepted by the control server.
    pub reports: Counter,
    /// Number of reports that could not be delivered.
    pub report_errors: Counter,
    /// Number of packets that network policy has dropped.
    pub policy_drops: Counter,
    /// Number of connections that were removed because a change of network policy forbids them.
    pub policy_cut: Counter,
    /// Counters of endpoint health checks.
    pub health: health::Metrics,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            objects_received: Counter::default(),
            feed_bytes: Counter::default(),
            feed_connects: Counter::default(),
            feed_errors: Counter::default(),
            feed_refusals: Counter::default(),
            states_held: Counter::default(),
            feed_connected: Gauge::default(),
            passes: Counter::default(),
            pass_failures: Counter::default(),
            kernel_writes: Counter::default(),
            drift_repairs: Counter::default(),
            mode_changes: Counter::default(),
            mode_change_failures: Counter::default(),
            // From an incremental pass (a quarter of a millisecond) to a cold start of a large cluster.
            pass_seconds: Histogram::new([0.000_25, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0, 4.0, 16.0]),
            reports: Counter::default(),
            report_errors: Counter::default(),
            policy_drops: Counter::default(),
            policy_cut: Counter::default(),
            health: health::Metrics::default(),
        }
    }
}

impl Tally {
    /// Registers all counters as metrics of the status server.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            objects_received,
            feed_bytes,
            feed_connects,
            feed_errors,
            feed_refusals,
            states_held,
            feed_connected,
            passes,
            pass_failures,
            kernel_writes,
            drift_repairs,
            mode_changes,
            mode_change_failures,
            pass_seconds,
            reports,
            report_errors,
            policy_drops,
            policy_cut,
            health,
        } = self;
        let mut counter =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter("feed_objects", "Services and removals received by the feed", objects_received);
        counter("feed_bytes", "Bytes received by the feed after decompression", feed_bytes);
        counter("feed_connects", "Feed streams opened", feed_connects);
        counter("feed_errors", "Feed streams that ended with an error", feed_errors);
        counter(
            "feed_refusals",
            "Feed streams closed because they would have led to an older state",
            feed_refusals,
        );
        counter("states_held", "Times a state that would take away too much was held back", states_held);
        counter("passes", "Passes with something to program or verify", passes);
        counter("pass_failures", "Passes that failed as a whole", pass_failures);
        counter("kernel_writes", "Kernel objects changed", kernel_writes);
        counter(
            "drift_repairs",
            "Times the kernel state was found changed by another program and repaired",
            drift_repairs,
        );
        counter("mode_changes", "Times another proxy mode took over", mode_changes);
        counter("mode_change_failures", "Times a change to another proxy mode failed", mode_change_failures);
        counter("reports", "Reports delivered to control", reports);
        counter("report_errors", "Reports that could not be delivered", report_errors);
        counter("policy_dropped_packets", "Packets dropped by network policy", policy_drops);
        counter(
            "policy_removed_connections",
            "Connections removed because a change of network policy forbids them",
            policy_cut,
        );
        let help = "Health checks of endpoints, by result";
        registry.register("health_checks", help, health.checks.clone());
        let help = "Health checks of endpoints that are due and wait for a free slot";
        registry.register("health_checks_waiting", help, health.waiting.clone());
        registry.register("feed_connected", "1 while a feed stream is open", feed_connected.clone());
        registry.register("pass_seconds", "Duration of passes in seconds", pass_seconds.clone());
    }
}
