//! Fixed layout of the nftables backend's table: chains, sets and maps. The rules of the chains are in
//! [`super::rules`].
//!
//! A slot is a position in the list of targets of a frontend, and N is the number of slots.
//! ```text
//! prerouting ─┐            ┌─▶ cluster-N, external-N, nodeport-N, … ─▶ dnat to a slot of the frontend
//! output ─────┴▶ services ─┼─▶ checked ─▶ by-source ──┬─▶ (the same)
//!                          │   (allowed   (workloads, ├─▶ refuse
//!                          │    sources)   node, else)└─▶ discard
//!                          ├─▶ refuse
//!                          └─▶ discard
//! postrouting: masquerades marked packets, and hairpin connections
//! forward: drops packets in the conntrack state INVALID
//! forward, errors-input, errors-output: drop port unreachable errors of frontends that fail over
//! ```
//! A Service consists of map elements only. The chains that pick a slot are shared by all frontends with the
//! same number of slots and the same options. A frontend's element contains the number of its chain, and a
//! small map resolves numbers to chains. The indirection exists because adding an element whose value is a
//! chain makes the kernel scan all elements of all such maps, so the large maps hold numbers.

use std::fmt;

use kernel::nftables::{Hook, uapi};
use model::{primitives::net::IpFamily, program::Masquerade};

use super::number;

/// Default name of the backend's table, by which a starting process recognizes the objects of an earlier one.
pub const TABLE: &str = "tidegate";
/// Name of the table of the two-stage path that belongs to [`TABLE`].
pub const OWNERS_TABLE: &str = "tidegate-owners";
/// Default packet mark bit that requests masquerading (kube-proxy's default, bit 14).
pub const MARK_BIT_DEFAULT: u32 = 0x4000;
/// Maximum number of slots of a frontend, unless it has more targets than this. The smallest share that a
/// weight can express is therefore 1/1024.
pub const SLOTS_MAX: u32 = 1024;
/// Maximum number of targets of a frontend. The value limits the number of chains, and the memory that the agent
/// allocates for a slot number written by another program.
pub const TARGETS_MAX: u32 = 16_384;
/// Maximum number of slots of a frontend with session affinity. A frontend with more targets has
/// [`TARGETS_MAX`] slots, because only these slot counts have dispatch numbers (integers that identify
/// chains).
pub const AFFINITY_SLOTS_MAX: u32 = 512;
/// Maximum affinity timeout in seconds.
pub const AFFINITY_SECONDS_MAX: u32 = 86_400;
/// Maximum number of affinity entries per family; further clients are reassigned at every
/// connection. A full map takes about 30 MB.
pub const AFFINITY_CLIENTS_MAX: u32 = 131_072;

/// Lookup type of a frontend, which determines the fields of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LookupType {
    /// Lookup by destination address, protocol and port.
    Address,
    /// Lookup by destination address, protocol and the port range that contains the port.
    Range,
    /// Lookup by protocol and port, on every node port address of the node.
    NodePort,
}

/// Class of source addresses. A route may have a different verdict for each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VerdictClass {
    /// Source address in the workload networks of this node.
    Workloads,
    /// Address of this node outside of the workload networks.
    Node,
    /// Source address of any other kind.
    Elsewhere,
}

/// Chain of the backend's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// Chain that rejects connections to a frontend without targets, and to ports of virtual addresses
    /// without a frontend.
    Refuse,
    /// Chain that drops connections, for sources without a target if other sources have targets.
    Discard,
    /// Chain that picks one slot (position in the list of targets) of a frontend and forwards to the target
    /// in it.
    Pick(Pick),
    /// Chain that continues in another chain by class of sources.
    BySource(LookupType),
    /// Chain in which the allowed ranges and the node itself continue to [`Chain::BySource`]; other sources
    /// are dropped.
    Checked(LookupType),
    /// Chain that looks up the frontend of a new connection.
    Services,
    /// Base chain at the prerouting hook, for forwarded and inbound packets.
    Prerouting,
    /// Base chain at the output hook, for packets of the node itself.
    Output,
    /// Base chain at the postrouting hook, which masquerades.
    Postrouting,
    /// Base chain at the forward hook, which drops packets in the conntrack state INVALID, and errors as
    /// [`Chain::ErrorsInput`] does.
    Forward,
    /// Base chain at the input hook, which drops port unreachable errors of frontends that fail over.
    ErrorsInput,
    /// Base chain at the output hook, which drops port unreachable errors of frontends that fail over.
    ErrorsOutput,
}

