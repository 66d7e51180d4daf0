//! Border Gateway Protocol 4 (RFC 4271) for a speaker that announces own routes and may reflect those of others:
//! messages, the session, the route reflector, and the Adj-RIB-Out of each peer, without sockets, clock or
//! randomness.
//!
//! ```text
//!   bytes ──▶ wire::decode ──▶ Message ──▶ session::Session::handle(input, now, random) ──▶ outputs: send, connect, close, event
//!                                          session::Session::poll_timeout() ─────────────▶ deadline of the next Input::Timeout
//!   desired routes ──▶ rib::RibOut ──▶ Update ──▶ wire::encode ──▶ bytes
//! ```
//! Received routes are counted. Only a route reflector ([`reflector`]) stores them; they never reach a routing table.

pub mod attributes;
pub mod capability;
pub mod export;
pub mod family;
pub mod message;
pub mod notification;
pub mod reflector;
pub mod rib;
pub mod session;
pub mod wire;

pub use attributes::{AsPath, Attributes, Community, ExtendedCommunity, LargeCommunity, Origin, Segment};
pub use capability::{Capability, GracefulRestart, Role};
pub use family::Family;
pub use message::{Message, Open, Refresh, RefreshKind, Update};
pub use notification::Notification;
