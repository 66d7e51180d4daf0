//! Test scenarios for the history of a store.

use std::sync::Arc;

use model::{
    cluster::{
        change::{
            ChangeKind::{Added, Deleted, Modified},
            Commit,
        },
        history::{Maker, Origin, RevisedObject, RevisionEntry},
    },
    kinds::resource::{Kind, Object},
    primitives::quantity::Revision,
};
use store::{CommitError, HISTORY_KEPT, HistoryQuery, ObjectFilter, SERVER_HISTORY_KEPT, Store};

use super::{Place, added, at, commit, object};

fn origin(maker: Maker, author: &str) -> Origin {
    Origin {
        maker,
        author: author.to_owned(),
        message: Some("because".to_owned()),
        request_id: Some("r-1".to_owned()),
        source: Some([192, 0, 2, 9].into()),
    }
}

/// Returns the history entry of a commit by `maker`; `before` contains the objects before the commit.
pub(crate) fn entry(maker: Maker, commit: &Commit, before: &[Arc<Object>]) -> RevisionEntry {
    let revised = |change: &model::cluster::change::Change| {
        let key = change.object.key();
        let before = before.iter().find(|object| object.key() == key).cloned();
        RevisedObject { after: (change.kind != Deleted).then(|| Arc::clone(&change.object)), before, key }
    };
    let objects = commit.changes.iter().map(revised).collect();
    RevisionEntry { revision: commit.revision, at: commit.at, origin: origin(maker, "jo@desk"), objects }
}

fn all(limit: usize) -> HistoryQuery {
    HistoryQuery { before: None, filter: ObjectFilter::default(), limit }
}

async fn revisions(store: &dyn Store, query: &HistoryQuery) -> Vec<u64> {
    store.history(query).await.unwrap().heads.iter().map(|head| head.revision.0).collect()
}

/// If a commit is stored with a history entry, the history contains the complete entry. Listings return the
/// heads of the entries in pages, newest first.
pub(crate) async fn history_is_kept_with_its_commit_and_listed_newest_first(place: Place) {
    let store = place.open().await;
    assert_eq!(store.history(&all(9)).await.unwrap().heads, []);
    let group = [commit(1, [(Added, 0), (Added, 1)]), commit(2, [(Modified, 0)])];
    let history = [entry(Maker::Client, &group[0], &[]), entry(Maker::Server, &group[1], &[object(0, 1)])];
    store.commit_with_history(at(0), &group, &history).await.unwrap();
    store.commit(at(2), &[added(3, 5)]).await.unwrap();
    let last = [commit(4, [(Deleted, 0)])];
    let deletion = entry(Maker::Agent, &last[0], &[object(0, 2)]);
    store.commit_with_history(at(3), &last, std::slice::from_ref(&deletion)).await.unwrap();

    let [first, second] = history;
    let expected = [first.clone(), second.clone(), deletion.clone()];
    assert_eq!(store.revisions(Revision(0), 9).await.unwrap(), expected);
    assert_eq!(store.revisions(Revision(2), 1).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(store.revisions(Revision(3), 9).await.unwrap(), std::slice::from_ref(&deletion));
    assert_eq!(store.revisions(Revision(5), 9).await.unwrap(), []);
    let page = store.history(&all(2)).await.unwrap();
    assert_eq!((page.heads, page.floor), (vec![deletion.head(), second.head()], Revision(0)));
    let rest = HistoryQuery { before: Some(Revision(2)), ..all(2) };
    assert_eq!(store.history(&rest).await.unwrap().heads, [first.head()]);
    assert_eq!(store.history(&all(0)).await.unwrap().heads, []);
}

pub(crate) async fn history_is_filtered_by_what_it_changed(place: Place) {
    let store = place.open().await;
    let group = [commit(1, [(Added, 0), (Added, 1)]), commit(2, [(Added, 2)]), commit(3, [(Modified, 1)])];
    let history: Vec<_> = group.iter().map(|commit| entry(Maker::Client, commit, &[])).collect();
    store.commit_with_history(at(0), &group, &history).await.unwrap();
    let filtered = |filter: ObjectFilter| HistoryQuery { filter, ..all(9) };
    let any = ObjectFilter::default;
    let kind = |kind| ObjectFilter { kind: Some(kind), ..any() };
    assert_eq!(revisions(&*store, &filtered(kind(Kind::Workload))).await, [3, 1]);
    assert_eq!(revisions(&*store, &filtered(kind(Kind::EndpointSet))).await, [0; 0]);
    let name = ObjectFilter { name: Some("o2".parse().unwrap()), ..any() };
    assert_eq!(revisions(&*store, &filtered(name)).await, [2]);
    let namespace = ObjectFilter { namespace: Some("default".parse().unwrap()), ..kind(Kind::Node) };
    assert_eq!(revisions(&*store, &filtered(namespace)).await, [0; 0]);
}

pub(crate) async fn history_that_belongs_to_no_commit_is_refused_whole(place: Place) {
    let store = place.open().await;
    let group = [added(1, 0), added(2, 1)];
    let good: Vec<_> = group.iter().map(|commit| entry(Maker::Client, commit, &[])).collect();
    let stranger = entry(Maker::Client, &added(3, 2), &[]);
    for history in [vec![stranger], vec![good[1].clone(), good[0].clone()], vec![good[0].clone(); 2]] {
        let refused = store.commit_with_history(at(0), &group, &history).await;
        assert!(matches!(refused, Err(CommitError::Malformed(_))), "{refused:?}");
    }
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.position, store.revisions(Revision(0), 9).await.unwrap()), (at(0), vec![]));
}