/// Parameters of a chain that picks one of the target slots of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    /// Lookup type of the frontends that use the chain.
    pub place: LookupType,
    /// Sources whose connections are masqueraded.
    pub masquerade: Masquerade,
    /// Pool of targets to which the slots belong.
    pub pool: Pool,
    /// Number of slots, 1–[`TARGETS_MAX`].
    pub slots: u32,
    /// Method by which a connection picks a slot.
    pub choice: Choice,
    /// Translation of the destination.
    pub action: Treatment,
    /// Affinity timeout in seconds, 1–[`AFFINITY_SECONDS_MAX`].
    pub affinity_seconds: Option<u32>,
}

/// List of targets of a frontend. Classes of sources (workloads, the node, all others) with different targets
/// have different lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// Targets of workloads, and of all classes that have the same targets.
    #[default]
    Workloads,
    /// Targets of the node itself, if they differ from those of workloads.
    Node,
    /// Targets of other sources, if they differ from those of workloads and of the node.
    Elsewhere,
}

/// Method by which a new connection picks a target slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// Uniformly distributed random number per connection.
    Random,
    /// Hash of the source address, identical on every node and at any time.
    SourceAddress,
    /// Hash of source address and port.
    SourceAddressAndPort,
}

/// Translation of a connection's destination to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Treatment {
    /// DNAT to the address and port of the target.
    Translate,
    /// DNAT to the address of the target; the destination port stays the same.
    TranslateAddress,
    /// Redirect to the target's port on this node, at which a relay listens.
    Redirect,
}

/// Identifier of a set or map of the backend: purpose and address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId {
    /// Purpose of the set or map.
    pub role: SetRole,
    /// Address family of its keys.
    pub family: IpFamily,
}

/// Purpose of a set or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetRole {
    /// Map from dispatch number to chain, for all sources.
    Chains(LookupType),
    /// Map from dispatch number to chain, for a single class of sources (workloads, the node, all others). No
    /// chain in this map looks up the class again, which would be a loop.
    ChainsFrom(LookupType),
    /// Map from frontend to the dispatch number of the chain that handles its connections.
    Dispatch(LookupType),
    /// Map from frontend to the dispatch number of the chain for one class of sources.
    DispatchFrom(LookupType, VerdictClass),
    /// Map from frontend and target slot to target.
    Endpoints(LookupType),
    /// Map from frontend to the id of its group: frontends of one Service port, which share session affinity.
    AffinityGroups(LookupType),
    /// Map from group and source to target id. Filled by packets in the kernel.
    Affinity,
    /// Map from frontend and target slot to target id, with session affinity.
    AffinitySlots(LookupType),
    /// Map from frontend and target id to target, with session affinity, for one pool.
    AffinityTargets(LookupType, Pool),
    /// Set of frontends with the source ranges that may connect.
    AllowedSources(LookupType),
    /// Map from address, protocol and port to the port range that contains the port.
    Ranges,
    /// Set of UDP frontends that fail over: their clients repeat a datagram that an endpoint refused.
    Failover,
    /// Set of virtual addresses, which belong to no interface.
    VirtualAddresses,
    /// Set of local endpoints that may connect to themselves.
    Hairpins,
    /// Set of networks, as intervals.
    Networks(NetworkSet),
}

/// Set of networks that the rules match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkSet {
    /// Networks of the workloads on this node, from the node's state.
    Workloads,
    /// Source networks that are masqueraded at frontends where masquerading depends on the source.
    MasqueradeSources,
    /// Addresses on which node ports are served.
    NodePortAddresses,
    /// Networks of cluster IPs. Packets to an address in them that no Service has are dropped.
    ServiceRanges,
}

impl LookupType {
    /// All lookup types, in the order in which the rules try them.
    pub const ALL: [Self; 3] = [Self::Address, Self::Range, Self::NodePort];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Address => "",
            Self::Range => "range-",
            Self::NodePort => "nodeport-",
        }
    }
}

impl VerdictClass {
    /// All classes of sources (workloads, the node, all others), in the order in which the rules match them.
    pub const ALL: [Self; 3] = [Self::Workloads, Self::Node, Self::Elsewhere];

