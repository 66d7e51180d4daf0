//! Metrics of the server, and its readiness.

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    /// Answered from the cluster zone with records.
    Own,
    /// Answered from the cluster zone: the name or the record does not exist.
    OwnNegative,
    /// Answered with the response of an upstream server.
    Forwarded,
    /// Refused, because the name is outside of the cluster zone and there is no upstream server, or the client does not
    /// want it to be forwarded.
    Refused,
    /// Failed, because the state is not known yet.
    NotReady,
    /// Failed, because no upstream server responded.
    UpstreamFailed,
    /// Rejected as malformed or unsupported.
    Malformed,
    /// Discarded without a response.
    Discarded,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: Outcome,
}

/// Counters of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    questions: Family<OutcomeLabels, Counter>,
    /// Revision of the state from which questions are answered.
    pub(crate) revision: Gauge,
    /// 1 while a control server sends the state.
    pub(crate) connected: Gauge,
    /// Connections over TCP that are open.
    pub(crate) connections: Gauge,
    /// Connections over TCP that were refused because too many were open.
    pub(crate) connections_refused: Counter,
    is_ready: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tidegate_dns");
        let questions = Family::<OutcomeLabels, Counter>::default();
        let (revision, connected, connections) = (Gauge::default(), Gauge::default(), Gauge::default());
        let connections_refused = Counter::default();
        registry.register("questions", "Questions by their result", questions.clone());
        registry.register(
            "revision",
            "Revision of the state from which questions are answered",
            revision.clone(),
        );
        registry.register("control_connected", "1 while a control server sends the state", connected.clone());
        registry.register("tcp_connections", "Open connections over TCP", connections.clone());
        registry.register(
            "tcp_connections_refused",
            "Connections over TCP that were refused because too many were open",
            connections_refused.clone(),
        );
        Self {
            registry,
            questions,
            revision,
            connected,
            connections,
            connections_refused,
            is_ready: AtomicBool::new(false),
        }
    }
}

impl Metrics {
    /// Counts a question.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.questions.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Records that the state is known, from a control server or from disk.
    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Returns true if questions in the cluster zone can be answered.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Returns the metrics in the OpenMetrics text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
