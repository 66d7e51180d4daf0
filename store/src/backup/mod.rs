//! Backups: one file with the cluster data of a store, as lines of JSON. People can read the file, and any
//! tool can compress it.
//!
//! ```text
//! {"format":"tidegate-backup","version":1,"madeAt":…,"position":"EPOCH-REVISION","historyFloor":…}
//! {"object":{"key":…,"body":{…}}}      one line for each object, in key order
//! {"vault":{"key":…,"body":"HEX"}}     one line for each vault record: keys, tokens, roles
//! {"history":{"revision":…,…}}         one line for each retained write, if the history is included
//! {"end":{"lines":…,"sha256":"HEX"}}   number of lines before this one, and the hash of their bytes
//! ```
//! Writes up to revision `historyFloor` may be missing from the history. The file contains secrets: passwords
//! of routers, keys of the cluster, hashes of tokens. A backup is used only after it was read completely and
//! its last line matches the lines before it.

use std::io;

use model::primitives::quantity::{Position, Timestamp};

use crate::{Contents, error::StoreError};

mod read;
mod wire;
mod write;

pub use read::read;
pub use write::lines;

/// Format version of written backups, and the newest version that can be read.
pub const VERSION: u32 = 1;
/// Maximum length of a line in bytes: enough for the history entry of the largest accepted commit group
/// (commits written in one transaction), with every object before and after the write.
pub const LINE_BYTES_MAX: usize = 3 * crate::GROUP_BYTES_MAX;
/// Maximum size of a file in bytes; several times the limits of a store. The objects must fit into memory
/// anyway.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// Backup that was read completely and whose checksum is correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Time at which the backup was created.
    pub made_at: Timestamp,
    /// Position (epoch and revision) of the store when the backup was created.
    pub position: Position,
    /// Objects, history, and the records of the vault (keys, tokens, roles).
    pub contents: Contents,
}

/// Reason why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read.
    #[error("cannot read the file")]
    Unreadable(#[source] io::Error),
    /// The file is not a backup, or its first line is damaged.
    #[error("the file is not a Tidegate backup, or its first line is damaged")]
    NotABackup,
    /// The file was written by a newer version of Tidegate.
    #[error(
        "format version {found} is newer than {VERSION}, the latest supported one; use the newer \
             version"
    )]
    Newer {
        /// Format version of the file.
        found: u32,
    },
    /// Bytes of the file are changed or missing; contains a description of the damage.
    #[error("the file is damaged: {0}; use another backup")]
    Broken(String),
    /// The file is intact, but this version does not support its data; contains the cause.
    #[error("the file contains unsupported data: {0}")]
    Unknown(StoreError),
    /// The file exceeds a size limit.
    #[error("the file has more than {limit} {unit}")]
    TooLarge {
        /// Unit of the limit, such as `bytes in one line`.
        unit: &'static str,
        /// Maximum permitted number of units.
        limit: u64,
    },
}
