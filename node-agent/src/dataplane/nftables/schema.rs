//! The fixed shape of our table: which chains, sets and maps there are. What the rules of the chains say is in
//! [`super::rules`].
//!
//! ```text
//! prerouting ─┐            ┌─▶ cluster-N, external-N, nodeport-N, … ─▶ dnat to a slot of the frontend
//! output ─────┴▶ services ─┼─▶ checked ─▶ by-source ──┬─▶ (the same)
//!                          │   (allowed   (workloads, ├─▶ refuse
//!                          │    sources)   node, else)└─▶ discard
//!                          ├─▶ refuse
//!                          └─▶ discard
//! postrouting: masquerade what is marked, and what would come back to its own sender
//! ```
//! A Service is elements of the maps and nothing else. The chains that choose a slot are shared by all frontends that
//! choose among as many slots in the same way. A frontend has the number of its chain, and a map of few elements says which
//! chain has which number: to add an element whose value is a chain makes the kernel look at all elements of all such maps, so
//! the large ones hold numbers.

use std::fmt;

use model::{primitives::net::IpFamily, program::Masquerade};

use super::{number, uapi};

/// The name of our table, unless chosen otherwise. It is how a fresh process recognises what is ours.
pub const TABLE: &str = "tidegate";
/// The packet mark bit that asks for masquerading, unless configured otherwise (kube-proxy's default, bit 14).
pub const MARK_BIT_DEFAULT: u32 = 0x4000;
/// Slots of one frontend unless it has more targets than that: the finest share is one in 1024.
pub const SLOTS_MAX: u32 = 1024;
/// Targets of one frontend: bounds chains, and the memory that a strange slot number could make us take.
pub const TARGETS_MAX: u32 = 16_384;
/// Slots of one frontend whose sources stay on targets, unless it has more targets than that: then it has [`TARGETS_MAX`]. So every
/// chain has a number.
pub const AFFINITY_SLOTS_MAX: u32 = 512;
/// The longest that an affinity may last, in seconds.
pub const AFFINITY_SECONDS_MAX: u32 = 86_400;
/// Clients that the kernel remembers for affinity, per family and kind of frontend; further ones are placed anew at
/// every connection. A full table takes about 30 MB.
pub const AFFINITY_CLIENTS_MAX: u32 = 131_072;

/// How a frontend is found, which decides what its key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// By address, protocol and port.
    Address,
    /// By address, protocol and the range of ports that holds the port.
    Range,
    /// By protocol and port, at any address of the node.
    NodePort,
}

/// Who connects, as far as verdicts differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An address in the workload networks.
    Workloads,
    /// Another address of this node.
    Node,
    /// Anybody else.
    Elsewhere,
}

/// A chain of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// Connections to a frontend that has no target, and to undefined ports of virtual addresses.
    Refuse,
    /// Connections that somebody else has targets for.
    Discard,
    /// Chooses a slot.
    Pick(Pick),
    /// Tells frontends apart once more, by who connects.
    BySource(Place),
    /// Lets only allowed sources go on to [`Chain::BySource`].
    Checked(Place),
    /// Looks up the frontend.
    Services,
    /// Base chain for forwarded and incoming packets.
    Prerouting,
    /// Base chain for packets of this machine.
    Output,
    /// Base chain for source translation.
    Postrouting,
}

/// A chain that chooses one of the slots of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    /// How the frontend is found.
    pub place: Place,
    /// Whose source is replaced.
    pub masquerade: Masquerade,
    /// In which pool the slots are.
    pub pool: Pool,
    /// How many slots, 1–[`TARGETS_MAX`].
    pub slots: u32,
    /// How one is chosen.
    pub choice: Choice,
    /// What is done with it.
    pub action: Action,
    /// How long a source stays on its target, 1–[`AFFINITY_SECONDS_MAX`].
    pub affinity_seconds: Option<u32>,
}

/// One of the lists of targets of a frontend: sources can meet different ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// That of workloads, and of all who meet the same targets.
    #[default]
    Workloads,
    /// That of the node, if it meets others.
    Node,
    /// That of everybody else, if they meet others.
    Elsewhere,
}

/// How a slot is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// At random.
    Random,
    /// By the source address, the same on every node and at every time.
    SourceAddress,
    /// By source address and port.
    SourceAddressAndPort,
}

/// What is done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It goes to the target's address and port.
    Translate,
    /// It goes to the target's address and keeps its port.
    TranslateAddress,
    /// It goes to the target's port on this node.
    Redirect,
}

