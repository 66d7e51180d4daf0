//! Audit log in the SQLite file.

use model::primitives::quantity::Timestamp;
use sqlx::{Connection, SqliteConnection, SqlitePool};

use super::read::failed;
use crate::{
    AUDIT_AGE_MAX_SECS, StoreError,
    audit::{AuditPool, AuditRecord},
};

/// Number of audit records in each pool.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    entries: [usize; AuditPool::ALL.len()],
}

/// Counts the audit records in the file.
pub(super) async fn counts(connection: &mut SqliteConnection) -> Result<Counts, sqlx::Error> {
    let mut counts = Counts::default();
    for pool in AuditPool::ALL {
        let sql = "SELECT count(*) FROM audit WHERE passing = ?";
        let count: i64 =
            sqlx::query_scalar(sql).bind(i64::from(pool.number())).fetch_one(&mut *connection).await?;
        counts.entries[usize::from(pool.number())] = usize::try_from(count).unwrap_or(0);
    }
    Ok(counts)
}

/// Inserts audit records within the caller's transaction, and drops old ones if there are too many. Returns
/// the new counts.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    records: &[AuditRecord],
    counts: Counts,
) -> Result<Counts, sqlx::Error> {
    let mut counts = counts;
    for AuditRecord { number, at, pool, body } in records {
        let sql = "INSERT INTO audit (number, at, passing, body) VALUES (?, ?, ?, ?) ON CONFLICT (number) DO NOTHING";
        let insert = sqlx::query(sql).bind(number.cast_signed()).bind(at.unix_seconds());
        let insert = insert.bind(i64::from(pool.number())).bind(body.as_slice());
        let added = insert.execute(&mut *connection).await?.rows_affected();
        counts.entries[usize::from(pool.number())] += usize::try_from(added).unwrap_or(0);
    }
    let Some(newest) = records.last().map(|record| record.at) else { return Ok(counts) };
    for pool in AuditPool::ALL {
        let count = &mut counts.entries[usize::from(pool.number())];
        if *count > pool.kept() + pool.slack() {
            *count -= trim(connection, pool, newest).await?;
        }
    }
    Ok(counts)
}

/// Drops expired audit records of a pool, and those beyond its maximum number.
async fn trim(
    connection: &mut SqliteConnection,
    pool: AuditPool,
    newest: Timestamp,
) -> Result<usize, sqlx::Error> {
    let sql = "DELETE FROM audit WHERE passing = ?1 AND (at < ?2 OR number <= \
               (SELECT number FROM audit WHERE passing = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?3))";
    let oldest = newest.unix_seconds().saturating_sub(AUDIT_AGE_MAX_SECS);
    let offset = i64::try_from(pool.kept()).unwrap_or(i64::MAX);
    let trim = sqlx::query(sql).bind(i64::from(pool.number())).bind(oldest).bind(offset);
    Ok(usize::try_from(trim.execute(connection).await?.rows_affected()).unwrap_or(0))
}

/// Inserts audit records in a transaction of their own, without a commit of objects.
pub(super) async fn put(
    connection: &mut SqliteConnection,
    records: &[AuditRecord],
    counts: Counts,
) -> Result<Counts, sqlx::Error> {
    let mut transaction = connection.begin_with(super::write::BEGIN).await?;
    let counts = write(&mut transaction, records, counts).await?;
    transaction.commit().await?;
    Ok(counts)
}

/// Drops expired audit records.
pub(super) async fn drop_old(connection: &mut SqliteConnection, now: Timestamp) -> Result<(), sqlx::Error> {
    let oldest = now.unix_seconds().saturating_sub(AUDIT_AGE_MAX_SECS);
    sqlx::query("DELETE FROM audit WHERE at < ?").bind(oldest).execute(connection).await.map(|_| ())
}

/// Returns at most `limit` audit records, newest first; only those with a number below `before`, if given.
pub(super) async fn list(
    readers: &SqlitePool,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<AuditRecord>, StoreError> {
    let sql = "SELECT number, at, passing, body FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?";
    let column = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let rows = sqlx::query_as::<_, (i64, i64, i64, Vec<u8>)>(sql)
        .bind(before.map_or(i64::MAX, column))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(readers)
        .await
        .map_err(failed("read the audit log"))?;
    let record = |(number, at, passing, body): (i64, i64, i64, Vec<u8>)| {
        let pool = AuditPool::ALL.into_iter().find(|pool| i64::from(pool.number()) == passing);
        AuditRecord {
            number: number.unsigned_abs(),
            at: Timestamp::from_unix_seconds(at),
            pool: pool.unwrap_or(AuditPool::Passing),
            body,
        }
    };
    Ok(rows.into_iter().map(record).collect())
}
