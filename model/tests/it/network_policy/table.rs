//! Cases of `model/tests/network_policy/cases.json`: those of the end-to-end tests of Kubernetes under their names, and one of
//! each family of the generated tests of NetworkPolicies.
//!
//! Each step of a case writes objects and lists the decisions, `drop` or `accept`, for a source, a destination and a port. The last line
//! that matches a connection applies; without one, it is accepted, as are all connections of a workload to itself.

use std::net::IpAddr;

use model::policy::node_policy::{Attempt, AttemptProtocol, PolicyVerdict};
use serde::Deserialize;
use serde_json::Value;

use super::{NAMES, NAMESPACES, Policies, address, attempts, network_policy, workload};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    steps: Vec<CaseStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseStep {
    #[serde(default)]
    policies: Vec<(String, String, Value)>,
    #[serde(default)]
    workloads: Vec<(String, String, Value)>,
    #[serde(default)]
    delete: Vec<String>,
    expect: Vec<String>,
}

/// Returns the name of the workload with an address, or `outside`.
fn name_of(at: IpAddr) -> String {
    let all = NAMESPACES.into_iter().flat_map(|namespace| NAMES.map(|name| (namespace, name)));
    let found = all.into_iter().find(|(namespace, name)| address(namespace, name) == at);
    found.map_or_else(|| "outside".to_owned(), |(namespace, name)| format!("{namespace}/{name}"))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('/') {
        None => pattern == "*" || pattern == name,
        Some((namespace, workload)) => name.split_once('/').is_some_and(|(one, other)| {
            [(namespace, one), (workload, other)].iter().all(|(part, name)| *part == "*" || part == name)
        }),
    }
}

fn is_expected(lines: &[String], attempt: &Attempt) -> bool {
    let Attempt { source, destination, protocol, port } = *attempt;
    let protocol = match protocol {
        AttemptProtocol::Tcp => "TCP",
        AttemptProtocol::Udp => "UDP",
        AttemptProtocol::Sctp => "SCTP",
        AttemptProtocol::Icmp => "ICMP",
    };
    let (source, destination, port) = (name_of(source), name_of(destination), format!("{port}/{protocol}"));
    let last = lines.iter().rev().find_map(|line| {
        let [action, from, "->", to, wanted] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("malformed line: {line}")
        };
        let applies =
            matches(from, &source) && matches(to, &destination) && (wanted == "*" || wanted == port);
        applies.then(|| action == "accept")
    });
    source == destination || last.unwrap_or(true)
}

/// Input: the objects of each case. Output: the decisions that the case lists.
#[test]
fn the_cases_of_the_field_are_decided_as_they_list() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../network_policy/cases.json")).unwrap();
    assert!(cases.len() >= 50);
    for Case { name, steps } in cases {
        let mut policies = Policies::new();
        for (index, CaseStep { policies: written, workloads, delete, expect }) in steps.iter().enumerate() {
            let written = written.iter().map(|(namespace, name, spec)| network_policy(namespace, name, spec));
            let workloads =
                workloads.iter().map(|(namespace, name, labels)| workload(namespace, name, labels));
            let objects: Vec<_> = written.chain(workloads).collect();
            if !objects.is_empty() {
                policies.apply(&objects);
            }
            delete.iter().for_each(|key| drop(policies.delete(key)));
            policies.check();
            let policy = policies.node_policy();
            for attempt in attempts() {
                let verdict = policy.judge(&attempt);
                let is_accepted = matches!(verdict, PolicyVerdict::Accept(_));
                assert_eq!(
                    is_accepted,
                    is_expected(expect, &attempt),
                    "{name}, step {index}: {attempt:?}: {verdict:?}"
                );
            }
        }
    }
}
