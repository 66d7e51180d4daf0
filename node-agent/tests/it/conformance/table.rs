//! Renders the page with the results of every scenario in every lane (proxy mode variant).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use model::primitives::net::IpFamily;

use super::{
    is_due,
    scenario::{Outcome, Scenario},
    upstream::UPSTREAM,
};
use crate::testbed::{Lane, lane::family_word};

/// Results by lane (proxy mode variant), address family and scenario name.
pub type Results = BTreeMap<(Lane, String, &'static str), Outcome>;

/// Renders the page of results: a table with the result of each scenario in each lane (proxy mode variant),
/// as a letter or word, followed by notes that explain deviations.
pub fn render(scenarios: &[Scenario], results: &Results) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut page = String::from(HEAD);
    for lane in Lane::ALL {
        let _ = write!(page, " {} |", lane.name());
    }
    page.push_str("\n|---|---|---|");
    page.push_str(&"---|".repeat(Lane::ALL.len()));
    page.push('\n');
    for (index, scenario) in scenarios.iter().enumerate() {
        let _ = write!(page, "| {} | {} | {} |", index + 1, scenario.name, scenario.rows);
        for lane in Lane::ALL {
            let _ = write!(page, " {} |", cell(scenario, index + 1, lane, results, &mut notes));
        }
        page.push('\n');
    }
    let _ = write!(page, "\n{} scenarios, each in IPv4 and in IPv6.\n\n", scenarios.len());
    for (index, note) in notes.iter().enumerate() {
        let _ = writeln!(page, "{}. {note}", index + 1);
    }
    page.push_str(UPSTREAM_HEAD);
    for test in UPSTREAM {
        let standing: Vec<_> = scenarios
            .iter()
            .enumerate()
            .filter(|(_, scenario)| scenario.upstream.split(' ').any(|key| key == test.key))
            .map(|(index, _)| (index + 1).to_string())
            .collect();
        let here = if standing.is_empty() { test.reason.to_owned() } else { standing.join(", ") };
        let _ = writeln!(page, "| {} | {} | {here} |", test.file, test.claim);
    }
    page
}

fn cell(
    scenario: &Scenario,
    serial: usize,
    lane: Lane,
    results: &Results,
    notes: &mut Vec<String>,
) -> String {
    let due = IpFamily::ALL.into_iter().filter(|family| is_due(lane, *family, serial)).map(family_word);
    let outcomes = due.map(|family| results.get(&(lane, scenario.name.to_owned(), family)));
    let words: Vec<_> = outcomes.map(|outcome| word(scenario, lane, outcome, notes)).collect();
    match &words[..] {
        [first, second] if first != second => format!("IPv4 {first}, IPv6 {second}"),
        [first, ..] => first.clone(),
        [] => word(scenario, lane, None, notes),
    }
}

fn word(scenario: &Scenario, lane: Lane, outcome: Option<&Outcome>, notes: &mut Vec<String>) -> String {
    let (word, note) = match outcome {
        None => return "not run".to_owned(),
        Some(Outcome::Pass) => return "pass".to_owned(),
        Some(Outcome::Differs(how)) => ("pass", format!("{}: {how}.", lane.name())),
        Some(Outcome::NotMeant(why)) => ("no", format!("{}: {why}.", lane.name())),
        Some(Outcome::Unsupported(_)) => match scenario.refusal(lane) {
            Some(why) => {
                ("refused", format!("{}: {why}. The Service is reported as unsupported.", lane.name()))
            }
            None => ("**refused**", "refused without a written reason".to_owned()),
        },
        Some(Outcome::Failed(_)) => return "**FAILED**".to_owned(),
    };
    let index = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    format!("{word} ({})", index + 1)
}

/// Returns a description of each result that is not as expected: failures, missing results, and rejections
/// that are unexpected or absent.
pub fn faults(scenarios: &[Scenario], results: &Results) -> Vec<String> {
    let mut faults = Vec::new();
    for (serial, scenario) in (1..).zip(scenarios) {
        for lane in Lane::ALL {
            let due = IpFamily::ALL.into_iter().filter(|family| is_due(lane, *family, serial));
            for family in due.map(family_word) {
                let at = format!("{} {family}: {}", lane.name(), scenario.name);
                match (results.get(&(lane, scenario.name.to_owned(), family)), scenario.refusal(lane)) {
                    (Some(Outcome::Pass | Outcome::Differs(_) | Outcome::NotMeant(_)), None)
                    | (Some(Outcome::Unsupported(_)), Some(_)) => {}
                    (Some(outcome), Some(_)) => {
                        faults.push(format!("{at}: should be refused, but: {outcome}"));
                    }
                    (Some(outcome), None) => faults.push(format!("{at}: {outcome}")),
                    (None, _) => faults.push(format!("{at}: was not run")),
                }
            }
        }
    }
    faults
}

/// Returns a description of each Kubernetes test that has neither an equivalent scenario nor a reason for its
/// absence (or has both), and of each key in a scenario that matches no Kubernetes test.
pub fn uncovered(scenarios: &[Scenario]) -> Vec<String> {
    let named: BTreeSet<_> = scenarios
        .iter()
        .flat_map(|scenario| scenario.upstream.split(' '))
        .filter(|key| !key.is_empty())
        .collect();
    let known: BTreeSet<_> = UPSTREAM.iter().map(|test| test.key).collect();
    let unknown = named.difference(&known).map(|key| format!("{key} is no upstream test"));
    let bare = UPSTREAM.iter().filter(|test| test.reason.is_empty() != named.contains(test.key));
    let bare = bare.map(|test| format!("{} needs a scenario or a reason, one of both", test.key));
    unknown.chain(bare).collect()
}

const HEAD: &str = "\
<!-- Written by `UPDATE_GOLDEN=1 cargo test -p node-agent --test it conformance::`; the suite fails when it differs. -->

# Conformance of the proxy modes

One suite of real clients and servers in network namespaces, run against every proxy mode in IPv4 and IPv6. What must
happen to every connection is said twice, by the scenario and by the packet program's pure interpreter
(`model::program::oracle`); both are compared with what the client heard and with whom the server saw.

`iptables` is the nf_tables flavour of the tools, `iptables-legacy` the older one. `ipvs` and `iptables-legacy` run on the
second kernel (`lab/guest.sh`). `iptables-legacy`, whose rules are the same, runs the scenarios in IPv4 and IPv6 in turn; `make soak` runs
all in both.

| # | scenario | rows |";

const UPSTREAM_HEAD: &str = "
## The tests of Kubernetes

What its tests in `test/e2e/network` (1.36) check of Services, and the scenario that checks the same here.

| file | test | scenarios |
|---|---|---|
";
