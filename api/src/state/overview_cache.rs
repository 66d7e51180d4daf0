//! Newest overview document and the memory it is computed from.

use bytes::Bytes;
use model::{
    primitives::quantity::{Position, Revision, Timestamp},
    views::overview::{Overview, memory::FindingMemory, preceding::Writes},
};
use std::sync::Arc;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::state::{overview_services::ServiceRowCache, overview_trigger::OverviewTrigger};

/// Newest overview document and the memory it is computed from.
pub(crate) struct OverviewCache {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) newest: watch::Sender<Option<Arc<OverviewDocument>>>,
    /// Changes by reports.
    pub(crate) trigger: Arc<OverviewTrigger>,
}

pub(crate) struct State {
    pub(crate) known: CarriedState,
    /// Last revision in `known.writes`.
    pub(crate) written: Revision,
    pub(crate) mark: Option<Mark>,
    pub(crate) number: u64,
    /// Time of the last check for changes.
    pub(crate) looked: Instant,
}

/// State that is carried from one document to the next.
pub(crate) struct CarriedState {
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
    /// Connected, contested and lost state of each node.
    pub(crate) nodes: Vec<(bool, bool, bool)>,
    pub(crate) now: Timestamp,
    /// True if the document may change by time alone: a node is pending, or a finding may expire.
    pub(crate) is_moving: bool,
}

/// Computed overview with its derived forms.
pub(crate) struct OverviewDocument {
    /// Number of documents before this one.
    pub(crate) number: u64,
    /// The document.
    pub(crate) overview: Overview,
    /// Additional counts for `/v1/status`.
    pub(crate) counts: Counts,
    /// Change line from the previous document; empty for the first one.
    pub(crate) line: Bytes,
}

/// Counts of objects by condition.
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
    pub(crate) fn new(now: Timestamp, trigger: Arc<OverviewTrigger>) -> Self {
        let state = State {
            known: CarriedState {
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
        Self { state: Arc::new(Mutex::new(state)), newest, trigger }
    }

    /// Adds a watcher; the overview is computed after each change while there is one.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<OverviewDocument>>> {
        self.newest.subscribe()
    }
}
