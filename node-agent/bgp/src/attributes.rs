//! Path attributes (RFC 4271 §5 and others): everything that routes of ours carry.

use std::{
    collections::BTreeSet,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// The attributes of a route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// `AS_PATH`.
    pub as_path: AsPath,
    /// `NEXT_HOP`, or the next hop of `MP_REACH_NLRI`.
    pub next_hop: NextHop,
    /// `MULTI_EXIT_DISC`.
    pub med: Option<u32>,
    /// `LOCAL_PREF`; to peers of the own AS only.
    pub local_pref: Option<u32>,
    /// `ATOMIC_AGGREGATE`: more specific paths were left out.
    pub is_atomic_aggregate: bool,
    /// AGGREGATOR: who aggregated.
    pub aggregator: Option<(u32, Ipv4Addr)>,
    /// COMMUNITIES (RFC 1997).
    pub communities: BTreeSet<Community>,
    /// EXTENDED COMMUNITIES (RFC 4360).
    pub extended_communities: BTreeSet<ExtendedCommunity>,
    /// `LARGE_COMMUNITY` (RFC 8092).
    pub large_communities: BTreeSet<LargeCommunity>,
    /// Only to Customer (RFC 9234 §5).
    pub only_to_customer: Option<u32>,
}

/// Where a route came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The AS itself.
    Igp,
    /// EGP (RFC 904).
    Egp,
    /// Anything else.
    Incomplete,
}

/// Whereto packets are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address; of the link, a link-local one beside it or alone (RFC 2545, RFC 8950).
    V6 {
        /// The global address; on an unnumbered link the link-local one, alone.
        global: Ipv6Addr,
        /// The link-local address, where both share a link.
        link_local: Option<Ipv6Addr>,
    },
}

/// The way of a route through AS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AsPath(pub Vec<Segment>);

/// A part of an AS path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// In this order; 1–255.
    Sequence(Vec<u32>),
    /// In some order; 1–255. Never sent (RFC 9774).
    Set(Vec<u32>),
    /// A sequence inside of a confederation (RFC 5065). Never sent.
    ConfederationSequence(Vec<u32>),
    /// A set inside of a confederation. Never sent.
    ConfederationSet(Vec<u32>),
}

/// A community: AS number in the higher half, value in the lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

/// An extended community: type, perhaps a subtype, and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedCommunity(pub [u8; 8]);

/// A large community: AS number and two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity(pub [u32; 3]);

impl Community {
    /// `NO_EXPORT` (RFC 1997).
    pub const NO_EXPORT: Self = Self(0xffff_ff01);
    /// `NO_ADVERTISE` (RFC 1997).
    pub const NO_ADVERTISE: Self = Self(0xffff_ff02);
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff)
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [global, first, second] = self.0;
        write!(f, "{global}:{first}:{second}")
    }
}
