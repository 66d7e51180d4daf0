//! End-to-end chains with common third-party programs: nginx as an ingress behind an address, HAProxy in
//! front of node ports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod balancer;
mod chain;
mod stage;
