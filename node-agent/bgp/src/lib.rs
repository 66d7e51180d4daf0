//! The Border Gateway Protocol 4 (RFC 4271) as a speaker that announces: messages, the session, and what each peer was
//! told, without sockets, clock or randomness.
//!
//! ```text
//!   bytes ──▶ wire::decode ──▶ Message ──▶ session::Session::handle(input, now, random) ──▶ outputs: send, connect, close, news
//!                                          session::Session::poll_timeout() ─────────────▶ when to call with Input::Timeout
//!   routes wanted ──▶ rib::RibOut ──▶ Update ──▶ wire::encode ──▶ bytes
//! ```
//! What a peer announces is counted and dropped: nothing that is learned reaches a routing table.

pub mod attributes;
pub mod capability;
pub mod export;
pub mod family;
pub mod message;
pub mod notification;
pub mod rib;
pub mod session;
pub mod wire;

pub use attributes::{AsPath, Attributes, Community, ExtendedCommunity, LargeCommunity, Origin, Segment};
pub use capability::{Capability, GracefulRestart, Role};
pub use family::Family;
pub use message::{Message, Open, Refresh, RefreshKind, Update};
pub use notification::Notification;
