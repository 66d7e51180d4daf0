//! Records of the vault (keys, tokens, roles; separate from the objects), and the size checks that all types
//! of stores apply to them.

use std::fmt;

use crate::{VAULT_BYTES_MAX, VAULT_KEY_BYTES_MAX, VAULT_RECORDS_MAX, VaultError};

/// Record of the vault. `Debug` does not print its contents.
#[derive(Clone, PartialEq, Eq)]
pub struct VaultRecord {
    /// Version; changes with every write and is never reused.
    pub version: u64,
    /// Contents of the record, which are secret.
    pub body: Vec<u8>,
}

impl fmt::Debug for VaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VaultRecord {{ version: {}, {} bytes }}", self.version, self.body.len())
    }
}

/// Returns an error if the key or the body of a vault record exceeds its size limit.
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

/// Returns the error for exceeding the maximum number of records.
pub(crate) const fn full() -> VaultError {
    VaultError::TooLarge { unit: "records", found: VAULT_RECORDS_MAX, limit: VAULT_RECORDS_MAX }
}
