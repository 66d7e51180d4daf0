//! Bounded audit log with separate limits for requests with and without changes, so that the records of many
//! failed requests cannot displace those of changes.

use model::primitives::quantity::Timestamp;

use crate::{AUDIT_BODY_BYTES_MAX, AUDIT_KEPT, AUDIT_PASSING_KEPT, error::StoreError};

/// Audit record of one request, encoded by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Number of the record, unique and increasing.
    pub number: u64,
    /// Time of the response to the request.
    pub at: Timestamp,
    /// True if the request changed nothing: it was rejected, failed, or was a dry run.
    pub is_passing: bool,
    /// Encoded details, opaque to the store; at most [`AUDIT_BODY_BYTES_MAX`].
    pub body: Vec<u8>,
}

/// Returns the maximum number of stored audit records: of requests without changes if `is_passing` is true,
/// otherwise of requests with changes.
pub(crate) const fn kept(is_passing: bool) -> usize {
    if is_passing { AUDIT_PASSING_KEPT } else { AUDIT_KEPT }
}

/// Returns the number of audit records that may exceed the limit before the oldest are dropped. Records are
/// dropped in batches, because finding the oldest requires an index scan.
pub(crate) const fn slack(is_passing: bool) -> usize {
    kept(is_passing) / 10
}

/// Returns an error if the encoded details of an audit record exceed the size limit.
pub(crate) fn check(records: &[AuditRecord]) -> Result<(), StoreError> {
    match records.iter().find(|record| record.body.len() > AUDIT_BODY_BYTES_MAX) {
        None => Ok(()),
        Some(record) => Err(StoreError::Unreadable {
            key: format!("audit entry {}", record.number),
            reason: format!("it has {} bytes, at most {AUDIT_BODY_BYTES_MAX} are kept", record.body.len()),
        }),
    }
}
