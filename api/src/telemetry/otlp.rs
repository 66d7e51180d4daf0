//! Metrics of the export to an OpenTelemetry collector.

use prometheus_client::{metrics::counter::ConstCounter, registry::Registry};
use traces::Totals;

/// Registers the counters of the export. They are zero without an export.
pub(crate) fn register(registry: &mut Registry, totals: Totals) {
    let Totals { spans_sent, spans_lost, failures } = totals;
    for (name, help, count) in [
        ("otlp_spans", "Spans that the OpenTelemetry collector accepted", spans_sent),
        ("otlp_lost_spans", "Spans lost because the queue was full or the collector failed", spans_lost),
        ("otlp_failures", "Requests that the OpenTelemetry collector did not accept", failures),
    ] {
        registry.register(name, help, ConstCounter::new(count));
    }
}
