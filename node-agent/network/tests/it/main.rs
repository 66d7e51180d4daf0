//! Integration tests of the workload network, in network namespaces. They need root.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod attach;
mod capture;
mod declared;
mod ipip;
mod protection;
mod routes;
mod support;
mod traffic;
