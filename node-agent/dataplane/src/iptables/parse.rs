//! Parser of the output of `iptables-save` and `iptables -S`. Pure and total: lines that do not belong to the
//! agent's chains, or have an unexpected form, are skipped.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    kinds::{resource::ServiceKey, service::Protocol},
    primitives::{net::IpFamily, quantity::Port},
    program::Target,
};

use super::{
    layout::{ChainId, IptablesTable, NamingLayout},
    mirror::{IptablesMirror, Jumps, SharedChain, digest},
    rule,
};
use crate::Traffic;

/// Built-in chains, in which the agent's rules are mirrored. Jumps to the agent's chains from chains of other
/// programs are not changed.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Maximum number of jumps that are followed from a built-in chain. The kernel allows more, and a loop of chains ends here.
const JUMPS_MAX: usize = 8;

/// Parses the agent's chains and rules from the output of `iptables-save`.
#[must_use]
pub fn saved(layout: &NamingLayout, text: &str) -> IptablesMirror {
    let mut seen = ParserState::new(layout);
    let mut table = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = IptablesTable::ALL.into_iter().find(|table| table.as_str() == name.trim());
        } else if let Some(table) = table {
            seen.line(table, line);
        }
    }
    seen.finish()
}

/// Rule of an `iptables-save` listing, as normalized text and as words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrintedRule {
    /// Rule in the form that this program writes, so that it can be compared with a wanted rule.
    pub(super) text: String,
    /// Words of the rule, without quotes.
    pub(super) words: Vec<String>,
}

/// Parses all chains in the tables `nat` and `filter` from the output of `iptables-save`, foreign chains included.
pub(super) fn chains(text: &str) -> BTreeMap<ChainId, Vec<PrintedRule>> {
    let mut chains: BTreeMap<ChainId, Vec<PrintedRule>> = BTreeMap::new();
    let mut table = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = IptablesTable::ALL.into_iter().find(|table| table.as_str() == name.trim());
        }
        let Some(table) = table else { continue };
        if let Some(name) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
            chains.entry(ChainId { table, name: name.to_owned() }).or_default();
        } else if let Some((name, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
            let line = PrintedRule { text: normal(rule), words: words(rule) };
            chains.entry(ChainId { table, name: name.to_owned() }).or_default().push(line);
        }
    }
    chains
}

/// Parses one of the agent's chains from the output of `iptables -S CHAIN`.
#[must_use]
pub fn listed(layout: &NamingLayout, table: IptablesTable, text: &str) -> IptablesMirror {
    let mut seen = ParserState::new(layout);
    for line in text.lines() {
        seen.line(table, line);
    }
    seen.finish()
}

/// Returns true if the output of `iptables-save` contains the table with only built-in chains with policy
/// ACCEPT.
#[must_use]
pub fn is_empty(text: &str, table: IptablesTable) -> bool {
    let head = format!("*{}", table.as_str());
    let mut lines = text.lines().skip_while(|line| *line != head);
    let is_there = lines.next().is_some();
    let is_built_in = |line: &str| line.starts_with(':') && line.contains(" ACCEPT ");
    is_there && lines.take_while(|line| *line != "COMMIT").all(is_built_in)
}

/// Returns the number of all rules in the output of `iptables-save`, and the number of the agent's chains.
#[must_use]
pub fn weigh(layout: &NamingLayout, text: &str) -> (usize, usize) {
    let rules = text.lines().filter(|line| line.starts_with("-A ")).count();
    let mirror = saved(layout, text);
    (rules, mirror.chains.len() + mirror.dispatch.len())
}

/// Returns the number of connections per endpoint from the packet counters in the output of `iptables-save
/// -c`.
#[must_use]
pub fn traffic(layout: &NamingLayout, family: IpFamily, text: &str) -> Vec<Traffic> {
    let counted = text.lines().filter_map(|line| {
        let (count, rest) = line.strip_prefix('[')?.split_once("] -A ")?;
        let (chain, rule) = rest.split_once(' ')?;
        if !layout.is_ours(IptablesTable::Nat, chain) {
            return None;
        }
        let (packets, _) = count.split_once(':')?;
        let (key, protocol, target) = translation(family, rule)?;
        Some(((key, protocol, target), packets.parse::<u64>().ok()?))
    });
    let mut sums: BTreeMap<_, u64> = BTreeMap::new();
    for (key, connections) in counted {
        *sums.entry(key).or_default() += connections;
    }
    sums.into_iter()
        .map(|((service, protocol, target), connections)| Traffic {
            service,
            protocol,
            target,
            connections,
            packets: None,
            bytes: None,
            active: None,
            inactive: None,
            failed: None,
        })
        .collect()
}

