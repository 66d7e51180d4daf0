//! Addresses announced by BGP on a real network: two FRR routers, three nodes, a client behind both routers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod announcing;
mod leaving;
mod stage;
mod traffic;
