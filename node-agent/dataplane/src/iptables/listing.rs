//! Effect of an `iptables-restore` script on the output of `iptables-save`: removed and added lines. Does no
//! I/O.
//!
//! Removed lines are shown as printed by the tool. Added lines are shown as the agent writes them, which is
//! the form that current versions print. Other versions may print the same rule differently. Therefore a rule
//! that the script removes and adds again unchanged is not reported.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    primitives::net::IpFamily,
    wire::plan::{LineChange, LineFate},
};

use super::{
    layout::IptablesTable,
    parse,
    plan::{Script, Section},
};

/// Returns the lines that `script` would remove from and add to `listing`, the `iptables-save` output of one
/// address family. Ignores counters and the order of lines.
#[must_use]
pub fn differences(family: IpFamily, listing: &str, script: &Script) -> Vec<LineChange> {
    let mut changes = Vec::new();
    for (table, section) in script.sections() {
        let held = lines(listing, *table);
        let (gone, come) = difference(&held, section);
        let place = format!("{} {}", tool(family), table.as_str());
        let change = |change, line: String| LineChange { change, place: place.clone(), line };
        changes.extend(gone.into_iter().map(|line| change(LineFate::Removed, line)));
        changes.extend(come.into_iter().map(|line| change(LineFate::Added, line)));
    }
    changes
}

const fn tool(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "iptables",
        IpFamily::V6 => "ip6tables",
    }
}

/// Line of an `iptables-save` listing that concerns one table: a chain declaration or a rule.
struct ListingLine<'a> {
    text: &'a str,
    chain: &'a str,
    /// Line in the form in which the agent writes it; `None` for a chain declaration.
    rule: Option<String>,
}

/// Parses the lines of one table, in the order of the listing.
fn lines(listing: &str, table: IptablesTable) -> Vec<ListingLine<'_>> {
    let head = format!("*{}", table.as_str());
    let of_table = listing.lines().skip_while(|line| *line != head).skip(1);
    let of_table = of_table.take_while(|line| *line != "COMMIT");
    of_table.filter_map(line).collect()
}

fn line(text: &str) -> Option<ListingLine<'_>> {
    if let Some(chain) = text.strip_prefix(':') {
        return Some(ListingLine { text, chain: chain.split(' ').next()?, rule: None });
    }
    let (chain, rule) = text.strip_prefix("-A ")?.split_once(' ')?;
    Some(ListingLine { text, chain, rule: Some(format!("-A {chain} {}", parse::normal(rule))) })
}