/// Returns the Service, protocol and target of a DNAT rule of the agent, or `None` for other rules.
fn translation(family: IpFamily, rule: &str) -> Option<(ServiceKey, Protocol, Target)> {
    let rule = normal(rule);
    let (_, place) = rule.split_once("-j DNAT --to-destination ")?;
    let (_, comment) = rule.split_once("--comment \"")?;
    let (label, _) = comment.split_once('"')?;
    let (service, _) = label.rsplit_once(':')?;
    let (_, protocol) = rule.split_once("-p ")?;
    let protocol = match protocol.split(' ').next()? {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    let place = place.split(' ').next()?;
    let (address, port) = match family {
        IpFamily::V4 => place.split_once(':').map_or((place, None), |(address, port)| (address, Some(port))),
        IpFamily::V6 => match place.strip_prefix('[').and_then(|place| place.split_once("]:")) {
            Some((address, port)) => (address, Some(port)),
            None => (place, None),
        },
    };
    let port = match port {
        None => None,
        Some(port) => Some(Port::new(port.parse().ok()?)?),
    };
    let target = Target { address: address.parse().ok()?, port };
    Some((ServiceKey::try_from(service.to_owned()).ok()?, protocol, target))
}

/// State of the parser while it reads a listing.
struct ParserState<'a> {
    layout: &'a NamingLayout,
    chains: BTreeMap<ChainId, Vec<String>>,
    dispatch: BTreeMap<ChainId, SharedChain>,
    jumps: BTreeMap<ChainId, BuiltInChain>,
    /// Targets of the rules of other programs in each of their chains of the table `nat`.
    foreign: BTreeMap<String, BTreeSet<String>>,
}

/// Built-in chain as read so far.
#[derive(Default)]
struct BuiltInChain {
    /// Rules of the agent.
    rules: Vec<String>,
    /// Targets of the rules of other programs.
    foreign: Vec<String>,
    /// Number of targets in `foreign` that precede a rule of the agent.
    preceding: usize,
}

impl<'a> ParserState<'a> {
    const fn new(layout: &'a NamingLayout) -> Self {
        Self {
            layout,
            chains: BTreeMap::new(),
            dispatch: BTreeMap::new(),
            jumps: BTreeMap::new(),
            foreign: BTreeMap::new(),
        }
    }

    fn line(&mut self, table: IptablesTable, line: &str) {
        if let Some(name) = line.strip_prefix(':').or_else(|| line.strip_prefix("-N ")) {
            let name = name.split(' ').next().unwrap_or_default();
            self.chain(table, name);
        } else if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
            self.rule(table, chain, rule);
        }
    }

    fn chain(&mut self, table: IptablesTable, name: &str) {
        let chain = ChainId { table, name: name.to_owned() };
        if self.layout.is_dispatch(table, name) {
            self.dispatch.entry(chain).or_default();
        } else if self.layout.is_ours(table, name) {
            self.chains.entry(chain).or_default();
        } else if table == IptablesTable::Nat && !BUILT_IN.contains(&name) {
            self.foreign.entry(name.to_owned()).or_default();
        }
    }

    fn rule(&mut self, table: IptablesTable, name: &str, rule: &str) {
        let chain = ChainId { table, name: name.to_owned() };
        if self.layout.is_dispatch(table, name) {
            let rule = normal(rule);
            let is_tail = self.layout.is_tail_target(rule::target_of(&rule));
            self.dispatch.entry(chain).or_default().push(rule, is_tail);
        } else if self.layout.is_ours(table, name) {
            self.chains.entry(chain).or_default().push(normal(rule));
        } else if BUILT_IN.contains(&name) {
            let built_in = self.jumps.entry(chain).or_default();
            let rule = normal(rule);
            let target = rule::target_of(&rule);
            if self.layout.is_ours(table, target) {
                built_in.preceding = built_in.foreign.len();
                built_in.rules.push(rule);
            } else {
                built_in.foreign.push(foreign_target(&rule).to_owned());
            }
        } else if table == IptablesTable::Nat {
            let rule = normal(rule);
            self.foreign.entry(name.to_owned()).or_default().insert(foreign_target(&rule).to_owned());
        }
    }

    /// Returns true if a rule with this target, in a built-in chain of the table `nat` or `depth` jumps away from it, can decide on
    /// the translation of a connection.
    fn decides(&self, built_in: &str, target: &str, depth: usize) -> bool {
        match target {
            "" | "MARK" | "CONNMARK" | "LOG" | "NFLOG" => false,
            "RETURN" => depth == 0,
            // The agent masquerades too; an earlier rule changes nothing for a client.
            "MASQUERADE" => built_in != "POSTROUTING",
            _ => self.foreign.get(target).is_none_or(|targets| {
                depth == JUMPS_MAX || targets.iter().any(|target| self.decides(built_in, target, depth + 1))
            }),
        }
    }

    fn finish(mut self) -> IptablesMirror {
        let built_in = std::mem::take(&mut self.jumps);
        let is_behind = |chain: &ChainId, foreign: &[String]| match chain.table {
            IptablesTable::Nat => foreign.iter().any(|target| self.decides(&chain.name, target, 0)),
            IptablesTable::Filter => !foreign.is_empty(),
        };
        let jumps: Vec<_> = built_in
            .into_iter()
            .map(|(chain, BuiltInChain { rules, foreign, preceding })| {
                let is_behind = is_behind(&chain, foreign.get(..preceding).unwrap_or_default());
                (chain, Jumps { rules, is_behind })
            })
            .collect();
        IptablesMirror {
            chains: self.chains.into_iter().map(|(chain, rules)| (chain, digest(&rules))).collect(),
            dispatch: self.dispatch,
            jumps: jumps.into_iter().filter(|(_, jumps)| !jumps.rules.is_empty()).collect(),
        }
    }
}

