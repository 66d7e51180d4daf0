//! Connection setup, and migration of a file to the schema of this version.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
    time::Duration,
};

use model::primitives::quantity::Timestamp;
use sqlx::{
    Connection, SqlSafeStr as _, SqliteConnection, SqlitePool,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{error::OpenError, open::epoch_after, sqlite::file::StoreFile};

/// Version, description and text of each file in `migrations/sqlite`. A store contains the checksums of the
/// texts, so a released text never changes.
const MIGRATIONS: [(i64, &str, &str); 5] = [
    (1, "init", include_str!("../../../migrations/sqlite/0001_init.sql")),
    (2, "history", include_str!("../../../migrations/sqlite/0002_history.sql")),
    (3, "audit", include_str!("../../../migrations/sqlite/0003_audit.sql")),
    (4, "vault", include_str!("../../../migrations/sqlite/0004_vault.sql")),
    (5, "audit pools", include_str!("../../../migrations/sqlite/0005_audit_pools.sql")),
];

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |(version, description, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.map(migration).into())
});

/// "TGAT" in the file header, which identifies a store.
const APPLICATION_ID: i32 = 0x5447_4154;
/// Result code of a read-only open if an interrupted transaction must be rolled back first (hot journal).
const SQLITE_READONLY_ROLLBACK: &str = "776";
/// Maximum time to wait for a lock held by an external process, such as `sqlite3` or a backup. Tidegate's own
/// processes never block each other.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent reader connections. Few suffice, because reads are rare, such as at startup
/// and when a watch resumes.
const READERS_MAX: u32 = 4;
/// Maximum size of the write-ahead log on disk after a checkpoint, in bytes.
const WAL_BYTES_KEPT: &str = "67108864";
/// Number of 4 KiB pages in the write-ahead log before a checkpoint. A large commit group (commits written in
/// one transaction) changes more pages than SQLite's default of 1,000. With several groups per checkpoint, a
/// page that they all change is copied into the database only once.
const WAL_PAGES: &str = "4096";
/// Page cache size of a writer (negative: in KiB): the working set of 10,000 Services, so that a change of
/// one of them needs no read from the file.
const CACHE_KIB: &str = "-32768";
/// Page cache size of a reader: it reads a range once, and the kernel caches the file. With a writer's cache,
/// each reader would hold 32 MiB after startup.
const READER_CACHE_KIB: &str = "-2048";

/// Durability of a transaction that has been acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Survives a crash of the machine: one fsync per transaction.
    Full,
    /// Survives a crash of the process. A later transaction with [`Self::Full`] makes it durable as well,
    /// because both append to the same write-ahead log.
    Process,
}

