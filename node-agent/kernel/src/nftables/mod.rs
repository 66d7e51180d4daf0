//! nf_tables: messages, expressions and transactions, independent of the tables that the agent programs.

pub mod conntrack_field;
pub mod expr;
pub mod parse;
pub mod quoted;
pub mod render;
pub mod settle;
pub mod transaction;
pub mod uapi;

use model::primitives::net::IpFamily;

/// Hook at which a base chain is called, and its priority among the chains of the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// Number of the hook (`NF_INET_…`).
    pub number: u32,
    /// Priority within the hook; chains with lower values run first.
    pub priority: i32,
}

/// Returns the number of an address family in netfilter (`NFPROTO_…`).
#[must_use]
pub const fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    }
}
