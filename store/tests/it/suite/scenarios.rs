//! Test scenarios for every store. Each scenario receives a location and may open the store at that location
//! once.

use std::{collections::BTreeMap, sync::Arc};

use futures::FutureExt as _;
use model::{
    cluster::change::{
        Change,
        ChangeKind::{Added, Deleted, Modified},
        Commit,
    },
    kinds::resource::Object,
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use store::{
    CHANGES_KEPT, ChangesError, CommitError, GROUP_BYTES_MAX, GROUP_COMMITS_MAX, STATUS_BYTES_MAX,
    STATUS_KEY_BYTES_MAX, STATUSES_MAX, StatusError,
};

use super::{Place, added, at, commit, key, object};

pub(crate) async fn a_fresh_store_is_empty_and_its_epoch_is_its_birth(place: Place) {
    let store = place.open().await;
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.position, at(0));
    assert_eq!((loaded.objects, loaded.recent), (Vec::new(), Vec::new()));
    assert_eq!(store.changes(Revision(0), 10).await.unwrap(), Vec::new());
    assert!(store.statuses().await.unwrap().is_empty());
}

pub(crate) async fn load_after_a_commit_gives_what_was_committed(place: Place) {
    let store = place.open().await;
    let group =
        [commit(1, [(Added, 0), (Added, 1), (Added, 2), (Added, 3)]), commit(2, [(Modified, 2), (Added, 4)])];
    store.commit(at(0), &group).await.unwrap();
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.position, at(2));
    let mut expected = vec![object(0, 1), object(1, 1), object(2, 2), object(3, 1), object(4, 2)];
    expected.sort_by_key(|object| key(object));
    assert_eq!(loaded.objects, expected);
    assert_eq!(loaded.recent, group);
}

pub(crate) async fn a_deleted_object_is_gone_and_its_last_state_is_in_the_log(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[commit(1, [(Added, 0), (Added, 1)])]).await.unwrap();
    store.commit(at(1), &[commit(2, [(Deleted, 0)])]).await.unwrap();
    assert_eq!(store.load().await.unwrap().objects, [object(1, 1)]);
    assert_eq!(store.changes(Revision(1), 9).await.unwrap(), [commit(2, [(Deleted, 0)])]);
    store.commit(at(2), &[added(3, 0)]).await.unwrap();
    assert_eq!(store.load().await.unwrap().objects.len(), 2);
}

pub(crate) async fn one_commit_may_delete_an_object_and_add_it_again(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    store.commit(at(1), &[commit(2, [(Deleted, 0), (Added, 0)])]).await.unwrap();
    assert_eq!(store.load().await.unwrap().objects, [object(0, 2)]);
}

pub(crate) async fn a_stale_commit_is_refused_and_changes_nothing(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0), added(2, 1)]).await.unwrap();
    let before = store.load().await.unwrap();
    let other_life = Position { epoch: Epoch(at(2).epoch.0 - 1), revision: Revision(2) };
    let beyond = Position { epoch: at(0).epoch, revision: Revision(u64::MAX - 1) };
    for (stale, group) in [
        (at(0), added(1, 5)),
        (at(1), added(2, 5)),
        (at(3), added(4, 5)),
        (other_life, added(3, 5)),
        (beyond, added(u64::MAX, 5)),
    ] {
        match store.commit(stale, &[group]).await {
            Err(CommitError::Stale { current }) => assert_eq!(current, at(2)),
            other => panic!("at {stale}: {other:?}"),
        }
    }
    assert_eq!(store.load().await.unwrap(), before);
}