    const fn stem(self) -> &'static str {
        match self {
            Self::Workloads => "workloads",
            Self::Node => "node",
            Self::Elsewhere => "elsewhere",
        }
    }
}

impl Pool {
    /// All pools, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Workloads, Self::Node, Self::Elsewhere];

    /// Returns the number of the pool, 0–2, from which the number of its first target slot is derived.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Workloads => 0,
            Self::Node => 1,
            Self::Elsewhere => 2,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Workloads => "",
            Self::Node => "-node",
            Self::Elsewhere => "-elsewhere",
        }
    }

    /// Returns the number of the first target slot of the pool in the kernel. The distance between pools
    /// exceeds [`TARGETS_MAX`].
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.number() << 16
    }
}

impl NetworkSet {
    /// All network sets, in listing order.
    pub const ALL: [Self; 4] =
        [Self::Workloads, Self::MasqueradeSources, Self::NodePortAddresses, Self::ServiceRanges];
}

impl SetRole {
    /// Iterates over all roles, in listing order.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_places = [
            Self::Chains,
            Self::ChainsFrom,
            Self::Dispatch,
            Self::Endpoints,
            Self::AffinityGroups,
            Self::AffinitySlots,
            Self::AllowedSources,
        ];
        let of_places = of_places.into_iter().flat_map(|role| LookupType::ALL.map(role));
        let of_sources = LookupType::ALL
            .into_iter()
            .flat_map(|place| VerdictClass::ALL.map(|source| Self::DispatchFrom(place, source)));
        let of_pools = LookupType::ALL
            .into_iter()
            .flat_map(|place| Pool::ALL.map(|pool| Self::AffinityTargets(place, pool)));
        let others = [Self::Affinity, Self::Ranges, Self::Failover, Self::VirtualAddresses, Self::Hairpins];
        of_places.chain(of_pools).chain(of_sources).chain(others).chain(NetworkSet::ALL.map(Self::Networks))
    }
}

impl fmt::Display for SetRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chains(place) => write!(f, "{}chains", place.prefix()),
            Self::ChainsFrom(place) => write!(f, "{}chains-from", place.prefix()),
            Self::Dispatch(place) => f.write_str(dispatch_stem(*place)),
            Self::DispatchFrom(place, source) => {
                write!(f, "{}-from-{}", dispatch_stem(*place), source.stem())
            }
            Self::Endpoints(place) => write!(f, "{}endpoints", place.prefix()),
            Self::AffinityGroups(place) => write!(f, "{}affinity-groups", place.prefix()),
            Self::Affinity => f.write_str("affinity"),
            Self::AffinitySlots(place) => write!(f, "{}affinity-slots", place.prefix()),
            Self::AffinityTargets(place, pool) => {
                write!(f, "{}affinity-targets{}", place.prefix(), pool.suffix())
            }
            Self::AllowedSources(place) => write!(f, "{}allowed-sources", place.prefix()),
            Self::Ranges => f.write_str("ranges"),
            Self::Failover => f.write_str("failover"),
            Self::VirtualAddresses => f.write_str("virtual-addresses"),
            Self::Hairpins => f.write_str("hairpins"),
            Self::Networks(NetworkSet::Workloads) => f.write_str("workloads"),
            Self::Networks(NetworkSet::MasqueradeSources) => f.write_str("masquerade-sources"),
            Self::Networks(NetworkSet::NodePortAddresses) => f.write_str("nodeport-addresses"),
            Self::Networks(NetworkSet::ServiceRanges) => f.write_str("service-ranges"),
        }
    }
}

const fn dispatch_stem(place: LookupType) -> &'static str {
    match place {
        LookupType::Address => "services",
        LookupType::Range => "range-services",
        LookupType::NodePort => "nodeports",
    }
}

impl SetId {
    /// Returns the identifier of the set with this role and address family.
    #[must_use]
    pub const fn new(role: SetRole, family: IpFamily) -> Self {
        Self { role, family }
    }

    /// Iterates over all sets, in order of creation.
    pub fn all() -> impl Iterator<Item = Self> {
        SetRole::all().flat_map(|role| IpFamily::ALL.map(|family| Self { role, family }))
    }

