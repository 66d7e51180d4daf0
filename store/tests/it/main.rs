//! Integration tests of the stores; `suite` contains shared test support.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod backup;
mod conformance;
mod crash;
mod etcd;
mod etcd_tls;
mod lost_reply;
mod model;
mod sqlite;
mod suite;
