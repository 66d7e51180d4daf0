//! Tests with malicious clients over real sockets: each is rejected with a clear status or disconnected, others
//! are served meanwhile, and memory stays limited. Every test prints the number of attempts.
//!
//! The tests are a separate program, because they measure the peak memory of their process.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test may fail, also in its helpers, and prints counts"
)]

mod addresses;
mod bodies;
mod connections;
mod http2;
mod readers;
mod requests;
mod site;
#[path = "../it/support/mod.rs"]
mod support;
