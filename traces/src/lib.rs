//! Traces and metrics of a program in the OpenTelemetry protocol (OTLP), sent to a collector.
//!
//! ```text
//! Tracer::start ─▶ Span ─drop─▶ bounded queue ─▶ batches ─▶ POST /v1/traces
//!                   └─ context ─▶ header `traceparent`, frame of the feed
//! metrics (text) ───────────────── interval ─────────────▶ POST /v1/metrics
//! ```
//! The standard environment variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and others) configure the export. Without an
//! endpoint nothing is recorded or sent. Invariants: no caller waits for the collector; a span that does not fit
//! the queue is dropped and counted; a collector that fails is logged once until it works again.
//!
//! Spans are started and ended explicitly, because a write passes through several tasks, threads and programs.

mod export;
mod metrics;
mod setting;
mod span;

pub use self::{
    export::{Export, Telemetry, Totals},
    metrics::MetricExport,
    setting::{Setting, SettingError},
    span::{Span, SpanKind, Tracer},
};
pub use model::primitives::trace_parent::TraceParent;

/// Maximum time that a server waits at its end for the collector to accept the remaining spans.
pub const END_PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// Request header with the trace context of the caller (W3C Trace Context §3.2).
pub const TRACEPARENT: &str = "traceparent";
