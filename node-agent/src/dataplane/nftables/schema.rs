//! The fixed shape of our table: which chains, sets and maps there are and what their rules say.
//!
//! ```text
//! prerouting ─┐            ┌─▶ cluster-N  ──┐
//! output ─────┴▶ services ─┼─▶ external-N ──┼─▶ dnat to a random slot of the frontend
//!                          ├─▶ nodeport-N ──┘
//!                          └─▶ refuse
//! postrouting: masquerade what is marked, and what would come back to its own sender
//! ```
//! A Service is elements of the maps and nothing else. The chains `cluster-N`, `external-N` and `nodeport-N` are shared
//! by all frontends with N slots.

use std::fmt;

use model::net::IpFamily;

use super::{
    expr::{Expr, Meta, Register, VerdictExpr},
    uapi,
};

/// The name of the only table we touch. It is how a fresh process recognises what is ours.
pub const TABLE: &str = "tidegate";
/// The packet mark bit that asks for masquerading, unless configured otherwise (kube-proxy's default, bit 14).
pub const MARK_BIT_DEFAULT: u32 = 0x4000;
/// Slots of one frontend unless it has more targets than that: the finest share is one in 1024.
pub const SLOTS_MAX: u32 = 1024;
/// Targets of one frontend: bounds chains, and the memory that a strange slot number could make us take.
pub const TARGETS_MAX: u32 = 16_384;

/// A chain of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// Connections to a frontend that has no target, and to undefined ports of virtual addresses.
    Refuse,
    /// Chooses a slot.
    Pick(Pick),
    /// Looks up the frontend.
    Services,
    /// Base chain for forwarded and incoming packets.
    Prerouting,
    /// Base chain for packets of this machine.
    Output,
    /// Base chain for source translation.
    Postrouting,
}

/// A chain that chooses one of `slots` slots at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    /// For which kind of frontend.
    pub kind: PickKind,
    /// How many slots, 1–[`TARGETS_MAX`].
    pub slots: u32,
}

/// For which kind of frontend a pick chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PickKind {
    /// A virtual address; keeps the source of workloads.
    Cluster,
    /// An address whose connections are always masqueraded.
    External,
    /// A port of every address of the node; always masqueraded.
    NodePort,
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
    /// Address, protocol and port to the chain that takes the connection.
    Services,
    /// Protocol and port to the chain that takes the connection.
    NodePorts,
    /// Address, protocol, port and slot to the target.
    Endpoints,
    /// Protocol, port and slot to the target.
    NodePortEndpoints,
    /// Addresses that exist only in rules.
    VirtualAddresses,
    /// Endpoints that may connect to themselves.
    Hairpins,
    /// Sources that are masqueraded on the way to virtual addresses.
    MasqueradeSources,
}

impl SetRole {
    /// Every role, in the order of the listing.
    pub const ALL: [Self; 7] = [
        Self::Services,
        Self::NodePorts,
        Self::Endpoints,
        Self::NodePortEndpoints,
        Self::VirtualAddresses,
        Self::Hairpins,
        Self::MasqueradeSources,
    ];

    const fn stem(self) -> &'static str {
        match self {
            Self::Services => "services",
            Self::NodePorts => "nodeports",
            Self::Endpoints => "endpoints",
            Self::NodePortEndpoints => "nodeport-endpoints",
            Self::VirtualAddresses => "virtual-addresses",
            Self::Hairpins => "hairpins",
            Self::MasqueradeSources => "masquerade-sources",
        }
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
        SetRole::ALL.into_iter().flat_map(|role| IpFamily::ALL.map(|family| Self { role, family }))
    }

    /// The set of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|set| set.to_string() == name)
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.stem())?;
        f.write_str(match self.family {
            IpFamily::V4 => "4",
            IpFamily::V6 => "6",
        })
    }
}

impl PickKind {
    const ALL: [Self; 3] = [Self::Cluster, Self::External, Self::NodePort];

    const fn stem(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::External => "external",
            Self::NodePort => "nodeport",
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuse"),
            Self::Pick(pick) => write!(f, "{}-{}", pick.kind.stem(), pick.slots),
            Self::Services => f.write_str("services"),
            Self::Prerouting => f.write_str("prerouting"),
            Self::Output => f.write_str("output"),
            Self::Postrouting => f.write_str("postrouting"),
        }
    }
}

impl Chain {
    /// The chains that are always there, referenced ones before those that refer to them.
    pub const FIXED: [Self; 5] =
        [Self::Refuse, Self::Services, Self::Prerouting, Self::Output, Self::Postrouting];

