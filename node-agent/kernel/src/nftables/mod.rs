//! nf_tables: messages, expressions and transactions, independent of the tables that the agent programs.

pub mod expr;
pub mod parse;
pub mod render;
pub mod transaction;
pub mod uapi;

use model::primitives::net::IpFamily;

/// Hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `NF_INET_…`.
    pub number: u32,
    /// Priority; lower runs first.
    pub priority: i32,
}

/// Returns the kernel's number of a family.
#[must_use]
pub const fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    }
}
