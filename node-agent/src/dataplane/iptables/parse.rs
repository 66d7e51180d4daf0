//! Reads what `iptables-save` and `iptables -S` print. Pure and total: what is not ours, or makes no sense, is passed over.

use std::collections::BTreeMap;

use model::{net::IpFamily, program::Target, quantity::Port, resource::ServiceKey, service::Protocol};

use super::{
    layout::{ChainId, Layout, Table},
    mirror::{Dispatch, Jumps, Mirror, digest},
    rule,
};
use crate::dataplane::Traffic;

/// The chains that the kernel calls. A foreign chain that leads to ours is its owner's business.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// What `iptables-save` printed of our chains and rules.
#[must_use]
pub fn saved(layout: &Layout, text: &str) -> Mirror {
    let mut seen = Seen::new(layout);
    let mut table = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = Table::ALL.into_iter().find(|table| table.as_str() == name.trim());
        } else if let Some(table) = table {
            seen.line(table, line);
        }
    }
    seen.finish()
}

/// What `iptables -S CHAIN` printed of one of our chains.
#[must_use]
pub fn listed(layout: &Layout, table: Table, text: &str) -> Mirror {
    let mut seen = Seen::new(layout);
    for line in text.lines() {
        seen.line(table, line);
    }
    seen.finish()
}

/// How many rules `iptables-save` printed, and how many chains of ours.
#[must_use]
pub fn weigh(layout: &Layout, text: &str) -> (usize, usize) {
    let rules = text.lines().filter(|line| line.starts_with("-A ")).count();
    let mirror = saved(layout, text);
    (rules, mirror.chains.len() + mirror.dispatch.len())
}

/// What `iptables-save -c` printed of connections per endpoint.
#[must_use]
pub fn traffic(layout: &Layout, family: IpFamily, text: &str) -> Vec<Traffic> {
    let counted = text.lines().filter_map(|line| {
        let (count, rest) = line.strip_prefix('[')?.split_once("] -A ")?;
        let (chain, rule) = rest.split_once(' ')?;
        if !layout.is_ours(Table::Nat, chain) {
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
        })
        .collect()
}

/// The Service and the target of a rule that translates.
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

/// Our chains, while lines come in.
struct Seen<'a> {
    layout: &'a Layout,
    chains: BTreeMap<ChainId, Vec<String>>,
    dispatch: BTreeMap<ChainId, Dispatch>,
    /// Built-in chains: our rules, and whether a foreign one has come.
    jumps: BTreeMap<ChainId, (Jumps, bool)>,
}

impl<'a> Seen<'a> {
    const fn new(layout: &'a Layout) -> Self {
        Self { layout, chains: BTreeMap::new(), dispatch: BTreeMap::new(), jumps: BTreeMap::new() }
    }

    fn line(&mut self, table: Table, line: &str) {
        if let Some(name) = line.strip_prefix(':').or_else(|| line.strip_prefix("-N ")) {
            let name = name.split(' ').next().unwrap_or_default();
            self.chain(table, name);
        } else if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
            self.rule(table, chain, rule);
        }
    }

    fn chain(&mut self, table: Table, name: &str) {
        let chain = ChainId { table, name: name.to_owned() };
        if self.layout.is_dispatch(table, name) {
            self.dispatch.entry(chain).or_default();
        } else if self.layout.is_ours(table, name) {
            self.chains.entry(chain).or_default();
        }
    }

    fn rule(&mut self, table: Table, name: &str, rule: &str) {
        let chain = ChainId { table, name: name.to_owned() };
        if self.layout.is_dispatch(table, name) {
            let rule = normal(rule);
            let is_tail = self.layout.is_tail_target(rule::target_of(&rule));
            self.dispatch.entry(chain).or_default().push(rule, is_tail);
        } else if self.layout.is_ours(table, name) {
            self.chains.entry(chain).or_default().push(normal(rule));
        } else if BUILT_IN.contains(&name) {
            let (jumps, is_foreign) = self.jumps.entry(chain).or_default();
            let rule = normal(rule);
            if self.layout.is_ours(table, rule::target_of(&rule)) {
                jumps.is_behind |= *is_foreign;
                jumps.rules.push(rule);
            } else {
                *is_foreign = true;
            }
        }
    }

    fn finish(self) -> Mirror {
        let jumps = self.jumps.into_iter().map(|(chain, (jumps, _))| (chain, jumps));
        Mirror {
            chains: self.chains.into_iter().map(|(chain, rules)| (chain, digest(&rules))).collect(),
            dispatch: self.dispatch,
            jumps: jumps.filter(|(_, jumps)| !jumps.rules.is_empty()).collect(),
        }
    }
}

/// A rule in the form in which we write it: versions of iptables differ in when they quote, in how they name
/// protocols, and in the digits of a probability.
fn normal(rule: &str) -> String {
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

/// The words of a rule, without the quotes around them.
fn words(rule: &str) -> Vec<String> {
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
