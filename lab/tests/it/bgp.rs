//! Addresses announced by BGP on a real network: two FRR routers, three nodes, a client behind both routers.

mod announcing;
mod leaving;
mod stage;
mod traffic;
