//! Every compiled Service with its line of the feed, and an index by revision of what changed last.
//!
//! ```text
//! entries   key ─▶ { compiled form, serialised line, revision }
//! removed   key ─▶ revision                       (bounded; beyond it, old positions get the full state)
//! log       (revision, key), one per key of both  ─▶ "what changed after P" is one range, squashed by construction
//! ```
//! All maps are persistent: a reader keeps its state while the writer makes the next, and one change costs O(log n).

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use model::{
    compile::compile,
    compiled::CompiledService,
    feed::Frame,
    name::{Name, Namespace},
    quantity::Revision,
    resource::{Kind, ServiceKey},
    snapshot::Snapshot,
};

/// Removals remembered; an agent that missed more starts over, which is cheap compared with missing that many.
const TOMBSTONES_MAX: usize = 10_000;

/// One compiled Service.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The compiled form.
    pub(crate) service: Arc<CompiledService>,
    /// Its line of the feed, shared by all agents.
    pub(crate) line: Bytes,
}

/// What a position lacks.
#[derive(Debug, Clone)]
pub(crate) enum Delta {
    /// A new or changed form.
    Changed(Arc<Entry>),
    /// A removal.
    Removed(ServiceKey, Revision),
}

/// Every compiled Service.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompiledSet {
    entries: OrdMap<ServiceKey, Arc<Entry>>,
    removed: OrdMap<ServiceKey, Revision>,
    log: OrdSet<(Revision, ServiceKey)>,
    tombstones: OrdSet<(Revision, ServiceKey)>,
    floor: Revision,
}

impl CompiledSet {
    /// Compiles everything. Which revision made which form is not known then, so all carry the snapshot's.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let mut set = Self { floor: snapshot.revision(), ..Self::default() };
        for object in snapshot.list(Kind::Service, None, None) {
            if let Some(namespace) = object.metadata.namespace.clone() {
                let key = ServiceKey { namespace, name: object.metadata.name.clone() };
                set.recompile(snapshot, &key, snapshot.revision());
            }
        }
        set
    }

    /// Compiles one Service again; nothing happens when its form is what it was.
    pub(crate) fn recompile(&mut self, snapshot: &Snapshot, key: &ServiceKey, revision: Revision) {
        let before = self.entries.get(key).map(Arc::clone);
        match (before, compile(snapshot, key)) {
            (None, None) => {}
            (Some(entry), None) => self.remove(key, entry.service.revision, revision),
            (before, Some(mut service)) => {
                if let Some(entry) = &before {
                    service.revision = entry.service.revision;
                    if service == *entry.service {
                        return;
                    }
                    self.log.remove(&(entry.service.revision, key.clone()));
                }
                service.revision = revision;
                self.insert(key, service);
            }
        }
    }

    fn insert(&mut self, key: &ServiceKey, service: CompiledService) {
        if let Some(removed_at) = self.removed.remove(key) {
            self.log.remove(&(removed_at, key.clone()));
            self.tombstones.remove(&(removed_at, key.clone()));
        }
        self.log.insert((service.revision, key.clone()));
        let service = Arc::new(service);
        let line = line(&Frame::Service { service: Arc::clone(&service) });
        self.entries.insert(key.clone(), Arc::new(Entry { service, line }));
    }

    fn remove(&mut self, key: &ServiceKey, changed_at: Revision, revision: Revision) {
        self.log.remove(&(changed_at, key.clone()));
        self.entries.remove(key);
        self.removed.insert(key.clone(), revision);
        self.log.insert((revision, key.clone()));
        self.tombstones.insert((revision, key.clone()));
        while self.tombstones.len() > TOMBSTONES_MAX {
            let Some(oldest) = self.tombstones.remove_min() else { return };
            self.removed.remove(&oldest.1);
            self.log.remove(&oldest);
            self.floor = self.floor.max(oldest.0);
        }
    }

    /// One compiled Service.
    pub(crate) fn get(&self, key: &ServiceKey) -> Option<&Arc<Entry>> {
        self.entries.get(key)
    }

    /// Every compiled Service in the order of the keys, after a key if one is given.
    pub(crate) fn after(&self, key: Option<&ServiceKey>) -> impl Iterator<Item = (&ServiceKey, &Arc<Entry>)> {
        let start = key.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        self.entries.range((start, Bound::Unbounded))
    }

    /// What a reader at a position lacks, oldest first; `None` when that is no longer known.
    pub(crate) fn since(&self, position: Revision) -> Option<impl Iterator<Item = Delta> + '_> {
        if position < self.floor {
            return None;
        }
        let first = (position.next(), first_key());
        Some(self.log.range(first..).filter_map(|(revision, key)| match self.entries.get(key) {
            Some(entry) => Some(Delta::Changed(Arc::clone(entry))),
            None => self.removed.get(key).map(|_| Delta::Removed(key.clone(), *revision)),
        }))
    }

    /// The revision of the last change of any form.
    pub(crate) fn changed_at(&self) -> Revision {
        self.log.get_max().map_or(self.floor, |(revision, _)| *revision)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The smallest key there can be: no name begins with less than a digit or a dash, and none with a dash.
fn first_key() -> ServiceKey {
    let name = Name::parse("0").expect("a digit is a name");
    ServiceKey { namespace: Namespace::parse("0").expect("a digit is a namespace"), name }
}

/// One frame as a line.
pub(crate) fn line(frame: &Frame) -> Bytes {
    let mut text = serde_json::to_vec(frame).expect("frames have string keys only");
    text.push(b'\n');
    Bytes::from(text)
}
