//! Network policy: decides if a workload may connect to another one.
//!
//! [`index`] compiles the NetworkPolicies, [`set`] has the compiled rules that nodes receive, and [`node_policy`] the
//! decision on one connection. All programs derive their behavior from this decision: the kernel objects of nodes, their
//! verification, and `explain`.
//!
//! ```text
//! new connection, after translation of its destination
//!        │
//!        ▼
//! egress set of the source's workload ── drops ──▶ drop
//!        │ accepts, or there is no set
//!        ▼
//! ingress set of the destination's workload ── drops ──▶ drop
//!        │ accepts, or there is no set
//!        ▼
//!     accept
//! ```
//! A set contains rules in three tiers. Rules of tier Admin apply first, then those of namespaces, then those of tier
//! Baseline. A NetworkPolicy isolates the workloads that it selects: connections that no rule accepts are dropped.

mod compile;
pub mod explain;
pub mod identity;
pub mod index;
pub mod node_policy;
pub mod set;
