//! The session with one neighbour (RFC 4271 §8): both connections that two speakers may make, the timers, and what
//! follows from every message, as a machine without sockets.
//!
//! ```text
//!            start                connected                OPEN                  KEEPALIVE
//!   Idle ─────────▶ Connect ───────────────▶ OpenSent ───────────▶ OpenConfirm ───────────▶ Established
//!    ▲ │  (passive)   │ ▲                       │                       │                        │
//!    │ └──────────▶ Active ◀────────────────────┴───────────────────────┴────────────────────────┤
//!    │                  connection lost, hold time, Cease: wait for the retry, be reachable       │
//!    └────────────────────────────────────────────────────────────────────────────────────────────┘
//!                       stop; protocol error: idle for a while, then start again
//! ```
//! One [`Session`] stands for all state machines that RFC 4271 §8.2.1 has for a peer: the attempt to connect and up to three
//! connections (one of each direction in the making, one established). [`Session::state`] is the furthest of them.
//!
//! What the RFC leaves open, or where this differs, and why:
//!
//! - Delay open is off (events 12 and 20 do not exist); damping of oscillation is on: after a protocol error the session is
//!   idle for a time that doubles with each failure, up to a minute.
//! - Where the RFC goes to Idle without damping, an automatic start follows at once; both are one step here, to Active with
//!   the connect retry timer running. A neighbour that comes back is heard without delay.
//! - A NOTIFICATION is never answered (§6.4), also not in `OpenSent`, where §8.2.2 lists event 25 among those that are.
//! - With a hold time of zero, the KEEPALIVE that confirms OPEN is waited for as long as OPEN is: 4 minutes.
//! - An older connection of the same direction that is not established gives way to a newer one: whoever connects again
//!   has given up its older attempt, or has died and come back.
//! - A connection that is refused because another is established makes us send a KEEPALIVE on that one: a neighbour that
//!   died and came back answers it with a reset, long before the hold time ends.
//!
//! States without a timeout are final until somebody does something: Idle after [`Input::Stop`], Active of a passive session
//! without connection, and Established with a hold time of zero.

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
pub use dialogue::{ConnectionId, Direction, Down, Event, Input, Learned, Output, PrefixCount, State, Stop};
pub use machine::Session;
pub use negotiated::Negotiated;
