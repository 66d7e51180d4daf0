//! The process: composition, connections, TLS, commands and the service manager.

pub mod bootstrap;
pub mod commands;
#[cfg(test)]
mod reference;
pub mod self_service;
pub mod serve;
pub mod start;
pub mod tls;
pub mod watchdog;
