//! Write operations of the SQLite store, one at a time, each in one transaction.
//!
//! The open connections and the retention windows, which must match the contents of the file, form a session.
//! A write takes the session, and puts it back only if the outcome of its transaction is known; otherwise
//! the next write opens a new session.

use std::time::Instant;

use model::{
    cluster::change::ChangeKind,
    primitives::quantity::{Position, Revision, Timestamp},
};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::{
    AuditRecord, CommitError, ReplaceError, STATUSES_MAX, StatusError, StoreError, VaultError,
    group::{self, EncodedChange, EncodedCommit, Group},
    open::epoch_after,
    sqlite::{
        audit,
        batch::{self, BATCHES, ONE_BY_ONE},
        connect::{self, Durability},
        file::StoreFile,
        history::{self, Windows},
        read::{self, failed},
        replace::{self, Replacement},
        vault,
    },
    window::Window,
};

/// Statement that begins a transaction by taking the write lock. A transaction that takes the lock only at
/// its first write could fail there, because another one holds the lock.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

/// Writer of the file. No other one exists while the store is open.
#[derive(Debug)]
pub(super) struct Writer {
    session: Option<WriterSession>,
    file: StoreFile,
}

#[derive(Debug)]
struct WriterSession {
    durable: SqliteConnection,
    relaxed: SqliteConnection,
    window: Window,
    history: Windows,
    audit: audit::Counts,
}

/// Newest entries of log and history that must be dropped, with all older ones, to make room for a group.
#[derive(Debug)]
struct DroppedEntries {
    changes: Option<Revision>,
    history: history::DroppedHistory,
}

/// Rows written in the transaction of a group in addition to its objects.
#[derive(Debug, Clone, Copy)]
struct Beside<'a> {
    dropped: &'a DroppedEntries,
    audit: &'a [AuditRecord],
    counts: audit::Counts,
}

impl Writer {
    /// Creates the writer of a file whose schema is up to date.
    pub(super) fn new(file: StoreFile) -> Self {
        Self { session: None, file }
    }

    /// Commits a group that was decided on the state at position `at`.
    pub(super) async fn commit(
        &mut self,
        at: Position,
        group: &Group,
        audit: &[AuditRecord],
    ) -> Result<(), CommitError> {
        let started = Instant::now();
        let mut session = self.take_session().await?;
        let entries = group.entries();
        let dropped = DroppedEntries {
            changes: session.window.drop_through(&entries),
            history: session.history.drop_through(group),
        };
        let beside = Beside { dropped: &dropped, audit, counts: session.audit };
        let mut result = commit(&mut session.durable, at, group, beside, BATCHES).await;
        if let Err(CommitError::Malformed(_)) = result {
            // A failed batch does not identify the mismatch; applying the changes one by one does.
            result = commit(&mut session.durable, at, group, beside, ONE_BY_ONE).await;
        }
        match result {
            Ok(counts) => {
                session.audit = counts;
                session.window.advance(&entries, dropped.changes);
                session.history.advance(group, &dropped.history);
            }
            Err(CommitError::Unavailable(error)) => return Err(error.into()),
            Err(error) => {
                self.session = Some(session);
                return Err(error);
            }
        }
        self.session = Some(session);
        let (commits, head) = (entries.len(), group.head().0);
        tracing::debug!(commits, head, elapsed_us = started.elapsed().as_micros(), "group committed");
        Ok(())
    }

    /// Writes the status of a key, replacing its previous body.
    pub(super) async fn put_status(&mut self, key: String, body: Vec<u8>) -> Result<(), StatusError> {
        let mut session = self.take_session().await?;
        let kept = put_status(&mut session.relaxed, key, body).await.map_err(failed("keep a status"))?;
        self.session = Some(session);
        let limit = STATUSES_MAX - 1;
        if kept {
            Ok(())
        } else {
            Err(StatusError::TooLarge { unit: "other statuses", found: STATUSES_MAX, limit })
        }
    }

