//! Integration tests of the command `tidegate`, against a stub of the control API (`stub`).

mod addresses;
mod bgp;
mod docs;
mod doctor;
mod drain;
mod failover;
mod golden;
mod history;
mod import;
mod security;
mod stub;
mod transport;
