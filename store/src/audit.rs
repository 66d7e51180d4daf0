//! The audit log: bounded, of two kinds, so that a flood of what changed nothing cannot push out what changed something.

use model::primitives::quantity::Timestamp;

use crate::{AUDIT_BODY_BYTES_MAX, AUDIT_KEPT, AUDIT_PASSING_KEPT, error::StoreError};

/// One request that would change something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Unique, and rising.
    pub number: u64,
    /// When it was answered.
    pub at: Timestamp,
    /// Whether it changed nothing: it was refused, failed, or was only tried.
    pub is_passing: bool,
    /// The rest, of which a store knows nothing; at most [`AUDIT_BODY_BYTES_MAX`].
    pub body: Vec<u8>,
}

/// How many of a kind are kept.
pub(crate) const fn kept(is_passing: bool) -> usize {
    if is_passing { AUDIT_PASSING_KEPT } else { AUDIT_KEPT }
}

/// How many of a kind may be there before the oldest go: they go in batches, because finding out which costs a walk.
pub(crate) const fn slack(is_passing: bool) -> usize {
    kept(is_passing) / 10
}

/// Refuses what is larger than any store keeps.
pub(crate) fn check(records: &[AuditRecord]) -> Result<(), StoreError> {
    match records.iter().find(|record| record.body.len() > AUDIT_BODY_BYTES_MAX) {
        None => Ok(()),
        Some(record) => Err(StoreError::Unreadable {
            key: format!("audit entry {}", record.number),
            reason: format!("it has {} bytes, at most {AUDIT_BODY_BYTES_MAX} are kept", record.body.len()),
        }),
    }
}
