//! Common representation of nf_tables and iptables rules, limited to the aspects that `tidegate-agent doctor`
//! checks. Does no I/O.

use std::fmt;

use dataplane::iptables::Flavour;

use super::captures::{Capture, TrafficScope};

/// Maximum number of rules read from one listing. kube-proxy writes fewer rules for ten thousand Services
/// with a few endpoints each.
pub(super) const RULES_MAX: usize = 500_000;
/// Maximum number of characters of a rule in a message.
pub(super) const RULE_SHOWN_MAX: usize = 160;
/// Maximum depth of nested jumps that are followed.
const DEPTH_MAX: u32 = 8;
/// Maximum number of rules evaluated from one base chain. The limit is needed because the rules of a chain
/// are evaluated again for each jump to it.
const STEPS_MAX: u32 = 10_000;

/// Location of a netfilter table: the tool that manages it, the address family, and the table's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableLocation {
    pub(super) keeper: TableTool,
    pub(super) family: Family,
    pub(super) table: String,
}

/// Tool that manages a netfilter table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TableTool {
    /// Native nf_tables table, managed by `nft`.
    Nft,
    /// iptables table, in the variant (`Flavour`) that `iptables-nft` or `iptables-legacy` manages.
    Iptables(Flavour),
}

/// Address family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Table for IPv4 only (`ip`).
    Ip,
    /// Table for IPv6 only (`ip6`).
    Ip6,
    /// Table for IPv4 and IPv6 (`inet`).
    Inet,
}

impl Family {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
        }
    }

    /// Returns the name of the iptables command for the family: `iptables` or `ip6tables`.
    pub(super) const fn tool(self) -> &'static str {
        match self {
            Self::Ip | Self::Inet => "iptables",
            Self::Ip6 => "ip6tables",
        }
    }
}

impl TableLocation {
    /// Returns the command that lists and changes the table, such as `nft` or `iptables-legacy`.
    pub(super) fn command(&self) -> String {
        match self.keeper {
            TableTool::Nft => "nft".to_owned(),
            TableTool::Iptables(flavour) => format!("{}-{}", self.family.tool(), flavour.as_str()),
        }
    }
}

impl fmt::Display for TableLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keeper {
            TableTool::Nft => write!(formatter, "table {} {}", self.family.as_str(), self.table),
            TableTool::Iptables(_) => write!(formatter, "{} table {}", self.command(), self.table),
        }
    }
}

/// Netfilter hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

impl Hook {
    /// Returns the hook of a built-in iptables chain, or `None` for any other chain name.
    pub(super) fn of_iptables(chain: &str) -> Option<Self> {
        match chain {
            "PREROUTING" => Some(Self::Prerouting),
            "INPUT" => Some(Self::Input),
            "FORWARD" => Some(Self::Forward),
            "OUTPUT" => Some(Self::Output),
            "POSTROUTING" => Some(Self::Postrouting),
            _ => None,
        }
    }

    /// Returns the hook with this number in `enum nf_inet_hooks`, or `None` for any other number.
    pub(super) const fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Prerouting),
            1 => Some(Self::Input),
            2 => Some(Self::Forward),
            3 => Some(Self::Output),
            4 => Some(Self::Postrouting),
            _ => None,
        }
    }
}

/// Chain of a netfilter table, reduced to the rules that `tidegate-agent doctor` checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) place: TableLocation,
    pub(super) name: String,
    /// Netfilter hook of a base chain; `None` for a regular chain.
    pub(super) hook: Option<Hook>,
    /// Priority of a base chain at its hook; 0 for a regular chain.
    pub(super) priority: i32,
    /// True if the policy of the base chain is drop.
    pub(super) drops: bool,
    /// Number of rules in the chain, including those that the doctor does not check.
    pub(super) rules_total: usize,
    /// Rules that `tidegate-agent doctor` checks because they affect traffic, packet marks or the TCP MSS,
    /// in order.
    pub(super) rules: Vec<Rule>,
}

