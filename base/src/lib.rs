//! Small types that several programs share: build, wall clock, jitter, retry delays, error chains, recent events,
//! the readiness of a node to serve a Service ([`Gate`]), counts of refused connections, accepted host
//! names of HTTP servers, and messages to the service manager.
//!
//! Invariants: no I/O except reading the clock and random bits and sending to the service manager; no
//! workspace dependency except `model`.

pub mod backoff;
pub mod build;
pub mod clock;
mod error_chain;
pub mod events;
mod gate;
mod hosts;
mod message;
mod refusals;
pub mod service_manager;

pub use error_chain::chain;
pub use gate::Gate;
pub use hosts::Hosts;
pub use message::limit_message;
pub use model::primitives::text::one_line;
pub use refusals::Refusals;

/// Returns 64 pseudo-random bits for jitter; unsuitable for secrets.
#[must_use]
pub fn entropy() -> u64 {
    fastrand::u64(..)
}
