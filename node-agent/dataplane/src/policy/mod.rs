//! Network policy of the node: an nf_tables table of its own, which is the same in all proxy modes.
//!
//! ```text
//!  forward, input ─▶ known connection, neighbor discovery ─▶ accept
//!                 ─▶ egress of the source ─▶ ingress of the destination ─▶ accept
//!  output         ─▶ to own workloads, known connection ─▶ accept; otherwise egress of the source
//! ```
//! The chains run after the translation of destinations and before masquerading, so that they see endpoints and clients. Rules
//! and maps are fixed; policies and workloads are elements only. Their number does not change the cost of a packet, and a
//! change writes only its elements, in one transaction. Invariants: the table exists only while a local workload has a set;
//! its name identifies it to a new process; objects of other tables are not touched.

pub mod cut;
pub mod desired;
pub mod keeper;
pub mod parse;
pub mod plan;
pub mod render;
pub mod rules;
pub mod schema;
