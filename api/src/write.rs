//! The write path: one task that admits, commits and publishes, and the audit log.

pub(crate) mod audit;
pub(crate) mod refusal;
pub(crate) mod writer;
