//! Fixed parts of the table: its maps and chains, with their definitions.

use std::fmt;

use kernel::nftables::{Hook, uapi};
use model::{policy::node_policy::Direction, primitives::net::IpFamily};

/// Name of the table, by which a new process recognizes it.
pub const TABLE: &str = "tidegate-policy";

/// Number of the hook of packets to this machine (`NF_INET_LOCAL_IN`).
const LOCAL_IN: u32 = 1;
/// Priority of the chains (`NF_IP_PRI_FILTER`): after the translation of destinations, before masquerading.
const FILTER: i32 = 0;

/// Map or set of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyMap {
    /// Numbers of the sets of local addresses.
    Subjects(Direction, IpFamily),
    /// Identities of workloads.
    Identities(IpFamily),
    /// Identities of networks.
    Networks(IpFamily),
    /// Set of pairs of a local address with itself.
    Hairpins(IpFamily),
    /// Set of addresses of local workloads, which this machine itself reaches always.
    Locals(IpFamily),
    /// Cells of the protocols and ports of each set.
    Ports,
    /// Decisions of cells on identities, with counters.
    Decisions,
    /// Decisions of cells on all other identities, with counters.
    Defaults,
    /// Chains that execute decisions.
    Actions,
}

/// Chain of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyChain {
    /// Empty chain, from which a packet returns to the base chain.
    Accepted,
    /// Drop of the packet.
    Dropped,
    /// Acceptance of neighbor discovery (RFC 4861 §4, types 133 to 137).
    NeighborDiscovery,
    /// Drop of TCP segments that continue an untracked connection of a selected workload.
    Midstream,
    /// Decision of one direction on a connection.
    Decide(Direction, IpFamily),
    /// Base chain of forwarded packets.
    Forward,
    /// Base chain of packets to this machine.
    Input,
    /// Base chain of packets of this machine.
    Output,
}

/// Definition of a map, in the form that the kernel reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyMapShape {
    /// Flags of the map (`NFT_SET_…`).
    pub flags: u32,
    /// Types of the fields of the key as `nft` numbers them, six bits per field.
    pub key_type: u32,
    /// Length of the key in bytes, with the padding of its fields.
    pub key_length: u32,
    /// Types of the fields of the value; 0 for a set.
    pub data_type: u32,
    /// Length of the value in bytes; 0 for a chain or without a value.
    pub data_length: u32,
}

/// KeyField of a key or value: type as numbered by the `nft` command, and length in bytes without padding.
type KeyField = (u32, u32);

const PROTOCOL_FAMILY: KeyField = (3, 1);
const PROTOCOL: KeyField = (12, 1);
const PORT: KeyField = (13, 2);
/// Number of a set, cell, identity or action. The `nft` command has no other type for numbers that it can list as part of a key.
const MARK: KeyField = (19, 4);
/// Bits of the type of a field.
const TYPE_BITS: u32 = 6;

impl PolicyMap {
    /// Iterates over all maps, in the order of creation.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_family = |family| {
            [
                Self::Subjects(Direction::Egress, family),
                Self::Subjects(Direction::Ingress, family),
                Self::Identities(family),
                Self::Networks(family),
                Self::Hairpins(family),
                Self::Locals(family),
            ]
        };
        let common = [Self::Ports, Self::Decisions, Self::Defaults, Self::Actions];
        IpFamily::ALL.into_iter().flat_map(of_family).chain(common)
    }

    /// Returns the map with this name, or `None` if the name does not belong to the table.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|map| map.to_string() == name)
    }

    /// Returns true if keys are intervals. A removed interval cannot be requested by its key.
    #[must_use]
    pub const fn has_intervals(self) -> bool {
        matches!(self, Self::Networks(_) | Self::Ports)
    }

    /// Returns true if elements have packet counters.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Decisions | Self::Defaults)
    }

    /// Returns the lengths of the fields of the key, without padding.
    pub(super) fn field_lengths(self) -> Vec<u32> {
        self.key().into_iter().map(|(_, length)| length).collect()
    }

    /// Returns the definition of the map.
    #[must_use]
    pub fn shape(self) -> PolicyMapShape {
        let key = self.key();
        let (is_map, value): (bool, &[KeyField]) = match self {
            Self::Subjects(..)
            | Self::Identities(_)
            | Self::Networks(_)
            | Self::Ports
            | Self::Decisions
            | Self::Defaults => (true, &[MARK]),
            Self::Hairpins(_) | Self::Locals(_) => (false, &[]),
            Self::Actions => (true, &[]),
        };
        let interval = if self.has_intervals() { uapi::NFT_SET_INTERVAL | uapi::NFT_SET_CONCAT } else { 0 };
        PolicyMapShape {
            flags: interval | if is_map { uapi::NFT_SET_MAP } else { 0 },
            key_type: types(&key),
            key_length: length(&key),
            data_type: if self == Self::Actions { uapi::NFT_DATA_VERDICT } else { types(value) },
            data_length: length(value),
        }
    }

    fn key(self) -> Vec<KeyField> {
        match self {
            Self::Subjects(_, family) | Self::Identities(family) | Self::Locals(family) => {
                vec![address(family)]
            }
            Self::Hairpins(family) => vec![address(family), address(family)],
            // Intervals of several fields are independent of each other, unlike those of a single field.
            Self::Networks(family) => vec![address(family), PROTOCOL_FAMILY],
            Self::Ports => vec![MARK, PROTOCOL, PORT],
            Self::Decisions => vec![MARK, MARK],
            Self::Defaults | Self::Actions => vec![MARK],
        }
    }
}

