//! Integration tests of the BFD codec and session.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod authentication;
mod key_change;
mod machine;
mod properties;
mod support;
mod wire;
