//! Replacement of the contents of the SQLite file in one transaction.

use model::{
    cluster::change::ChangeKind,
    primitives::quantity::{Position, Revision},
};
use sqlx::{Connection, SqliteConnection};

use super::{
    batch::{self, BATCHES},
    history,
    read::{self, failed},
    write::{BEGIN, write_objects},
};
use crate::{
    Contents, ReplaceError,
    group::EncodedChange,
    history::{EncodedEntry, encode_alone},
    record,
};

/// New contents of a store, encoded as rows of the tables.
#[derive(Debug)]
pub(super) struct Replacement {
    objects: Vec<EncodedChange>,
    history: Vec<EncodedEntry>,
    history_floor: Revision,
    vault: Vec<(String, Vec<u8>)>,
}

impl Replacement {
    /// Encodes validated contents as rows of the tables.
    pub(super) fn of(contents: &Contents) -> Self {
        let Contents { revision: _, objects, history, history_floor, vault } = contents;
        let objects = objects.iter().map(|object| EncodedChange {
            kind: ChangeKind::Added,
            key: object.key().to_store_key(),
            body: record::encode(object),
        });
        Self {
            objects: objects.collect(),
            history: history.iter().map(encode_alone).collect(),
            history_floor: *history_floor,
            vault: vault.iter().map(|(key, body)| (key.clone(), body.clone())).collect(),
        }
    }
}

/// Replaces the contents of the store, provided that it is still at position `at`.
pub(super) async fn run(
    connection: &mut SqliteConnection,
    at: Position,
    replacement: &Replacement,
    new: Position,
) -> Result<(), ReplaceError> {
    let mut transaction = connection.begin_with(BEGIN).await.map_err(failed("begin a write"))?;
    let current = read::position(&mut transaction).await.map_err(failed("read the head"))?;
    if current != at {
        transaction.rollback().await.map_err(failed("roll back a rejected write"))?;
        return Err(ReplaceError::Stale { current });
    }
    write(&mut transaction, replacement, new).await.map_err(failed("replace the contents of the store"))?;
    transaction.commit().await.map_err(failed("make the contents durable"))?;
    Ok(())
}

async fn write(
    connection: &mut SqliteConnection,
    replacement: &Replacement,
    new: Position,
) -> Result<(), sqlx::Error> {
    let Replacement { objects, history: entries, history_floor, vault } = replacement;
    for sql in [
        "DELETE FROM objects",
        "DELETE FROM changes",
        "DELETE FROM history",
        "DELETE FROM statuses",
        "DELETE FROM vault",
    ] {
        sqlx::query(sql).execute(&mut *connection).await?;
    }
    let objects: Vec<_> = objects.iter().collect();
    for piece in batch::pieces(&objects, BATCHES) {
        write_objects(connection, piece).await?;
    }
    history::insert(connection, entries, BATCHES).await?;
    for (key, body) in vault {
        let next = "UPDATE vault_versions SET last = last + 1 RETURNING last";
        let version: i64 = sqlx::query_scalar(next).fetch_one(&mut *connection).await?;
        let insert = sqlx::query("INSERT INTO vault (key, version, body) VALUES (?, ?, ?)");
        insert.bind(key).bind(version).bind(body.as_slice()).execute(&mut *connection).await?;
    }
    let column = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    sqlx::query("UPDATE meta SET epoch = ?, head = ?, history_floor = ?")
        .bind(column(new.epoch.0))
        .bind(column(new.revision.0))
        .bind(column(history_floor.0))
        .execute(connection)
        .await
        .map(drop)
}
