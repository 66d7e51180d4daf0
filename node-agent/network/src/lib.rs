//! Workload network of a node: the routes to the blocks of all nodes, and the interfaces of attached workloads.
//!
//! ```text
//!  blocks of all nodes ──▶ plan ──▶ routes::keeper ──▶ kernel
//!  interfaces, workloads ──▶ ┘                            │
//!                            ▲────────── observe ─────────┘
//! ```
//! Invariants: routes of the agent carry the protocol number [`routes::PROTOCOL`], and its interfaces a name that
//! starts with `tg`; a new process recognizes them without a stored state. Routes of other programs are not changed. A pass
//! without a difference writes nothing.

pub mod attach;
pub mod cleanup;
pub mod desired;
pub mod filter;
pub mod follow;
pub mod plan;
pub mod refusals;
pub mod routes;
pub mod run;
pub mod serve;
