//! BGP in the cluster: configuration of each node, reports of agents, and listings of sessions, routes and events.

pub mod book;
pub mod compile;
pub mod identity;
pub mod listing;
pub mod report;
pub mod settings;
pub mod trouble;
