//! Trace of a packet through the agent's chains, as read by `iptables-save`. Does no I/O.
//!
//! ```text
//! nat PREROUTING or OUTPUT ─▶ filter INPUT, FORWARD or OUTPUT ─▶ nat POSTROUTING
//! ```
//! At a rule with a random match, both branches are followed. Foreign rules in the built-in chains are listed but
//! not followed.

use std::{collections::BTreeMap, net::IpAddr};

use model::{primitives::quantity::Port, wire::trace::End};

use super::{
    layout::{ChainId, IptablesTable, NamingLayout},
    mirror::{IptablesMirror, SharedChain, digest},
    parse::{self, PrintedRule},
    rule,
    spelled::{ParsedRule, RuleAction, Test, What, spell},
};
use crate::trace::{Recorder, Subject};

/// Maximum depth of nested chains that a trace follows; the agent's own chains are at most four deep.
const DEPTH_MAX: u32 = 16;
/// Maximum number of branches followed at a time; each random choice adds one per endpoint. Beyond it, all
/// branches in the chain end with an unknown outcome.
const WAYS_MAX: usize = 20_000;
/// Maximum number of rules evaluated in one trace. Beyond it, all branches in the chain end with an unknown
/// outcome, because chains of other programs may form a loop.
const LOOKS_MAX: usize = 2_000_000;

/// Chains read for a trace, and the expected state to compare with.
#[derive(Clone, Copy)]
pub(super) struct KernelState<'a> {
    /// Chains of all tables, read from the kernel for this trace.
    pub(super) chains: &'a BTreeMap<ChainId, Vec<PrintedRule>>,
    /// Mirror of the agent's rules (as last read or written); `None` if the state is unknown. Differences
    /// from it are recorded as unexpected steps of the trace.
    pub(super) known: Option<&'a IptablesMirror>,
}

/// Traces a packet through the chains. Records the matching rules and the possible outcomes, such as an endpoint
/// or a drop.
pub(super) fn trace(layout: &NamingLayout, held: KernelState<'_>, subject: &Subject<'_>) -> Recorder {
    let KernelState { chains, known } = held;
    let mut walk = RuleWalk {
        layout,
        chains,
        known,
        subject,
        recorder: Recorder::default(),
        passed: Vec::new(),
        looks: 0,
    };
    walk.begin();
    walk.recorder
}

/// Branch of a trace: one possible path of the packet after random choices.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Way {
    /// Fraction of the connections that take this branch, 0–1.
    share: f64,
    mark: u32,
    /// Target address and port if the branch has been translated by DNAT.
    to: Option<(IpAddr, Option<Port>)>,
    is_masqueraded: bool,
}

struct RuleWalk<'a> {
    layout: &'a NamingLayout,
    chains: &'a BTreeMap<ChainId, Vec<PrintedRule>>,
    known: Option<&'a IptablesMirror>,
    subject: &'a Subject<'a>,
    recorder: Recorder,
    /// Branches that a rule has accepted or translated, so that they skip the remaining rules of the current
    /// table.
    passed: Vec<Way>,
    looks: usize,
}

/// Result of evaluating the match criteria of a rule for one branch.
enum MatchResult {
    No,
    Yes,
    /// Match of a fraction of the connections, with the probability 0–1.
    Perhaps(f64),
}

