//! Spans of the agent in the traces of writes: from the receipt of a change to its verification in the kernel.
//!
//! ```text
//! commit (control server) ─▶ apply: received … verified
//!                              └▶ kernel: one update of the kernel with its read-back
//! ```

use std::time::{Duration, SystemTime};

use model::{
    primitives::{quantity::Position, trace_parent::TraceParent},
    wire::feed::FRAME_TRACES_MAX,
};
use traces::{Span, SpanKind, Tracer};

/// Maximum number of writes whose spans are open. While the kernel cannot be programmed, those of older writes end
/// as failed.
const OPEN_MAX: usize = 4 * FRAME_TRACES_MAX;

/// Open spans of the writes that were received and are not verified yet.
#[derive(Debug, Default)]
pub(super) struct ApplySpans {
    tracer: Tracer,
    open: Vec<Span>,
}

/// Result of one update of the kernel, for its span.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassResult<'a> {
    /// Time that the update took.
    pub(super) took: Duration,
    /// Number of kernel objects that were written.
    pub(super) writes: u64,
    /// Number of Services of the update that the kernel does not have as intended.
    pub(super) refused: usize,
    /// Reason for which the update failed as a whole, if it did.
    pub(super) failure: Option<&'a str>,
}

impl ApplySpans {
    /// Creates the spans of an agent.
    pub(super) const fn new(tracer: Tracer) -> Self {
        Self { tracer, open: Vec::new() }
    }

    /// Starts the spans of the recorded writes in a received batch of state changes.
    pub(super) fn receive(&mut self, parents: &[TraceParent], position: Position) {
        for parent in parents {
            let mut span = self.tracer.start("apply", SpanKind::Consumer, Some(*parent));
            if !span.is_recording() {
                continue;
            }
            span.set("tidegate.position", position.to_string());
            if self.open.len() == OPEN_MAX {
                self.open.remove(0).fail("replaced by newer changes before it was verified");
            }
            self.open.push(span);
        }
    }

    /// Records an update of the kernel in the traces of all open writes. The writes end if it did not fail.
    pub(super) fn conclude(&mut self, result: PassResult<'_>) {
        let Some(begun) = SystemTime::now().checked_sub(result.took) else { return };
        for span in &mut self.open {
            let mut kernel = self.tracer.start_at("kernel", SpanKind::Internal, span.context(), begun);
            kernel.set("tidegate.kernel_writes", i64::try_from(result.writes).unwrap_or(i64::MAX));
            if let Some(failure) = result.failure {
                kernel.fail(failure);
            } else if result.refused > 0 {
                span.fail(format!("{} Services are not programmed as intended", result.refused));
            }
        }
        if result.failure.is_none() {
            self.open.clear();
        }
    }

    /// Ends the writes that changed nothing on this node.
    pub(super) fn finish(&mut self) {
        self.open.clear();
    }
}
