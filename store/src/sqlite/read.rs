//! Read operations, each at one snapshot of the SQLite file.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    cluster::change::Commit,
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
};
use sqlx::{SqliteConnection, SqlitePool};

use crate::{
    CHANGES_KEPT, ChangesError, StoreError, StoredState, record,
    window::{Bounds, Entry, Window},
};

type ObjectRow = (String, Vec<u8>);
type ChangeRow = (i64, i64, Vec<u8>);

/// Reads the complete state of the store.
pub(super) async fn load(readers: &SqlitePool) -> Result<StoredState, StoreError> {
    let (position, objects, changes) = load_rows(readers).await.map_err(failed("read the state"))?;
    // Decoding a large state would block the other tasks of this thread.
    let decoded = tokio::task::spawn_blocking(move || {
        let objects = objects.into_iter().map(|(key, body)| record::decode(&key, &body).map(Arc::new));
        let objects = objects.collect::<Result<_, _>>()?;
        Ok(StoredState { position, objects, recent: decode_commits(changes)? })
    });
    decoded.await.unwrap_or_else(|error| Err(StoreError::unavailable("decode the state", error)))
}

/// Reads at most `limit` commits after the revision `after`, oldest first. Returns an error if the change log
/// no longer reaches back that far.
pub(super) async fn changes(
    readers: &SqlitePool,
    after: Revision,
    limit: usize,
) -> Result<Vec<Commit>, ChangesError> {
    let limit = limit.min(CHANGES_KEPT);
    let rows = change_rows(readers, after, limit).await.map_err(failed("read the change log"))?;
    let rows = rows.map_err(|oldest| ChangesError::Compacted { oldest })?;
    Ok(decode_commits(rows)?)
}

/// Reads all statuses by key.
pub(super) async fn statuses(readers: &SqlitePool) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
    let rows = sqlx::query_as::<_, ObjectRow>("SELECT key, body FROM statuses").fetch_all(readers).await;
    Ok(rows.map_err(failed("read the statuses"))?.into_iter().collect())
}

/// Reads the position of the store (epoch and revision) on a connection of the pool.
pub(super) async fn head(readers: &SqlitePool) -> Result<Position, StoreError> {
    let read = async { position(&mut *readers.acquire().await?).await };
    read.await.map_err(failed("read the head"))
}

/// Reads the position of the store (epoch and revision) on the given connection.
pub(super) async fn position(connection: &mut SqliteConnection) -> Result<Position, sqlx::Error> {
    let row = sqlx::query_as::<_, (i64, i64)>("SELECT epoch, head FROM meta").fetch_one(connection).await?;
    Ok(Position { epoch: Epoch(row.0.unsigned_abs()), revision: Revision(row.1.unsigned_abs()) })
}

/// Reads the retention window of the change log: the revision and size of each commit, without its changes.
pub(super) async fn window(connection: &mut SqliteConnection) -> Result<Window, sqlx::Error> {
    let sql = "SELECT revision, length(body) FROM changes ORDER BY revision";
    let rows = sqlx::query_as::<_, (i64, i64)>(sql).fetch_all(connection).await?;
    Ok(Window::new(Bounds::CHANGES, rows.into_iter().map(entry)))
}

/// Converts a row of revision and size to an [`Entry`].
pub(super) fn entry((revision, bytes): (i64, i64)) -> Entry {
    Entry { revision: Revision(revision.unsigned_abs()), bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
}

/// Returns a function that converts a database error to a store error that names the failed action.
pub(super) fn failed(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |cause| StoreError::unavailable(action, cause)
}

async fn load_rows(readers: &SqlitePool) -> Result<(Position, Vec<ObjectRow>, Vec<ChangeRow>), sqlx::Error> {
    let mut snapshot = readers.begin().await?;
    let position = position(&mut snapshot).await?;
    let objects =
        sqlx::query_as("SELECT key, body FROM objects ORDER BY key").fetch_all(&mut *snapshot).await?;
    let changes = sqlx::query_as("SELECT revision, at, body FROM changes ORDER BY revision");
    let changes = changes.fetch_all(&mut *snapshot).await?;
    snapshot.rollback().await?;
    Ok((position, objects, changes))
}

async fn change_rows(
    readers: &SqlitePool,
    after: Revision,
    limit: usize,
) -> Result<Result<Vec<ChangeRow>, Revision>, sqlx::Error> {
    let mut snapshot = readers.begin().await?;
    let oldest: Option<i64> =
        sqlx::query_scalar("SELECT min(revision) FROM changes").fetch_one(&mut *snapshot).await?;
    if let Some(oldest) = oldest.map(|oldest| Revision(oldest.unsigned_abs()))
        && after.0.saturating_add(1) < oldest.0
    {
        return Ok(Err(oldest));
    }
    let rows =
        sqlx::query_as("SELECT revision, at, body FROM changes WHERE revision > ? ORDER BY revision LIMIT ?");
    let rows =
        rows.bind(i64::try_from(after.0).unwrap_or(i64::MAX)).bind(i64::try_from(limit).unwrap_or(i64::MAX));
    let rows = rows.fetch_all(&mut *snapshot).await?;
    snapshot.rollback().await?;
    Ok(Ok(rows))
}

fn decode_commits(rows: Vec<ChangeRow>) -> Result<Vec<Commit>, StoreError> {
    let decode = |(revision, at, body): ChangeRow| {
        let (revision, at) = (Revision(revision.unsigned_abs()), Timestamp::from_unix_seconds(at));
        record::decode_commit(revision, at, &body)
    };
    rows.into_iter().map(decode).collect()
}
