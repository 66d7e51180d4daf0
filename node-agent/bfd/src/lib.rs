//! Bidirectional Forwarding Detection (RFC 5880): the packet codec and the session state machine, without
//! sockets, clock or randomness.
//!
//! ```text
//!   bytes ──▶ wire::parse ──▶ ReceivedPacket ──▶ machine::Session::handle(input, now) ──▶ Output: transmit, event, refused
//!                                                machine::Session::poll_timeout() ─────▶ deadline of the next Input::Timeout
//! ```
//! The driver of a session (the code that owns the sockets) demultiplexes packets by discriminator or by
//! addresses (RFC 5881 §3), checks the hop limit of single-hop packets (RFC 5881 §5), and drains its sockets
//! before it advances the time, so that a packet waiting in a buffer counts as received.
//!
//! Deliberately not supported: the Echo function (advertised by a Required Min Echo RX Interval of 0), Demand
//! mode on this side (the peer's Demand mode is honored), and Simple Password and MD5 authentication (packets
//! with these sections are rejected). Deadlines are never stored: they are computed from the last packet and
//! the current intervals, so that a changed interval takes effect at once.

pub mod auth;
pub mod dialogue;
pub mod interval;
pub mod key_change;
pub mod machine;
mod poll;
pub mod state;
pub mod wire;

pub use auth::{Algorithm, Key, Secret};
pub use dialogue::{Config, Event, Input, Output, Refusal, Remote, Role};
pub use interval::Interval;
pub use machine::Session;
pub use state::{Diagnostic, State};
