//! Planner of the iptables backend: compares the wanted rules of one address family with the mirror (the
//! rules as last read or written) and builds the input of `iptables-restore`, which contains only the chains
//! and rules that differ. Does no I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
};

use super::{
    layout::{ChainId, IptablesTable, StaticRules},
    mirror::{IptablesMirror, Jumps, SharedChain, digest},
};

/// Wanted contents of some chains, and wanted single rules in shared chains. Chains and rules that are not listed
/// stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredRules {
    /// Chains with all their rules; `None` removes the chain.
    pub chains: BTreeMap<ChainId, Option<Vec<String>>>,
    /// Rules of Services in shared chains, by chain and match criteria. An empty list removes the rules.
    pub lines: BTreeMap<(ChainId, String), Vec<String>>,
}

impl DesiredRules {
    /// Returns the number of listed chains and rules, by which the size of a run is limited.
    #[must_use]
    pub fn len(&self) -> usize {
        let rules: usize = self.chains.values().map(|rules| 1 + rules.as_ref().map_or(0, Vec::len)).sum();
        rules + self.lines.values().map(Vec::len).sum::<usize>()
    }

    /// Returns true if no chain and no rule is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.lines.is_empty()
    }

    /// Adds the chains and rules of `other`; entries of the same key are replaced.
    pub fn extend(&mut self, other: &Self) {
        self.chains.extend(other.chains.iter().map(|(chain, rules)| (chain.clone(), rules.clone())));
        self.lines.extend(other.lines.iter().map(|(place, lines)| (place.clone(), lines.clone())));
    }

    /// Returns the chains in which something may change: all rules, or single rules of Services.
    #[must_use]
    pub fn places(&self) -> BTreeSet<ChainId> {
        self.chains.keys().chain(self.lines.keys().map(|(chain, _)| chain)).cloned().collect()
    }
}

/// Input of `iptables-restore`, by table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    sections: BTreeMap<IptablesTable, Section>,
    /// True if the tables are written in reverse order, as for a removal.
    is_reversed: bool,
}

/// Lines of a script that change one table. The fields are in order of execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Chains to create, or to flush if they exist.
    pub(super) declared: Vec<String>,
    /// Rules to append to the declared chains.
    pub(super) appended: Vec<String>,
    /// Rules to delete from shared and built-in chains.
    pub(super) deleted: Vec<String>,
    /// Rules to append at the end of a chain, after foreign rules.
    pub(super) closing: Vec<String>,
    /// Rules to insert at the head of a chain, last one first.
    pub(super) inserted: Vec<String>,
    /// Chains to delete, after the rules that refer to them.
    pub(super) removed: Vec<String>,
}

impl Script {
    /// Returns true if the script changes no table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Returns the number of tables in the script. Each table is one transaction of the kernel.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.sections.len()
    }

    /// Returns the number of lines that declare, append, insert or delete a chain or rule.
    #[must_use]
    pub fn lines(&self) -> usize {
        let lines = |section: &Section| {
            let Section { declared, appended, deleted, closing, inserted, removed } = section;
            let changed = appended.len() + deleted.len() + closing.len() + inserted.len();
            declared.len() + changed + 2 * removed.len()
        };
        self.sections.values().map(lines).sum()
    }

    /// Returns the chains that the script writes, without those that it deletes.
    #[must_use]
    pub fn chains(&self) -> BTreeSet<ChainId> {
        let mut chains = BTreeSet::new();
        for (table, Section { declared, appended, deleted, closing, inserted, removed: _ }) in &self.sections
        {
            for line in [declared, appended, deleted, closing, inserted].into_iter().flatten() {
                let name = line.split(' ').next().unwrap_or_default().to_owned();
                chains.insert(ChainId { table: *table, name });
            }
        }
        chains
    }

    /// Returns the changes to each table.
    pub(super) const fn sections(&self) -> &BTreeMap<IptablesTable, Section> {
        &self.sections
    }

    fn section(&mut self, table: IptablesTable) -> &mut Section {
        self.sections.entry(table).or_default()
    }
}

