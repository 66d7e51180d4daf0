//! Trace contexts of recent recorded writes, which feeds pass on to the agents.
//!
//! The contexts are in memory only and on the server that made the commit: a trace that loses its last spans is
//! worth less than a stored format. Only sampled contexts are kept, so that without an export nothing is stored or
//! sent.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use model::{
    primitives::{
        quantity::{Position, Revision},
        trace_parent::TraceParent,
    },
    wire::feed::FRAME_TRACES_MAX,
};
use traces::{Span, SpanKind, Tracer};

/// Maximum number of contexts in memory. Agents that lag behind by more recorded writes do not appear in the traces.
const RECENT_MAX: usize = 256;

/// Trace contexts of the last recorded writes by position.
#[derive(Debug, Default)]
pub(crate) struct CommitTraces {
    tracer: Tracer,
    recent: Mutex<VecDeque<(Position, TraceParent)>>,
}

impl CommitTraces {
    /// Creates an empty collection, for the spans of `tracer`.
    pub(crate) fn new(tracer: Tracer) -> Self {
        Self { tracer, recent: Mutex::default() }
    }

    /// Starts the span of a commit, which began at time `at` when the writer received the request, and stores its
    /// context. Called before the commit is published.
    pub(crate) fn start(&self, position: Position, parent: TraceParent, at: SystemTime) -> Span {
        let mut span = self.tracer.start_at("commit", SpanKind::Internal, Some(parent), at);
        span.set("tidegate.position", position.to_string());
        if let Some(own) = span.context() {
            self.add(position, own);
        }
        span
    }

    fn add(&self, position: Position, parent: TraceParent) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((position, parent));
    }

    /// Returns the contexts of the last recorded commits after revision `from` up to position `to`, at most
    /// [`FRAME_TRACES_MAX`], in the order of the commits.
    pub(crate) fn between(&self, from: Revision, to: Position) -> Vec<TraceParent> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_between = |at: &Position| at.epoch == to.epoch && at.revision > from && *at <= to;
        let newest = recent.iter().rev().filter(|(at, _)| is_between(at)).take(FRAME_TRACES_MAX);
        let mut traces: Vec<_> = newest.map(|(_, parent)| *parent).collect();
        traces.reverse();
        traces
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU64, NonZeroU128};

    use super::*;

    fn parent(number: u64) -> TraceParent {
        TraceParent {
            trace_id: NonZeroU128::MIN,
            span_id: NonZeroU64::new(number).unwrap(),
            is_sampled: true,
        }
    }

    #[test]
    fn the_newest_contexts_between_two_revisions_are_returned_and_memory_is_bounded() {
        let at = |text: &str| text.parse::<Position>().unwrap();
        let traces = CommitTraces::default();
        for number in 1..=400 {
            traces.add(at(&format!("1-{number}")), parent(number));
        }
        let ids = |from: u64, to: &str| -> Vec<u64> {
            let found = traces.between(at(&format!("1-{from}")).revision, at(to));
            found.iter().map(|parent| parent.span_id.get()).collect()
        };
        assert_eq!(ids(397, "1-399"), [398, 399]);
        assert_eq!(ids(300, "1-399"), [392, 393, 394, 395, 396, 397, 398, 399]);
        assert!(ids(1, "1-100").is_empty(), "the contexts of old commits are forgotten");
        assert!(ids(397, "2-399").is_empty(), "revisions of another epoch are other commits");
    }
}
