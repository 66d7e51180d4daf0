//! Changes as watchers are shown them: what several are told of at the same time is put into words once.

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
    stream::node_feed::beat::Beat,
};

/// Stretches that are kept for watchers that are a little later than others.
const RECENT_MAX: usize = 8;
/// The status in an object is that of the moment: older words are not used again.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The commits between two positions.
#[derive(Debug)]
pub(crate) struct Stretch {
    pub(crate) commits: Vec<ShownCommit>,
}

/// A commit with what its changes look like.
#[derive(Debug)]
pub(crate) struct ShownCommit {
    commit: Arc<Recent>,
    /// The objects as JSON, in the order of the changes; nothing until a watcher wants it.
    objects: Vec<OnceLock<Box<str>>>,
}

impl ShownCommit {
    /// Its revision.
    pub(crate) fn revision(&self) -> Revision {
        self.commit.revision
    }

    /// Its changes, each with where its object is kept.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&RecentChange, &OnceLock<Box<str>>)> {
        self.commit.changes.iter().zip(&self.objects)
    }
}

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct Stretches(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    from: Revision,
    to: Position,
    made: Instant,
    stretch: Arc<Stretch>,
}

impl Stretches {
    /// Returns the commits after a revision, or `None` if the ring does not reach back that far.
    pub(crate) fn since(&self, from: Revision, published: &Published) -> Option<Arc<Stretch>> {
        let to = published.position();
        // What is kept is put in place whole.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fit = |one: &&Kept| one.from == from && one.to == to && one.made.elapsed() <= AGE_MAX;
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
        kept.push_back(Kept { from, to, made: Instant::now(), stretch: Arc::clone(&stretch) });
        Some(stretch)
    }
}

/// What all watches share.
#[derive(Debug)]
pub(crate) struct Watching {
    /// When they are told.
    pub(crate) beat: Beat,
    pub(crate) stretches: Stretches,
}

impl Watching {
    /// Begins with a state.
    pub(crate) fn new(published: Arc<Published>) -> Self {
        Self { beat: Beat::new(published), stretches: Stretches::default() }
    }
}
