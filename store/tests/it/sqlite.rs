//! Failures specific to database files: opened twice, written by another version, or not a store.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use model::{
    cluster::{
        change::ChangeKind::{Added, Modified},
        history::Maker,
    },
    primitives::quantity::{Revision, Timestamp},
};
use sqlx::{Connection, SqliteConnection, migrate::Migrator, sqlite::SqliteConnectOptions};
use store::{AuditPool, CommitError, HISTORY_KEPT, HistoryQuery, ObjectFilter, OpenError, Store, StoreError};

use crate::suite::{BIRTH, Place, added, at, audit::record, commit, history::entry};

#[tokio::test]
async fn reopening_gives_the_same_and_keeps_the_epoch() {
    let place = Place::sqlite();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0), added(2, 3), commit(3, [(Modified, 0)])]).await.unwrap();
    store.put_status("nodes//o0", b"seen").await.unwrap();
    let audit = [(9, AuditPool::Anonymous), (8, AuditPool::Changes), (7, AuditPool::Passing)]
        .map(|(number, pool)| record(number, pool));
    store.put_audit(&audit).await.unwrap();
    let before = (store.load().await.unwrap(), store.statuses().await.unwrap());
    drop(store);
    let later = Timestamp::from_unix_seconds(BIRTH + 1000);
    let store = store::open(&place.url(), later).await.unwrap();
    assert_eq!((store.load().await.unwrap(), store.statuses().await.unwrap()), before);
    assert_eq!(store.audit(None, 9).await.unwrap(), audit);
    store.commit(at(3), &[added(4, 9)]).await.unwrap();
}

/// The limit of the history still applies after the store is reopened.
#[tokio::test]
async fn reopening_keeps_history_and_its_bounds() {
    let place = Place::sqlite();
    let mut head = 0;
    let mut write = async |store: &dyn Store, count: usize| {
        let count = count as u64;
        let kind = |revision| if revision == 1 { Added } else { Modified };
        let group: Vec<_> = (head + 1..=head + count).map(|n| commit(n, [(kind(n), 0)])).collect();
        let history: Vec<_> = group.iter().map(|commit| entry(Maker::Client, commit, &[])).collect();
        store.commit_with_history(at(head), &group, &history).await.unwrap();
        head += count;
    };
    let store = place.open().await;
    for _ in 0..HISTORY_KEPT / 1000 {
        write(&*store, 1000).await;
    }
    let newest = HistoryQuery { before: None, filter: ObjectFilter::default(), limit: 3 };
    let before = store.history(&newest).await.unwrap();
    assert_eq!(before.floor, Revision(0));
    drop(store);
    let store = place.open().await;
    assert_eq!(store.history(&newest).await.unwrap(), before);
    write(&*store, 5).await;
    assert_eq!(store.history(&newest).await.unwrap().floor, Revision(5));
    assert_eq!(store.revisions(Revision(0), 1).await.unwrap()[0].revision, Revision(6));
}

#[tokio::test]
async fn a_second_writer_is_refused_by_every_name_of_the_file_and_told_who_holds_it() {
    let place = Place::sqlite();
    let store = place.open().await;
    let file = path(&place);
    let link = file.with_file_name("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let directory = file.parent().unwrap();
    let detour = directory.join("..").join(directory.file_name().unwrap()).join("state.db");
    for name in [&file, &link, &detour] {
        let error = refusal(name).await;
        assert!(matches!(error, OpenError::InUse { .. }), "{}: {error:?}", name.display());
        let expected = format!("{} is in use by process {}", file.display(), std::process::id());
        assert!(error.to_string().contains(&expected), "{error}");
    }
    drop(store);
    place.open().await;
}

#[tokio::test]
async fn a_file_of_something_else_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    fs::write(&text, "buy milk, then more milk").unwrap();
    let other = directory.path().join("other.db");
    sqlite(&other, "CREATE TABLE milk (litres INTEGER); INSERT INTO milk VALUES (2)").await;
    let wal = directory.path().join("wal.db");
    sqlite(&wal, "PRAGMA journal_mode = WAL; PRAGMA application_id = 7; CREATE TABLE milk (litres INTEGER)")
        .await;
    for file in [&text, &other, &wal] {
        let before = fs::read(file).unwrap();
        let error = refusal(file).await;
        assert!(matches!(error, OpenError::NotOurs { .. }), "{error:?}");
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
        assert_eq!(fs::read(file).unwrap(), before);
    }
}

/// A store can be opened if an earlier process was killed while initializing its file.
#[tokio::test]
async fn a_start_that_was_cut_off_is_taken_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let cut_off = directory.path().join("cut-off.db");
    let mut connection = connect(&cut_off).await;
    let sql = "PRAGMA application_id = 1413955924; BEGIN IMMEDIATE; PRAGMA user_version = 1";
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    let place = Place::sqlite();
    fs::copy(&cut_off, path(&place)).unwrap();
    let journal = path(&place).with_file_name("state.db-journal");
    let mut rollback = fs::read(cut_off.with_file_name("cut-off.db-journal")).unwrap();
    // Magic number and page count, which SQLite writes last before it modifies the file itself.
    rollback[..12].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0, 0, 1]);
    fs::write(&journal, rollback).unwrap();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_named() {
    let place = Place::sqlite();
    drop(place.open().await);
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9, 'from the future', TRUE, x'00', 0)";
    sqlite(&path(&place), newer).await;
    let error = refusal(&path(&place)).await;
    assert!(matches!(error, OpenError::NewerSchema { found: 9, known: 5, .. }), "{error:?}");
}

