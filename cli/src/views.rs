//! Pure functions that format responses of the server as text.

pub mod address_events;
pub mod authority;
pub mod bgp;
pub mod check;
pub mod columns;
pub mod describe;
pub mod dns;
pub mod dns_server;
pub mod doctor;
pub mod drain;
pub mod explain;
pub mod health;
pub mod history;
pub mod http;
pub mod lag;
pub mod plan;
pub mod policy;
pub mod rebalance;
pub mod render;
pub mod security;
pub mod servers;
pub mod traffic;
pub(crate) mod typed;
pub(crate) mod waiting;
pub mod what_if;