const fn address(family: IpFamily) -> KeyField {
    match family {
        IpFamily::V4 => (7, 4),
        IpFamily::V6 => (8, 16),
    }
}

fn types(fields: &[KeyField]) -> u32 {
    fields.iter().fold(0, |types, (number, _)| types << TYPE_BITS | number)
}

fn length(fields: &[KeyField]) -> u32 {
    fields.iter().map(|(_, length)| length.next_multiple_of(4)).sum()
}

const fn digit(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "4",
        IpFamily::V6 => "6",
    }
}

const fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Egress => "egress",
        Direction::Ingress => "ingress",
    }
}

impl fmt::Display for PolicyMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Subjects(direction, family) => {
                write!(f, "{}-sets{}", word(direction), digit(family))
            }
            Self::Identities(family) => write!(f, "identities{}", digit(family)),
            Self::Networks(family) => write!(f, "networks{}", digit(family)),
            Self::Hairpins(family) => write!(f, "hairpins{}", digit(family)),
            Self::Locals(family) => write!(f, "locals{}", digit(family)),
            Self::Ports => f.write_str("ports"),
            Self::Decisions => f.write_str("decisions"),
            Self::Defaults => f.write_str("defaults"),
            Self::Actions => f.write_str("actions"),
        }
    }
}

impl PolicyChain {
    /// Iterates over all chains, each after the chains that it refers to.
    pub fn all() -> impl Iterator<Item = Self> {
        let decide = IpFamily::ALL
            .into_iter()
            .flat_map(|family| [Direction::Egress, Direction::Ingress].map(|it| Self::Decide(it, family)));
        let first = [Self::Accepted, Self::Dropped, Self::NeighborDiscovery, Self::Midstream];
        first.into_iter().chain(decide).chain([Self::Forward, Self::Input, Self::Output])
    }

    /// Returns the chain with this name, or `None` if the name does not belong to the table.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|chain| chain.to_string() == name)
    }

    /// Returns the hook of a base chain; `None` for other chains.
    #[must_use]
    pub const fn hook(self) -> Option<Hook> {
        let number = match self {
            Self::Forward => uapi::NF_INET_FORWARD,
            Self::Input => LOCAL_IN,
            Self::Output => uapi::NF_INET_LOCAL_OUT,
            Self::Accepted | Self::Dropped | Self::NeighborDiscovery | Self::Midstream | Self::Decide(..) => {
                return None;
            }
        };
        Some(Hook { number, priority: FILTER })
    }
}

impl fmt::Display for PolicyChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Accepted => f.write_str("accepted"),
            Self::Dropped => f.write_str("dropped"),
            Self::NeighborDiscovery => f.write_str("neighbor-discovery"),
            Self::Midstream => f.write_str("midstream"),
            Self::Decide(direction, family) => write!(f, "{}{}", word(direction), digit(family)),
            Self::Forward => f.write_str("forward"),
            Self::Input => f.write_str("input"),
            Self::Output => f.write_str("output"),
        }
    }
}