/// Initializes an empty file, or migrates a store to the schema of this version.
pub(super) async fn prepare(file: &StoreFile, now: Timestamp) -> Result<(), OpenError> {
    let path = file.path();
    if !is_ours(path).await.map_err(|cause| failed(path, "look into the file", cause))? {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    let options = options(path, Durability::Full);
    let connection = SqliteConnection::connect_with(&options).await;
    let mut connection = connection.map_err(|cause| failed(path, "connect", cause))?;
    claim(&mut connection).await.map_err(|cause| failed(path, "prepare the file", cause))?;
    MIGRATOR.run(&mut connection).await.map_err(|error| migration_failed(path, error))?;
    let epoch = i64::try_from(epoch_after(None, now).0).unwrap_or(i64::MAX);
    let first = sqlx::query("INSERT OR IGNORE INTO meta (id, epoch, head) VALUES (1, ?, 0)").bind(epoch);
    first.execute(&mut connection).await.map_err(|cause| failed(path, "begin its history", cause))?;
    connection.close().await.map_err(|cause| failed(path, "finish preparing the file", cause))
}

/// Checks that this version can open a file, without migrating it.
pub(super) async fn check(path: &Path) -> Result<(), OpenError> {
    if !is_ours(path).await.map_err(|cause| failed(path, "look into the file", cause))? {
        return Err(OpenError::NotOurs { path: path.to_owned() });
    }
    let found = newest_migration(path).await.map_err(|cause| failed(path, "look for its version", cause))?;
    let known = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
    if found > known { Err(OpenError::NewerSchema { path: path.to_owned(), found, known }) } else { Ok(()) }
}

/// Returns the number of the newest migration applied to a file; 0 if there is none.
async fn newest_migration(path: &Path) -> Result<i64, sqlx::Error> {
    let options = options(path, Durability::Full).read_only(true);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    let tables: i64 = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
    let mut found = 0;
    if tables > 0 {
        let sql = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";
        found = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
    }
    connection.close().await?;
    Ok(found)
}

/// Opens a connection for writing, with the given durability.
pub(super) async fn writer(path: &Path, durability: Durability) -> Result<SqliteConnection, sqlx::Error> {
    SqliteConnection::connect_with(&options(path, durability)).await
}

/// Creates a pool of read-only connections, which are opened on first use.
pub(super) fn readers(path: &Path) -> SqlitePool {
    let options = options(path, Durability::Full).read_only(true).pragma("cache_size", READER_CACHE_KIB);
    SqlitePoolOptions::new()
        .max_connections(READERS_MAX)
        .acquire_timeout(BUSY_TIMEOUT)
        .connect_lazy_with(options)
}

fn options(path: &Path, durability: Durability) -> SqliteConnectOptions {
    let synchronous = match durability {
        Durability::Full => SqliteSynchronous::Full,
        Durability::Process => SqliteSynchronous::Normal,
    };
    let options =
        SqliteConnectOptions::new().filename(path).synchronous(synchronous).busy_timeout(BUSY_TIMEOUT);
    let options = options.pragma("journal_size_limit", WAL_BYTES_KEPT);
    let options = options.pragma("wal_autocheckpoint", WAL_PAGES).pragma("cache_size", CACHE_KIB);
    sqlx::ConnectOptions::disable_statement_logging(options)
}

/// Returns true if the file is a store, or empty. Reads without writing, so that foreign files stay
/// unchanged; only an interrupted transaction is rolled back first, as the owner of the file would do.
async fn is_ours(path: &Path) -> Result<bool, sqlx::Error> {
    let options = options(path, Durability::Full);
    match look(&options.clone().read_only(true)).await {
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(SQLITE_READONLY_ROLLBACK) => {
            look(&options).await
        }
        looked => looked,
    }
}

async fn look(options: &SqliteConnectOptions) -> Result<bool, sqlx::Error> {
    let mut connection = SqliteConnection::connect_with(options).await?;
    let id: i32 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut connection).await?;
    let tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}

/// Marks the file as a store before creating the first table, so that an interrupted initialization can be
/// resumed.
async fn claim(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let id: i32 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
    if id != APPLICATION_ID {
        let claim = sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}"));
        sqlx::raw_sql(claim).execute(&mut *connection).await?;
    }
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await?;
    if mode == "wal" {
        return Ok(());
    }
    let refused =
        format!("the file system allows journal mode {mode} only; wal is required and needs shared memory");
    Err(sqlx::Error::Configuration(refused.into()))
}

fn migration_failed(path: &Path, error: MigrateError) -> OpenError {
    if let MigrateError::VersionMissing(found) = error {
        let known = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
        return OpenError::NewerSchema { path: path.to_owned(), found, known };
    }
    OpenError::Unavailable { path: path.to_owned(), action: "apply its migrations", cause: Arc::new(error) }
}

fn failed(path: &Path, action: &'static str, cause: sqlx::Error) -> OpenError {
    OpenError::Unavailable { path: path.to_owned(), action, cause: Arc::new(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commits_are_synced_to_disk_and_statuses_only_to_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let file = StoreFile::open(&directory.path().join("state.db")).unwrap();
        prepare(&file, Timestamp::from_unix_seconds(0)).await.unwrap();
        for (durability, expected) in [(Durability::Full, 2), (Durability::Process, 1)] {
            let mut connection = writer(file.path(), durability).await.unwrap();
            let synchronous = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut connection);
            assert_eq!(synchronous.await.ok(), Some(expected), "{durability:?}");
            let mode: String =
                sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.unwrap();
            assert_eq!(mode, "wal");
        }
    }

    #[tokio::test]
    async fn every_file_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/sqlite");
        let parts = |migrator: &Migrator| -> Vec<_> {
            let parts = |one: &Migration| (one.version, one.description.clone(), one.checksum.clone());
            migrator.iter().map(parts).collect()
        };
        assert_eq!(parts(&MIGRATOR), parts(&Migrator::new(folder).await.unwrap()));
    }

    #[tokio::test]
    async fn a_reader_keeps_no_more_than_2_mib_of_pages() {
        let directory = tempfile::tempdir().unwrap();
        let file = StoreFile::open(&directory.path().join("state.db")).unwrap();
        prepare(&file, Timestamp::from_unix_seconds(0)).await.unwrap();
        let cache: i64 =
            sqlx::query_scalar("PRAGMA cache_size").fetch_one(&readers(file.path())).await.unwrap();
        assert_eq!(cache, -2048);
    }
}
