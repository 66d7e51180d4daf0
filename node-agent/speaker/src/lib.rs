//! BGP speaker of a node: advertises load balancer addresses to its peers.
//!
//! ```text
//!  state, results of kernel updates ──▶ routing (prefixes per peer) ──▶ peering (sockets, sessions) ──▶ routers
//! ```
//! The session state machine, the RIB and the message format are in the crate `bgp`, which has no I/O.
//! Invariants: a prefix of this node is never advertised while this node serves none of its addresses, and this node
//! uses no routes received from peers. A route reflector (RFC 4456) passes routes of internal peers on to others.

pub mod peering;
pub mod routing;