impl RuleWalk<'_> {
    fn begin(&mut self) {
        let first = if self.subject.is_from_node() { "OUTPUT" } else { "PREROUTING" };
        let whole = Way { share: 1.0, mark: 0, to: None, is_masqueraded: false };
        self.expect_jump(IptablesTable::Nat, first);
        let translated = self.table(IptablesTable::Nat, first, &[whole]);
        let mut filtered = Vec::new();
        for chain in ["INPUT", "FORWARD", "OUTPUT"] {
            let ways: Vec<_> =
                translated.iter().filter(|way| self.filter_chain(way) == chain).copied().collect();
            if !ways.is_empty() {
                self.expect_jump(IptablesTable::Filter, chain);
                filtered.extend(self.table(IptablesTable::Filter, chain, &ways));
            }
        }
        let (translated, untouched): (Vec<_>, Vec<_>) =
            filtered.into_iter().partition(|way| way.to.is_some());
        if !untouched.is_empty() {
            self.recorder.end(End::Untouched);
        }
        if !translated.is_empty() {
            self.expect_jump(IptablesTable::Nat, "POSTROUTING");
        }
        for way in self.table(IptablesTable::Nat, "POSTROUTING", &translated) {
            if let Some((address, port)) = way.to {
                let port = port.unwrap_or(self.subject.packet.port);
                let sees = self.subject.seen(way.is_masqueraded, address);
                self.recorder.end(End::Reaches { address, port, sees });
            }
        }
    }

    /// Returns the built-in chain of the filter table that the packet traverses: INPUT, FORWARD or OUTPUT.
    fn filter_chain(&self, way: &Way) -> &'static str {
        let destination = way.to.map_or(self.subject.packet.destination, |(address, _)| address);
        if self.subject.is_from_node() {
            "OUTPUT"
        } else if self.subject.is_local(destination) {
            "INPUT"
        } else {
            "FORWARD"
        }
    }

    /// Records an unexpected step of the trace if no rule leads from a built-in chain to the agent's chain.
    fn expect_jump(&mut self, table: IptablesTable, chain: &str) {
        let id = ChainId { table, name: chain.to_owned() };
        let lines = self.chains.get(&id).map_or(&[][..], Vec::as_slice);
        if !lines.iter().any(|line| self.layout.is_ours(table, rule::target_of(&line.text))) {
            self.recorder.odd(place(&id), "", "no rule leads to our chains");
        }
    }

    /// Records an unexpected step of the trace if a chain of the agent has missing or different rules.
    fn expect_lines(&mut self, id: &ChainId, lines: &[PrintedRule], way: &Way) {
        let Some(known) = self.known else { return };
        if let Some(wanted) = known.chains.get(id) {
            let rules: Vec<_> = lines.iter().map(|line| line.text.clone()).collect();
            if digest(&rules) != *wanted {
                let what = format!("its {} rules are not those that were made", rules.len());
                self.recorder.odd(place(id), "", what);
            }
        }
        if let Some(SharedChain { lines: of_services, tail, is_out_of_order: _ }) = known.dispatch.get(id) {
            let is_there = |rule: &&String| lines.iter().any(|line| line.text == **rule);
            for rule in of_services.values().flatten().chain(tail).filter(|rule| !is_there(rule)) {
                let concerns = spell(&parse::words(rule))
                    .map_or(true, |spelled| !matches!(self.test(&spelled, way), MatchResult::No));
                if concerns {
                    self.recorder.odd(place(id), rule.clone(), "this rule is missing");
                }
            }
        }
    }

    /// Traverses a built-in chain and returns the resulting branches.
    fn table(&mut self, table: IptablesTable, chain: &str, ways: &[Way]) -> Vec<Way> {
        let id = ChainId { table, name: chain.to_owned() };
        let mut out = Vec::new();
        for way in ways {
            out.extend(self.chain(&id, *way, 0));
            out.append(&mut self.passed);
        }
        out
    }

    /// Traverses a chain and returns the branches that return from it.
    fn chain(&mut self, id: &ChainId, way: Way, depth: u32) -> Vec<Way> {
        let is_ours = self.layout.is_ours(id.table, &id.name);
        let Some(lines) = self.chains.get(id) else {
            if is_ours {
                self.recorder.odd(place(id), "", "there is no such chain");
            }
            return vec![way];
        };
        self.expect_lines(id, lines, &way);
        let (mut ways, mut back) = (vec![way], Vec::new());
        for line in lines {
            self.looks += 1;
            if ways.is_empty() {
                break;
            }
            if depth > DEPTH_MAX || self.looks > LOOKS_MAX || ways.len() + self.passed.len() > WAYS_MAX {
                self.recorder.end(End::Unknown("the rules are too many to be followed".to_owned()));
                return Vec::new();
            }
            let leads_to_ours = self.layout.is_ours(id.table, rule::target_of(&line.text));
            match spell(&line.words) {
                Ok(spelled) if is_ours || leads_to_ours => {
                    let mut next = Vec::new();
                    for way in ways {
                        self.look((id, line, &spelled), way, (&mut next, &mut back), depth);
                    }
                    ways = next;
                }
                Ok(spelled) => {
                    // A foreign rule in a built-in chain.
                    if ways.iter().any(|way| !matches!(self.test(&spelled, way), MatchResult::No)) {
                        self.recorder.step(
                            place(id),
                            line.text.clone(),
                            "a rule of somebody else, not followed",
                        );
                    }
                }
                Err(foreign) if is_ours => {
                    self.recorder.odd(place(id), line.text.clone(), foreign.to_string());
                    self.recorder.end(End::Unknown(format!("{}: {foreign}", place(id))));
                    return Vec::new();
                }
                Err(_) => {
                    self.recorder.step(place(id), line.text.clone(), "a rule of somebody else, not followed");
                }
            }
        }
        back.append(&mut ways);
        back
    }

    /// Evaluates one rule for one branch, and records a step if the rule matches, except for RETURN.
    fn look(
        &mut self,
        (id, line, spelled): (&ChainId, &PrintedRule, &ParsedRule),
        way: Way,
        (next, back): (&mut Vec<Way>, &mut Vec<Way>),
        depth: u32,
    ) {
        let (taken, left) = match self.test(spelled, &way) {
            MatchResult::No => (None, Some(way)),
            MatchResult::Yes => (Some(way), None),
            MatchResult::Perhaps(chance) => {
                let share = way.share * chance;
                (Some(Way { share, ..way }), Some(Way { share: way.share - share, ..way }))
            }
        };
        next.extend(left);
        let Some(mut way) = taken else { return };
        let mut note = |result: String| self.recorder.step(place(id), line.text.clone(), result);
        match &spelled.action {
            RuleAction::Chain { name, is_goto } => {
                note(format!("goes on in {name}{}", percent(way.share)));
                let chain = ChainId { table: id.table, name: name.clone() };
                let came_back = self.chain(&chain, way, depth + 1);
                if *is_goto { back.extend(came_back) } else { next.extend(came_back) }
            }
            RuleAction::Accept => {
                note("passes the table".to_owned());
                self.passed.push(way);
            }
            RuleAction::Return => back.push(way),
            RuleAction::Drop => {
                note("it is dropped".to_owned());
                self.recorder.end(End::Dropped);
            }
            RuleAction::Reject => {
                note("it is refused".to_owned());
                self.recorder.end(End::Refused);
            }
            RuleAction::Mark { value, mask } => {
                note("it is marked".to_owned());
                way.mark = (way.mark & !mask) ^ value;
                next.push(way);
            }
            RuleAction::Translate { address, port } => {
                note(format!("it is translated{}", percent(way.share)));
                way.to = Some((*address, *port));
                self.passed.push(way);
            }
            RuleAction::Masquerade => {
                note("the endpoint sees the node".to_owned());
                way.is_masqueraded = true;
                self.passed.push(way);
            }
        }
    }

    fn test(&self, rule: &ParsedRule, way: &Way) -> MatchResult {
        let mut chance = None;
        for Test { what, is_negated } in &rule.tests {
            if let What::Chance(share) = what {
                chance = Some(share.clamp(0.0, 1.0));
            } else if self.holds(what, way) == *is_negated {
                return MatchResult::No;
            }
        }
        chance.map_or(MatchResult::Yes, MatchResult::Perhaps)
    }

    fn holds(&self, what: &What, way: &Way) -> bool {
        let packet = self.subject.packet;
        let (destination, port) = match way.to {
            Some((address, port)) => (address, port.unwrap_or(packet.port)),
            None => (packet.destination, packet.port),
        };
        match what {
            What::Source(net) => net.contains(&packet.source),
            What::Destination(net) => net.contains(&destination),
            What::Transport(protocol) => *protocol == packet.protocol,
            What::Ports(ports) => ports.contains(port),
            What::SourceIsLocal => self.subject.is_local(packet.source),
            What::DestinationIsLocal => self.subject.is_local(destination),
            What::Mark { value, mask } => way.mark & mask == *value,
            What::States(states) => states.iter().any(|state| match state.as_str() {
                "NEW" => true,
                "DNAT" => way.to.is_some(),
                _ => false,
            }),
            // The traced client is new, so it is in no recent list.
            What::Remembered => false,
            What::Remember | What::Chance(_) => true,
        }
    }
}

fn place(id: &ChainId) -> String {
    format!("{} {}", id.table.as_str(), id.name)
}

fn percent(share: f64) -> String {
    if share < 1.0 { format!(", {:.1} %", share * 100.0) } else { String::new() }
}