pub(crate) async fn a_malformed_group_is_refused_whole(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[commit(1, [(Added, 0), (Added, 1)])]).await.unwrap();
    let before = store.load().await.unwrap();
    let wrong_revision = Change { kind: Added, object: object(7, 1) };
    let cases: [(&str, Vec<Commit>); 8] = [
        ("the group has no commits", vec![]),
        ("revision 3 does not follow 1", vec![added(3, 5)]),
        ("revision 2 does not follow 2", vec![added(2, 5), added(2, 6)]),
        ("commit 3 changes nothing", vec![added(2, 5), commit(3, [])]),
        ("workloads/default/o1 is added, but exists", vec![added(2, 5), added(3, 1)]),
        (
            "nodes//o8 is modified, but does not exist",
            vec![added(2, 5), commit(3, [(Added, 6), (Modified, 8)])],
        ),
        ("nodes//o8 is deleted, but does not exist", vec![commit(2, [(Modified, 0), (Deleted, 8)])]),
        ("o7 has revision 1 in commit 2", vec![Commit { changes: vec![wrong_revision], ..added(2, 7) }]),
    ];
    for (expected, group) in cases {
        match store.commit(at(1), &group).await {
            Err(CommitError::Malformed(reason)) => assert!(reason.contains(expected), "{expected}: {reason}"),
            other => panic!("{expected}: {other:?}"),
        }
        assert_eq!(store.load().await.unwrap(), before, "{expected}");
    }
    let last = Position { revision: Revision(u64::MAX), ..at(0) };
    assert!(matches!(store.commit(last, &[added(1, 5)]).await, Err(CommitError::Malformed(_))));
    store.commit(at(1), &[added(2, 5)]).await.unwrap();
}

/// A hundred changes in one commit, and a hundred commits in one group, have the same result as single
/// changes. The error for an invalid change names the object.
pub(crate) async fn large_groups_do_what_small_ones_do(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[commit(1, (0..100).map(|number| (Added, number)))]).await.unwrap();
    let each: Vec<_> = (0..100).map(|n| commit(u64::from(n) + 2, [(Modified, 99 - n)])).collect();
    store.commit(at(1), &each).await.unwrap();
    let mut expected: Vec<_> = (0..100).map(|number| object(number, u64::from(101 - number))).collect();
    expected.sort_by_key(|object| key(object));
    assert_eq!(store.load().await.unwrap().objects, expected);
    for (kind, stranger) in [(Added, 50), (Modified, 777), (Deleted, 777)] {
        let numbers = (0..100).map(|number| if number == 60 { stranger } else { number });
        let group = [commit(
            102,
            numbers.map(|number| (kind, if kind == Added && number != 50 { number + 200 } else { number })),
        )];
        let name = key(&object(stranger, 1));
        match store.commit(at(101), &group).await {
            Err(CommitError::Malformed(reason)) => assert!(reason.contains(&name), "{name}: {reason}"),
            other => panic!("{kind:?}: {other:?}"),
        }
    }
    assert_eq!(store.load().await.unwrap().objects, expected);
    store.commit(at(101), &[commit(102, (0..99).map(|number| (Deleted, number)))]).await.unwrap();
    assert_eq!(store.load().await.unwrap().objects, [object(99, 2)]);
}

pub(crate) async fn a_group_beyond_a_limit_is_refused_whole(place: Place) {
    let store = place.open().await;
    let many: Vec<_> =
        (0..=GROUP_COMMITS_MAX as u64).map(|n| added(n + 1, u32::try_from(n).unwrap())).collect();
    assert!(matches!(store.commit(at(0), &many).await, Err(CommitError::TooLarge { unit: "commits", .. })));

    let mut big = Object::clone(&object(0, 1));
    big.metadata.annotations.insert("big".to_owned(), "x".repeat(GROUP_BYTES_MAX / 2));
    let (one, mut two) = (Arc::new(big.clone()), big);
    two.metadata.name = "other".parse().unwrap();
    let changes = [one, Arc::new(two)].map(|object| Change { kind: Added, object }).to_vec();
    let group = [Commit { changes, ..added(1, 0) }];
    assert!(matches!(store.commit(at(0), &group).await, Err(CommitError::TooLarge { unit: "bytes", .. })));

    assert_eq!(store.load().await.unwrap().position, at(0));
    store.commit(at(0), &many[..GROUP_COMMITS_MAX]).await.unwrap();
    assert_eq!(store.load().await.unwrap().objects.len(), GROUP_COMMITS_MAX);
}

