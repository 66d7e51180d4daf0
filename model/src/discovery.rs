//! Discovery: the names and variables by which clients find Services.
//!
//! [`dns`] answers questions of the zone of the cluster, [`environment`] computes the variables that kubelet sets in
//! containers. Both are pure functions of the state.

pub mod dns;
pub mod environment;
