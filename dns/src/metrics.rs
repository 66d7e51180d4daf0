//! Metrics of the server, and its readiness.

use std::sync::atomic::{AtomicBool, Ordering};

use model::wire::dns_server::DnsCacheSize;
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
    /// Answered with a cached response of an upstream server.
    Cached,
    /// Answered with an expired response, because the upstream servers failed or took too long.
    Stale,
    /// Answered without records, because it is for all types at a name outside of the cluster zone (RFC 8482).
    AllTypes,
    /// Answered with a whole zone for a secondary name server, or with its start of authority.
    Transfer,
    /// Answered with the changes of a zone since an earlier serial number.
    IncrementalTransfer,
    /// Refused, because the client may not transfer the zone, or there is no such zone.
    TransferRefused,
    /// Dynamic update of a zone that was made, or that changed nothing.
    Update,
    /// Dynamic update that was rejected: without a permitted key, with a prerequisite that does not hold, or by the control
    /// server.
    UpdateRejected,
    /// Dynamic update that failed, because no control server could be reached.
    UpdateFailed,
    /// Refused, because the client is in none of the client networks and the name in no zone for external clients.
    OutsideClient,
    /// Refused, because the question is a check for loops that came back through an upstream server.
    Loop,
    /// Refused, because the name is outside of the cluster zone and there is no upstream server, or the client does not
    /// want it to be forwarded.
    Refused,
    /// Failed, because the state is not known yet.
    NotReady,
    /// Failed, because no upstream server responded.
    UpstreamFailed,
    /// Failed as the same question did shortly before (RFC 9520).
    CachedFailure,
    /// Rejected, because its signature (TSIG) is invalid or its key unknown.
    SignatureRejected,
    /// Rejected as malformed or unsupported.
    Malformed,
    /// Discarded without a response.
    Discarded,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: Outcome,
}

/// Content of a cached response.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelValue)]
enum CachedContent {
    /// Records.
    Positive,
    /// Absence of records.
    Negative,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ContentLabels {
    content: CachedContent,
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
    /// Questions to upstream servers, with those that renew the cache.
    pub(crate) upstream_questions: Counter,
    /// Questions that no upstream server answered without a failure.
    pub(crate) upstream_failures: Counter,
    /// Upstream servers that are not used because they forward questions back to this server.
    pub(crate) upstream_loops: Gauge,
    /// Questions in their original spelling to upstream servers that change the spelling and have no TCP.
    pub(crate) upstream_original_spellings: Counter,
    /// Error responses over UDP that were truncated or not sent because their source had too many.
    pub(crate) limited_errors: Counter,
    /// Notifications of secondary name servers that were not confirmed.
    pub(crate) notify_failures: Counter,
    /// Questions that wait for the response of an upstream server.
    upstream_in_flight: Gauge,
    cache_entries: Family<ContentLabels, Gauge>,
    /// Responses that were removed from the cache because it was full.
    pub(crate) cache_evictions: Counter,
    /// Responses that were renewed before they expired.
    pub(crate) cache_renewals: Counter,
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
        let (upstream_questions, upstream_failures) = (Counter::default(), Counter::default());
        let (upstream_in_flight, cache_entries) =
            (Gauge::default(), Family::<ContentLabels, Gauge>::default());
        let (upstream_loops, limited_errors) = (Gauge::default(), Counter::default());
        registry.register(
            "upstream_loops",
            "Upstream servers that are not used because they forward questions back to this server",
            upstream_loops.clone(),
        );
        registry.register(
            "limited_errors",
            "Error responses over UDP that were truncated or not sent because their source had too many",
            limited_errors.clone(),
        );
        let (notify_failures, upstream_original_spellings) = (Counter::default(), Counter::default());
        registry.register(
            "upstream_original_spellings",
            "Questions in their original spelling to upstream servers that change the spelling and have no TCP",
            upstream_original_spellings.clone(),
        );
        registry.register(
            "notify_failures",
            "Notifications of secondary name servers that were not confirmed",
            notify_failures.clone(),
        );
        let (cache_evictions, cache_renewals) = (Counter::default(), Counter::default());
        registry.register(
            "upstream_questions",
            "Questions to upstream servers, with those that renew the cache",
            upstream_questions.clone(),
        );
        registry.register(
            "upstream_failures",
            "Questions that no upstream server answered without a failure",
            upstream_failures.clone(),
        );
        registry.register(
            "upstream_in_flight",
            "Questions that wait for the response of an upstream server",
            upstream_in_flight.clone(),
        );
        registry.register("cache_entries", "Cached responses by their content", cache_entries.clone());
        registry.register(
            "cache_evictions",
            "Responses that were removed from the cache because it was full",
            cache_evictions.clone(),
        );
        registry.register(
            "cache_renewals",
            "Cached responses that were renewed before they expired",
            cache_renewals.clone(),
        );
        Self {
            registry,
            upstream_questions,
            upstream_failures,
            upstream_in_flight,
            upstream_loops,
            upstream_original_spellings,
            limited_errors,
            notify_failures,
            cache_entries,
            cache_evictions,
            cache_renewals,
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

    /// Counts several questions with the same result.
    pub(crate) fn count_several(&self, outcome: Outcome, questions: u64) {
        // A result that has not occurred is absent.
        if questions > 0 {
            self.questions.get_or_create(&OutcomeLabels { outcome }).inc_by(questions);
        }
    }

    /// Records the numbers of cached responses with and without records, and of questions in flight.
    pub(crate) fn set_cache(&self, (positive, negative): (usize, usize), in_flight: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.upstream_in_flight.set(number(in_flight));
        for (content, count) in [(CachedContent::Positive, positive), (CachedContent::Negative, negative)] {
            self.cache_entries.get_or_create(&ContentLabels { content }).set(number(count));
        }
    }

    /// Returns the numbers of cached responses, and of those that were removed because the cache was full.
    pub(crate) fn cache_size(&self) -> DnsCacheSize {
        let entries = |content| {
            let gauge = self.cache_entries.get_or_create(&ContentLabels { content }).get();
            u64::try_from(gauge).unwrap_or_default()
        };
        DnsCacheSize {
            positive: entries(CachedContent::Positive),
            negative: entries(CachedContent::Negative),
            evicted: self.cache_evictions.get(),
        }
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
