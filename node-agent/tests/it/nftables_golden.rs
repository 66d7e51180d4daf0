//! Golden tests of nftables mode: the netlink messages to the kernel, as text. `UPDATE_GOLDEN=1` rewrites the
//! files.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::print_stdout,
    reason = "a test's helpers are tests"
)]

use std::{collections::BTreeSet, fs, path::Path};

use model::{
    kinds::service::Protocol,
    primitives::net::IpFamily,
    program::{Masquerade, oracle::Networks},
};
use node_agent::dataplane::{
    DesiredState,
    claims::{Claims, TouchedObjects},
    nftables::{
        NftablesOptions,
        mirror::NftablesMirror,
        plan::{self, Change, Structural},
        render,
        schema::Chain,
    },
};

use crate::support::programs::*;

/// Programs the desired state in an empty kernel. Returns the copy of the kernel objects (mirror), and the
/// assignment of frontends to the Services that claim them.
fn carried_out(desired: &DesiredState) -> (NftablesMirror, Claims) {
    let (mut claims, mut mirror) = (Claims::default(), NftablesMirror::default());
    let mut touched = TouchedObjects::default();
    for (service, desired) in &desired.programs {
        claims.replace(service, Some(desired.program.clone()), &mut touched);
    }
    let plan = plan::plan(&mirror, &claims, &touched, &desired.networks, true);
    for change in plan.groups.values().flatten() {
        if let Change::Add(element) = change {
            mirror.insert(element);
        }
    }
    mirror.structure.table = true;
    for change in &plan.structure {
        match change {
            Structural::AddSet(set) => {
                mirror.structure.sets.insert(*set);
            }
            Structural::AddChain(chain) => {
                mirror.structure.chains.insert(*chain, true);
            }
            Structural::DeleteTable
            | Structural::AddTable
            | Structural::FlushChain(_)
            | Structural::AddRules(_)
            | Structural::RemoveStray(..) => {}
        }
    }
    (mirror, claims)
}

fn rendered(plan: &plan::Plan, mirror: &NftablesMirror) -> String {
    let changes: Vec<_> = plan.groups.values().flatten().copied().collect();
    let picks = render::picks(&changes).into_iter();
    let picks: BTreeSet<_> =
        picks.filter(|pick| !mirror.structure.chains.contains_key(&Chain::Pick(*pick))).collect();
    let commands = render::commands(&plan.structure, &picks, &changes, NftablesOptions::default());
    commands.iter().map(|command| format!("{command}\n")).collect()
}

fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, wanted, "{name} differs; UPDATE_GOLDEN=1 accepts it");
}

fn web(list: &[(&str, u16, u16)]) -> model::program::Program {
    program(
        &["10.96.0.1"],
        &[list[0].0],
        &[
            (at("10.96.0.1", Protocol::Tcp, 80), forward(Masquerade::OffCluster, list)),
            (at("203.0.113.7", Protocol::Tcp, 80), forward(Masquerade::Always, list)),
            (node_port(IpFamily::V4, Protocol::Tcp, 30080), forward(Masquerade::Always, list)),
        ],
    )
}

#[test]
fn the_first_pass_makes_the_fixed_part_and_the_elements() {
    let mut desired = desired(vec![
        ("web", web(&[("10.1.1.2", 8080, 2), ("10.1.2.2", 8080, 1)])),
        ("six", simple("fd96::1", &[])),
    ]);
    desired.networks.masquerade_sources = ["0.0.0.0/1".parse().unwrap(), "fd00::/8".parse().unwrap()].into();
    let mut claims = Claims::default();
    let mut touched = TouchedObjects::default();
    for (service, desired) in &desired.programs {
        claims.replace(service, Some(desired.program.clone()), &mut touched);
    }
    let plan = plan::plan(&NftablesMirror::default(), &claims, &touched, &desired.networks, true);
    check("first-pass.txt", &rendered(&plan, &NftablesMirror::default()));
}

#[test]
fn changes_write_only_what_differs() {
    let before = [("10.1.1.2", 8080, 1), ("10.1.2.2", 8080, 1)];
    let mut text = String::new();
    for (title, after) in [
        ("one endpoint replaced", vec![("10.1.1.2", 8080, 1), ("10.1.3.2", 8080, 1)]),
        ("first endpoint removed", vec![("10.1.2.2", 8080, 1)]),
        ("a weight doubled", vec![("10.1.1.2", 8080, 2), ("10.1.2.2", 8080, 1)]),
        ("all weights doubled", vec![("10.1.1.2", 8080, 2), ("10.1.2.2", 8080, 2)]),
    ] {
        let (mirror, mut claims) = carried_out(&desired(vec![("web", web(&before))]));
        let mut touched = TouchedObjects::default();
        claims.replace(&key("web"), Some(web(&after).into()), &mut touched);
        let plan = plan::plan(&mirror, &claims, &touched, &Networks::default(), false);
        text += &format!("# {title}\n{}", rendered(&plan, &mirror));
    }
    check("changes.txt", &text);
}
