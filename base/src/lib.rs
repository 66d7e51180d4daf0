//! Small types that the node agent and the clients of control share: wall clock, jitter, retry delays, error
//! texts, recent events, the gate of a Service, and refused connections.
//!
//! Invariants: no I/O apart from reading the clock and random bits, and no dependency on another crate
//! than `model`.

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
