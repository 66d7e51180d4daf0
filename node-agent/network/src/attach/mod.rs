//! Attachments: workloads with an interface in a workload network. This node assigns their addresses out of its own blocks,
//! without a control server.

pub mod allocator;
pub mod declared;
pub mod engine;
pub mod gate;
mod in_use;
mod inspect;
pub mod journal;
pub mod names;
mod open;
mod request;
pub mod veth;
