//! Integration tests of imports and exports.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod export;
mod gateway_api;
mod import;
mod restrictions;
