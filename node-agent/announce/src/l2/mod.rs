//! Layer-2 announcer: ARP and NDP for load balancer addresses on raw sockets.
//!
//! ```text
//!  ownership ───set──▶ announcer thread ──frames──▶ one socket per interface and family
//!       ▲                   │  Machine (pure)                  │ filter: only our addresses
//!       └──conflicts, ──────┴──────────◀──────frames───────────┘
//!          probe results
//! ```
//! Out of scope: deciding which node announces (the layer above does), adding addresses to the kernel, and
//! any state that outlives the thread.

pub mod announcer;
pub mod filter;
mod groups;
mod interfaces;
pub mod machine;
mod socket;
pub mod wire;