    /// The chain of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(fixed) = Self::FIXED.into_iter().find(|chain| chain.to_string() == name) {
            return Some(fixed);
        }
        let (stem, slots) = name.rsplit_once('-')?;
        let kind = PickKind::ALL.into_iter().find(|kind| kind.stem() == stem)?;
        let slots = slots.parse().ok().filter(|slots| (1..=TARGETS_MAX).contains(slots))?;
        let chain = Self::Pick(Pick { kind, slots });
        (chain.to_string() == name).then_some(chain)
    }

    /// Where it hangs, if it is a base chain. The output hook has no name for the priority, only the number.
    #[must_use]
    pub const fn hook(self) -> Option<Hook> {
        match self {
            Self::Prerouting => Some(Hook { number: uapi::NF_INET_PRE_ROUTING, priority: -100 }),
            Self::Output => Some(Hook { number: uapi::NF_INET_LOCAL_OUT, priority: -100 }),
            Self::Postrouting => Some(Hook { number: uapi::NF_INET_POST_ROUTING, priority: 100 }),
            Self::Refuse | Self::Pick(_) | Self::Services => None,
        }
    }

    /// What its rules say.
    #[must_use]
    pub fn rules(self, mark_bit: u32) -> Vec<Vec<Expr>> {
        match self {
            Self::Prerouting | Self::Output => {
                vec![vec![Expr::Verdict(VerdictExpr::Jump(Self::Services.to_string()))]]
            }
            Self::Services => services_rules(mark_bit),
            Self::Pick(pick) => pick_rules(pick, mark_bit),
            Self::Refuse => vec![
                vec![Expr::LoadMeta(Meta::L4Proto, Register(1)), Expr::equal(1, &[6]), Expr::RejectTcpReset],
                vec![Expr::RejectPortUnreachable],
            ],
            Self::Postrouting => postrouting_rules(mark_bit),
        }
    }
}

/// Which packets a rule is about.
fn family_is(family: IpFamily) -> [Expr; 2] {
    [Expr::LoadMeta(Meta::NfProto, Register(1)), Expr::equal(1, &[nfproto(family)])]
}

/// The kernel's number of a family.
pub(super) const fn nfproto(family: IpFamily) -> u8 {
    match family {
        IpFamily::V4 => uapi::NFPROTO_IPV4,
        IpFamily::V6 => uapi::NFPROTO_IPV6,
    }
}

/// Loads protocol, destination port and, with a number of slots, a random slot behind an address of `family`, or
/// from the first register on when there is no address.
fn load_transport(first: u32, slots: Option<u32>) -> Vec<Expr> {
    let mut exprs = vec![
        Expr::LoadMeta(Meta::L4Proto, Register::word(first)),
        Expr::LoadDestinationPort(Register::word(first + 1)),
    ];
    exprs.extend(slots.map(|modulus| Expr::Random { modulus, to: Register::word(first + 2) }));
    exprs
}

const fn address_words(family: IpFamily) -> u32 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 4,
    }
}

fn services_rules(mark_bit: u32) -> Vec<Vec<Expr>> {
    let mut rules = Vec::new();
    for family in IpFamily::ALL {
        let set = |role| SetId::new(role, family);
        let mut masquerade = family_is(family).to_vec();
        masquerade.extend([
            Expr::LoadDestination(family, Register(1)),
            Expr::InSet { set: set(SetRole::VirtualAddresses), from: Register(1) },
            Expr::LoadSource(family, Register(1)),
            Expr::InSet { set: set(SetRole::MasqueradeSources), from: Register(1) },
        ]);
        masquerade.extend(set_mark(mark_bit));
        rules.push(masquerade);
    }
    for family in IpFamily::ALL {
        let mut dispatch = family_is(family).to_vec();
        dispatch.push(Expr::LoadDestination(family, Register(1)));
        dispatch.extend(load_transport(address_words(family), None));
        dispatch.push(Expr::VerdictMap { map: SetId::new(SetRole::Services, family), from: Register(1) });
        rules.push(dispatch);
    }
    for family in IpFamily::ALL {
        let mut refuse = family_is(family).to_vec();
        refuse.push(Expr::LoadDestination(family, Register(1)));
        let set = SetId::new(SetRole::VirtualAddresses, family);
        refuse.push(Expr::InSet { set, from: Register(1) });
        refuse.push(Expr::Verdict(VerdictExpr::Goto(Chain::Refuse.to_string())));
        rules.push(refuse);
    }
    for family in IpFamily::ALL {
        let mut node_ports = family_is(family).to_vec();
        node_ports.extend([Expr::LoadDestinationIsLocal(Register(1)), Expr::equal(1, &LOCAL)]);
        node_ports.extend(not_loopback(family));
        node_ports.extend(load_transport(0, None));
        node_ports.push(Expr::VerdictMap { map: SetId::new(SetRole::NodePorts, family), from: Register(1) });
        rules.push(node_ports);
    }
    rules
}

