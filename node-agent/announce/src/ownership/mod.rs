//! Ownership of addresses: decides from liveness, rank and observed announcements which addresses this node
//! announces, without I/O of its own.

pub mod io_traits;
pub mod liveness;
pub mod machine;
pub mod owners;
pub mod types;
pub mod words;
