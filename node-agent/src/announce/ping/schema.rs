//! The fixed shape of the table: four sets, two chains, a rule per family in each.

use std::net::IpAddr;

use model::primitives::net::IpFamily;

use crate::dataplane::nftables::{
    expr::{Expr, Meta, Register, VerdictExpr},
    schema::{Hook, nfproto},
    uapi,
};

/// The name of the table, by which a fresh process recognises it.
pub const TABLE: &str = "tidegate-announce";

/// What is done about echo requests to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// The node answers.
    Answer,
    /// Nobody does, and they are not passed on either.
    Silence,
}

/// A set of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// What is done about its addresses.
    pub reply: Reply,
    /// The family of its addresses.
    pub family: IpFamily,
}

impl Reply {
    /// Both, in the order in which they are made.
    pub const ALL: [Self; 2] = [Self::Silence, Self::Answer];

    /// The name of the chain that does it.
    #[must_use]
    pub const fn chain(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Silence => "silence",
        }
    }

    /// The type of that chain.
    #[must_use]
    pub const fn chain_type(self) -> &'static str {
        match self {
            Self::Answer => "nat",
            Self::Silence => "filter",
        }
    }

    /// Where that chain hangs.
    ///
    /// The first chain that translates a connection decides, and one that refuses ends it; so an answer is before what
    /// proxy modes and others do at destination translation (-100). Silence is before connection tracking (-200):
    /// there it also holds for a client that has been answered until now, whose further requests no chain of
    /// translation sees, and costs no entry.
    #[must_use]
    pub const fn hook(self) -> Hook {
        let number = uapi::NF_INET_PRE_ROUTING;
        match self {
            Self::Answer => Hook { number, priority: -110 },
            Self::Silence => Hook { number, priority: -300 },
        }
    }

    /// What the rules of that chain say.
    #[must_use]
    pub fn rules(self) -> Vec<Vec<Expr>> {
        IpFamily::ALL.into_iter().map(|family| rule(Set { reply: self, family })).collect()
    }
}

impl Set {
    /// All sets, in the order in which they are made.
    pub fn all() -> impl Iterator<Item = Self> {
        Reply::ALL.into_iter().flat_map(|reply| IpFamily::ALL.map(|family| Self { reply, family }))
    }

    /// The set that an address is in.
    #[must_use]
    pub const fn of(address: IpAddr, reply: Reply) -> Self {
        Self { reply, family: IpFamily::of(address) }
    }

    /// The set of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|set| set.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.reply, self.family) {
            (Reply::Answer, IpFamily::V4) => "answered4",
            (Reply::Answer, IpFamily::V6) => "answered6",
            (Reply::Silence, IpFamily::V4) => "silent4",
            (Reply::Silence, IpFamily::V6) => "silent6",
        }
    }

    /// The type of its keys as the `nft` command numbers it, and their length in bytes.
    #[must_use]
    pub const fn key(self) -> (u32, u32) {
        match self.family {
            IpFamily::V4 => (7, 4),
            IpFamily::V6 => (8, 16),
        }
    }
}

/// Whatever is no echo request ends the rule before its address is looked up.
fn rule(set: Set) -> Vec<Expr> {
    // IPPROTO_ICMP and ICMP_ECHO (RFC 792); IPPROTO_ICMPV6 and ICMPV6_ECHO_REQUEST (RFC 4443 §4.1).
    let (protocol, echo_request) = match set.family {
        IpFamily::V4 => (1, 8),
        IpFamily::V6 => (58, 128),
    };
    vec![
        Expr::LoadMeta(Meta::NfProto, Register(1)),
        Expr::equal(1, &[nfproto(set.family)]),
        Expr::LoadMeta(Meta::L4Proto, Register(1)),
        Expr::equal(1, &[protocol]),
        Expr::LoadIcmpType(Register(1)),
        Expr::equal(1, &[echo_request]),
        Expr::LoadDestination(set.family, Register(1)),
        Expr::InNamedSet { set: set.name(), from: Register(1) },
        match set.reply {
            Reply::Answer => Expr::RedirectHere,
            Reply::Silence => Expr::Verdict(VerdictExpr::Drop),
        },
    ]
}
