//! Start, log and status server of long-running programs.
//!
//! - [`start`]: entry point of a program that has settings and no subcommands.
//! - [`log`]: flags of the log, and its start.
//! - [`status`]: HTTP server with liveness, readiness and metrics.
//! - [`connections`] and [`guard`]: limits of status servers, and their check of the header `Host`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

pub mod connections;
pub mod guard;
pub mod log;
pub mod start;
pub mod status;
