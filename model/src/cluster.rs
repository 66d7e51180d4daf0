//! State of the whole cluster at one revision, with indices, allocation of addresses, and its history.

pub(crate) mod allocate;
pub mod change;
pub mod compiled;
pub mod config;
pub(crate) mod coverage;
pub mod history;
pub(crate) mod pool_space;
pub mod snapshot;
pub mod unsupported;
