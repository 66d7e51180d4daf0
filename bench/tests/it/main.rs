//! Tests of the benchmarks, with few rounds.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod bgp;
mod change;
mod cold;
mod connections;
mod dns;
mod failover;
mod fanout;
mod http;
mod layout;
mod pages;
mod writes;
