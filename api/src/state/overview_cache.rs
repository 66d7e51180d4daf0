//! Cache of the newest overview document (the state of the cluster as `GET /v1/overview` returns it), with
//! the data that the next one is computed from.

use bytes::Bytes;
use model::{
    observed::dns_servers::DnsServerProblem,
    primitives::{
        name::Name,
        quantity::{Position, Revision, Timestamp},
    },
    views::overview::{Overview, memory::FindingMemory, preceding::Writes},
};
use std::sync::Arc;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::state::{
    overview_http::HttpFindingCache, overview_services::ServiceRowCache, overview_trigger::OverviewTrigger,
};

/// Newest overview document, with the data that the next one is computed from.
pub(crate) struct OverviewCache {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) newest: watch::Sender<Option<Arc<OverviewDocument>>>,
    /// Counter of the reports that may change the overview.
    pub(crate) trigger: Arc<OverviewTrigger>,
}

pub(crate) struct State {
    pub(crate) known: CarriedState,
    /// Revision up to which the writes in the history have been read into `known.writes`.
    pub(crate) written: Revision,
    pub(crate) mark: Option<Mark>,
    pub(crate) number: u64,
    /// Time at which the inputs of the overview were last checked for changes.
    pub(crate) looked: Instant,
}

/// Data carried from one overview document to the next: first-seen times of problems, recent writes, cached
/// Service rows, and cached findings of HTTP routing.
pub(crate) struct CarriedState {
    pub(crate) memory: FindingMemory,
    pub(crate) writes: Writes,
    pub(crate) kept: ServiceRowCache,
    pub(crate) http: HttpFindingCache,
}

/// Summary of the inputs of an overview document. While it is unchanged, the document is not computed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) position: Position,
    pub(crate) news: u64,
    pub(crate) is_leader: bool,
    /// For each node: true if it is connected, if two agents use its name, and if its lease has expired.
    pub(crate) nodes: Vec<(bool, bool, bool)>,
    pub(crate) now: Timestamp,
    /// DNS servers with problems.
    pub(crate) dns_servers: Vec<(Name, Vec<DnsServerProblem>)>,
    /// Time from which the document may differ although no other input has changed: at once if a node is pending or a
    /// problem may expire, or the time at which a certificate expires or a gateway becomes silent. `None` if time has no
    /// influence.
    pub(crate) until: Option<Timestamp>,
}

/// Computed overview document with its serialized change.
pub(crate) struct OverviewDocument {
    /// Sequence number of the document; the first one is 1.
    pub(crate) number: u64,
    /// Contents of the document.
    pub(crate) overview: Overview,
    /// Counts that only `/v1/status` returns.
    pub(crate) counts: Counts,
    /// Serialized change from the previous document to this one; empty for the first document.
    pub(crate) line: Bytes,
}

/// Number of Nodes and Services that meet a condition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of Nodes whose agent reports.
    pub(crate) connected: usize,
    /// Number of Nodes that have verified the current state in their kernels.
    pub(crate) converged: usize,
    /// Number of Services whose condition `Ready` is true.
    pub(crate) ready: usize,
}

impl OverviewCache {
    /// Creates a cache that contains no document yet.
    pub(crate) fn new(now: Timestamp, trigger: Arc<OverviewTrigger>) -> Self {
        let state = State {
            known: CarriedState {
                memory: FindingMemory::new(now),
                writes: Writes::default(),
                kept: ServiceRowCache::default(),
                http: HttpFindingCache::default(),
            },
            written: Revision(0),
            mark: None,
            number: 0,
            looked: Instant::now(),
        };
        let (newest, _) = watch::channel(None);
        Self { state: Arc::new(Mutex::new(state)), newest, trigger }
    }

    /// Subscribes to new documents. While there is a subscriber, the overview is recomputed after each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<OverviewDocument>>> {
        self.newest.subscribe()
    }
}
