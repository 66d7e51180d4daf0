//! Answers for addresses on the local networks: ARP and neighbour discovery on raw sockets.
//!
//! ```text
//!  who owns what ──set──▶ announcer thread ──frames──▶ a socket per interface and family
//!       ▲                   │  Machine (pure)                  │ filter: only our addresses
//!       └──conflicts, ──────┴──────────◀──────frames───────────┘
//!          probe answers
//! ```
//! What is deliberately absent: any decision about who answers (that is made above), any address given to the kernel, and
//! anything that is left behind when the thread ends.

pub mod announcer;
pub mod filter;
mod groups;
mod interfaces;
pub mod machine;
mod socket;
pub mod wire;
