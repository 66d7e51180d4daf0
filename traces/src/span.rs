//! Spans: timed parts of the work that a request causes, in one or several programs.

use std::{
    fmt,
    num::{NonZeroU64, NonZeroU128},
    sync::Arc,
    time::SystemTime,
};

use model::primitives::trace_parent::TraceParent;
use opentelemetry::{
    Context, KeyValue, SpanId, TraceFlags, TraceId, Value,
    trace::{
        self, Span as _, SpanContext, Status, TraceContextExt as _, TraceState, Tracer as _,
        TracerProvider as _,
    },
};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::export::{Counts, Totals};
pub use opentelemetry::trace::SpanKind;

/// Recorder of spans. The default records nothing.
#[derive(Clone, Default)]
pub struct Tracer {
    tracer: Option<SdkTracer>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("is_on", &self.tracer.is_some()).finish_non_exhaustive()
    }
}

impl Tracer {
    pub(crate) fn new(provider: Option<&SdkTracerProvider>, counts: Arc<Counts>) -> Self {
        Self { tracer: provider.map(|provider| provider.tracer("tidegate")), counts }
    }

    /// Returns the counts of the export of the program.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.counts.totals()
    }

    /// Starts a span that ends when it is dropped. Without a parent, it begins a trace.
    #[must_use]
    pub fn start(&self, name: &'static str, kind: SpanKind, parent: Option<TraceParent>) -> Span {
        self.start_at(name, kind, parent, SystemTime::now())
    }

    /// Starts a span with the given start time.
    #[must_use]
    pub fn start_at(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: Option<TraceParent>,
        at: SystemTime,
    ) -> Span {
        let Some(tracer) = &self.tracer else { return Span(None) };
        let context = Context::new();
        let context = match parent {
            Some(parent) => context.with_remote_span_context(remote(parent)),
            None => context,
        };
        let builder = tracer.span_builder(name).with_kind(kind).with_start_time(at);
        let span = tracer.build_with_context(builder, &context);
        Span(span.is_recording().then_some(span))
    }
}

fn remote(parent: TraceParent) -> SpanContext {
    let TraceParent { trace_id, span_id, is_sampled } = parent;
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let ids = (TraceId::from(trace_id.get()), SpanId::from(span_id.get()));
    SpanContext::new(ids.0, ids.1, flags, true, TraceState::default())
}

/// Span that ends when it is dropped. A span of a trace that is not sampled records nothing.
#[derive(Debug, Default)]
pub struct Span(Option<opentelemetry_sdk::trace::Span>);

impl Span {
    /// Returns the trace context for the work that this span causes elsewhere, or `None` if nothing is recorded.
    #[must_use]
    pub fn context(&self) -> Option<TraceParent> {
        let context = self.0.as_ref()?.span_context();
        Some(TraceParent {
            trace_id: NonZeroU128::new(u128::from_be_bytes(context.trace_id().to_bytes()))?,
            span_id: NonZeroU64::new(u64::from_be_bytes(context.span_id().to_bytes()))?,
            is_sampled: context.is_sampled(),
        })
    }

    /// Returns true if the span is recorded, so that attributes are worth their cost.
    #[must_use]
    pub const fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks the work as failed.
    pub fn fail(&mut self, message: impl Into<String>) {
        if let Some(span) = &mut self.0 {
            let message: String = message.into();
            trace::Span::set_status(span, Status::error(message));
        }
    }
}