    /// Deletes the status of a key, if it exists.
    pub(super) async fn remove_status(&mut self, key: String) -> Result<(), StoreError> {
        let mut session = self.take_session().await?;
        let delete =
            sqlx::query("DELETE FROM statuses WHERE key = ?").bind(key).execute(&mut session.relaxed);
        delete.await.map_err(failed("forget a status"))?;
        self.session = Some(session);
        Ok(())
    }

    /// Inserts audit records, and drops old ones if there are too many.
    pub(super) async fn put_audit(&mut self, records: &[AuditRecord]) -> Result<(), StoreError> {
        let mut session = self.take_session().await?;
        let kept = audit::put(&mut session.relaxed, records, session.audit).await;
        session.audit = kept.map_err(failed("store the audit records"))?;
        self.session = Some(session);
        Ok(())
    }

    /// Drops audit records older than [`crate::AUDIT_AGE_MAX_SECS`].
    pub(super) async fn drop_old_audit(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let mut session = self.take_session().await?;
        let connection = &mut session.relaxed;
        audit::drop_old(connection, now).await.map_err(failed("trim the audit log"))?;
        session.audit = audit::counts(connection).await.map_err(failed("count the audit log"))?;
        self.session = Some(session);
        Ok(())
    }

    /// Starts a new epoch at the current revision.
    pub(super) async fn raise_epoch(&mut self, now: Timestamp) -> Result<Position, StoreError> {
        let mut session = self.take_session().await?;
        let position = raise_epoch(&mut session.durable, now).await.map_err(failed("raise the epoch"))?;
        self.session = Some(session);
        Ok(position)
    }

    /// Writes or deletes a vault record.
    pub(super) async fn put_vault(
        &mut self,
        key: &str,
        at: u64,
        body: Option<&[u8]>,
    ) -> Result<u64, VaultError> {
        let mut session = self.take_session().await?;
        let outcome = vault::put(&mut session.durable, key, at, body).await;
        if !matches!(outcome, Err(VaultError::Unavailable(_))) {
            self.session = Some(session);
        }
        outcome
    }

    /// Replaces the contents of the store.
    pub(super) async fn replace(
        &mut self,
        at: Position,
        replacement: &Replacement,
        new: Position,
    ) -> Result<Position, ReplaceError> {
        // The bookkeeping of the session describes the old contents, so the next write starts a new session
        // in any case.
        let mut session = self.take_session().await?;
        replace::run(&mut session.durable, at, replacement, new).await?;
        Ok(new)
    }

    async fn take_session(&mut self) -> Result<WriterSession, StoreError> {
        if let Some(session) = self.session.take() {
            return Ok(session);
        }
        let path = self.file.path();
        let connect = async || {
            let mut durable = connect::writer(path, Durability::Full).await?;
            let relaxed = connect::writer(path, Durability::Process).await?;
            let window = read::window(&mut durable).await?;
            let history = history::windows(&mut durable).await?;
            let audit = audit::counts(&mut durable).await?;
            Ok(WriterSession { durable, relaxed, window, history, audit })
        };
        connect().await.map_err(failed("connect to write"))
    }
}

async fn commit(
    connection: &mut SqliteConnection,
    at: Position,
    group: &Group,
    beside: Beside<'_>,
    batches: &[usize],
) -> Result<audit::Counts, CommitError> {
    let mut transaction = connection.begin_with(BEGIN).await.map_err(failed("begin a write"))?;
    match write_group(&mut transaction, at, group, beside, batches).await {
        Ok(counts) => {
            transaction.commit().await.map_err(failed("make a group durable"))?;
            Ok(counts)
        }
        Err(error) => {
            transaction.rollback().await.map_err(failed("roll back a rejected group"))?;
            Err(error)
        }
    }
}

