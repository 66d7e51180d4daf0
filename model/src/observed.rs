//! Observed state: merges the reports of agents, rolls them up into statuses, and makes the decisions that
//! follow from them.

pub mod announcements;
pub mod assign;
pub mod health;
pub mod lag;
pub mod lease;
pub mod rollup;
pub mod service_health;
pub mod status;
pub mod traffic;