/// Where a base chain hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// `NF_INET_…`.
    pub number: u32,
    /// Lower runs first.
    pub priority: i32,
}

/// One of our sets or maps: its role, and the family of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId {
    /// What it is for.
    pub role: SetRole,
    /// The family of its addresses.
    pub family: IpFamily,
}

/// What a set or map is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetRole {
    /// Number to the chain that has it, of frontends.
    Chains(Place),
    /// The same of frontends and sources: none of these chains looks at the source again, or it would be a loop.
    ChainsFrom(Place),
    /// Frontend to the number of the chain that takes the connection.
    Dispatch(Place),
    /// Frontend to the number of the chain that takes the connections of one kind of source.
    DispatchFrom(Place, Source),
    /// Frontend and slot to the target.
    Endpoints(Place),
    /// Frontend and source to the id of the target that it stays on. The kernel fills it.
    Affinity(Place),
    /// Frontend and slot to the id of the target, where sources stay on targets.
    AffinitySlots(Place),
    /// Frontend and id to the target, where sources stay on targets; those of one pool.
    AffinityTargets(Place, Pool),
    /// Frontends with the sources that they allow.
    AllowedSources(Place),
    /// Address, protocol and port to the range of ports.
    Ranges,
    /// Addresses that exist only in rules.
    VirtualAddresses,
    /// Endpoints that may connect to themselves.
    Hairpins,
    /// Networks.
    Networks(NetworkSet),
}

/// Networks that rules tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkSet {
    /// Where workloads are.
    Workloads,
    /// Sources that are masqueraded where the source decides.
    MasqueradeSources,
    /// Addresses at which node ports answer.
    NodePortAddresses,
}

impl Place {
    /// Every place, in the order in which frontends are looked for.
    pub const ALL: [Self; 3] = [Self::Address, Self::Range, Self::NodePort];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Address => "",
            Self::Range => "range-",
            Self::NodePort => "nodeport-",
        }
    }
}

impl Source {
    /// Every kind, in the order in which they are told apart.
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
    /// Every pool, by number.
    pub const ALL: [Self; 3] = [Self::Workloads, Self::Node, Self::Elsewhere];

    /// Its number.
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

    /// The number of its first slot. The distance is more than [`TARGETS_MAX`].
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.number() << 16
    }
}

impl NetworkSet {
    /// Every one, in the order of the listing.
    pub const ALL: [Self; 3] = [Self::Workloads, Self::MasqueradeSources, Self::NodePortAddresses];
}

impl SetRole {
    /// Every role, in the order of the listing.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_places = [
            Self::Chains,
            Self::ChainsFrom,
            Self::Dispatch,
            Self::Endpoints,
            Self::Affinity,
            Self::AffinitySlots,
            Self::AllowedSources,
        ];
        let of_places = of_places.into_iter().flat_map(|role| Place::ALL.map(role));
        let of_sources = Place::ALL
            .into_iter()
            .flat_map(|place| Source::ALL.map(|source| Self::DispatchFrom(place, source)));
        let of_pools =
            Place::ALL.into_iter().flat_map(|place| Pool::ALL.map(|pool| Self::AffinityTargets(place, pool)));
        let others = [Self::Ranges, Self::VirtualAddresses, Self::Hairpins];
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
            Self::Affinity(place) => write!(f, "{}affinity", place.prefix()),
            Self::AffinitySlots(place) => write!(f, "{}affinity-slots", place.prefix()),
            Self::AffinityTargets(place, pool) => {
                write!(f, "{}affinity-targets{}", place.prefix(), pool.suffix())
            }
            Self::AllowedSources(place) => write!(f, "{}allowed-sources", place.prefix()),
            Self::Ranges => f.write_str("ranges"),
            Self::VirtualAddresses => f.write_str("virtual-addresses"),
            Self::Hairpins => f.write_str("hairpins"),
            Self::Networks(NetworkSet::Workloads) => f.write_str("workloads"),
            Self::Networks(NetworkSet::MasqueradeSources) => f.write_str("masquerade-sources"),
            Self::Networks(NetworkSet::NodePortAddresses) => f.write_str("nodeport-addresses"),
        }
    }
}

const fn dispatch_stem(place: Place) -> &'static str {
    match place {
        Place::Address => "services",
        Place::Range => "range-services",
        Place::NodePort => "nodeports",
    }
}

impl SetId {
    /// The set of a role and a family.
    #[must_use]
    pub const fn new(role: SetRole, family: IpFamily) -> Self {
        Self { role, family }
    }

