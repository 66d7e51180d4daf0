//! Tests of rollbacks on real kernels: the kernel state and the announcements become as they were before the
//! change.

#![allow(clippy::print_stdout, reason = "what was changed and how long it took is printed, never asserted")]

mod changes;
mod dice;
mod seen;
mod stage;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use lab::host::{guest, listings, wait};
use serde_json::{Value, json};

use self::{
    changes::{KINDS, Kind, RULES, Step},
    dice::Dice,
    seen::{Seen, difference},
    stage::Stage,
};

/// Number of random changes that are made and rolled back.
const CHANGES: usize = 20;
/// Number of random changes in the guest VM, which is slow.
const CHANGES_IN_IPVS_MODE: usize = 8;
/// Interval between two polls.
const PAUSE: Duration = Duration::from_millis(100);

/// F167: on nodes in three modes, with addresses announced by ARP and by BGP, each of 20 random changes is
/// visible in the kernel listings or the announcements, and its rollback restores all of these.
#[test]
fn f167_rollback_of_each_of_20_random_changes_restores_kernel_listings_and_announcements() {
    let mut dice = Dice::seeded();
    let stage = Stage::new();
    let before = stage.settled();
    let kinds = dice.shuffled(KINDS).into_iter().take(CHANGES);
    undo_each(&stage, &before, &mut dice, kinds);
    history_tells_the_lines_of_then(&stage, &before);
}

/// F167: in ipvs mode, in the guest VM whose kernel has IPVS, the rollback of each random change restores all
/// kernel listings.
#[test]
fn f167_rollback_restores_servers_sets_and_rules_in_ipvs_mode() {
    guest::run("rollback::f167_rollback_restores_servers_sets_and_rules_in_ipvs_mode", || {
        let mut dice = Dice::seeded();
        let stage = Stage::in_ipvs_mode();
        let before = stage.settled();
        let kinds = dice.shuffled(KINDS).into_iter().filter(|kind| kind.shows == RULES);
        let kinds: Vec<_> = kinds.take(CHANGES_IN_IPVS_MODE).collect();
        undo_each(&stage, &before, &mut dice, kinds);
    });
}

/// Applies random changes one after another. Asserts that each change is visible, and that its rollback
/// restores the state `before`.
fn undo_each(stage: &Stage, before: &Seen, dice: &mut Dice, kinds: impl IntoIterator<Item = &'static Kind>) {
    for kind in kinds {
        let begun = Instant::now();
        let revision = stage.revision();
        let step = (kind.change)(dice);
        println!("{}: {step}", kind.name);
        stage.carry_out(&step);
        stage.tidegate(&["wait", "--for=verified", "--quiet"]);
        let different = look_until(stage, &format!("{} to show", kind.name), |now| {
            let different = seen::places_that_differ(before, now);
            ensure!(!different.is_empty(), "nothing is different");
            for part in kind.shows.iter().filter(|_| !stage.is_in_ipvs_mode()) {
                ensure!(different.iter().any(|place| place.contains(part)), "nothing is different in {part}");
            }
            Ok(different.len())
        });
        let shown = begun.elapsed();
        stage.tidegate(&["rollback", &revision.to_string(), "--message", kind.name]);
        stage.tidegate(&["wait", "--for=verified", "--quiet"]);
        look_until(stage, &format!("everything to be as before: {}", kind.name), |now| {
            ensure!(now == before, "seed {}: {}", dice.seed, difference(before, now));
            Ok(())
        });
        println!(
            "    {different} places differed; shown after {shown:?}, all over after {:?}",
            begun.elapsed()
        );
    }
}

/// Observes the cluster repeatedly until `is_so` returns `Ok`, and returns that value. Pauses between
/// observations, because each of them runs many commands.
#[track_caller]
fn look_until<T>(stage: &Stage, what: &str, is_so: impl Fn(&Seen) -> Result<T>) -> T {
    wait::until(what, || {
        let found = is_so(&stage.look()?);
        if found.is_err() {
            thread::sleep(PAUSE);
        }
        found
    })
    .unwrap()
}

/// Asserts that the kernel lines that `tidegate history` reports for a past change equal the difference of
/// the kernel listings before and after that change, even after later changes.
fn history_tells_the_lines_of_then(stage: &Stage, before: &Seen) {
    let patch = json!({"spec": {"ports": [{"name": "web", "port": 8443, "targetPort": 8080}]}});
    stage.carry_out(&Step::Patch("namespaces/default/services/sticky".to_owned(), patch));
    let revision = stage.revision();
    stage.tidegate(&["wait", "--for=verified", "--quiet"]);
    let after = wait::until("all agents to answer", || stage.look()).unwrap();
    for path in ["services/sticky", "services/plain", "workloads/web-1"] {
        stage.carry_out(&Step::Delete(format!("namespaces/default/{path}")));
    }
    stage.tidegate(&["wait", "--for=verified", "--quiet"]);
    let printed = stage.tidegate(&["history", &revision.to_string(), "--rules", "-o", "json"]);
    let entry: Value = serde_json::from_str(&printed).unwrap();
    let places = [("node1", "map inet tidegate services"), ("node2", "iptables nat"), ("node3", "relay ")];
    for (node, place) in places {
        let lines = entry["rules"][node]["preview"]["kernel"].as_array().cloned().unwrap_or_default();
        let told = |sign: &str| {
            let is_meant = |line: &&Value| {
                line["change"] == sign && line["place"].as_str().is_some_and(|at| at.starts_with(place))
            };
            let lines = lines.iter().filter(is_meant).map(|line| line["line"].as_str().unwrap().to_owned());
            listings::sorted(lines)
        };
        let listed = |from: &Seen, to: &Seen| seen::lines_beyond(from, to, &format!("{node} {place}"));
        assert!(!told("added").is_empty(), "{node}: {entry:#}");
        assert_eq!(told("added"), listed(before, &after), "{node}");
        assert_eq!(told("removed"), listed(&after, before), "{node}");
    }
    // Per node: received, applied, verified.
    let printed = stage.tidegate(&["history", &revision.to_string()]);
    for node in ["node1", "node2", "node3"] {
        let line = printed.lines().find(|line| line.trim().starts_with(&format!("{node}: received after")));
        assert!(line.is_some_and(|line| line.contains("verified after")), "{printed}");
    }
}