/// Returns the lines of one table that a script removes and adds.
fn difference(held: &[ListingLine<'_>], section: &Section) -> (Vec<String>, Vec<String>) {
    let Section { declared, appended, deleted, closing, inserted, removed } = section;
    let chains: BTreeSet<&str> =
        held.iter().filter(|line| line.rule.is_none()).map(|line| line.chain).collect();
    let mut gone = RemovedLines::new(held);
    let (emptied, removed) = (names(declared), names(removed));
    gone.take(|line| removed.contains(line.chain) || (line.rule.is_some() && emptied.contains(line.chain)));
    for rule in deleted {
        gone.take_rule(&format!("-A {rule}"));
    }
    let made = declared.iter().filter(|chain| !chains.contains(chain.as_str()));
    let made = made.map(|chain| format!(":{chain} - [0:0]"));
    let rules = [appended, closing, inserted].into_iter().flatten().map(|rule| format!("-A {rule}"));
    let come = made.chain(rules).filter(|line| !gone.give_back(line)).collect();
    (gone.finish(), come)
}

fn names(chains: &[String]) -> BTreeSet<&str> {
    chains.iter().map(String::as_str).collect()
}

/// Lines of a listing that the script removes. A rule can occur several times, so each occurrence is recorded
/// separately.
struct RemovedLines<'a> {
    held: &'a [ListingLine<'a>],
    is_gone: Vec<bool>,
    /// Indexes in the listing at which each rule occurs.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> RemovedLines<'a> {
    fn new(held: &'a [ListingLine<'a>]) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, line) in held.iter().enumerate() {
            if let Some(rule) = &line.rule {
                places.entry(rule).or_default().push(index);
            }
        }
        Self { held, is_gone: vec![false; held.len()], places }
    }

    fn take(&mut self, goes: impl Fn(&ListingLine<'_>) -> bool) {
        for (line, is_gone) in self.held.iter().zip(&mut self.is_gone) {
            *is_gone |= goes(line);
        }
    }

    /// Marks one occurrence of a rule as removed.
    fn take_rule(&mut self, rule: &str) {
        self.turn(rule, true);
    }

    /// Cancels the removal of one occurrence of a rule. Returns true if there was one.
    fn give_back(&mut self, rule: &str) -> bool {
        self.turn(rule, false)
    }

    fn turn(&mut self, rule: &str, to: bool) -> bool {
        let found = self.places.get(rule).into_iter().flatten().find(|index| self.is_gone[**index] != to);
        let Some(index) = found.copied() else { return false };
        self.is_gone[index] = to;
        true
    }

    fn finish(self) -> Vec<String> {
        let lines = self.held.iter().zip(self.is_gone);
        lines.filter(|(_, is_gone)| *is_gone).map(|(line, _)| line.text.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::{kinds::node::Naming, program::oracle::Networks};

    use super::{
        super::{layout::ChainId, layout::NamingLayout, plan},
        *,
    };

    const LISTING: &str = "*nat\n:PREROUTING ACCEPT [3:180]\n:TG-SVC-AAAAAAAAAAAAAAAA - [0:0]\n\
        :TG-SVC-BBBBBBBBBBBBBBBB - [0:0]\n\
        -A TG-SVC-AAAAAAAAAAAAAAAA -m comment --comment x -j RETURN\n\
        -A TG-SVC-AAAAAAAAAAAAAAAA -p 6 -j RETURN\n\
        -A TG-SVC-BBBBBBBBBBBBBBBB -j RETURN\nCOMMIT\n\
        *filter\n-A INPUT -j DROP\nCOMMIT\n";

    #[test]
    fn what_is_written_again_is_no_difference_and_what_goes_is_as_it_was_printed() {
        let layout = NamingLayout {
            naming: Naming::Tidegate,
            masquerade_mark: 0x4000,
            drop_mark: 0x8000,
            drop_invalid: true,
        };
        let mirror = parse::saved(&layout, LISTING);
        let chain = |name: &str| ChainId { table: IptablesTable::Nat, name: format!("TG-SVC-{name}") };
        let rules = |rules: &[&str]| Some(rules.iter().map(|rule| (*rule).to_owned()).collect());
        let chains = [
            (chain("AAAAAAAAAAAAAAAA"), rules(&["-m comment --comment \"x\" -j RETURN", "-p udp -j RETURN"])),
            (chain("BBBBBBBBBBBBBBBB"), None),
            (chain("CCCCCCCCCCCCCCCC"), rules(&["-j RETURN"])),
        ];
        let wanted = plan::DesiredRules { chains: chains.into(), ..plan::DesiredRules::default() };
        let script = plan::plan(&mirror, &super::super::layout::StaticRules::default(), &wanted);
        let changes = differences(IpFamily::V4, LISTING, &script);
        let told: Vec<_> = changes
            .iter()
            .map(|LineChange { change, place, line }| {
                let sign = if *change == LineFate::Added { '+' } else { '-' };
                format!("{sign}{place}: {line}")
            })
            .collect();
        assert_eq!(
            told,
            [
                "-iptables nat: :TG-SVC-BBBBBBBBBBBBBBBB - [0:0]",
                "-iptables nat: -A TG-SVC-AAAAAAAAAAAAAAAA -p 6 -j RETURN",
                "-iptables nat: -A TG-SVC-BBBBBBBBBBBBBBBB -j RETURN",
                "+iptables nat: :TG-SVC-CCCCCCCCCCCCCCCC - [0:0]",
                "+iptables nat: -A TG-SVC-AAAAAAAAAAAAAAAA -p udp -j RETURN",
                "+iptables nat: -A TG-SVC-CCCCCCCCCCCCCCCC -j RETURN",
            ]
        );
    }

    #[test]
    fn an_empty_listing_gets_everything_and_nothing_is_lost_twice() {
        let layout = NamingLayout {
            naming: Naming::Tidegate,
            masquerade_mark: 0x4000,
            drop_mark: 0x8000,
            drop_invalid: true,
        };
        let fixed = layout.fixed(IpFamily::V4, &Networks::default());
        let mirror = parse::saved(&layout, "");
        let script = plan::plan(&mirror, &fixed, &plan::DesiredRules::default());
        let changes = differences(IpFamily::V4, "", &script);
        assert!(changes.iter().all(|change| change.change == LineFate::Added));
        let rules: usize =
            fixed.chains.values().chain(fixed.tails.values()).chain(fixed.jumps.values()).map(Vec::len).sum();
        assert_eq!(changes.len(), rules + fixed.chains.len() + fixed.tails.len());
    }
}
