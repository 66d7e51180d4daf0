//! BGP session with one neighbor (RFC 4271 §8): connections in both directions, timers, and message handling,
//! as a state machine without sockets.
//!
//! ```text
//!            start                connected                OPEN                  KEEPALIVE
//!   Idle ─────────▶ Connect ───────────────▶ OpenSent ───────────▶ OpenConfirm ───────────▶ Established
//!    ▲ │  (passive)   │ ▲                       │                       │                        │
//!    │ └──────────▶ Active ◀────────────────────┴───────────────────────┴────────────────────────┤
//!    │              connection lost, Hold Timer, Cease: retry later, accept connections           │
//!    └────────────────────────────────────────────────────────────────────────────────────────────┘
//!                       stop; protocol error: Idle for a while, then start again
//! ```
//! A [`Session`] combines all state machines of a peer in RFC 4271 §8.2.1: the connection attempt and up to
//! three connections (one pending per direction, one established). [`Session::state`] is the most advanced
//! state among them.
//!
//! Choices within the RFC, and deviations:
//!
//! - DelayOpen is not supported (no events 12 and 20). DampPeerOscillations is on: after a protocol error the
//!   session stays in Idle for a time that doubles with each failure, up to one minute.
//! - After events for which the RFC goes to Idle without damping, the session goes to Active with the
//!   ConnectRetryTimer running: an automatic start would follow at once anyway, and in Active a returning
//!   neighbor can connect without delay.
//! - A NOTIFICATION is never answered with a NOTIFICATION (§6.4), not even in `OpenSent`, where §8.2.2
//!   requires an answer to event 25 (NOTIFICATION received).
//! - With a Hold Time of zero, the KEEPALIVE that confirms OPEN has the same timeout as OPEN: 4 minutes.
//! - A newer connection replaces an older one of the same direction that is not established: the neighbor has
//!   given up the older one, or has restarted.
//! - If a connection is rejected because another one is established, a KEEPALIVE is sent on the established
//!   one: a neighbor that has crashed and restarted answers with a TCP reset, long before the Hold Timer
//!   expires.
//!
//! States that may last forever: Idle after [`Input::Stop`], Active of a passive session without connection,
//! and Established with a Hold Time of zero.

mod check;
mod config;
mod connection;
mod dial;
mod dialogue;
mod ending;
mod machine;
mod negotiated;
mod prefixes;
mod receive;
mod timing;

pub use config::{Config, PeerAsn};
pub use dialogue::{
    ConnectionId, Direction, Down, Event, Input, Output, PrefixCount, ReceivedUpdate, State, Stop,
};
pub use machine::Session;
pub use negotiated::NegotiatedSession;
