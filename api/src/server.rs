//! Process of the control server: start and stop, connections, TLS, subcommands, and notification of the
//! service manager.

pub mod bootstrap;
pub mod commands;
#[cfg(test)]
mod reference;
pub mod self_service;
pub mod serve;
pub mod start;
pub mod tls;
pub mod watchdog;
