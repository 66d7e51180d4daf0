//! Load balancer addresses that are announced by BGP: two routers, a client behind them, and every node that serves an
//! address a way to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

#[path = "bgp/failover.rs"]
mod failover;
#[path = "bgp/routes.rs"]
mod routes;
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_in_result,
    reason = "tests of agents use all of it"
)]
#[path = "../../node-agent/tests/support/speakers/mod.rs"]
mod speakers;
#[path = "bgp/stage.rs"]
mod stage;