/// Returns the target of a rule of another program. That of a rule that does not come back (`-g`) is no chain, so that the rule
/// counts as one that decides.
fn foreign_target(rule: &str) -> &str {
    if rule.split(' ').any(|word| word == "-g") { "-g" } else { rule::target_of(rule) }
}

/// Converts a rule to the form that this program writes. Versions of iptables differ in quoting, protocol
/// names and the digits of a probability.
pub(super) fn normal(rule: &str) -> String {
    let mut normal = String::with_capacity(rule.len());
    let mut before = String::new();
    for word in words(rule) {
        if !normal.is_empty() {
            normal.push(' ');
        }
        match (before.as_str(), word.as_str()) {
            ("--comment", text) => {
                normal.push('"');
                normal.push_str(text);
                normal.push('"');
            }
            ("-p", "6") => normal.push_str("tcp"),
            ("-p", "17") => normal.push_str("udp"),
            ("-p", "132") => normal.push_str("sctp"),
            ("--probability", text) => match text.parse() {
                Ok(number) => normal.push_str(&rule::probability(number)),
                Err(_) => normal.push_str(text),
            },
            (_, text) => normal.push_str(text),
        }
        before = word;
    }
    normal
}

/// Splits a rule into words and removes quotes.
pub fn words(rule: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut is_quoted, mut is_word) = (String::new(), false, false);
    let mut characters = rule.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if is_quoted => word.extend(characters.next()),
            '"' => (is_quoted, is_word) = (!is_quoted, true),
            ' ' if !is_quoted => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            other => {
                word.push(other);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use model::kinds::node::Naming;
    use proptest::prelude::*;

    use super::*;

    fn layout() -> NamingLayout {
        NamingLayout {
            naming: Naming::Tidegate,
            masquerade_mark: 0x4000,
            drop_mark: 0x8000,
            drop_invalid: true,
        }
    }

    #[test]
    fn versions_that_print_a_rule_differently_mean_the_same() {
        for (printed, same) in [
            (
                "-p 6 -m comment --comment x -m tcp -j RETURN",
                "-p tcp -m comment --comment \"x\" -m tcp -j RETURN",
            ),
            (
                "-m statistic --mode random --probability 0.33333000",
                "-m statistic --mode random --probability 0.33332999982",
            ),
            ("-m comment --comment \"a \\\"b\\\" c\" -j X", "-m comment --comment \"a \"b\" c\" -j X"),
        ] {
            assert_eq!(normal(printed), same);
        }
    }

    #[test]
    fn f086_counters_of_endpoints_are_read_with_their_service() {
        let text = "*nat\n\
            [7:420] -A TG-SEP-TAB2QD3PCTRC6FF7 -p tcp -m comment --comment \"default/web:http\" -m tcp -j DNAT --to-destination 10.1.1.2:8080\n\
            [9:1] -A TG-SEP-TAB2QD3PCTRC6FF7 -s 10.1.1.2/32 -j TG-MARK-MASQ\n\
            [5:1] -A DOCKER -p tcp -m tcp -j DNAT --to-destination 10.1.1.2:8080\nCOMMIT\n";
        let traffic = traffic(&layout(), IpFamily::V4, text);
        assert_eq!(traffic.len(), 1);
        assert_eq!((traffic[0].service.to_string().as_str(), traffic[0].connections), ("default/web", 7));
        assert_eq!(traffic[0].target.port, Port::new(8080));
        let text = "[1:1] -A TG-SEP-TAB2QD3PCTRC6FF7 -p udp -m comment --comment \"a/b:\" -m udp -j DNAT --to-destination [fd00::1]:53";
        let traffic = super::traffic(&layout(), IpFamily::V6, text);
        assert_eq!(traffic[0].target.address.to_string(), "fd00::1");
    }

    /// F133: jumps of network plugins may precede ours in the table `nat` unless a rule behind them can decide on the translation.
    #[test]
    fn f133_rules_that_decide_nothing_may_precede_our_jumps() {
        let is_behind = |chain: &str, rules: &str, own: &str| {
            let text = format!(
                "*nat\n:{chain} ACCEPT [0:0]\n:X - [0:0]\n:Y - [0:0]\n-A {chain} -j X\n-A {chain} -j {own}\n-A {chain} -j DNAT\n{rules}COMMIT\n"
            );
            let mirror = saved(&layout(), &text);
            mirror.jumps.values().next().unwrap().is_behind
        };
        let first = |rules: &str| is_behind("PREROUTING", rules, "TG-SERVICES");
        let last = |rules: &str| is_behind("POSTROUTING", rules, "TG-POSTROUTING");
        for harmless in
            ["", "-A X -j Y\n-A Y -i ovn0 -j MARK --set-xmark 0x4000/0x4000\n", "-A X -p tcp -j RETURN\n"]
        {
            assert!(!first(harmless) && !last(harmless), "{harmless}");
        }
        for deciding in [
            "-A X -j Y\n-A Y -d 192.0.2.1/32 -j DNAT --to-destination 10.1.1.2\n",
            "-A X -m set --match-set nodes dst -j ACCEPT\n",
            "-A X -j REDIRECT --to-ports 8080\n",
            "-A X -j UNKNOWN\n",
            "-A X -g Y\n-A Y -j MARK --set-xmark 0x1/0x1\n",
            "-A X -j Y\n-A Y -j X\n",
        ] {
            assert!(first(deciding) && last(deciding), "{deciding}");
        }
        let masquerade = "-A X -j MASQUERADE --random-fully\n";
        assert!(first(masquerade) && !last(masquerade));
    }

    #[test]
    fn a_table_is_empty_only_when_nothing_is_in_it() {
        let text = "*nat\n:INPUT ACCEPT [0:0]\nCOMMIT\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n";
        assert!(is_empty(text, IptablesTable::Nat) && !is_empty(text, IptablesTable::Filter));
        assert!(
            !is_empty("", IptablesTable::Nat) && !is_empty("*nat\n:X - [0:0]\nCOMMIT", IptablesTable::Nat)
        );
    }

    proptest! {
        /// Any output is parsed without a panic, and chains of other programs do not appear in the mirror
        /// (copy in memory).
        #[test]
        fn anything_can_be_read(text in "(\\*nat\n|\\*filter\n|:TG-SVC-[A-Z2-7]{16} - \\[0:0\\]\n|-A TG-SERVICES [ -~]{0,40}\n|-A [A-Z-]{1,12} [ -~é\"\\\\]{0,60}\n|\\[[0-9:]{0,9}\\] -A TG-SEP-[A-Z2-7]{16} [ -~]{0,80}\n|COMMIT\n|[ -~]{0,20}\n){0,20}") {
            let _ = saved(&layout(), &text);
            let _ = listed(&layout(), IptablesTable::Nat, &text);
            for family in IpFamily::ALL {
                let _ = traffic(&layout(), family, &text);
            }
            let foreign = text.replace("TG-", "XX-");
            prop_assert_eq!(saved(&layout(), &foreign), IptablesMirror::default());
        }

        #[test]
        fn a_rule_in_our_form_stays_as_it_is(words in proptest::collection::vec("[a-z0-9./:-]{1,8}", 1..8)) {
            let rule = format!("-m comment --comment \"{}\" -j RETURN", words.join(" "));
            prop_assert_eq!(normal(&rule), rule);
        }
    }
}
