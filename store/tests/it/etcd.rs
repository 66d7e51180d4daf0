//! Tests specific to a store that several processes share (etcd): concurrent writers, leadership, folding
//! (merging of the change log into the objects), and failing members.

use std::{sync::Arc, time::Duration};

use model::{
    cluster::{
        change::{
            Change,
            ChangeKind::{Added, Deleted, Modified},
            Commit,
        },
        history::Maker,
    },
    kinds::resource::Object,
    primitives::quantity::{Position, Revision, Timestamp},
};
use store::{ChangesError, CommitError, HistoryQuery, ObjectFilter, Options, Store};

use crate::suite::{BIRTH, Place, added, at, commit, etcd::Cluster, history::entry, object};

/// Time limit for every awaited condition; longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "{what}");
}

pub(crate) fn prefix(place: &Place) -> String {
    place.options().etcd.prefix
}

/// Returns the value of an etcd key below the store's prefix.
fn value(place: &Place, key: &str) -> String {
    let key = format!("{}{key}", prefix(place));
    Cluster::shared().ctl(&["get", "--print-value-only", &key]).trim().to_owned()
}

/// Returns the etcd keys below a subprefix of the store's prefix.
fn names(place: &Place, below: &str) -> Vec<String> {
    let below = format!("{}{below}", prefix(place));
    let names = Cluster::shared().ctl(&["get", "--prefix", "--keys-only", &below]);
    names.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

async fn is_folded(place: &Place, head: u64) {
    eventually("the log is folded", async || value(place, "base") == head.to_string()).await;
}

fn folding() -> Place {
    let mut options = Options::default();
    options.etcd.fold_after = 1;
    Place::in_etcd(Cluster::shared(), options, None)
}

pub(crate) fn large_object(number: u32, revision: u64, bytes: usize) -> Arc<Object> {
    let mut large = Object::clone(&object(number, revision));
    large.metadata.annotations.insert("large".to_owned(), "x".repeat(bytes));
    Arc::new(large)
}

/// A group of three megabytes with history, one object of which is larger than a megabyte, is read completely
/// through a second handle on the store (as by another process), both before and after its changes are moved
/// from the log into the objects (folded). When the objects are deleted, no pieces of them remain in etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_too_large_for_a_request_is_there_whole_or_not_at_all() {
    let place = Place::etcd();
    let store = place.open().await;
    let sizes = [1_600_000, 200_000, 200_000, 500_000, 500_000, 10];
    let changes =
        (0..).zip(sizes).map(|(n, bytes)| Change { kind: Added, object: large_object(n, 1, bytes) });
    let group = [Commit { changes: changes.collect(), ..added(1, 0) }];
    let history = [entry(Maker::Client, &group[0], &[])];
    store.commit_with_history(at(0), &group, &history).await.unwrap();
    assert!(names(&place, "stage/").len() >= 6, "{:?}", names(&place, "stage/"));
    let stale = store.commit(at(0), &group).await;
    assert!(matches!(stale, Err(CommitError::Stale { .. })), "{stale:?}");
    let other = place.open().await;
    let loaded = other.load().await.unwrap();
    assert_eq!((loaded.position, loaded.objects.len()), (at(1), sizes.len()));
    assert_eq!(loaded.recent, group);
    assert_eq!(other.changes(Revision(0), 9).await.unwrap(), group);
    assert_eq!(other.revisions(Revision(0), 9).await.unwrap(), history);
    drop((store, other));

    let mut options = place.options();
    options.etcd.fold_after = 1;
    let open =
        async || store::open_with(&place.url(), &options, Timestamp::from_unix_seconds(BIRTH)).await.unwrap();
    let store = open().await;
    is_folded(&place, 1).await;
    assert_eq!(names(&place, "objects/").len(), sizes.len());
    assert_eq!(open().await.load().await.unwrap(), loaded);
    let kind = |n| if n == 0 { Modified } else { Deleted };
    store.commit(at(1), &[commit(2, (0..6).map(|n| (kind(n), n)))]).await.unwrap();
    is_folded(&place, 2).await;
    assert_eq!(names(&place, "stage/objects/"), [""; 0]);
    assert_eq!(open().await.load().await.unwrap().objects, [object(0, 2)]);
}

