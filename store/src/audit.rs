//! Bounded audit log with separate limits for requests with and without changes, so that a flood of failed
//! requests cannot displace changes.

use model::primitives::quantity::Timestamp;

use crate::{AUDIT_BODY_BYTES_MAX, AUDIT_KEPT, AUDIT_PASSING_KEPT, error::StoreError};

/// Audit record of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Unique, increasing number.
    pub number: u64,
    /// Time of the response.
    pub at: Timestamp,
    /// True if the request changed nothing: it was rejected, failed, or was a dry run.
    pub is_passing: bool,
    /// Encoded details, opaque to the store; at most [`AUDIT_BODY_BYTES_MAX`].
    pub body: Vec<u8>,
}

/// Returns the number of records kept per kind.
pub(crate) const fn kept(is_passing: bool) -> usize {
    if is_passing { AUDIT_PASSING_KEPT } else { AUDIT_KEPT }
}

/// Returns the excess allowed before the oldest records are dropped; they are dropped in batches, because
/// finding them requires an index scan.
pub(crate) const fn slack(is_passing: bool) -> usize {
    kept(is_passing) / 10
}

/// Rejects records that exceed the size limit.
pub(crate) fn check(records: &[AuditRecord]) -> Result<(), StoreError> {
    match records.iter().find(|record| record.body.len() > AUDIT_BODY_BYTES_MAX) {
        None => Ok(()),
        Some(record) => Err(StoreError::Unreadable {
            key: format!("audit entry {}", record.number),
            reason: format!("it has {} bytes, at most {AUDIT_BODY_BYTES_MAX} are kept", record.body.len()),
        }),
    }
}