pub(crate) async fn of_concurrent_commits_exactly_one_wins(place: Place) {
    let store = place.open().await;
    for round in 0..10 {
        let race = (0..8).map(|racer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store.commit(at(round), &[added(round + 1, racer + 8 * round as u32)]).await
            })
        });
        let results: Vec<_> = futures::future::join_all(race).await.into_iter().map(Result::unwrap).collect();
        let stale = |result: &&Result<(), CommitError>| matches!(result, Err(CommitError::Stale { current }) if *current == at(round + 1));
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert_eq!(results.iter().filter(stale).count(), 7, "{results:?}");
    }
    assert_eq!(store.load().await.unwrap().objects.len(), 10);
}

/// While each of many commit groups adds an object and deletes the previous one, every load returns the state
/// after a complete group.
pub(crate) async fn a_load_during_commits_sees_whole_groups(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 1)]).await.unwrap();
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..60_u64 {
                let (head, number) = (1 + 2 * n, u32::try_from(n).unwrap() + 1);
                let group = [added(head + 1, number + 1), commit(head + 2, [(Deleted, number)])];
                store.commit(at(head), &group).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let loaded = store.load().await.unwrap();
        let revision = loaded.position.revision.0;
        assert_eq!(revision % 2, 1, "in the middle of a group");
        assert_eq!(loaded.objects.len(), 1, "at {revision}");
        assert_eq!(loaded.recent.len() as u64, revision);
        let number = u32::try_from(revision.div_ceil(2)).unwrap();
        assert_eq!(loaded.objects[0].metadata.name.as_str(), format!("o{number}"));
    }
    writer.await.unwrap();
}

pub(crate) async fn a_cancelled_commit_is_there_whole_or_not_at_all(place: Place) {
    let store = place.open().await;
    let mut head = 0;
    for n in 0..40_u32 {
        let group = [added(head + 1, 3 * n), commit(head + 2, [(Added, 3 * n + 1), (Added, 3 * n + 2)])];
        let patience = std::time::Duration::from_micros(u64::from(n) * 50);
        let _cut_off = tokio::time::timeout(patience, store.commit(at(head), &group)).await;
        // A cancelled write may still be in flight; the next one waits for its turn.
        store.put_status("fence", b"").await.unwrap();
        let loaded = store.load().await.unwrap();
        let now = loaded.position.revision.0;
        assert!(now == head || now == head + 2, "from {head} to {now}");
        assert_eq!(loaded.objects.len() as u64, now / 2 * 3);
        head = now;
    }
    store.commit(at(head), &[added(head + 1, 1000)]).await.unwrap();
}

pub(crate) async fn changes_resume_anywhere_in_order_and_in_pieces(place: Place) {
    let store = place.open().await;
    let all: Vec<_> = (1..=20).map(|revision| added(revision, u32::try_from(revision).unwrap())).collect();
    store.commit(at(0), &all[..5]).await.unwrap();
    store.commit(at(5), &all[5..]).await.unwrap();
    for after in 0..=20 {
        let rest = store.changes(Revision(after as u64), usize::MAX).await.unwrap();
        assert_eq!(rest, all[after..], "after {after}");
    }
    assert_eq!(store.changes(Revision(3), 4).await.unwrap(), all[3..7]);
    assert_eq!(store.changes(Revision(3), 0).await.unwrap(), []);
    for beyond in [21, u64::MAX] {
        assert_eq!(store.changes(Revision(beyond), 9).await.unwrap(), []);
    }
}

