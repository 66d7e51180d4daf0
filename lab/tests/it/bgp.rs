//! Tests of addresses announced by BGP on a real network with two FRR routers, three nodes, and a client
//! behind both routers.

mod announcing;
mod blocks;
mod leaving;
mod reflectors;
mod stage;
mod traffic;