/// Old commit groups are deleted from etcd when the log exceeds its limit. A new server then reads the same
/// state as a running one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_folded_and_trimmed_reads_the_same() {
    let place = folding();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    for round in 0..12_u64 {
        let head = 1 + round * 1000;
        let one = |revision: u64| match revision % 500 {
            0 => added(revision, u32::try_from(revision).unwrap()),
            _ => commit(revision, [(Modified, 0)]),
        };
        let group: Vec<_> = (head + 1..=head + 1000).map(one).collect();
        let history: Vec<_> = group.iter().map(|commit| entry(Maker::Client, commit, &[])).collect();
        store.commit_with_history(at(head), &group, &history).await.unwrap();
    }
    is_folded(&place, 12_001).await;
    eventually("the log is trimmed", async || names(&place, "log/").len() == 10).await;
    eventually("the history is trimmed", async || names(&place, "history/client/heads/").len() == 10).await;
    let bodies = names(&place, "history/client/bodies/");
    assert_eq!(bodies.len(), 10, "{bodies:?}");
    let staged = names(&place, "stage/");
    assert!(staged.iter().all(|name| !name.contains("00000000000000001001/")), "{staged:?}");

    let fresh = place.open().await;
    let loaded = fresh.load().await.unwrap();
    assert_eq!(loaded, store.load().await.unwrap());
    assert_eq!((loaded.objects.len(), loaded.recent.len()), (25, store::CHANGES_KEPT));
    for server in [&store, &fresh] {
        let compacted = server.changes(Revision(2000), 1).await;
        assert!(
            matches!(compacted, Err(ChangesError::Compacted { oldest: Revision(2002) })),
            "{compacted:?}"
        );
        assert_eq!(server.changes(Revision(2001), 1).await.unwrap().len(), 1);
        let all = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: usize::MAX };
        let page = server.history(&all).await.unwrap();
        assert_eq!((page.heads.len(), page.floor), (store::HISTORY_KEPT, Revision(2001)));
        assert_eq!(server.revisions(Revision(2002), 1).await.unwrap()[0].revision, Revision(2002));
    }
    fresh.commit(at(12_001), &[commit(12_002, [(Modified, 0)])]).await.unwrap();
}

/// Writing a large object repeatedly, with a low growth limit, compacts etcd's history within seconds. The
/// store keeps its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_forgets_sooner_when_much_is_written() {
    let cluster = Cluster::start(1, &[]);
    let mut options = Options::default();
    options.etcd.growth_bytes_max = 4 * 1024 * 1024;
    let place = Place::in_etcd(&cluster, options, None);
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let head = format!("{}head", prefix(&place));
    let found = cluster.ctl(&["get", "-w", "fields", &head]);
    let line = found.lines().find(|line| line.starts_with("\"Revision\"")).unwrap();
    let early = format!("--rev={}", line.rsplit(' ').next().unwrap());
    assert!(cluster.try_ctl(&["get", &early, &head]).is_ok());
    let mut written = 1_u64;
    eventually("etcd to forget the first commit", async || {
        let large = Change { kind: Modified, object: large_object(0, written + 1, 100_000) };
        let group = [Commit { changes: vec![large], ..added(written + 1, 0) }];
        store.commit(at(written), &group).await.unwrap();
        written += 1;
        cluster.try_ctl(&["get", &early, &head]).is_err_and(|error| error.contains("compacted"))
    })
    .await;
    let loaded = place.open().await.load().await.unwrap();
    assert_eq!((loaded.position, loaded.objects.len()), (at(written), 1));
    assert_eq!(loaded.recent.len() as u64, written);
}

