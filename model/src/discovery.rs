//! Discovery: the names and variables by which clients find Services.
//!
//! [`dns`] answers questions of the zone of the cluster, [`environment`] computes the variables that kubelet sets in
//! containers, [`hostnames`] decides which Service has a host name outside of the cluster zone. All are pure functions
//! of the state.

pub mod dns;
pub mod environment;
pub mod hostnames;
