//! Tests of load balancer addresses on a real network: each address has one owner (the node that announces
//! it), another node takes over when the owner fails, and a node that returns does not take the address back,
//! even while the control server is stopped.

mod failover;
mod guard;
mod ipvs;
mod ownership_changes;
mod ping;
#[path = "../../../node-agent/tests/it/support/ping.rs"]
mod pinger;
mod placement;
pub(crate) mod stage;
