//! What every store checks before it puts a record into its vault, and what a record is.

use std::fmt;

use crate::{VAULT_BYTES_MAX, VAULT_KEY_BYTES_MAX, VAULT_RECORDS_MAX, VaultError};

/// A record of the vault. What it holds is never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct VaultRecord {
    /// Changes with every write, and never returns to what it was.
    pub version: u64,
    /// What the record holds.
    pub body: Vec<u8>,
}

impl fmt::Debug for VaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaultRecord {{ version: {}, {} bytes }}", self.version, self.body.len())
    }
}

/// Checks the size of a record.
pub(crate) fn check(key: &str, body: Option<&[u8]>) -> Result<(), VaultError> {
    let limits = [
        ("bytes in a key", key.len(), VAULT_KEY_BYTES_MAX),
        ("bytes in a record", body.map_or(0, <[u8]>::len), VAULT_BYTES_MAX),
    ];
    match limits.into_iter().find(|(_, found, limit)| found > limit) {
        Some((unit, found, limit)) => Err(VaultError::TooLarge { unit, found, limit }),
        None => Ok(()),
    }
}

/// The refusal of one record more than there may be.
pub(crate) const fn full() -> VaultError {
    VaultError::TooLarge { unit: "records", found: VAULT_RECORDS_MAX, limit: VAULT_RECORDS_MAX }
}
