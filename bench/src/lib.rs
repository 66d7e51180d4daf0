//! Benchmarks of Tidegate and comparable software. The benchmarks measure, write a page with tables and a plot,
//! and assert nothing.
//!
//! Compared systems are measured in equal networks, with the same task, in turn within the same run, so that other
//! load on the machine affects all of them equally. Each page names its machine and the load. If the machine was
//! too busy, the page has results but no verdict. Times are never asserted, not even by the tests of this crate.

pub mod bgp;
pub mod change;
pub mod cold;
pub mod connections;
pub mod dns;
pub mod failover;
pub mod fanout;
pub mod fixture_cluster;
mod guest;
pub mod host;
pub mod http;
pub mod layout;
pub mod pages;
pub mod progress;
pub mod soak;
pub mod statistics;
pub mod targets;
pub mod usage;
pub mod writes;