pub(crate) async fn the_log_keeps_the_newest_commits_and_says_where_it_begins(place: Place) {
    let store = place.open().await;
    let total = CHANGES_KEPT as u64 + 700;
    let mut head = 0;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    head += 1;
    while head < total {
        let last = total.min(head + 1000);
        let group: Vec<_> = (head + 1..=last).map(|revision| commit(revision, [(Modified, 0)])).collect();
        store.commit(at(head), &group).await.unwrap();
        head = last;
    }
    let oldest = total - CHANGES_KEPT as u64 + 1;
    for after in [0, oldest - 2] {
        match store.changes(Revision(after), 1).await {
            Err(ChangesError::Compacted { oldest: reported }) => assert_eq!(reported, Revision(oldest)),
            other => panic!("after {after}: {other:?}"),
        }
    }
    let kept = store.changes(Revision(oldest - 1), usize::MAX).await.unwrap();
    assert_eq!(
        (kept.len(), kept[0].revision.0, kept[CHANGES_KEPT - 1].revision.0),
        (CHANGES_KEPT, oldest, total)
    );
    assert_eq!(store.load().await.unwrap().recent, kept);
}

pub(crate) async fn statuses_are_replaced_and_removed_and_move_no_revision(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let before = store.load().await.unwrap();
    store.put_status("nodes//n1", b"one").await.unwrap();
    store.put_status("nodes//n1", b"two\0\xff").await.unwrap();
    store.put_status("nodes//n2", b"").await.unwrap();
    store.put_status("nodes//n3", b"gone").await.unwrap();
    store.remove_status("nodes//n3").await.unwrap();
    store.remove_status("nodes//never-there").await.unwrap();
    let expected: BTreeMap<_, _> =
        [("nodes//n1".to_owned(), b"two\0\xff".to_vec()), ("nodes//n2".to_owned(), Vec::new())].into();
    assert_eq!(store.statuses().await.unwrap(), expected);
    assert_eq!(store.load().await.unwrap(), before);
    store.commit(at(1), &[added(2, 1)]).await.unwrap();
}

pub(crate) async fn statuses_beyond_a_limit_are_refused(place: Place) {
    let store = place.open().await;
    store.put_status(&"k".repeat(STATUS_KEY_BYTES_MAX), &vec![b'x'; STATUS_BYTES_MAX]).await.unwrap();
    let before = store.statuses().await.unwrap();
    let long_key = store.put_status(&"k".repeat(STATUS_KEY_BYTES_MAX + 1), b"").await;
    assert!(matches!(long_key, Err(StatusError::TooLarge { unit: "bytes in its key", .. })), "{long_key:?}");
    let big = store.put_status("big", &vec![b'x'; STATUS_BYTES_MAX + 1]).await;
    assert!(matches!(big, Err(StatusError::TooLarge { unit: "bytes", .. })), "{big:?}");
    assert_eq!(store.statuses().await.unwrap(), before);
    for n in 1..STATUSES_MAX {
        store.put_status(&format!("s{n}"), b"").await.unwrap();
    }
    let one_more = store.put_status("one-more", b"").await;
    assert!(matches!(one_more, Err(StatusError::TooLarge { unit: "other statuses", .. })), "{one_more:?}");
    store.put_status("s1", b"replaced").await.unwrap();
    store.remove_status("s2").await.unwrap();
    store.put_status("one-more", b"").await.unwrap();
}

pub(crate) async fn a_new_epoch_keeps_the_state_and_refuses_the_old_life(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let same_second = store.raise_epoch(Timestamp::from_unix_seconds(super::BIRTH)).await.unwrap();
    assert_eq!(same_second, Position { epoch: Epoch(at(0).epoch.0 + 1), ..at(1) });
    let later = store.raise_epoch(Timestamp::from_unix_seconds(super::BIRTH + 500)).await.unwrap();
    assert_eq!(later, Position { epoch: Epoch(at(0).epoch.0 + 500), ..at(1) });
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.position, loaded.objects), (later, vec![object(0, 1)]));
    let old_life = store.commit(at(1), &[added(2, 1)]).await;
    assert!(matches!(old_life, Err(CommitError::Stale { current }) if current == later), "{old_life:?}");
    store.commit(later, &[added(2, 1)]).await.unwrap();
}

/// The server that waits for writes of others would otherwise read the store again without an end.
pub(crate) async fn nobody_else_writes_to_an_exclusive_store(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    if !store.is_shared() {
        assert!(store.moved(at(0)).now_or_never().is_none());
        assert!(store.moved(at(1)).now_or_never().is_none());
    }
}
