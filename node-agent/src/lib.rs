//! The node agent: observe → plan → apply → verify → report.
//!
//! ```text
//!  control ──feed──▶ feed task ──batches──▶ loop thread ──▶ kernel
//!     ▲                                      │   └──▶ journal
//!     └──report── report task ◀──status──────┤
//!                 server task ◀──status──────┘    /metrics /healthz /v1/state
//! ```
//! Invariants: no decision needs a reachable control server; a new process recognizes all kernel objects that
//! an earlier one created; the kernel is not written when the process ends. Traffic never passes through or
//! waits for this process.

pub mod agent;
pub mod alive;
pub mod ask;
pub mod config;
pub mod control;
pub mod doctor;
pub mod enrol;
pub mod facts;
pub mod feed;
pub mod health_port;
pub mod hold;
pub mod journal;
pub mod peer_key;
pub mod policy;
pub mod preflight;
pub mod report;
pub mod run;
pub mod server;
pub mod service_status;
pub mod state;
pub mod status;
pub mod tally;
pub mod workload_network;

// The crates of the agent at one address, for the integration tests.
pub use base::entropy;
pub use bfd_runner as bfd;
pub use dataplane;
pub use health;
pub use kernel::{links, service_routes};
pub use model::wire::networks;
pub use speaker::peering as bgp;
pub use state::{defaults, desired};

/// Announcement of load balancer addresses by ARP, NDP and BGP.
pub mod announce {
    pub use ::announce::{
        ownership::{io_traits, machine, owners, words},
        *,
    };
    pub use speaker::routing as bgp;

    pub use crate::agent::announcement_preview as preview;
}

/// Removal of conntrack entries for connections to removed targets, and counting of connections.
pub mod conntrack {
    pub use ::conntrack::*;
    pub use kernel::conntrack::Flow;
}