    /// Returns the set with this name, or `None` if the name does not belong to the backend.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|set| set.to_string() == name)
    }

    /// Returns true if the kernel fills the set from packets; the agent does not manage its elements.
    #[must_use]
    pub const fn is_dynamic(self) -> bool {
        matches!(self.role, SetRole::Affinity)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.role.fmt(f)?;
        f.write_str(match self.family {
            IpFamily::V4 => "4",
            IpFamily::V6 => "6",
        })
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuse"),
            Self::Discard => f.write_str("discard"),
            Self::Pick(pick) => pick.fmt(f),
            Self::BySource(place) => write!(f, "{}by-source", place.prefix()),
            Self::Checked(place) => write!(f, "{}checked", place.prefix()),
            Self::Services => f.write_str("services"),
            Self::Prerouting => f.write_str("prerouting"),
            Self::Output => f.write_str("output"),
            Self::Postrouting => f.write_str("postrouting"),
            Self::Forward => f.write_str("forward"),
            Self::ErrorsInput => f.write_str("errors-input"),
            Self::ErrorsOutput => f.write_str("errors-output"),
        }
    }
}

/// Name prefixes of pick chains, before the number of slots.
const PICK_STEMS: [(LookupType, Masquerade, &str); 9] = [
    (LookupType::Address, Masquerade::OffCluster, "cluster"),
    (LookupType::Address, Masquerade::Always, "external"),
    (LookupType::Address, Masquerade::Never, "direct"),
    (LookupType::Range, Masquerade::OffCluster, "range-cluster"),
    (LookupType::Range, Masquerade::Always, "range-external"),
    (LookupType::Range, Masquerade::Never, "range-direct"),
    (LookupType::NodePort, Masquerade::OffCluster, "nodeport-cluster"),
    (LookupType::NodePort, Masquerade::Always, "nodeport"),
    (LookupType::NodePort, Masquerade::Never, "nodeport-direct"),
];

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, masquerade, pool, slots, choice, action, affinity_seconds } = self;
        let stem = PICK_STEMS.iter().find(|(p, m, _)| p == place && m == masquerade);
        write!(f, "{}-{slots}", stem.map_or("", |(.., stem)| stem))?;
        f.write_str(pool.suffix())?;
        f.write_str(match choice {
            Choice::Random => "",
            Choice::SourceAddress => "-hash",
            Choice::SourceAddressAndPort => "-porthash",
        })?;
        f.write_str(match action {
            Treatment::Translate => "",
            Treatment::TranslateAddress => "-sameport",
            Treatment::Redirect => "-relay",
        })?;
        affinity_seconds.map_or(Ok(()), |seconds| write!(f, "-affinity-{seconds}"))
    }
}

impl Pick {
    /// Returns the pick chain with this name, or `None` if the name is not one of a pick chain.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (stem, rest) = name.split_at(digit_behind_dash(name)?);
        let (place, masquerade, _) = PICK_STEMS.iter().find(|(.., it)| *it == stem)?;
        let mut words = rest.split('-').skip(1).peekable();
        let slots = words.next()?.parse().ok().filter(|slots| (1..=TARGETS_MAX).contains(slots))?;
        let mut pick = Self {
            place: *place,
            masquerade: *masquerade,
            pool: Pool::Workloads,
            slots,
            choice: Choice::Random,
            action: Treatment::Translate,
            affinity_seconds: None,
        };
        while let Some(word) = words.next() {
            match word {
                "node" => pick.pool = Pool::Node,
                "elsewhere" => pick.pool = Pool::Elsewhere,
                "hash" => pick.choice = Choice::SourceAddress,
                "porthash" => pick.choice = Choice::SourceAddressAndPort,
                "sameport" => pick.action = Treatment::TranslateAddress,
                "relay" => pick.action = Treatment::Redirect,
                "affinity" => {
                    let seconds = words.next()?.parse().ok();
                    pick.affinity_seconds =
                        Some(seconds.filter(|seconds| (1..=AFFINITY_SECONDS_MAX).contains(seconds))?);
                }
                _ => return None,
            }
        }
        (pick.to_string() == name && number::has_number(pick)).then_some(pick)
    }
}

/// Returns the byte index of the first dash that is followed by a digit.
fn digit_behind_dash(name: &str) -> Option<usize> {
    name.as_bytes().windows(2).position(|pair| pair[0] == b'-' && pair[1].is_ascii_digit())
}