/// `RTN_LOCAL`, as the fib expression answers it.
const LOCAL: [u8; 4] = 2u32.to_ne_bytes();

/// Node ports do not answer on loopback addresses: the reply could not come back (no `route_localnet`).
fn not_loopback(family: IpFamily) -> [Expr; 2] {
    match family {
        IpFamily::V4 => [Expr::LoadDestinationFirstByte(Register(1)), Expr::unequal(1, &[127])],
        IpFamily::V6 => {
            let loopback = std::net::Ipv6Addr::LOCALHOST.octets();
            [Expr::LoadDestination(family, Register(1)), Expr::unequal(1, &loopback)]
        }
    }
}

fn set_mark(mark_bit: u32) -> [Expr; 3] {
    [
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::Bitwise { register: Register(1), mask: !mark_bit, xor: mark_bit },
        Expr::StoreMark(Register(1)),
    ]
}

fn pick_rules(pick: Pick, mark_bit: u32) -> Vec<Vec<Expr>> {
    let mut rules = Vec::new();
    match pick.kind {
        PickKind::Cluster => {}
        PickKind::External | PickKind::NodePort => rules.push(set_mark(mark_bit).to_vec()),
    }
    for family in IpFamily::ALL {
        let mut rule = family_is(family).to_vec();
        let (role, first_word) = match pick.kind {
            PickKind::Cluster | PickKind::External => {
                rule.push(Expr::LoadDestination(family, Register(1)));
                (SetRole::Endpoints, address_words(family))
            }
            PickKind::NodePort => (SetRole::NodePortEndpoints, 0),
        };
        rule.extend(load_transport(first_word, Some(pick.slots)));
        rule.push(Expr::Map { map: SetId::new(role, family), from: Register(1), to: Register(1) });
        let port = Register::word(address_words(family));
        rule.push(Expr::DestinationNat { family, address: Register(1), port });
        rules.push(rule);
    }
    // A slot can be gone for a packet that looked up its chain just before a change. Dropped, the client's next packet
    // finds the new slots; let through, the connection would be remembered as not translated.
    rules.push(vec![Expr::Verdict(VerdictExpr::Drop)]);
    rules
}

fn postrouting_rules(mark_bit: u32) -> Vec<Vec<Expr>> {
    let translated = || {
        [Expr::LoadConntrackStatus(Register(1)), Expr::bits(1, DESTINATION_NAT), Expr::unequal(1, &[0; 4])]
    };
    let mut marked = translated().to_vec();
    marked.extend([
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, mark_bit),
        Expr::unequal(1, &[0; 4]),
    ]);
    marked.extend([
        Expr::LoadMeta(Meta::Mark, Register(1)),
        Expr::bits(1, !mark_bit),
        Expr::StoreMark(Register(1)),
        Expr::Masquerade,
    ]);
    let mut rules = vec![marked];
    for family in IpFamily::ALL {
        let mut hairpin = translated().to_vec();
        hairpin.extend(family_is(family));
        hairpin.extend([
            Expr::LoadSource(family, Register(1)),
            Expr::LoadDestination(family, Register::word(address_words(family))),
            Expr::InSet { set: SetId::new(SetRole::Hairpins, family), from: Register(1) },
            Expr::Masquerade,
        ]);
        rules.push(hairpin);
    }
    rules
}

/// `IPS_DST_NAT` of the conntrack status.
const DESTINATION_NAT: u32 = 0x20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_foreign_names_are_not_taken_for_ours() {
        let pick = |kind, slots| Chain::Pick(Pick { kind, slots });
        for chain in Chain::FIXED
            .into_iter()
            .chain([pick(PickKind::Cluster, 1), pick(PickKind::NodePort, TARGETS_MAX)])
        {
            assert_eq!(Chain::parse(&chain.to_string()), Some(chain));
        }
        for name in
            ["cluster-0", "cluster-01", "cluster-+1", "cluster-16385", "cluster", "other-1", "Services", ""]
        {
            assert_eq!(Chain::parse(name), None, "{name}");
        }
        for set in SetId::all() {
            assert_eq!(SetId::parse(&set.to_string()), Some(set));
        }
    }
}