async fn write_group(
    connection: &mut SqliteConnection,
    at: Position,
    group: &Group,
    beside: Beside<'_>,
    batches: &[usize],
) -> Result<audit::Counts, CommitError> {
    let Beside { dropped, audit, counts } = beside;
    let current = read::position(connection).await.map_err(failed("read the head"))?;
    if current != at {
        return Err(CommitError::Stale { current });
    }
    let head = to_column(group.head())?;
    let changes: Vec<_> = group.commits.iter().flat_map(|commit| &commit.changes).collect();
    for run in batch::runs(&changes) {
        for piece in batch::pieces(&changes[run], batches) {
            let fits = write_objects(connection, piece).await.map_err(failed("write objects"))?;
            if !fits {
                return Err(group::misfit(piece[0].kind, &piece[0].key));
            }
        }
    }
    for piece in batch::pieces(&group.commits, batches) {
        append_changes(connection, piece).await.map_err(failed("append to the change log"))?;
    }
    history::write(connection, group, &dropped.history, batches)
        .await
        .map_err(failed("store the history"))?;
    let counts = audit::write(connection, audit, counts).await.map_err(failed("store the audit records"))?;
    if let Some(dropped) = dropped.changes {
        let trim = sqlx::query("DELETE FROM changes WHERE revision <= ?").bind(to_column(dropped)?);
        trim.execute(&mut *connection).await.map_err(failed("trim the change log"))?;
    }
    let move_head = sqlx::query("UPDATE meta SET head = ?").bind(head).execute(connection);
    move_head.await.map_err(failed("move the head"))?;
    Ok(counts)
}

/// Applies changes of one type to distinct objects. Returns false if one of them does not match the stored
/// state.
pub(super) async fn write_objects(
    connection: &mut SqliteConnection,
    changes: &[&EncodedChange],
) -> Result<bool, sqlx::Error> {
    let kind = changes[0].kind;
    let mut query = sqlx::query(AssertSqlSafe(batch::sql(kind, changes.len())));
    for EncodedChange { kind: _, key, body } in changes {
        query = match kind {
            ChangeKind::Added | ChangeKind::Modified => query.bind(key).bind(body.get().as_bytes()),
            ChangeKind::Deleted => query.bind(key),
        };
    }
    Ok(query.execute(connection).await?.rows_affected() == changes.len() as u64)
}

async fn append_changes(
    connection: &mut SqliteConnection,
    commits: &[EncodedCommit],
) -> Result<(), sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(batch::log_sql(commits.len())));
    for EncodedCommit { revision, at, changes: _, body } in commits {
        query = query.bind(revision.0.cast_signed()).bind(at.unix_seconds()).bind(body.as_bytes());
    }
    query.execute(connection).await.map(|_| ())
}

/// Stores a status unless the maximum number is reached. Returns true if it was stored.
async fn put_status(
    connection: &mut SqliteConnection,
    key: String,
    body: Vec<u8>,
) -> Result<bool, sqlx::Error> {
    let sql = "INSERT INTO statuses (key, body) SELECT ?1, ?2 \
               WHERE EXISTS (SELECT 1 FROM statuses WHERE key = ?1) OR (SELECT count(*) FROM statuses) < ?3 \
               ON CONFLICT (key) DO UPDATE SET body = excluded.body";
    let query = sqlx::query(sql).bind(key).bind(body).bind(i64::try_from(STATUSES_MAX).unwrap_or(i64::MAX));
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

async fn raise_epoch(connection: &mut SqliteConnection, now: Timestamp) -> Result<Position, sqlx::Error> {
    let mut transaction = connection.begin_with(BEGIN).await?;
    let Position { epoch, revision } = read::position(&mut transaction).await?;
    let epoch = epoch_after(Some(epoch), now);
    let raise = sqlx::query("UPDATE meta SET epoch = ?").bind(i64::try_from(epoch.0).unwrap_or(i64::MAX));
    raise.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Position { epoch, revision })
}

fn to_column(revision: Revision) -> Result<i64, CommitError> {
    i64::try_from(revision.0)
        .map_err(|_| CommitError::Malformed(format!("revision {revision} is beyond 2^63")))
}
