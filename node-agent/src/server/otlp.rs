//! Metrics of the export to an OpenTelemetry collector, and the export of metrics.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter},
    registry::Registry,
};
use tokio_util::sync::CancellationToken;
use traces::{MetricExport, Totals, Tracer};

/// Metric collector of the counters of the export. They are zero without an export.
#[derive(Debug)]
pub(super) struct OtlpCollector(pub(super) Tracer);

impl Collector for OtlpCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Totals { spans_sent, spans_lost, failures } = self.0.totals();
        for (name, help, count) in [
            ("otlp_spans", "Spans that the OpenTelemetry collector accepted", spans_sent),
            ("otlp_lost_spans", "Spans lost because the queue was full or the collector failed", spans_lost),
            ("otlp_failures", "Requests that the OpenTelemetry collector did not accept", failures),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(family)?;
        }
        Ok(())
    }
}

/// Starts the export of the metrics in a registry, which ends with `stop`.
pub(super) fn export(export: MetricExport, registry: Registry, stop: CancellationToken) {
    let render = move || {
        let mut body = String::new();
        // A failed metric leaves the ones before it.
        let _incomplete = text::encode(&mut body, &registry);
        body
    };
    tokio::spawn(async move { stop.run_until_cancelled(export.run(render)).await });
}
