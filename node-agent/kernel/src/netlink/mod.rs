//! Netlink sockets and message format. The modules of each kernel subsystem define the meaning of their
//! messages.

pub mod route;
pub mod socket;
pub mod uapi;
pub mod wire;
