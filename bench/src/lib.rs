//! Benchmarks against ourselves and against peers: they measure, write a page with a table and a plot, and assert nothing.
//!
//! Contestants run in the same network, with the same dataplane task, in the same run, by turns, so that what the machine
//! does besides hits all of them alike. A page says on what machine it was measured and how busy that was; on a machine
//! that was too busy it has figures and no verdict. Times are never asserted, also not by the tests of this crate.

pub mod bgp;
pub mod change;
pub mod cold;
pub mod connections;
pub mod failover;
pub mod fanout;
pub mod fixture_cluster;
mod guest;
pub mod host;
pub mod layout;
pub mod pages;
pub mod progress;
pub mod soak;
pub mod statistics;
pub mod targets;
pub mod usage;
pub mod writes;
