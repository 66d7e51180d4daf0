//! Property test: on every type of store, a random sequence of operations has the same result as on a plain
//! map.

use std::{collections::BTreeMap, sync::Arc};

use model::{
    cluster::change::{ChangeKind, Commit},
    kinds::resource::Object,
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use proptest::prelude::*;
use store::{CommitError, Store};

use crate::suite::{BIRTH, Place, at, commit, key};

use crate::suite;

/// Number of distinct objects; few, so that sequences often change the same one.
const OBJECTS: u32 = 8;

#[derive(Debug, Clone)]
enum Op {
    /// Commit of a group decided at a position that differs by `off` revisions from the current one. The
    /// store must reject the group unless `off` is 0.
    Commit {
        off: u64,
        group: Vec<Vec<Step>>,
    },
    PutStatus(u8, Vec<u8>),
    RemoveStatus(u8),
    RaiseEpoch(i64),
    Changes {
        back: u64,
        limit: usize,
    },
    Reopen,
}

#[derive(Debug, Clone)]
struct Step {
    number: u32,
    delete: bool,
    /// True for a change that does not match the state: an addition of an existing object, or a modification
    /// of a missing one.
    misfit: bool,
}

#[derive(Debug, Clone)]
struct Model {
    position: Position,
    objects: BTreeMap<String, (u32, Arc<Object>)>,
    log: Vec<Commit>,
    statuses: BTreeMap<String, Vec<u8>>,
}

impl Model {
    fn new() -> Self {
        Self { position: at(0), objects: BTreeMap::new(), log: Vec::new(), statuses: BTreeMap::new() }
    }

    /// Converts the steps to commits with consecutive revisions. Also returns true if all changes match the
    /// state, so that the store must accept them.
    fn decide(&mut self, mut revision: u64, group: &[Vec<Step>]) -> (Vec<Commit>, bool) {
        let (mut commits, mut fits) = (Vec::new(), true);
        for steps in group {
            revision += 1;
            let mut changes = Vec::new();
            for Step { number, delete, misfit } in steps {
                let exists = self.objects.values().any(|(present, _)| present == number);
                let kind = match (exists != *misfit, delete) {
                    (false, _) if !misfit || !delete => ChangeKind::Added,
                    (_, true) => ChangeKind::Deleted,
                    (_, false) => ChangeKind::Modified,
                };
                fits &= exists == (kind != ChangeKind::Added);
                changes.push((kind, *number));
                let object = suite::object(*number, revision);
                let _ = match kind {
                    ChangeKind::Added | ChangeKind::Modified => {
                        self.objects.insert(key(&object), (*number, object))
                    }
                    ChangeKind::Deleted => self.objects.remove(&key(&object)),
                };
            }
            commits.push(commit(revision, changes));
        }
        self.position.revision = Revision(revision);
        self.log.extend(commits.iter().cloned());
        (commits, fits)
    }

    async fn agrees(&self, store: &dyn Store) {
        let loaded = store.load().await.unwrap();
        assert_eq!(loaded.position, self.position);
        assert!(
            loaded.objects.iter().eq(self.objects.values().map(|(_, object)| object)),
            "{:?}",
            loaded.objects
        );
        assert_eq!(loaded.recent, self.log);
        assert_eq!(store.statuses().await.unwrap(), self.statuses);
    }
}

async fn run(place: Place, ops: Vec<Op>) {
    let mut store = place.open().await;
    let mut model = Model::new();
    for op in ops {
        match op {
            Op::Commit { off, group } => {
                let mut after = model.clone();
                let decided_at =
                    Position { revision: Revision(model.position.revision.0 + off), ..model.position };
                let (commits, fits) = after.decide(decided_at.revision.0, &group);
                match store.commit(decided_at, &commits).await {
                    Ok(()) if off == 0 && fits => model = after,
                    Err(CommitError::Stale { current }) if off != 0 => assert_eq!(current, model.position),
                    Err(CommitError::Malformed(_)) if off == 0 && !fits => {}
                    other => panic!("off {off}, fits {fits}: {other:?}"),
                }
            }
            Op::PutStatus(n, body) => {
                store.put_status(&format!("s{n}"), &body).await.unwrap();
                model.statuses.insert(format!("s{n}"), body);
            }
            Op::RemoveStatus(n) => {
                store.remove_status(&format!("s{n}")).await.unwrap();
                model.statuses.remove(&format!("s{n}"));
            }
            Op::RaiseEpoch(later) => {
                let Epoch(before) = model.position.epoch;
                let clock = BIRTH + later;
                model.position.epoch = Epoch(clock.unsigned_abs().max(before + 1));
                let raised = store.raise_epoch(Timestamp::from_unix_seconds(clock)).await.unwrap();
                assert_eq!(raised, model.position);
            }
            Op::Changes { back, limit } => {
                let after = model.position.revision.0.saturating_sub(back);
                let expected: Vec<_> =
                    model.log.iter().filter(|commit| commit.revision.0 > after).take(limit).collect();
                let changes = store.changes(Revision(after), limit).await.unwrap();
                assert!(changes.iter().eq(expected), "after {after}");
            }
            Op::Reopen => {
                if !place.is_forgetful() {
                    drop(store);
                    store = place.open().await;
                }
            }
        }
        model.agrees(&*store).await;
    }
}

fn op() -> impl Strategy<Value = Op> {
    let step = (0..OBJECTS, any::<bool>(), prop::bool::weighted(0.03));
    let step = step.prop_map(|(number, delete, misfit)| Step { number, delete, misfit });
    let group = prop::collection::vec(prop::collection::vec(step, 1..4), 1..4);
    let off = prop_oneof![9 => Just(0_u64), 1 => 1..3_u64];
    prop_oneof![
        10 => (off, group).prop_map(|(off, group)| Op::Commit { off, group }),
        2 => (0..4_u8, prop::collection::vec(any::<u8>(), 0..8)).prop_map(|(n, body)| Op::PutStatus(n, body)),
        1 => (0..4_u8).prop_map(Op::RemoveStatus),
        1 => (-10..1000_i64).prop_map(Op::RaiseEpoch),
        3 => (0..20_u64, 0..10_usize).prop_map(|(back, limit)| Op::Changes { back, limit }),
        1 => Just(Op::Reopen),
    ]
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_agrees_with_a_plain_map(ops in prop::collection::vec(op(), 1..40)) {
        block_on(run(Place::memory(), ops));
    }

    #[test]
    fn sqlite_agrees_with_a_plain_map(ops in prop::collection::vec(op(), 1..40)) {
        block_on(run(Place::sqlite(), ops));
    }

    #[test]
    fn toy_agrees_with_a_plain_map(ops in prop::collection::vec(op(), 1..40)) {
        block_on(run(Place::toy(), ops));
    }
}

proptest! {
    // A case takes about a second, because each operation is followed by a full read.
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn etcd_agrees_with_a_plain_map(ops in prop::collection::vec(op(), 1..40)) {
        block_on(run(Place::etcd_with_file(), ops));
    }
}
