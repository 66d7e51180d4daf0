//! Bidirectional Forwarding Detection (RFC 5880): the packets and the session, without sockets, clock or randomness.
//!
//! ```text
//!   bytes ──▶ wire::parse ──▶ Received ──▶ machine::Session::handle(input, now) ──▶ outputs: transmit, event, refused
//!                                          machine::Session::poll_timeout() ─────▶ when to call with Input::Timeout
//! ```
//! Whoever drives a session finds it by the discriminator or the addresses of a packet (RFC 5881 §3), checks the hop limit
//! of single-hop packets (RFC 5881 §5), and drains its sockets before it lets time pass, so that a packet that waits in a
//! buffer counts as heard.
//!
//! What is deliberately absent: the Echo function (a Required Min Echo RX Interval of 0 says so to the peer), Demand mode
//! on our side (that of the peer is honoured), passwords and MD5 (their sections are refused), and any deadline that is
//! stored: deadlines follow from the last packet and the current intervals, so a changed interval acts at once.

pub mod auth;
pub mod dialogue;
pub mod interval;
pub mod machine;
mod poll;
pub mod state;
pub mod wire;

pub use auth::{Algorithm, Key, Secret};
pub use dialogue::{Config, Event, Input, Output, Refusal, Remote, Role};
pub use interval::Interval;
pub use machine::Session;
pub use state::{Diagnostic, State};