/// Every load is consistent, even during concurrent writes and etcd compactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_begin_again_when_etcd_is_compacted_under_them() {
    let place = folding();
    let store = place.open().await;
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..60_u64 {
                let group = [commit(n + 1, (0..10).map(|k| (Added, u32::try_from(n * 10).unwrap() + k)))];
                store.commit(at(n), &group).await.unwrap();
            }
        })
    };
    let mut loads = 0;
    while !writer.is_finished() {
        if loads % 3 == 0 {
            let found = Cluster::shared().ctl(&["get", "-w", "fields", &format!("{}head", prefix(&place))]);
            let line = found.lines().find(|line| line.starts_with("\"Revision\"")).unwrap();
            let revision = line.rsplit(' ').next().unwrap().to_owned();
            // Other tests of this program compact too.
            let _ =
                tokio::task::spawn_blocking(move || Cluster::shared().try_ctl(&["compact", &revision])).await;
        }
        let loaded = store.load().await.unwrap();
        assert_eq!(loaded.objects.len() as u64, loaded.position.revision.0 * 10);
        loads += 1;
    }
    writer.await.unwrap();
    assert_eq!(store.load().await.unwrap().objects.len(), 600);
}

#[tokio::test]
async fn what_is_not_a_store_of_this_version_is_refused() {
    let now = Timestamp::from_unix_seconds(BIRTH);
    for (key, found, expected) in
        [("format", "2", "start the newer version"), ("objects/x", "y", "not a Tidegate store")]
    {
        let place = Place::etcd();
        Cluster::shared().ctl(&["put", &format!("{}{key}", prefix(&place)), found]);
        let refused = store::open_with(&place.url(), &place.options(), now).await;
        let refusal = refused.err().expect("is refused").to_string();
        assert!(refusal.contains(expected) && refusal.contains(&prefix(&place)), "{refusal}");
    }
    let place = Place::etcd();
    drop(place.open().await);
    Cluster::shared().ctl(&["put", &format!("{}log/00000000000000000001", prefix(&place)), "garbage"]);
    let unreadable = place.open().await.load().await.unwrap_err().to_string();
    assert!(unreadable.contains("log/00000000000000000001"), "{unreadable}");
}

/// Commits a group and, after an unknown outcome, reloads and retries until the outcome is certain, like a
/// control server.
async fn commit_surely(store: &dyn Store, position: Position, group: &[Commit]) -> Position {
    let landed = Position { revision: group.last().unwrap().revision, ..position };
    for _ in 0..10 {
        match store.commit(position, group).await {
            Ok(()) => return landed,
            Err(CommitError::Unavailable(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
        if let Ok(loaded) = store.load().await
            && loaded.position == landed
        {
            return landed;
        }
    }
    panic!("etcd does not come back");
}

/// Every acknowledged write is applied exactly once while one of three members is stopped or killed. Without
/// a majority, a write fails instead of being acknowledged or blocking forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_on_while_a_majority_of_the_members_does() {
    let cluster = Cluster::start(3, &[]);
    let place = Place::in_etcd(&cluster, Options::default(), None);
    let store = place.open().await;
    let mut position = at(0);
    let mut write = async |store: &dyn Store, count: u32| {
        for _ in 0..count {
            let next = position.revision.0 + 1;
            let group = [added(next, u32::try_from(next).unwrap())];
            position = commit_surely(store, position, &group).await;
        }
        position
    };
    write(&*store, 3).await;
    cluster.signal(0, "STOP");
    write(&*store, 3).await;
    cluster.signal(0, "CONT");
    cluster.signal(1, "KILL");
    write(&*store, 3).await;
    cluster.signal(2, "STOP");
    let lonely = store.commit(at(9), &[added(10, 10)]).await;
    assert!(matches!(lonely, Err(CommitError::Unavailable(_))), "{lonely:?}");
    cluster.signal(2, "CONT");
    let mut found = at(0);
    eventually("etcd comes back", async || {
        let loaded = store.load().await;
        found = loaded.as_ref().map_or(found, |loaded| loaded.position);
        loaded.is_ok()
    })
    .await;
    assert!(found == at(9) || found == at(10), "{found}");
    // The commit may still have been in flight: a rejected caller reloads and finds it.
    if found == at(9) {
        match store.commit(at(9), &[added(10, 10)]).await {
            Ok(()) | Err(CommitError::Stale { .. } | CommitError::Unavailable(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    eventually("everything is there once", async || {
        let loaded = store.load().await;
        loaded.is_ok_and(|loaded| loaded.position == at(10) && loaded.objects.len() == 10)
    })
    .await;
    let fresh = place.open().await;
    assert_eq!(fresh.changes(Revision(0), 99).await.unwrap().len(), 10);
}