/// After more writes than are retained, the history contains the newest client writes, a smaller number of
/// server writes, and the revision up to which client writes may be missing.
pub(crate) async fn history_is_bounded_and_says_where_it_begins(place: Place) {
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let is_by_server = |revision: u64| revision.is_multiple_of(10);
    let total = (HISTORY_KEPT as u64 + 1000) * 10 / 9;
    let mut head = 1;
    while head < total {
        let last = total.min(head + 1000);
        let group: Vec<_> = (head + 1..=last).map(|revision| commit(revision, [(Modified, 0)])).collect();
        let maker = |revision| if is_by_server(revision) { Maker::Server } else { Maker::Client };
        let history: Vec<_> = group
            .iter()
            .map(|commit| RevisionEntry {
                objects: Vec::new(),
                ..entry(maker(commit.revision.0), commit, &[])
            })
            .collect();
        store.commit_with_history(at(head), &group, &history).await.unwrap();
        head = last;
    }
    let page = store.history(&all(usize::MAX)).await.unwrap();
    let (server, others): (Vec<u64>, Vec<u64>) =
        page.heads.iter().map(|head| head.revision.0).partition(|revision| is_by_server(*revision));
    assert_eq!((server.len(), others.len()), (SERVER_HISTORY_KEPT, HISTORY_KEPT));
    let dropped = (2..)
        .filter(|revision| !is_by_server(*revision))
        .take_while(|revision| *revision < others[HISTORY_KEPT - 1]);
    assert_eq!(dropped.last().map(Revision), Some(page.floor));
}

pub(crate) async fn a_cancelled_commit_has_its_history_or_is_not_there(place: Place) {
    let store = place.open().await;
    let mut head = 0;
    for n in 0..30_u32 {
        let group = [added(head + 1, n)];
        let history = [entry(Maker::Client, &group[0], &[])];
        let patience = std::time::Duration::from_micros(u64::from(n) * 50);
        let _cut_off =
            tokio::time::timeout(patience, store.commit_with_history(at(head), &group, &history)).await;
        // A cancelled write may still be in flight; the next one waits for its turn.
        store.put_status("fence", b"").await.unwrap();
        head = store.load().await.unwrap().position.revision.0;
        assert_eq!(store.revisions(Revision(0), usize::MAX).await.unwrap().len() as u64, head);
    }
}
