//! Observed state: merges the reports of agents, derives the status of objects from them, and makes the decisions
//! that follow.

pub mod announcements;
pub mod assign;
pub mod dns_servers;
pub mod health;
pub mod http_gateways;
pub mod lag;
pub mod lease;
pub mod network_status;
pub mod policy_status;
mod reporter_book;
pub mod rollup;
pub mod service_health;
pub mod status;
pub mod traffic;
