//! Addresses announced by BGP on a real network: two FRR routers, three nodes, a client behind both routers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

#[path = "bgp/announcing.rs"]
mod announcing;
#[path = "bgp/leaving.rs"]
mod leaving;
#[path = "bgp/stage.rs"]
mod stage;
#[path = "bgp/traffic.rs"]
mod traffic;
