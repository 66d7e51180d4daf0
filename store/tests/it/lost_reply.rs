//! Commits to etcd whose reply is lost, while another server commits, folds and trims the log.

use std::{error::Error, sync::Arc};

use model::{
    cluster::{
        change::{Change, ChangeKind::Added, Commit},
        history::Maker,
    },
    primitives::quantity::{Revision, Timestamp},
};
use store::{CommitError, Options, Store};

use crate::{
    etcd::{eventually, large_object, prefix},
    suite::{BIRTH, Place, added, at, etcd::Cluster, history::entry, lossy_proxy::LossyProxy},
};

/// Number of attempts at a scenario in which the other server must trim the log before the commit is given up.
const ATTEMPTS: usize = 10;

/// Result of a commit with a lost reply, and the stores of both servers after it.
struct Scenario {
    committed: Result<(), CommitError>,
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
    _place: Place,
}

/// Returns the text of an error with its causes.
fn chain(error: &CommitError) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Commits revision 2, of several megabytes with history, and loses the reply. Meanwhile another server commits
/// revision 3, folds the log, and deletes its entries before revision 3, as trimming does. If `compacts`, etcd
/// forgets the past.
async fn lose_reply(cluster: &Cluster, compacts: bool) -> Scenario {
    let mut options = Options::default();
    options.etcd.fold_after = 1;
    let place = Place::in_etcd(cluster, options, None);
    let other = place.open().await;
    other.leadership().wait_for(|leads| *leads).await.unwrap();
    let url = cluster.url();
    let server = url.strip_prefix("etcd:http://").unwrap().parse().unwrap();
    let log = |revision: u64| format!("{}log/{revision:020}", prefix(&place));
    let proxy = LossyProxy::start(server, &log(2));
    let url = format!("etcd:http://{}", proxy.address());
    let now = Timestamp::from_unix_seconds(BIRTH);
    let store = store::open_with(&url, &place.options(), now).await.unwrap();
    store.commit(at(0), &[added(1, 0)]).await.unwrap();

    let changes = [1, 2].map(|number| Change { kind: Added, object: large_object(number, 2, 1_600_000) });
    let group = [Commit { changes: changes.to_vec(), ..added(2, 1) }];
    let history = [entry(Maker::Client, &group[0], &[])];
    let committing = Arc::clone(&store);
    let commit = tokio::spawn(async move { committing.commit_with_history(at(1), &group, &history).await });
    eventually("etcd executes the commit", async || other.head().await.unwrap() == at(2)).await;
    assert!(proxy.is_cut());
    other.commit(at(2), &[added(3, 3)]).await.unwrap();
    let base = format!("{}base", prefix(&place));
    eventually("the log is folded", async || {
        cluster.ctl(&["get", "--print-value-only", &base]).trim() == "3"
    })
    .await;
    cluster.ctl(&["del", &log(0), &log(3)]);
    if compacts {
        let head = cluster.ctl(&["get", "-w", "fields", &format!("{}head", prefix(&place))]);
        let line = head.lines().find(|line| line.starts_with("\"Revision\"")).unwrap();
        cluster.ctl(&["compact", line.rsplit(' ').next().unwrap()]);
    }
    proxy.heal();
    Scenario { committed: commit.await.unwrap(), store, other, _place: place }
}

/// Asserts that both servers read the same state, and the complete history of revision 2.
async fn assert_stored(Scenario { store, other, .. }: &Scenario) {
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.position, loaded.objects.len()), (at(3), 4));
    assert_eq!(other.load().await.unwrap(), loaded);
    for store in [store, other] {
        let history = store.revisions(Revision(2), 9).await.unwrap();
        let objects: Vec<_> = history[0].objects.iter().map(|revised| revised.after.clone()).collect();
        assert_eq!(objects, [1, 2].map(|number| Some(large_object(number, 2, 1_600_000))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_lost_reply_is_acknowledged_although_its_log_entry_was_trimmed() {
    let cluster = Cluster::start(1, &[]);
    for _ in 0..ATTEMPTS {
        let scenario = lose_reply(&cluster, false).await;
        match &scenario.committed {
            Ok(()) => return assert_stored(&scenario).await,
            // On a busy machine the log was trimmed too late.
            Err(CommitError::Unavailable(_)) => {}
            Err(error) => panic!("reported as a failure: {error:?}"),
        }
    }
    panic!("the commit was given up in every attempt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_commit_that_etcd_forgot_is_reported_as_unknown() {
    let cluster = Cluster::start(1, &[]);
    for _ in 0..ATTEMPTS {
        let scenario = lose_reply(&cluster, true).await;
        match &scenario.committed {
            Err(error @ CommitError::Unavailable(_)) if chain(error).contains("compacted") => {
                return assert_stored(&scenario).await;
            }
            Err(CommitError::Unavailable(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("the commit was given up in every attempt");
}