impl Display for Script {
    /// Formats the input of `iptables-restore --noflush`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections: Vec<_> = if self.is_reversed {
            self.sections.iter().rev().collect()
        } else {
            self.sections.iter().collect()
        };
        for (table, Section { declared, appended, deleted, closing, inserted, removed }) in sections {
            writeln!(formatter, "*{}", table.as_str())?;
            for chain in declared {
                writeln!(formatter, ":{chain} - [0:0]")?;
            }
            for rule in appended {
                writeln!(formatter, "-A {rule}")?;
            }
            for rule in deleted {
                writeln!(formatter, "-D {rule}")?;
            }
            for rule in closing {
                writeln!(formatter, "-A {rule}")?;
            }
            for rule in inserted.iter().rev() {
                writeln!(formatter, "-I {rule}")?;
            }
            for chain in removed {
                writeln!(formatter, "-F {chain}")?;
            }
            for chain in removed {
                writeln!(formatter, "-X {chain}")?;
            }
            writeln!(formatter, "COMMIT")?;
        }
        Ok(())
    }
}

/// Builds the `iptables-restore` script that changes the tables from the state in `mirror` (the cached rules)
/// to the rules in `fixed` and `wanted`. Chains that are neither fixed nor wanted are not touched.
#[must_use]
pub fn plan(mirror: &IptablesMirror, fixed: &StaticRules, wanted: &DesiredRules) -> Script {
    let mut script = Script::default();
    for (chain, rules) in &fixed.chains {
        whole(&mut script, mirror, chain, Some(rules));
    }
    for (chain, rules) in &wanted.chains {
        whole(&mut script, mirror, chain, rules.as_ref());
    }
    for (chain, tail) in &fixed.tails {
        self::tail(&mut script, mirror.dispatch.get(chain), chain, tail);
    }
    for ((chain, key), lines) in &wanted.lines {
        let held = mirror.dispatch.get(chain).and_then(|held| held.lines.get(key));
        let held = held.map_or(&[][..], Vec::as_slice);
        if held != lines.as_slice() {
            let section = script.section(chain.table);
            section.deleted.extend(held.iter().map(|line| format!("{} {line}", chain.name)));
            section.inserted.extend(lines.iter().map(|line| format!("{} {line}", chain.name)));
        }
    }
    for chain in fixed.jumps.keys().chain(mirror.jumps.keys()).collect::<BTreeSet<_>>() {
        let rules = fixed.jumps.get(chain).map_or(&[][..], Vec::as_slice);
        jumps(&mut script, mirror.jumps.get(chain), chain, rules);
    }
    script
}

/// Builds the script that removes all objects of the agent. Reject rules are removed before DNAT rules:
/// without DNAT they would reject connections that another mode may already serve.
#[must_use]
pub fn removal(mirror: &IptablesMirror) -> Script {
    let mut script = Script { is_reversed: true, ..Script::default() };
    for (chain, jumps) in &mirror.jumps {
        let deleted = jumps.rules.iter().map(|rule| format!("{} {rule}", chain.name));
        script.section(chain.table).deleted.extend(deleted);
    }
    for chain in mirror.dispatch.keys().chain(mirror.chains.keys()) {
        script.section(chain.table).removed.push(chain.name.clone());
    }
    script
}

fn whole(script: &mut Script, mirror: &IptablesMirror, chain: &ChainId, rules: Option<&Vec<String>>) {
    let held = mirror.chains.get(chain);
    match (held, rules) {
        (Some(held), Some(rules)) if *held == digest(rules) => {}
        (_, Some(rules)) => {
            let section = script.section(chain.table);
            section.declared.push(chain.name.clone());
            section.appended.extend(rules.iter().map(|rule| format!("{} {rule}", chain.name)));
        }
        (Some(_), None) => script.section(chain.table).removed.push(chain.name.clone()),
        (None, None) => {}
    }
}

