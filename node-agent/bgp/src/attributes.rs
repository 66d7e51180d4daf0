//! Path attributes of advertised routes (RFC 4271 §5 and others).

use std::{
    collections::BTreeSet,
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Path attributes of an advertised or received route. Routes with equal attributes can share an UPDATE.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// ORIGIN attribute (RFC 4271 §5.1.1).
    pub origin: Origin,
    /// `AS_PATH` attribute (RFC 4271 §5.1.2).
    pub as_path: AsPath,
    /// `NEXT_HOP`, or the next hop of `MP_REACH_NLRI`.
    pub next_hop: NextHop,
    /// `MULTI_EXIT_DISC` (RFC 4271 §5.1.4); a lower value is preferred.
    pub med: Option<u32>,
    /// `LOCAL_PREF` (RFC 4271 §5.1.5), sent only to internal peers; a higher value is preferred.
    pub local_pref: Option<u32>,
    /// `ATOMIC_AGGREGATE`: true if the AS path omits ASes of routes that were aggregated.
    pub is_atomic_aggregate: bool,
    /// AGGREGATOR: AS number and BGP Identifier of the aggregating speaker.
    pub aggregator: Option<(u32, Ipv4Addr)>,
    /// COMMUNITIES (RFC 1997); not sent if empty.
    pub communities: BTreeSet<Community>,
    /// `ORIGINATOR_ID` (RFC 4456 §8): BGP Identifier of the speaker that originated the route in this AS. Set by
    /// route reflectors, and sent only to internal peers.
    pub originator_id: Option<Ipv4Addr>,
    /// `CLUSTER_LIST` (RFC 4456 §8): cluster IDs of the route reflectors that the route has passed, the last one
    /// first. Not sent if empty, and sent only to internal peers.
    pub cluster_list: Vec<Ipv4Addr>,
    /// EXTENDED COMMUNITIES (RFC 4360); not sent if empty.
    pub extended_communities: BTreeSet<ExtendedCommunity>,
    /// `LARGE_COMMUNITY` (RFC 8092); not sent if empty.
    pub large_communities: BTreeSet<LargeCommunity>,
    /// Only to Customer: AS number of the speaker that added the attribute (RFC 9234 §5).
    pub only_to_customer: Option<u32>,
}

/// Value of the ORIGIN attribute (RFC 4271 §5.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// IGP: originated inside the AS.
    Igp,
    /// EGP: learned from EGP (RFC 904).
    Egp,
    /// INCOMPLETE: learned by other means.
    Incomplete,
}

/// Next hop of a route, in one of the two address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHop {
    /// IPv4 next hop, for IPv4 prefixes only.
    V4(Ipv4Addr),
    /// IPv6 next hop, with an optional link-local address (RFC 2545); possible for IPv4 prefixes as well (RFC
    /// 8950).
    V6 {
        /// Global address; the link-local address if the session is unnumbered.
        global: Ipv6Addr,
        /// Link-local address, if both speakers share a link.
        link_local: Option<Ipv6Addr>,
    },
}

/// AS path of a route: segments from the nearest AS to the origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AsPath(pub Vec<Segment>);

/// Segment of an AS path: its type with its AS numbers (RFC 4271 §4.3 b).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// `AS_SEQUENCE`: 1 to 255 ordered AS numbers.
    Sequence(Vec<u32>),
    /// `AS_SET`: 1 to 255 unordered AS numbers. Never sent (RFC 9774).
    Set(Vec<u32>),
    /// `AS_CONFED_SEQUENCE`: ordered member AS numbers within a confederation (RFC 5065). Never sent.
    ConfederationSequence(Vec<u32>),
    /// `AS_CONFED_SET`: unordered member AS numbers within a confederation (RFC 5065). Never sent.
    ConfederationSet(Vec<u32>),
}

/// Community (RFC 1997): AS number in the upper 16 bits, value in the lower 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

/// Extended community (RFC 4360): type, optional subtype, and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedCommunity(pub [u8; 8]);

/// Large community (RFC 8092): Global Administrator and two Local Data parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity(pub [u32; 3]);

impl AsPath {
    /// Returns the length of the path for route selection: a set counts as one, and segments of a confederation
    /// as zero (RFC 4271 §9.1.2.2, RFC 5065 §5.3).
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.iter().map(Segment::length).sum()
    }

    /// Returns the AS from which the route entered this AS: the first one of a leading sequence. `None` for a
    /// route of this AS, and for a path that starts with a set.
    #[must_use]
    pub fn neighbor(&self) -> Option<u32> {
        let first = self.0.iter().find(|segment| !segment.is_confederation())?;
        match first {
            Segment::Sequence(numbers) => numbers.first().copied(),
            Segment::Set(_) | Segment::ConfederationSequence(_) | Segment::ConfederationSet(_) => None,
        }
    }
}

impl Segment {
    /// Returns the AS numbers of the segment.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        match self {
            Self::Sequence(numbers)
            | Self::Set(numbers)
            | Self::ConfederationSequence(numbers)
            | Self::ConfederationSet(numbers) => numbers,
        }
    }

    /// Returns true for the segments of a confederation (RFC 5065).
    #[must_use]
    pub const fn is_confederation(&self) -> bool {
        match self {
            Self::ConfederationSequence(_) | Self::ConfederationSet(_) => true,
            Self::Sequence(_) | Self::Set(_) => false,
        }
    }

    /// Returns the length of the segment for route selection; see [`AsPath::length`].
    #[must_use]
    pub const fn length(&self) -> usize {
        match self {
            Self::Sequence(numbers) => numbers.len(),
            Self::Set(_) => 1,
            Self::ConfederationSequence(_) | Self::ConfederationSet(_) => 0,
        }
    }
}

impl Community {
    /// `NO_EXPORT` (RFC 1997): the receiver does not advertise the route outside of its AS or confederation.
    pub const NO_EXPORT: Self = Self(0xffff_ff01);
    /// `NO_ADVERTISE` (RFC 1997): the receiver does not advertise the route to any peer.
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
