//! One file with everything that a store keeps of a cluster.
//!
//! ```text
//! {"format":"tidegate-backup","version":1,"madeAt":…,"position":"EPOCH-REVISION","historyFloor":…}
//! {"object":{"key":…,"body":{…}}}      every object, in the order of their keys
//! {"vault":{"key":…,"body":"HEX"}}     every record of the vault
//! {"history":{"revision":…,…}}         every kept write, when it was asked for
//! {"end":{"lines":…,"sha256":"HEX"}}   of every byte before this line
//! ```
//! JSON lines, so that a person can look into it and any tool can compress it. It holds secrets: passwords of routers, the
//! keys of the cluster, hashes of tokens. A file is read whole and believed only when its last line is the one expected.

use std::io;

use model::primitives::quantity::{Position, Timestamp};

use crate::{Contents, error::StoreError};

mod read;
mod wire;
mod write;

pub use read::read;
pub use write::lines;

/// The version of the format that this version writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Bytes of one line: a write of the largest accepted group, with every object before and after.
pub const LINE_BYTES_MAX: usize = 3 * crate::GROUP_BYTES_MAX;
/// Bytes of a file: what a store keeps at its limits, several times over; its objects have to fit into memory anyhow.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// A backup that was read whole and found intact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// When it was made.
    pub made_at: Timestamp,
    /// Where the store was.
    pub position: Position,
    /// What it kept.
    pub contents: Contents,
}

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file is something else, or its first line is damaged.
    #[error("it is not a backup of Tidegate, or its first line is damaged")]
    NotABackup,
    /// A newer version has written it.
    #[error("its format has version {found}, this version reads up to {VERSION}; use the newer version")]
    Newer {
        /// The version of the file.
        found: u32,
    },
    /// Bytes have changed or are missing.
    #[error("it is damaged: {0}; use another backup")]
    Broken(String),
    /// It is intact, but holds what this version does not read.
    #[error("it holds what this version does not read: {0}")]
    Unknown(StoreError),
    /// It is beyond a limit.
    #[error("it has more than {limit} {unit}")]
    TooLarge {
        /// What is counted.
        unit: &'static str,
        /// How many there may be.
        limit: u64,
    },
}
