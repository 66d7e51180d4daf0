//! Network policy in the kernel: real connections between workloads of a node.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod decisions;
mod established;
mod random;
mod site;
mod table;
