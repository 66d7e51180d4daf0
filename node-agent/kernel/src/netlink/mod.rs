//! Netlink socket and message format, shared by all kernel subsystems. The meaning of messages is defined by
//! the users.

pub mod socket;
pub mod uapi;
pub mod wire;
