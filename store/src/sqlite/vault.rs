//! Vault records in the SQLite file.

use std::collections::BTreeMap;

use sqlx::{Connection as _, SqliteConnection, SqlitePool};

use super::{read::failed, write::BEGIN};
use crate::{StoreError, VAULT_RECORDS_MAX, VaultError, VaultRecord, vault};

/// Reads all vault records by key.
pub(super) async fn list(readers: &SqlitePool) -> Result<BTreeMap<String, VaultRecord>, StoreError> {
    let rows: Vec<(String, i64, Vec<u8>)> = sqlx::query_as("SELECT key, version, body FROM vault")
        .fetch_all(readers)
        .await
        .map_err(failed("read the vault"))?;
    let record = |(key, version, body): (String, i64, Vec<u8>)| {
        (key, VaultRecord { version: version.unsigned_abs(), body })
    };
    Ok(rows.into_iter().map(record).collect())
}

/// Writes a vault record, or deletes it if `body` is `None`, provided that its version is still `at`.
pub(super) async fn put(
    connection: &mut SqliteConnection,
    key: &str,
    at: u64,
    body: Option<&[u8]>,
) -> Result<u64, VaultError> {
    let mut transaction = connection.begin_with(BEGIN).await.map_err(failed("begin a write"))?;
    match write(&mut transaction, key, at, body).await {
        Ok(version) => {
            transaction.commit().await.map_err(failed("make a record durable"))?;
            Ok(version)
        }
        Err(error) => {
            transaction.rollback().await.map_err(failed("roll back a rejected record"))?;
            Err(error)
        }
    }
}

async fn write(
    connection: &mut SqliteConnection,
    key: &str,
    at: u64,
    body: Option<&[u8]>,
) -> Result<u64, VaultError> {
    let failed = |error| failed("write to the vault")(error);
    let found: Option<i64> = sqlx::query_scalar("SELECT version FROM vault WHERE key = ?")
        .bind(key)
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed)?;
    let found = found.map_or(0, i64::unsigned_abs);
    if found != at {
        return Err(VaultError::Stale { found });
    }
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM vault").fetch_one(&mut *connection).await.map_err(failed)?;
    if found == 0 && body.is_some() && usize::try_from(count).is_ok_and(|count| count >= VAULT_RECORDS_MAX) {
        return Err(vault::full());
    }
    let version: i64 = sqlx::query_scalar("UPDATE vault_versions SET last = last + 1 RETURNING last")
        .fetch_one(&mut *connection)
        .await
        .map_err(failed)?;
    let query = match body {
        Some(body) => sqlx::query(
            "INSERT INTO vault (key, version, body) VALUES (?1, ?2, ?3) \
             ON CONFLICT (key) DO UPDATE SET version = excluded.version, body = excluded.body",
        )
        .bind(key)
        .bind(version)
        .bind(body),
        None => sqlx::query("DELETE FROM vault WHERE key = ?1").bind(key),
    };
    query.execute(&mut *connection).await.map_err(failed)?;
    Ok(version.unsigned_abs())
}
