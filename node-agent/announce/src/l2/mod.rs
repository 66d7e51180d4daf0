//! Layer-2 announcer: ARP and NDP for load balancer addresses on raw sockets.
//!
//! ```text
//!  ownership ───set──▶ announcer thread ──frames──▶ one socket per interface and family
//!       ▲                   │  Machine (pure)                  │ filter: only our addresses
//!       └──conflicts, ──────┴──────────◀──────frames───────────┘
//!          probe results
//! ```
//! Out of scope: the decision which node announces an address (see `ownership`), configuration of addresses
//! in the kernel, and state that outlives the thread.

pub mod announcer;
pub mod filter;
mod groups;
mod interfaces;
pub mod machine;
mod socket;
pub mod wire;