/// Rule of a chain, reduced to its condition, its effect, and its use of the packet mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// Text of the rule as its tool lists it, or the number of a rule that was read by netlink.
    pub(super) shown: String,
    /// Handle of a rule that was read by netlink.
    pub(super) handle: Option<u64>,
    pub(super) condition: Condition,
    /// Traffic that the rule matches, for rules that capture traffic.
    pub(super) scope: TrafficScope,
    pub(super) effect: Effect,
    pub(super) marks: Vec<MarkUse>,
    /// True if the rule clamps the TCP MSS, so that different MTUs do no harm.
    pub(super) clamps: bool,
}

impl Rule {
    /// Returns true if the rule can affect traffic of Services: by a drop, a jump or another interpreted
    /// effect, by the packet mark, or by a limit of the TCP MSS.
    pub(super) fn matters(&self) -> bool {
        let Self { shown: _, handle: _, condition, scope, effect, marks, clamps } = self;
        let is_followed = match (condition, effect) {
            (_, Effect::Drop | Effect::Captures(_)) => true,
            (Condition::Other, Effect::Jump(_)) => !scope.has_other_condition,
            (_, Effect::Other) | (Condition::Other, _) => false,
            (Condition::Always | Condition::States { .. }, _) => true,
        };
        is_followed || !marks.is_empty() || *clamps
    }
}

/// Condition under which a rule matches a packet, as far as `tidegate-agent doctor` interprets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// All packets.
    Always,
    /// Packets of connections with DNAT if `translated` is true, and packets of established connections if
    /// `established` is true.
    States { translated: bool, established: bool },
    /// Packets that meet a condition which is not interpreted.
    Other,
}

/// Effect of a rule on the packets that match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Accept,
    Drop,
    Return,
    /// Translation of the destination, or exemption from connection tracking.
    Captures(Capture),
    /// Jump to a chain of the same table; without effect if the chain does not exist.
    Jump(String),
    Other,
}

/// Use of the packet mark by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkUse {
    /// Sets the bits of `value` in the packet mark, overwriting the bits of `touched`.
    Sets { value: u32, touched: u32 },
    /// Tests if the bits of `mask` in the packet mark equal `value`.
    Tests { value: u32, mask: u32 },
}

/// Kind of traffic that must not be dropped at a netfilter hook, because Services need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// Packets of connections with DNAT.
    Translated,
    /// Reply packets of established connections.
    Established,
    /// Packets of any new connection.
    Any,
}

/// Outcome for one kind of traffic in a chain, if the rules that are not interpreted match no packet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Passes,
    Dropped(String),
    Undecided,
}

/// Returns the rule or policy of a base chain that drops the given kind of traffic, or `None` if the traffic
/// passes. Rules whose condition is not interpreted are assumed not to match.
pub(super) fn dropped_by(chains: &[Chain], chain: &Chain, passing: Passing) -> Option<String> {
    let mut steps = 0;
    match follow(chains, chain, passing, 0, &mut steps) {
        Fate::Passes => None,
        Fate::Dropped(by) => Some(by),
        Fate::Undecided => chain.drops.then(|| "its policy is to drop".to_owned()),
    }
}

fn follow(chains: &[Chain], chain: &Chain, passing: Passing, depth: u32, steps: &mut u32) -> Fate {
    for rule in &chain.rules {
        *steps += 1;
        if *steps > STEPS_MAX {
            return Fate::Undecided;
        }
        let meets = match (rule.condition, passing) {
            (Condition::Always, _) => true,
            (Condition::States { translated, .. }, Passing::Translated) => translated,
            (Condition::States { established, .. }, Passing::Established) => established,
            (Condition::States { .. }, Passing::Any) | (Condition::Other, _) => false,
        };
        if !meets {
            continue;
        }
        match &rule.effect {
            Effect::Accept => return Fate::Passes,
            Effect::Drop => return Fate::Dropped(format!("`{}` of chain {}", rule.shown, chain.name)),
            Effect::Return => return Fate::Undecided,
            Effect::Jump(name) if depth < DEPTH_MAX => {
                let there = chains.iter().find(|other| other.place == chain.place && other.name == *name);
                let fate = there.map(|there| follow(chains, there, passing, depth + 1, steps));
                match fate {
                    Some(Fate::Undecided) | None => {}
                    Some(fate @ (Fate::Passes | Fate::Dropped(_))) => return fate,
                }
            }
            Effect::Jump(_) | Effect::Captures(_) | Effect::Other => {}
        }
    }
    Fate::Undecided
}