impl Chain {
    /// Chains that exist without Services (fixed chains), each after the chains that it refers to.
    pub const FIXED: [Self; 15] = [
        Self::Refuse,
        Self::Discard,
        Self::BySource(LookupType::Address),
        Self::BySource(LookupType::Range),
        Self::BySource(LookupType::NodePort),
        Self::Checked(LookupType::Address),
        Self::Checked(LookupType::Range),
        Self::Checked(LookupType::NodePort),
        Self::Services,
        Self::Prerouting,
        Self::Output,
        Self::Postrouting,
        Self::Forward,
        Self::ErrorsInput,
        Self::ErrorsOutput,
    ];

    /// Returns the chain with this name, or `None` if the name does not belong to the backend.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let fixed = Self::FIXED.into_iter().find(|chain| chain.to_string() == name);
        fixed.or_else(|| Pick::parse(name).map(Self::Pick))
    }

    /// Returns the hook of a base chain. In the output hook the priority has no symbolic name.
    #[must_use]
    pub const fn hook(self) -> Option<Hook> {
        match self {
            Self::Prerouting => Some(Hook { number: uapi::NF_INET_PRE_ROUTING, priority: -100 }),
            Self::Output => Some(Hook { number: uapi::NF_INET_LOCAL_OUT, priority: -100 }),
            Self::Postrouting => Some(Hook { number: uapi::NF_INET_POST_ROUTING, priority: 100 }),
            Self::Forward => Some(Hook { number: uapi::NF_INET_FORWARD, priority: 0 }),
            Self::ErrorsInput => Some(Hook { number: uapi::NF_INET_LOCAL_IN, priority: 0 }),
            Self::ErrorsOutput => Some(Hook { number: uapi::NF_INET_LOCAL_OUT, priority: 0 }),
            Self::Refuse
            | Self::Discard
            | Self::Pick(_)
            | Self::BySource(_)
            | Self::Checked(_)
            | Self::Services => None,
        }
    }

    /// Returns the type of a base chain: `nat`, which only the first packet of a connection traverses, or
    /// `filter`, which every packet traverses. `None` if the chain has no hook.
    #[must_use]
    pub const fn chain_type(self) -> Option<&'static str> {
        match self {
            Self::Prerouting | Self::Output | Self::Postrouting => Some("nat"),
            Self::Forward | Self::ErrorsInput | Self::ErrorsOutput => Some("filter"),
            Self::Refuse
            | Self::Discard
            | Self::Pick(_)
            | Self::BySource(_)
            | Self::Checked(_)
            | Self::Services => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_foreign_names_are_not_taken_for_ours() {
        let plain = Pick {
            place: LookupType::Address,
            masquerade: Masquerade::OffCluster,
            pool: Pool::Workloads,
            slots: 1,
            choice: Choice::Random,
            action: Treatment::Translate,
            affinity_seconds: None,
        };
        let mut picks = vec![plain, Pick { slots: TARGETS_MAX, ..plain }];
        picks.extend(PICK_STEMS.map(|(place, masquerade, _)| Pick { place, masquerade, slots: 23, ..plain }));
        picks.extend(Pool::ALL.map(|pool| Pick { pool, ..plain }));
        for choice in [Choice::SourceAddress, Choice::SourceAddressAndPort] {
            for action in [Treatment::TranslateAddress, Treatment::Redirect] {
                let affinity_seconds = Some(AFFINITY_SECONDS_MAX);
                picks.push(Pick { choice, action, affinity_seconds, pool: Pool::Node, ..plain });
            }
        }
        for chain in Chain::FIXED.into_iter().chain(picks.into_iter().map(Chain::Pick)) {
            assert_eq!(Chain::parse(&chain.to_string()), Some(chain), "{chain}");
        }
        for name in [
            "cluster-0",
            "cluster-01",
            "cluster-+1",
            "cluster-16385",
            "cluster",
            "other-1",
            "cluster-1-affinity-0",
            "cluster-1-affinity",
            "cluster-1-hash-node",
            "cluster-513-affinity-1",
            "Services",
            "",
        ] {
            assert_eq!(Chain::parse(name), None, "{name}");
        }
        for set in SetId::all() {
            assert_eq!(SetId::parse(&set.to_string()), Some(set));
        }
    }
}
