//! Tests of the plugin: a runner that calls it as libcni does, and a thread of the workload network with its socket in a
//! network namespace. They need root.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod operations;
mod runner;
mod support;
