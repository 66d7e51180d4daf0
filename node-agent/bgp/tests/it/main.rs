//! Integration tests of the BGP codec, session and RIB. Module `messages` contains helpers that the other
//! modules share.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails by panicking, also in its helpers"
)]

mod messages;
mod notification;
mod oracles;
mod reflector;
mod rfc7606;
mod rib;
mod session;
mod wire;
mod wire_properties;
mod wire_update;
