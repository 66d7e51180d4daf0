//! Test bed with a node under test: hosts in network namespaces with servers, a real backend on the node, and
//! functions that open real connections. The expected result of each connection comes from an oracle (pure
//! interpreter of packet programs).
//!
//! ```text
//!                                                  ┌─ a 10.1.1.2 ┐
//! client 192.0.2.2, .3, 198.51.100.2, ──── node ───┼─ b 10.1.2.2 ├ workloads of this node (n1, zone z1)
//!        192.0.2.100–115             192.0.2.1, .11├─ c 10.1.3.2 ┘
//!                                    and x.y.z.1   ├─ d 10.2.1.2   of node n2 in zone z2
//!                                                  └─ e 10.2.2.2   of node n3 in zone z1
//! ```
//! Each host has IPv6 addresses as well. All traffic stays in these namespaces.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each suite uses its part of the bench")]

pub mod ask;
pub mod flow;
pub mod hosts;
pub mod judge;
pub mod lane;
pub mod node;
pub mod say;
pub mod segments;
pub mod servers;

pub use ask::{Ask, Heard};
pub use hosts::{Hosts, Spot};
pub use lane::Lane;
pub use node::Bench;
pub use say::Build;
