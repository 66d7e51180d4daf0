//! Newest overview document and the memory it is computed from.

use bytes::Bytes;
use model::{
    primitives::quantity::{Position, Revision, Timestamp},
    views::overview::{Overview, memory::FindingMemory, preceding::Writes},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::{
    sync::{Mutex, Notify, watch},
    time::Instant,
};

use crate::state::overview_services::ServiceRowCache;
/// Newest overview document and the memory it is computed from.
pub(crate) struct OverviewCache {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) newest: watch::Sender<Option<Arc<OverviewDocument>>>,
    /// Counts what reports bring.
    pub(crate) news: AtomicU64,
    pub(crate) bell: Notify,
}

pub(crate) struct State {
    pub(crate) known: Known,
    /// The writes up to here are known.
    pub(crate) written: Revision,
    pub(crate) mark: Option<Mark>,
    pub(crate) number: u64,
    /// When it was last looked whether a document is due.
    pub(crate) looked: Instant,
}

/// What is known from looks before.
pub(crate) struct Known {
    pub(crate) memory: FindingMemory,
    pub(crate) writes: Writes,
    pub(crate) kept: ServiceRowCache,
}

/// Cheaply comparable summary of the inputs of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) position: Position,
    pub(crate) news: u64,
    pub(crate) is_leader: bool,
    /// Which agents report.
    pub(crate) nodes: Vec<(bool, bool, bool)>,
    pub(crate) now: Timestamp,
    /// True if the document may change by time alone: a node is pending, or a finding may expire.
    pub(crate) is_moving: bool,
}

/// A document.
pub(crate) struct OverviewDocument {
    /// How many there were before it.
    pub(crate) number: u64,
    /// The document.
    pub(crate) overview: Overview,
    /// What `/v1/status` counts besides.
    pub(crate) counts: Counts,
    /// Change line from the previous document; empty for the first one.
    pub(crate) line: Bytes,
}

/// What the summary counts by conditions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Nodes whose agent reports.
    pub(crate) connected: usize,
    /// Nodes with everything, read back.
    pub(crate) converged: usize,
    /// Services that are ready.
    pub(crate) ready: usize,
}

impl OverviewCache {
    /// Creates a cache without a document.
    pub(crate) fn new(now: Timestamp) -> Self {
        let state = State {
            known: Known {
                memory: FindingMemory::new(now),
                writes: Writes::default(),
                kept: ServiceRowCache::default(),
            },
            written: Revision(0),
            mark: None,
            number: 0,
            looked: Instant::now(),
        };
        let (newest, _) = watch::channel(None);
        Self { state: Arc::new(Mutex::new(state)), newest, news: AtomicU64::new(0), bell: Notify::new() }
    }

    /// Whoever holds this watches.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<OverviewDocument>>> {
        self.newest.subscribe()
    }

    /// A report says something that it did not say before.
    pub(crate) fn report(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
        if self.newest.receiver_count() > 0 {
            self.bell.notify_one();
        }
    }
}
