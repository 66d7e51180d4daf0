//! Tests of the benchmarks, with few rounds.

mod bgp;
mod change;
mod cold;
mod connections;
mod failover;
mod fanout;
mod layout;
mod pages;
mod writes;
