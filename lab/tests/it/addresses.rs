//! Load balancer addresses on a real network: one owner per address, failover without preemption, with and
//! without control.

mod failover;
mod guard;
mod ipvs;
mod ping;
#[path = "../../../node-agent/tests/it/support/ping.rs"]
mod pinger;
mod placement;
mod stage;
