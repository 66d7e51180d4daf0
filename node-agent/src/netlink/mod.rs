//! Netlink: the socket and the message format that every part of the kernel shares. What the messages mean is elsewhere.

pub mod socket;
pub mod uapi;
pub mod wire;
