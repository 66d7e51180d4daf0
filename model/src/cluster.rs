//! State of the whole cluster at one revision: its indices, the allocation of addresses, and the history of
//! writes.

pub(crate) mod allocate;
pub mod change;
pub mod compiled;
pub mod config;
pub(crate) mod coverage;
pub mod default_checks;
pub mod history;
pub(crate) mod pool_space;
pub mod quota;
pub mod snapshot;
pub mod unsupported;