fn tail(script: &mut Script, held: Option<&SharedChain>, chain: &ChainId, tail: &[String]) {
    let is_right = |held: &SharedChain| held.tail == tail && (!held.is_out_of_order || tail.is_empty());
    if held.is_some_and(is_right) {
        return;
    }
    let section = script.section(chain.table);
    match held {
        None => section.declared.push(chain.name.clone()),
        Some(held) => section.deleted.extend(held.tail.iter().map(|rule| format!("{} {rule}", chain.name))),
    }
    section.closing.extend(tail.iter().map(|rule| format!("{} {rule}", chain.name)));
}

/// Plans the agent's rules in a built-in chain. In the table `nat` they must precede all others that can decide on the
/// translation of a connection, because only the first one applies; in `filter`, rules of other programs may precede them.
fn jumps(script: &mut Script, held: Option<&Jumps>, chain: &ChainId, rules: &[String]) {
    let held_rules = held.map_or(&[][..], |held| held.rules.as_slice());
    let must_lead = chain.table == IptablesTable::Nat;
    if held_rules == rules && !(must_lead && held.is_some_and(|held| held.is_behind)) {
        return;
    }
    let section = script.section(chain.table);
    section.deleted.extend(held_rules.iter().map(|rule| format!("{} {rule}", chain.name)));
    section.inserted.extend(rules.iter().map(|rule| format!("{} {rule}", chain.name)));
}

/// Updates `mirror` after the script for `fixed` and `wanted` was applied successfully.
pub fn absorb(mirror: &mut IptablesMirror, fixed: &StaticRules, wanted: &DesiredRules) {
    for (chain, rules) in &fixed.chains {
        mirror.chains.insert(chain.clone(), digest(rules));
    }
    for (chain, rules) in &wanted.chains {
        match rules {
            Some(rules) => drop(mirror.chains.insert(chain.clone(), digest(rules))),
            None => drop(mirror.chains.remove(chain)),
        }
    }
    for (chain, tail) in &fixed.tails {
        let held = mirror.dispatch.entry(chain.clone()).or_default();
        held.tail.clone_from(tail);
        held.is_out_of_order = false;
    }
    for ((chain, key), lines) in &wanted.lines {
        let held = mirror.dispatch.entry(chain.clone()).or_default();
        if lines.is_empty() {
            held.lines.remove(key);
        } else {
            held.lines.insert(key.clone(), lines.clone());
        }
    }
    mirror.jumps = fixed
        .jumps
        .iter()
        .map(|(chain, rules)| (chain.clone(), Jumps { rules: rules.clone(), is_behind: false }))
        .collect();
}

/// Returns the removal of every chain and rule in `mirror` (the rules as last read or written) that is
/// neither in `fixed` nor in `wanted`.
#[must_use]
pub fn strays<'a>(
    mirror: &IptablesMirror,
    fixed: &StaticRules,
    wanted: impl Iterator<Item = &'a DesiredRules> + Clone,
) -> DesiredRules {
    let chains: BTreeSet<_> = wanted.clone().flat_map(|wanted| wanted.chains.keys()).collect();
    let lines: BTreeSet<_> = wanted.flat_map(|wanted| wanted.lines.keys()).collect();
    let mut strays = DesiredRules::default();
    let unknown = mirror.chains.keys();
    let unknown = unknown.filter(|chain| !fixed.chains.contains_key(chain) && !chains.contains(chain));
    strays.chains.extend(unknown.map(|chain| (chain.clone(), None)));
    for (chain, held) in &mirror.dispatch {
        let places = held.lines.keys().map(|key| (chain.clone(), key.clone()));
        strays.lines.extend(places.filter(|place| !lines.contains(place)).map(|place| (place, Vec::new())));
    }
    strays
}
