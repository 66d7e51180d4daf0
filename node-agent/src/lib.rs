//! The node agent: observe → plan → apply → verify → report.
//!
//! ```text
//!  control ──feed──▶ feed task ──batches──▶ loop thread ──▶ kernel
//!     ▲                                      │   └──▶ journal
//!     └──report── report task ◀──status──────┤
//!                 server task ◀──status──────┘    /metrics /healthz /v1/state
//! ```
//! Invariants: no decision needs a reachable control server; a fresh process recognises every kernel object
//! of ours; the kernel is not written when the process ends. Traffic never passes through or waits for this
//! process.

pub mod agent;
pub mod alive;
pub mod announce;
pub mod ask;
pub mod backoff;
pub mod bfd;
pub mod bgp;
mod clock;
pub mod config;
pub mod conntrack;
pub mod control;
pub mod dataplane;
pub mod defaults;
pub mod desired;
pub mod doctor;
pub mod enrol;
mod events;
pub mod facts;
pub mod feed;
pub mod health;
pub mod health_port;
pub mod hold;
pub mod journal;
pub mod links;
pub mod netlink;
pub mod notify;
pub mod preflight;
pub mod report;
pub mod run;
pub mod server;
mod socket_option;
pub mod state;
pub mod status;
pub mod tally;
pub mod told;

pub use model::wire::networks;

/// Returns random bits for jitter.
#[must_use]
pub fn entropy() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0.rotate_left(32) ^ uuid::Uuid::new_v4().as_u64_pair().0
}
