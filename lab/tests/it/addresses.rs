//! Load balancer addresses on a real network: one owner per address, and failover without preemption, with or
//! without a running control server.

mod failover;
mod guard;
mod ipvs;
mod ping;
#[path = "../../../node-agent/tests/it/support/ping.rs"]
mod pinger;
mod placement;
mod stage;
