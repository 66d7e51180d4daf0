//! Rules of a machine, as far as they matter to us: one form for what netlink and the tools of iptables tell. Pure.

use std::fmt;

use crate::dataplane::iptables::Flavour;

/// Rules that are looked at in one listing. More than kube-proxy leaves for ten thousand Services of a few endpoints each.
pub(super) const RULES_MAX: usize = 500_000;
/// Characters of a rule that are shown.
pub(super) const RULE_SHOWN_MAX: usize = 160;
/// Chains that are followed within one another.
const DEPTH_MAX: u32 = 8;
/// Rules that are followed from one chain: rules can lead to the same chain over and over.
const STEPS_MAX: u32 = 10_000;

/// Who keeps a table, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) keeper: Keeper,
    pub(super) family: Family,
    pub(super) table: String,
}

/// Whose words a table is spoken of in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keeper {
    /// `nft`.
    Nft,
    /// `iptables` of a flavour.
    Iptables(Flavour),
}

/// Which packets a table meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Of IPv4.
    Ip,
    /// Of IPv6.
    Ip6,
    /// Both.
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

    /// The tool of iptables for it.
    pub(super) const fn tool(self) -> &'static str {
        match self {
            Self::Ip | Self::Inet => "iptables",
            Self::Ip6 => "ip6tables",
        }
    }
}

impl Place {
    /// The command that lists and changes it.
    pub(super) fn command(&self) -> String {
        match self.keeper {
            Keeper::Nft => "nft".to_owned(),
            Keeper::Iptables(flavour) => format!("{}-{}", self.family.tool(), flavour.as_str()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keeper {
            Keeper::Nft => write!(formatter, "table {} {}", self.family.as_str(), self.table),
            Keeper::Iptables(_) => write!(formatter, "{} table {}", self.command(), self.table),
        }
    }
}

/// Where the kernel calls a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

impl Hook {
    /// The built-in chains of iptables.
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

    /// `enum nf_inet_hooks`.
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

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) place: Place,
    pub(super) name: String,
    /// Where the kernel calls it, if it does.
    pub(super) hook: Option<Hook>,
    /// Whether its policy is to drop.
    pub(super) drops: bool,
    /// How many rules it has.
    pub(super) rules_total: usize,
    /// Those of them that may matter, in their order.
    pub(super) rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// As it would be listed, or by its number.
    pub(super) shown: String,
    pub(super) condition: Condition,
    pub(super) effect: Effect,
    pub(super) marks: Vec<MarkUse>,
    /// Whether it makes the segments of connections smaller.
    pub(super) clamps: bool,
}

impl Rule {
    /// Whether anything of it matters.
    pub(super) fn matters(&self) -> bool {
        let Self { shown: _, condition, effect, marks, clamps } = self;
        let is_followed = match (condition, effect) {
            (_, Effect::Drop) => true,
            (_, Effect::Other) | (Condition::Other, _) => false,
            (Condition::Always | Condition::States { .. }, _) => true,
        };
        is_followed || !marks.is_empty() || *clamps
    }
}

/// Which packets a rule meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// All.
    Always,
    /// Those of connections that are translated to another destination, or that are established, or either.
    States { translated: bool, established: bool },
    /// Some.
    Other,
}

/// What a rule does with packets that it meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Accept,
    Drop,
    Return,
    /// Another chain of the table decides, if there is one of this name.
    Jump(String),
    Other,
}

/// What a rule does with the mark of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkUse {
    /// It sets the bits of `value`, and decides about those of `touched`.
    Sets { value: u32, touched: u32 },
    /// It asks whether the bits of `mask` are `value`.
    Tests { value: u32, mask: u32 },
}

/// Connections that have to pass a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// Those that are translated.
    Translated,
    /// Answers on established ones.
    Established,
    /// New ones that look like any other.
    Any,
}

/// What becomes of packets that nothing but the rules that can be followed decide about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Passes,
    Dropped(String),
    Undecided,
}

/// What drops the packets in a chain that the kernel calls, in words; `None` when they pass. Rules with conditions that are
/// not followed are taken as if they did not meet them.
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
            Effect::Jump(_) | Effect::Other => {}
        }
    }
    Fate::Undecided
}
