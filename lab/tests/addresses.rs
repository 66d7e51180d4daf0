//! Load balancer addresses on a real network: one owner per address, failover without preemption, with and
//! without control.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

#[path = "addresses/failover.rs"]
mod failover;
#[path = "addresses/guard.rs"]
mod guard;
#[path = "addresses/ipvs.rs"]
mod ipvs;
#[path = "addresses/ping.rs"]
mod ping;
#[path = "../../node-agent/tests/support/ping.rs"]
mod pinger;
#[path = "addresses/placement.rs"]
mod placement;
#[path = "addresses/stage.rs"]
mod stage;
