//! BGP as the cluster configures, reports and lists it.

pub mod book;
pub mod compile;
pub mod identity;
pub mod listing;
pub mod report;
pub mod settings;
pub mod trouble;
