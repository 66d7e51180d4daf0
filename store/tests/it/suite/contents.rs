//! Test scenarios in which the contents of a store are read and written to another store.

use std::collections::BTreeMap;

use model::{
    cluster::history::Maker,
    primitives::quantity::{Epoch, Position},
};
use store::{Contents, ReplaceError};

use super::{history::entry, *};

fn made(commit: &Commit) -> model::cluster::history::RevisionEntry {
    entry(Maker::Client, commit, &[])
}

/// Creates a store at revision 3 that contains objects, history entries and vault records (secrets).
async fn filled(place: &Place) -> Arc<dyn Store> {
    let store = place.open().await;
    let commits = [added(1, 0), commit(2, [(ChangeKind::Added, 1), (ChangeKind::Added, 2)])];
    let entries = [made(&commits[0]), made(&commits[1])];
    store.commit_with_history(at(0), &commits, &entries).await.unwrap();
    store.commit(at(2), &[commit(3, [(ChangeKind::Modified, 2)])]).await.unwrap();
    store.put_vault("ca/current", 0, Some(b"\0key\xff")).await.unwrap();
    store.put_status("nodes/n1", b"seen").await.unwrap();
    store
}

pub(crate) async fn contents_put_in_place_of_others_are_read_back_in_a_new_life(place: Place) {
    let source = filled(&Place::memory()).await;
    let (_, contents) = Contents::of(&*source, true).await.unwrap();
    assert_eq!((contents.objects.len(), contents.history.len(), contents.vault.len()), (3, 2, 1));
    let store = place.open().await;
    store.commit(at(0), &[added(1, 7)]).await.unwrap();
    let old = store.put_vault("tokens/a", 0, Some(b"old")).await.unwrap();
    store.put_status("nodes/gone", b"seen").await.unwrap();
    let above = Epoch(at(0).epoch.0 + 50);
    let now = Timestamp::from_unix_seconds(BIRTH);
    let new = store.replace(at(1), &contents, above, now).await.unwrap();
    assert_eq!(new, Position { epoch: Epoch(above.0 + 1), revision: Revision(3) });
    let (position, read) = Contents::of(&*store, true).await.unwrap();
    assert_eq!((position, &read), (new, &contents));
    assert!(store.statuses().await.unwrap().is_empty(), "what was observed belongs to the old life");
    assert!(store.load().await.unwrap().recent.is_empty());
    assert!(store.vault().await.unwrap()["ca/current"].version > old, "no version comes back");
    // The new epoch continues at the revision of the contents.
    let stale = store.commit(at(1), &[added(2, 9)]).await;
    assert!(stale.is_err(), "the old life is over: {stale:?}");
    let next = commit(4, [(ChangeKind::Deleted, 0)]);
    store.commit_with_history(new, std::slice::from_ref(&next), &[made(&next)]).await.unwrap();
    assert_eq!(store.changes(Revision(3), 10).await.unwrap(), [next]);
    assert_eq!(store.revisions(Revision(0), 10).await.unwrap().len(), 3);
    drop(store);
    if !place.is_forgetful() {
        let store = place.open().await;
        let (position, read) = Contents::of(&*store, false).await.unwrap();
        assert_eq!(position, Position { revision: Revision(4), ..new });
        assert_eq!((read.objects.len(), read.vault.len()), (2, 1));
    }
}

pub(crate) async fn contents_are_refused_whole_when_somebody_wrote_or_they_contradict_themselves(
    place: Place,
) {
    let store = filled(&place).await;
    let (position, contents) = Contents::of(&*store, true).await.unwrap();
    let now = Timestamp::from_unix_seconds(BIRTH);
    let empty = Contents {
        revision: Revision(0),
        objects: Vec::new(),
        history: Vec::new(),
        history_floor: Revision(0),
        vault: BTreeMap::new(),
    };
    assert!(empty.is_empty() && !contents.is_empty());
    let refused = store.replace(at(2), &empty, Epoch(0), now).await;
    assert!(matches!(refused, Err(ReplaceError::Stale { current }) if current == at(3)), "{refused:?}");
    let of_the_future = Contents { revision: Revision(1), ..contents.clone() };
    let mut twice = contents.clone();
    twice.objects.push(object(0, 1));
    let mut reversed = contents.clone();
    reversed.history.reverse();
    let mut large = contents.clone();
    large.vault.insert("k".repeat(store::VAULT_KEY_BYTES_MAX + 1), Vec::new());
    for wrong in [of_the_future, twice, reversed, large] {
        let refused = store.replace(at(3), &wrong, Epoch(0), now).await;
        assert!(matches!(refused, Err(ReplaceError::Malformed(_))), "{refused:?}");
    }
    assert_eq!(Contents::of(&*store, true).await.unwrap(), (position, contents));
    assert_eq!(store.statuses().await.unwrap().len(), 1);
    assert_eq!(store.revisions(Revision(0), 10).await.unwrap().len(), 2);
}
