//! Test networks built from namespaces, and the clients and servers in them.

pub mod client;
pub mod echo;
pub mod forward;
pub mod steady_client;
pub mod topology;
pub mod web;
