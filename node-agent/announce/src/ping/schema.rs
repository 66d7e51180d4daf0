//! Fixed schema of the echo reply table: four sets, two chains, and one rule per address family in each
//! chain.

use std::net::IpAddr;

use kernel::nftables::{
    Hook,
    expr::{Expr, Meta, Register, VerdictExpr},
    nfproto, uapi,
};
use model::primitives::net::IpFamily;

/// Name of the table, by which a new agent process recognizes it.
pub const TABLE: &str = "tidegate-announce";

/// Handling of pings (echo requests) to an announced address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// The node replies to pings.
    Answer,
    /// Pings are dropped: they are neither answered nor forwarded.
    Silence,
}

/// Set in the echo reply table that holds the addresses of one family with the same ping setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    /// Ping setting of the addresses in the set.
    pub reply: Reply,
    /// Address family of the set.
    pub family: IpFamily,
}

impl Reply {
    /// All ping settings, in the order in which their chains are created.
    pub const ALL: [Self; 2] = [Self::Silence, Self::Answer];

    /// Returns the name of the chain for pings with this setting.
    #[must_use]
    pub const fn chain(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Silence => "silence",
        }
    }

    /// Returns the type of the chain: `nat` if pings are redirected to the node, `filter` if they are
    /// dropped.
    #[must_use]
    pub const fn chain_type(self) -> &'static str {
        match self {
            Self::Answer => "nat",
            Self::Silence => "filter",
        }
    }

    /// Returns the hook of the chain.
    ///
    /// Only the first chain that translates a connection has an effect, and a dropped packet reaches no
    /// further chain. The chain for replies therefore comes before the destination NAT (-100) of proxy modes
    /// and other programs. The chain for drops comes before connection tracking (-200). There, no conntrack
    /// entry is created, and it also drops requests of clients that have received replies so far, although
    /// such requests bypass NAT chains.
    #[must_use]
    pub const fn hook(self) -> Hook {
        let number = uapi::NF_INET_PRE_ROUTING;
        match self {
            Self::Answer => Hook { number, priority: -110 },
            Self::Silence => Hook { number, priority: -300 },
        }
    }

    /// Returns the rules of the chain, one for each address family.
    #[must_use]
    pub fn rules(self) -> Vec<Vec<Expr>> {
        IpFamily::ALL.into_iter().map(|family| rule(Set { reply: self, family })).collect()
    }
}

impl Set {
    /// Returns all sets, in creation order.
    pub fn all() -> impl Iterator<Item = Self> {
        Reply::ALL.into_iter().flat_map(|reply| IpFamily::ALL.map(|family| Self { reply, family }))
    }

    /// Returns the set that holds an address with this ping setting.
    #[must_use]
    pub const fn of(address: IpAddr, reply: Reply) -> Self {
        Self { reply, family: IpFamily::of(address) }
    }

    /// Returns the set with this name, or `None` for a name outside of the schema.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|set| set.name() == name)
    }

    /// Returns the name of the set in the kernel.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.reply, self.family) {
            (Reply::Answer, IpFamily::V4) => "answered4",
            (Reply::Answer, IpFamily::V6) => "answered6",
            (Reply::Silence, IpFamily::V4) => "silent4",
            (Reply::Silence, IpFamily::V6) => "silent6",
        }
    }

    /// Returns the key type of the set, as numbered by the `nft` command, and the key length in bytes.
    #[must_use]
    pub const fn key(self) -> (u32, u32) {
        match self.family {
            IpFamily::V4 => (7, 4),
            IpFamily::V6 => (8, 16),
        }
    }
}

/// Returns the rule that handles pings to the addresses of a set. Other packets leave the rule before the
/// address lookup.
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
        Expr::InSet { set: set.name().to_owned(), from: Register(1) },
        match set.reply {
            Reply::Answer => Expr::RedirectHere,
            Reply::Silence => Expr::Verdict(VerdictExpr::Drop),
        },
    ]
}
