//! Integration tests of the command `tidegate`, against a stub of the control API (`stub`).

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod addresses;
mod apply;
mod bgp;
mod completion;
mod contexts;
mod dns;
mod docs;
mod doctor;
mod drain;
mod environment;
mod failover;
mod golden;
mod habits;
mod history;
mod http;
mod import;
mod listings;
mod oidc;
mod outputs;
mod security;
mod stub;
mod support_bundle;
mod transport;
mod writes;
