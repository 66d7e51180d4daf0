//! Write path: one task that admits, commits and publishes all writes, and the audit log of requests.

pub(crate) mod audit;
pub(crate) mod refusal;
pub(crate) mod writer;
