//! Bounded audit log with separate limits for changes, for requests without changes, and for requests without
//! credentials, so that the records of many failed requests cannot displace more important ones.

use model::primitives::quantity::Timestamp;

use crate::{AUDIT_ANONYMOUS_KEPT, AUDIT_BODY_BYTES_MAX, AUDIT_KEPT, AUDIT_PASSING_KEPT, error::StoreError};

/// Pool of audit records with a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditPool {
    /// Requests that changed something.
    Changes,
    /// Requests that changed nothing: they were rejected, failed, or were dry runs.
    Passing,
    /// Requests without valid credentials.
    Anonymous,
}

/// Audit record of one request, encoded by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Number of the record, unique and increasing.
    pub number: u64,
    /// Time of the response to the request.
    pub at: Timestamp,
    /// Pool of the record.
    pub pool: AuditPool,
    /// Encoded details, opaque to the store; at most [`AUDIT_BODY_BYTES_MAX`].
    pub body: Vec<u8>,
}

impl AuditPool {
    pub(crate) const ALL: [Self; 3] = [Self::Changes, Self::Passing, Self::Anonymous];

    /// Returns the number by which the store identifies the pool.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Changes => 0,
            Self::Passing => 1,
            Self::Anonymous => 2,
        }
    }

    /// Returns the maximum number of stored records.
    pub(crate) const fn kept(self) -> usize {
        match self {
            Self::Changes => AUDIT_KEPT,
            Self::Passing => AUDIT_PASSING_KEPT,
            Self::Anonymous => AUDIT_ANONYMOUS_KEPT,
        }
    }

    /// Returns the number of records that may exceed the limit before the oldest are dropped. Records are dropped
    /// in batches, because finding the oldest requires an index scan.
    pub(crate) const fn slack(self) -> usize {
        self.kept() / 10
    }
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
