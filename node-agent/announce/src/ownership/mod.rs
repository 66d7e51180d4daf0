//! Ownership of load balancer addresses: decides which addresses this node announces, from the rank and
//! liveness of the candidate nodes and from observed announcements. Without I/O of its own.

pub mod io_traits;
pub mod liveness;
pub mod machine;
pub mod owners;
pub mod types;
pub mod words;