    /// Every set, in the order in which they are made.
    pub fn all() -> impl Iterator<Item = Self> {
        SetRole::all().flat_map(|role| IpFamily::ALL.map(|family| Self { role, family }))
    }

    /// The set of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|set| set.to_string() == name)
    }

    /// Whether the kernel fills it from packets, so that its elements are none of our business.
    #[must_use]
    pub const fn is_dynamic(self) -> bool {
        matches!(self.role, SetRole::Affinity(_))
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
        }
    }
}

/// What comes before the number of slots in a chain's name.
const PICK_STEMS: [(Place, Masquerade, &str); 9] = [
    (Place::Address, Masquerade::OffCluster, "cluster"),
    (Place::Address, Masquerade::Always, "external"),
    (Place::Address, Masquerade::Never, "direct"),
    (Place::Range, Masquerade::OffCluster, "range-cluster"),
    (Place::Range, Masquerade::Always, "range-external"),
    (Place::Range, Masquerade::Never, "range-direct"),
    (Place::NodePort, Masquerade::OffCluster, "nodeport-cluster"),
    (Place::NodePort, Masquerade::Always, "nodeport"),
    (Place::NodePort, Masquerade::Never, "nodeport-direct"),
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
            Action::Translate => "",
            Action::TranslateAddress => "-sameport",
            Action::Redirect => "-relay",
        })?;
        affinity_seconds.map_or(Ok(()), |seconds| write!(f, "-affinity-{seconds}"))
    }
}

impl Pick {
    /// The chain of this name.
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
            action: Action::Translate,
            affinity_seconds: None,
        };
        while let Some(word) = words.next() {
            match word {
                "node" => pick.pool = Pool::Node,
                "elsewhere" => pick.pool = Pool::Elsewhere,
                "hash" => pick.choice = Choice::SourceAddress,
                "porthash" => pick.choice = Choice::SourceAddressAndPort,
                "sameport" => pick.action = Action::TranslateAddress,
                "relay" => pick.action = Action::Redirect,
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

/// Where the first number behind a dash begins, dash included.
fn digit_behind_dash(name: &str) -> Option<usize> {
    name.as_bytes().windows(2).position(|pair| pair[0] == b'-' && pair[1].is_ascii_digit())
}

impl Chain {
    /// The chains that are always there, referenced ones before those that refer to them.
    pub const FIXED: [Self; 12] = [
        Self::Refuse,
        Self::Discard,
        Self::BySource(Place::Address),
        Self::BySource(Place::Range),
        Self::BySource(Place::NodePort),
        Self::Checked(Place::Address),
        Self::Checked(Place::Range),
        Self::Checked(Place::NodePort),
        Self::Services,
        Self::Prerouting,
        Self::Output,
        Self::Postrouting,
    ];

    /// The chain of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let fixed = Self::FIXED.into_iter().find(|chain| chain.to_string() == name);
        fixed.or_else(|| Pick::parse(name).map(Self::Pick))
    }

    /// Where it hangs, if it is a base chain. The output hook has no name for the priority, only the number.
    #[must_use]
    pub const fn hook(self) -> Option<Hook> {
        match self {
            Self::Prerouting => Some(Hook { number: uapi::NF_INET_PRE_ROUTING, priority: -100 }),
            Self::Output => Some(Hook { number: uapi::NF_INET_LOCAL_OUT, priority: -100 }),
            Self::Postrouting => Some(Hook { number: uapi::NF_INET_POST_ROUTING, priority: 100 }),
            Self::Refuse
            | Self::Discard
            | Self::Pick(_)
            | Self::BySource(_)
            | Self::Checked(_)
            | Self::Services => None,
        }
    }
}

/// The kernel's number of a family.
pub(crate) const fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_foreign_names_are_not_taken_for_ours() {
        let plain = Pick {
            place: Place::Address,
            masquerade: Masquerade::OffCluster,
            pool: Pool::Workloads,
            slots: 1,
            choice: Choice::Random,
            action: Action::Translate,
            affinity_seconds: None,
        };
        let mut picks = vec![plain, Pick { slots: TARGETS_MAX, ..plain }];
        picks.extend(PICK_STEMS.map(|(place, masquerade, _)| Pick { place, masquerade, slots: 23, ..plain }));
        picks.extend(Pool::ALL.map(|pool| Pick { pool, ..plain }));
        for choice in [Choice::SourceAddress, Choice::SourceAddressAndPort] {
            for action in [Action::TranslateAddress, Action::Redirect] {
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
