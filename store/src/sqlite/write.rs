//! Writes, one at a time, each one transaction.
//!
//! The connections and the book-keeping of the log live in a session. A write takes the session out and puts it back only
//! when it knows what the file holds; after any failure of the file the next write starts from a fresh session.

use std::time::Instant;

use model::{
    change::ChangeKind,
    quantity::{Position, Revision, Timestamp},
};
use sqlx::{Connection, SqliteConnection};

use crate::{
    CommitError, STATUSES_MAX, StatusError, StoreError,
    group::{self, EncodedChange, EncodedCommit, Group},
    open::epoch_after,
    sqlite::{
        connect::{self, Durability},
        file::StoreFile,
        read::{self, failed},
    },
    window::Window,
};

/// Takes the write lock at once: a transaction that starts reading could find somebody ahead of it at its first write.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// The only writer of the file.
#[derive(Debug)]
pub(super) struct Writer {
    session: Option<Session>,
    file: StoreFile,
}

#[derive(Debug)]
struct Session {
    durable: SqliteConnection,
    relaxed: SqliteConnection,
    window: Window,
}

impl Writer {
    /// Becomes the writer of a file that has been prepared.
    pub(super) fn new(file: StoreFile) -> Self {
        Self { session: None, file }
    }

    /// Commits a group that was decided at `at`.
    pub(super) async fn commit(&mut self, at: Position, group: &Group) -> Result<(), CommitError> {
        let started = Instant::now();
        let mut session = self.take_session().await?;
        let entries = group.entries();
        let dropped = session.window.drop_through(&entries);
        match commit(&mut session.durable, at, group, dropped).await {
            Ok(()) => session.window.advance(&entries, dropped),
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

    /// Keeps a status.
    pub(super) async fn put_status(&mut self, key: String, body: Vec<u8>) -> Result<(), StatusError> {
        let mut session = self.take_session().await?;
        let kept = put_status(&mut session.relaxed, key, body).await.map_err(failed("keep a status"))?;
        self.session = Some(session);
        let limit = STATUSES_MAX - 1;
        if kept { Ok(()) } else { Err(StatusError::TooLarge { unit: "statuses beside it", found: STATUSES_MAX, limit }) }
    }

    /// Forgets a status.
    pub(super) async fn remove_status(&mut self, key: String) -> Result<(), StoreError> {
        let mut session = self.take_session().await?;
        let delete = sqlx::query("DELETE FROM statuses WHERE key = ?").bind(key).execute(&mut session.relaxed);
        delete.await.map_err(failed("forget a status"))?;
        self.session = Some(session);
        Ok(())
    }

    /// Begins a new life.
    pub(super) async fn raise_epoch(&mut self, now: Timestamp) -> Result<Position, StoreError> {
        let mut session = self.take_session().await?;
        let position = raise_epoch(&mut session.durable, now).await.map_err(failed("raise the epoch"))?;
        self.session = Some(session);
        Ok(position)
    }

    async fn take_session(&mut self) -> Result<Session, StoreError> {
        if let Some(session) = self.session.take() {
            return Ok(session);
        }
        let path = self.file.path();
        let connect = async || {
            let mut durable = connect::writer(path, Durability::Full).await?;
            let relaxed = connect::writer(path, Durability::Process).await?;
            let window = read::window(&mut durable).await?;
            Ok(Session { durable, relaxed, window })
        };
        connect().await.map_err(failed("connect to write"))
    }
}

async fn commit(
    connection: &mut SqliteConnection,
    at: Position,
    group: &Group,
    dropped: Option<Revision>,
) -> Result<(), CommitError> {
    let mut transaction = connection.begin_with(BEGIN).await.map_err(failed("begin a write"))?;
    match write_group(&mut transaction, at, group, dropped).await {
        Ok(()) => Ok(transaction.commit().await.map_err(failed("make a group durable"))?),
        Err(error) => {
            transaction.rollback().await.map_err(failed("take back a refused group"))?;
            Err(error)
        }
    }
}

async fn write_group(
    connection: &mut SqliteConnection,
    at: Position,
    group: &Group,
    dropped: Option<Revision>,
) -> Result<(), CommitError> {
    let current = read::position(connection).await.map_err(failed("read the head"))?;
    if current != at {
        return Err(CommitError::Stale { current });
    }
    for commit in &group.commits {
        for change in &commit.changes {
            if !write_object(connection, change).await.map_err(failed("write an object"))? {
                return Err(group::misfit(change.kind, &change.key));
            }
        }
        let revision = to_column(commit.revision)?;
        append_change(connection, revision, commit).await.map_err(failed("append to the change log"))?;
    }
    if let Some(dropped) = dropped {
        let trim = sqlx::query("DELETE FROM changes WHERE revision <= ?").bind(to_column(dropped)?);
        trim.execute(&mut *connection).await.map_err(failed("trim the change log"))?;
    }
    let head = sqlx::query("UPDATE meta SET head = ?").bind(to_column(group.head())?);
    head.execute(connection).await.map_err(failed("move the head"))?;
    Ok(())
}

/// Applies one change; false when the object is, or is not, there against what the change says.
async fn write_object(connection: &mut SqliteConnection, change: &EncodedChange) -> Result<bool, sqlx::Error> {
    let EncodedChange { kind, key, body } = change;
    let query = match kind {
        ChangeKind::Added => {
            let sql = "INSERT INTO objects (key, body) VALUES (?, ?) ON CONFLICT (key) DO NOTHING";
            sqlx::query(sql).bind(key).bind(body.as_bytes())
        }
        ChangeKind::Modified => {
            sqlx::query("UPDATE objects SET body = ?2 WHERE key = ?1").bind(key).bind(body.as_bytes())
        }
        ChangeKind::Deleted => sqlx::query("DELETE FROM objects WHERE key = ?").bind(key),
    };
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

async fn append_change(
    connection: &mut SqliteConnection,
    revision: i64,
    commit: &EncodedCommit,
) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO changes (revision, at, body) VALUES (?, ?, ?)";
    let query = sqlx::query(sql).bind(revision).bind(commit.at.unix_seconds()).bind(commit.body.as_bytes());
    query.execute(connection).await.map(|_| ())
}

/// Keeps a status, unless it is one too many.
async fn put_status(connection: &mut SqliteConnection, key: String, body: Vec<u8>) -> Result<bool, sqlx::Error> {
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
    i64::try_from(revision.0).map_err(|_| CommitError::Malformed(format!("revision {revision} is beyond 2^63")))
}
