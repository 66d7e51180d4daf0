//! Backups: reading returns exactly the written contents, or an error.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may panic and prints counts; the lints know only functions marked as tests"
)]
#![allow(dead_code, reason = "the suite has more than this needs")]

use std::sync::Arc;

use model::{
    cluster::{change::ChangeKind::Added, history::Maker},
    primitives::quantity::Timestamp,
};
use store::{
    Contents, Store,
    backup::{self, BackupError},
};

use crate::suite::{BIRTH, Place, at, commit, history::entry};

fn now() -> Timestamp {
    Timestamp::from_unix_seconds(BIRTH + 1)
}

async fn filled() -> Arc<dyn Store> {
    let store = Place::memory().open().await;
    let first = commit(1, [(Added, 0), (Added, 2)]);
    let history = [entry(Maker::Client, &first, &[])];
    store.commit_with_history(at(0), std::slice::from_ref(&first), &history).await.unwrap();
    store.put_vault("tokens/a", 0, Some(b"\0\n\xff")).await.unwrap();
    store
}

async fn file(store: &dyn Store, with_history: bool) -> Vec<u8> {
    let (position, contents) = Contents::of(store, with_history).await.unwrap();
    backup::lines(now(), position, contents).collect::<String>().into_bytes()
}

#[tokio::test]
async fn a_backup_holds_what_the_store_kept() {
    let store = filled().await;
    for with_history in [false, true] {
        let (position, contents) = Contents::of(&*store, with_history).await.unwrap();
        let read = backup::read(&file(&*store, with_history).await[..]).unwrap();
        assert_eq!((read.made_at, read.position, read.contents), (now(), position, contents));
    }
    let empty = Place::memory().open().await;
    assert!(backup::read(&file(&*empty, true).await[..]).unwrap().contents.is_empty());
}

/// Reading fails if a bit of any byte is flipped, if the file is truncated at any length, or if bytes follow
/// the end.
#[tokio::test]
async fn a_damaged_backup_is_refused_wherever_the_damage_is() {
    let store = filled().await;
    let intact = file(&*store, true).await;
    assert!(backup::read(&intact[..]).is_ok());
    let mut refused = 0;
    for position in 0..intact.len() {
        // One bit of each byte, in turn; also the bit that changes the case.
        for bit in [position % 8, 5] {
            let mut damaged = intact.clone();
            damaged[position] ^= 1 << bit;
            let outcome = backup::read(&damaged[..]);
            assert!(outcome.is_err(), "bit {bit} of byte {position}: {:?}", char::from(intact[position]));
            refused += 1;
        }
        assert!(backup::read(&intact[..position]).is_err(), "cut at {position}");
    }
    for more in [&b"\n"[..], b"x", b"{}\n"] {
        assert!(backup::read(&[&intact, more].concat()[..]).is_err(), "{more:?}");
    }
    println!("{} bytes: {refused} flipped bits and {} lengths refused", intact.len(), intact.len());
}

#[tokio::test]
async fn a_newer_backup_and_other_files_are_refused_in_words() {
    let store = filled().await;
    let text = String::from_utf8(file(&*store, false).await).unwrap();
    let newer = text.replacen("\"version\":1", "\"version\":2,\"more\":{}", 1);
    assert!(matches!(backup::read(newer.as_bytes()), Err(BackupError::Newer { found: 2 })));
    for other in ["", "\n", "{}\n", "SQLite format 3\0", "{\"format\":\"x\",\"version\":1}\n"] {
        let refused = backup::read(other.as_bytes()).unwrap_err();
        assert!(matches!(refused, BackupError::NotABackup | BackupError::Broken(_)), "{other}: {refused}");
    }
}

/// A backup taken during writes is a consistent state: every commit adds two objects, so their number is
/// twice the revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_a_state_that_existed() {
    let place = Place::sqlite();
    let store = place.open().await;
    let writer = Arc::clone(&store);
    let writing = tokio::spawn(async move {
        for revision in 1..=300_u32 {
            let both = [(Added, 2 * revision), (Added, 2 * revision + 1)];
            let commit = commit(u64::from(revision), both);
            let history = [entry(Maker::Client, &commit, &[])];
            let at = at(u64::from(revision) - 1);
            writer.commit_with_history(at, std::slice::from_ref(&commit), &history).await.unwrap();
        }
    });
    let mut taken = 0;
    while !writing.is_finished() {
        let read = backup::read(&file(&*store, true).await[..]).unwrap();
        let revision = read.contents.revision;
        assert_eq!(read.contents.objects.len() as u64, 2 * revision.0);
        assert_eq!(read.contents.history.len() as u64, revision.0);
        let elsewhere = Place::memory().open().await;
        let new = elsewhere.replace(at(0), &read.contents, read.position.epoch, now()).await.unwrap();
        assert!(new.epoch > read.position.epoch);
        assert_eq!(Contents::of(&*elsewhere, true).await.unwrap().1, read.contents);
        taken += 1;
    }
    writing.await.unwrap();
    assert!(taken > 0);
    let last = backup::read(&file(&*store, false).await[..]).unwrap();
    assert_eq!(last.contents.objects.len(), 600);
    println!("{taken} backups during 300 commits");
}
