//! History of writes in the SQLite file: written together with the commits, and read in pages.

use model::{cluster::history::RevisionEntry, primitives::quantity::Revision};
use sqlx::{AssertSqlSafe, SqliteConnection, SqlitePool};

use super::{
    batch,
    read::{self, failed},
};
use crate::{
    HistoryPage, HistoryQuery, StoreError,
    group::Group,
    history::{self, EncodedEntry, HeadRow},
    window::{Bounds, Window},
};

/// Number of history heads (author and keys) read at a time while filtering: a few hundred kilobytes for
/// typical writes.
const HEADS_AT_ONCE: i64 = 500;

/// Retention windows of the history, separately for client and server writes.
#[derive(Debug)]
pub(super) struct Windows {
    of_others: Window,
    of_server: Window,
}

/// Newest client entry and newest server entry that must be dropped to make room for a group; older entries
/// are dropped as well.
#[derive(Debug)]
pub(super) struct DroppedHistory {
    of_others: Option<Revision>,
    of_server: Option<Revision>,
}

impl Windows {
    /// Returns the newest entries to drop to make room for a group.
    pub(super) fn drop_through(&self, group: &Group) -> DroppedHistory {
        DroppedHistory {
            of_others: self.of_others.drop_through(&group.history_entries(false)),
            of_server: self.of_server.drop_through(&group.history_entries(true)),
        }
    }

    /// Adds the entries of a committed group to the windows and removes the dropped ones.
    pub(super) fn advance(&mut self, group: &Group, dropped: &DroppedHistory) {
        self.of_others.advance(&group.history_entries(false), dropped.of_others);
        self.of_server.advance(&group.history_entries(true), dropped.of_server);
    }
}

/// Reads the retention windows (revision and size of each history entry) from the file, without the bodies of
/// the entries.
pub(super) async fn windows(connection: &mut SqliteConnection) -> Result<Windows, sqlx::Error> {
    Ok(Windows {
        of_others: window(connection, false, Bounds::HISTORY).await?,
        of_server: window(connection, true, Bounds::SERVER).await?,
    })
}

async fn window(
    connection: &mut SqliteConnection,
    is_by_server: bool,
    bounds: Bounds,
) -> Result<Window, sqlx::Error> {
    let sql =
        "SELECT revision, length(head) + length(body) FROM history WHERE by_server = ? ORDER BY revision";
    let rows = sqlx::query_as::<_, (i64, i64)>(sql).bind(i64::from(is_by_server)).fetch_all(connection);
    Ok(Window::new(bounds, rows.await?.into_iter().map(read::entry)))
}

/// Stores the history of a group, and drops old entries.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    group: &Group,
    dropped: &DroppedHistory,
    batches: &[usize],
) -> Result<(), sqlx::Error> {
    insert(connection, &group.history, batches).await?;
    let DroppedHistory { of_others, of_server } = dropped;
    for (dropped, is_by_server) in [(of_others, false), (of_server, true)] {
        let Some(dropped) = dropped else { continue };
        let trim = sqlx::query("DELETE FROM history WHERE revision <= ? AND by_server = ?");
        let trim = trim.bind(dropped.0.cast_signed()).bind(i64::from(is_by_server));
        trim.execute(&mut *connection).await?;
    }
    if let Some(floor) = of_others {
        let raise = sqlx::query("UPDATE meta SET history_floor = ?").bind(floor.0.cast_signed());
        raise.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Inserts history entries within a transaction.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    entries: &[EncodedEntry],
    batches: &[usize],
) -> Result<(), sqlx::Error> {
    for piece in batch::pieces(entries, batches) {
        let mut query = sqlx::query(AssertSqlSafe(batch::history_sql(piece.len())));
        for entry in piece {
            query = query.bind(entry.revision.0.cast_signed()).bind(entry.at.unix_seconds());
            query = query.bind(i64::from(entry.is_by_server));
            query = query.bind(entry.head.as_bytes()).bind(entry.body.as_bytes());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Returns a page of history entries, newest first.
pub(super) async fn list(readers: &SqlitePool, query: &HistoryQuery) -> Result<HistoryPage, StoreError> {
    let mut snapshot = readers.begin().await.map_err(failed("read the history"))?;
    let floor: i64 = sqlx::query_scalar("SELECT history_floor FROM meta")
        .fetch_one(&mut *snapshot)
        .await
        .map_err(failed("read the history"))?;
    let mut heads = Vec::new();
    let mut before = to_column(query.before.unwrap_or(Revision(u64::MAX)));
    while heads.len() < query.limit {
        let sql = "SELECT revision, at, head FROM history WHERE revision < ? ORDER BY revision DESC LIMIT ?";
        let rows = sqlx::query_as::<_, HeadRow>(sql).bind(before).bind(HEADS_AT_ONCE);
        let rows = rows.fetch_all(&mut *snapshot).await.map_err(failed("read the history"))?;
        let Some(last) = rows.last() else { break };
        before = last.0;
        for row in rows {
            let head = history::decode_head(row)?;
            if heads.len() < query.limit && query.filter.matches(&head) {
                heads.push(head);
            }
        }
    }
    snapshot.rollback().await.map_err(failed("read the history"))?;
    Ok(HistoryPage { heads, floor: Revision(floor.unsigned_abs()) })
}

/// Reads at most `limit` history entries from revision `first` on, oldest first.
pub(super) async fn read(
    readers: &SqlitePool,
    first: Revision,
    limit: usize,
) -> Result<Vec<RevisionEntry>, StoreError> {
    let sql = "SELECT revision, at, head, body FROM history WHERE revision >= ? ORDER BY revision LIMIT ?";
    let rows = sqlx::query_as::<_, (i64, i64, Vec<u8>, Vec<u8>)>(sql);
    let rows =
        rows.bind(to_column(first)).bind(i64::try_from(limit).unwrap_or(i64::MAX)).fetch_all(readers).await;
    let rows = rows.map_err(failed("read the history"))?;
    // Decoding much history would block the other tasks of this thread.
    let decoded = tokio::task::spawn_blocking(move || {
        let decode = |(revision, at, head, body): (i64, i64, Vec<u8>, Vec<u8>)| {
            history::decode((revision, at, head), &body)
        };
        rows.into_iter().map(decode).collect()
    });
    decoded.await.unwrap_or_else(|error| Err(StoreError::unavailable("decode the history", error)))
}

fn to_column(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
