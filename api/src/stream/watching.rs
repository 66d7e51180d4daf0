//! Cache of serialized changes, so that a change sent to several watches at the same time is serialized once.

use model::primitives::quantity::{Position, Revision};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    state::{
        change_ring::{Recent, RecentChange},
        published::Published,
    },
    stream::node_feed::pacer::FanoutPacer,
};

/// Maximum number of cached ranges of commits for watches that lag behind.
const RECENT_MAX: usize = 8;
/// Maximum age of a cached range, because its serialized objects include their status at that time.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Range of commits after a revision, with their serialized objects. Shared by all watches that have sent
/// everything up to this revision.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) commits: Vec<ShownCommit>,
}

/// Recent commit with the cached serialization of its objects.
#[derive(Debug)]
pub(crate) struct ShownCommit {
    commit: Arc<Recent>,
    /// Objects as JSON, in the order of the commit's changes; serialized on first use.
    objects: Vec<OnceLock<Box<str>>>,
}

impl ShownCommit {
    /// Returns the revision of the commit.
    pub(crate) fn revision(&self) -> Revision {
        self.commit.revision
    }

    /// Returns the changes of the commit, each with the cell that caches its serialized object.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&RecentChange, &OnceLock<Box<str>>)> {
        self.commit.changes.iter().zip(&self.objects)
    }
}

/// Cache of the ranges of commits that watches have used most recently.
#[derive(Debug, Default)]
pub(crate) struct Stretches(Mutex<VecDeque<CachedStretch>>);

#[derive(Debug)]
struct CachedStretch {
    from: Revision,
    to: Position,
    made: Instant,
    stretch: Arc<Stretch>,
}

impl Stretches {
    /// Returns the commits after a revision, or `None` if they are no longer in memory.
    pub(crate) fn since(&self, from: Revision, published: &Published) -> Option<Arc<Stretch>> {
        let to = published.position();
        // Cache entries are replaced as a whole.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fit = |one: &&CachedStretch| one.from == from && one.to == to && one.made.elapsed() <= AGE_MAX;
        if let Some(known) = kept.iter().find(is_fit) {
            return Some(Arc::clone(&known.stretch));
        }
        let shown = |commit: &Arc<Recent>| ShownCommit {
            commit: Arc::clone(commit),
            objects: commit.changes.iter().map(|_| OnceLock::new()).collect(),
        };
        let stretch = Arc::new(Stretch { commits: published.recent.since(from)?.map(shown).collect() });
        if kept.len() == RECENT_MAX {
            kept.pop_front();
        }
        kept.push_back(CachedStretch { from, to, made: Instant::now(), stretch: Arc::clone(&stretch) });
        Some(stretch)
    }
}

/// State that all watches share.
#[derive(Debug)]
pub(crate) struct Watching {
    /// Pacer that determines when watches send the newest changes.
    pub(crate) pacer: FanoutPacer,
    pub(crate) stretches: Stretches,
}

impl Watching {
    /// Creates the shared state of watches, starting at a published state.
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self { pacer: FanoutPacer::new(published), stretches: Stretches::default() }
    }
}
