//! Small types shared by the node agent and the API clients: wall clock, jitter, retry delays, error chains,
//! recent events, [`Gate`] (whether a node can serve a Service), and refused connections.
//!
//! Invariants: no I/O except reading the clock and random bits; no workspace dependency other than `model`.

pub mod backoff;
pub mod clock;
mod error_chain;
pub mod events;
mod gate;
mod message;
mod refusals;

pub use error_chain::chain;
pub use gate::Gate;
pub use message::limit_message;
pub use refusals::Refusals;

/// Returns 64 pseudo-random bits for jitter; unsuitable for secrets.
#[must_use]
pub fn entropy() -> u64 {
    fastrand::u64(..)
}