/// The audit log of a file with the previous schema is kept.
#[tokio::test]
async fn audit_records_of_the_previous_schema_are_kept() {
    let place = Place::sqlite();
    drop(place.open().await);
    sqlite(&path(&place), "DROP TABLE audit; DELETE FROM _sqlx_migrations WHERE version = 5").await;
    sqlite(&path(&place), include_str!("../../../migrations/sqlite/0003_audit.sql")).await;
    let rows = "INSERT INTO audit (number, at, passing, body)
                VALUES (1, 1795251600, 0, x'656e7472792031'), (2, 1795251600, 1, x'656e7472792032')";
    sqlite(&path(&place), rows).await;
    let records = place.open().await.audit(None, 9).await.unwrap();
    let kept: Vec<_> = records.iter().map(|record| (record.number, record.pool, &record.body[..])).collect();
    assert_eq!(kept, [(2, AuditPool::Passing, &b"entry 2"[..]), (1, AuditPool::Changes, &b"entry 1"[..])]);
}

#[tokio::test]
async fn a_missing_directory_and_an_unusable_file_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing/state.db");
    let error = refusal(&missing).await;
    assert!(matches!(error, OpenError::Directory { .. }), "{error:?}");
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
    let error = refusal(directory.path()).await;
    assert!(matches!(error, OpenError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_an_error_that_names_its_key() {
    let place = Place::sqlite();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0), added(2, 2)]).await.unwrap();
    sqlite(
        &path(&place),
        "UPDATE objects SET body = CAST('{\"schema\":99}' AS BLOB) WHERE key = 'nodes//o0'",
    )
    .await;
    match store.load().await {
        Err(StoreError::Unreadable { key, reason }) => {
            assert_eq!(key, "nodes//o0");
            assert!(reason.contains("schema 99"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_files_are_readable_by_their_owner_only() {
    let place = Place::sqlite();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(path(&place).parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["state.db", "state.db-shm", "state.db-wal", "state.db.lock"]);
}

/// A database error in the middle of a group stores nothing of the group, and later commits succeed.
#[tokio::test]
async fn a_failure_in_the_middle_of_a_group_leaves_nothing_of_it() {
    let place = Place::sqlite();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0)]).await.unwrap();
    let before = store.load().await.unwrap();
    let trigger = "CREATE TRIGGER fail BEFORE INSERT ON changes WHEN NEW.revision = 3
                   BEGIN SELECT RAISE(FAIL, 'no more paper'); END";
    sqlite(&path(&place), trigger).await;
    let group = [added(2, 1), added(3, 2)];
    let Err(CommitError::Unavailable(error)) = store.commit(at(1), &group).await else { panic!("must fail") };
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("no more paper"), "{cause}");
    assert_eq!(store.load().await.unwrap(), before);
    sqlite(&path(&place), "DROP TRIGGER fail").await;
    store.commit(at(1), &group).await.unwrap();
}

/// Released migrations are unchanged, because a change would break existing files. Lines may only be added to
/// the golden file.
#[tokio::test]
async fn released_migrations_are_unchanged() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let migrator = Migrator::new(manifest.join("../migrations/sqlite")).await.unwrap();
    let line = |migration: &sqlx::migrate::Migration| {
        let checksum: String = migration.checksum.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04} {} {checksum}\n", migration.version, migration.description)
    };
    let found: String = migrator.iter().map(line).collect();
    let golden = include_str!("../golden/migrations.txt");
    assert_eq!(
        found, golden,
        "append the line of a new migration to tests/golden/migrations.txt; never edit another"
    );
}

/// `PRAGMA integrity_check` of the `sqlite3` tool, if installed, finds no error in the file.
#[tokio::test]
async fn another_reader_of_the_format_finds_the_file_sound() {
    let place = Place::sqlite();
    let store = place.open().await;
    store.commit(at(0), &[added(1, 0), added(2, 2)]).await.unwrap();
    let mut connection = connect(&path(&place)).await;
    let check: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
    assert_eq!(check, "ok");
    let Ok(tool) = Command::new("sqlite3").arg(path(&place)).arg("PRAGMA integrity_check").output() else {
        return;
    };
    assert_eq!(
        String::from_utf8_lossy(&tool.stdout).trim(),
        "ok",
        "{}",
        String::from_utf8_lossy(&tool.stderr)
    );
}

fn path(place: &Place) -> std::path::PathBuf {
    place.url().strip_prefix("sqlite:").unwrap().into()
}

async fn refusal(path: &Path) -> OpenError {
    let url = format!("sqlite:{}", path.display());
    store::open(&url, Timestamp::from_unix_seconds(BIRTH)).await.err().expect("must be refused")
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn sqlite(path: &Path, sql: &'static str) {
    let mut connection = connect(path).await;
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
