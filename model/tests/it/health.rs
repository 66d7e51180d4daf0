//! Health checks in the control plane: merging of the nodes' results, decisions, stored health records, and
//! the effect of these on Services.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    admission::admit::{Operation, Request},
    cluster::{change::ChangeKind, compiled::CompiledService},
    compile::{affected, compile, network},
    kinds::{
        endpoint_health::{CheckKey, EndpointHealthSpec, EndpointVerdict, record_key},
        resource::Kind,
    },
    observed::{
        health::{Guard, HealthBook, HealthDecision, HealthInputs, HealthUpdate, checkers, judge},
        rollup::service_health,
        service_health::HealthState,
    },
    primitives::{
        name::Name,
        quantity::{Port, Timestamp},
    },
    wire::report::{CheckReport, CheckState},
};
use serde_json::{Value, json};

use CheckState::{Healthy, Pending, Unhealthy};

use crate::support::{self, Cluster, key, of_kind, service};

const START: i64 = 1_771_000_000;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_unix_seconds(START + secs)
}

fn check_key(host: u8) -> CheckKey {
    CheckKey { address: [10, 1, 0, host].into(), port: Port::new(8080).unwrap() }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Creates Service `web` with `endpoints` endpoints that have no Node, and with a health check. The fields in
/// `more` are added to the check or replaced.
fn cluster(endpoints: u8, more: Value) -> Cluster {
    let mut cluster = Cluster::new();
    let mut check = json!({ "type": "Tcp" });
    check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 8080 }], "healthCheck": check });
    cluster.apply(&service("web", spec)).unwrap();
    let endpoints: Vec<_> =
        (1..=endpoints).map(|host| json!({ "address": format!("10.1.0.{host}") })).collect();
    let set = json!({ "service": "web", "endpoints": endpoints });
    cluster.apply(&of_kind("EndpointSet", "web-1", json!({}), set)).unwrap();
    cluster
}

/// Health check reports of the nodes `a`, `b` and `c`, with the set of nodes that currently do not report.
struct Nodes {
    book: HealthBook,
    checkers: BTreeSet<Name>,
    silent: BTreeSet<Name>,
    dead: BTreeSet<Name>,
}

impl Nodes {
    fn new() -> Self {
        let checkers = ["a", "b", "c"].map(name).into();
        Self { book: HealthBook::default(), checkers, silent: BTreeSet::new(), dead: BTreeSet::new() }
    }

    /// Applies a report of a node with the results for Service `web`, each with the last octet of the
    /// endpoint's address. Returns the number of Services with a changed state.
    fn say(&mut self, node: &str, states: &[(u8, CheckState)]) -> usize {
        let report = |(host, state): &(u8, CheckState)| CheckReport {
            address: check_key(*host).address,
            port: check_key(*host).port,
            state: *state,
            since: at(0),
            message: format!("{node} says {state:?}"),
        };
        let services = BTreeMap::from([(key("web"), states.iter().map(report).collect())]);
        self.book.apply(&name(node), HealthUpdate { services, is_complete: false }).len()
    }

    fn judge(&self, cluster: &Cluster, secs: i64) -> HealthDecision {
        let is_reporting = |node: &Name| !self.silent.contains(node);
        let inputs = HealthInputs {
            book: &self.book,
            checkers: &self.checkers,
            is_reporting: &is_reporting,
            dead: &self.dead,
            now: at(secs),
        };
        judge(&inputs, &compiled(cluster), cluster.snapshot.endpoint_health(&key("web")))
    }

    /// Decides the health of the endpoints of Service `web` at second `secs`, and writes the health record.
    /// Returns the last octet of the address and the share in percent of each endpoint that is not fully in
    /// service.
    fn decide(&self, cluster: &mut Cluster, secs: i64) -> Vec<(u8, u8)> {
        let HealthDecision { endpoints, .. } = self.judge(cluster, secs);
        record(cluster, endpoints);
        shares(cluster)
    }

    fn states(&self, cluster: &Cluster) -> Vec<HealthState> {
        let is_reporting = |node: &Name| !self.silent.contains(node);
        let inputs = HealthInputs {
            book: &self.book,
            checkers: &self.checkers,
            is_reporting: &is_reporting,
            dead: &self.dead,
            now: at(0),
        };
        let health = service_health(&cluster.snapshot, &compiled(cluster), &inputs, &Guard::new(33));
        health.endpoints.into_iter().map(|one| one.state).collect()
    }
}

fn compiled(cluster: &Cluster) -> CompiledService {
    compile(&cluster.snapshot, &key("web")).unwrap()
}

fn record(cluster: &mut Cluster, endpoints: BTreeMap<CheckKey, EndpointVerdict>) {
    let operations = vec![Operation::SetEndpointHealth { service: key("web"), endpoints }];
    cluster.write(&Request { operations, ..Request::default() }).unwrap();
}

/// Writes a health record with the given share in percent for each endpoint, identified by the last octet of its
/// address.
fn record_shares(cluster: &mut Cluster, shares: &[(u8, u8)]) {
    let verdict = |share| EndpointVerdict {
        share,
        since: at(0),
        message: "as a test says".to_owned(),
        checkers: BTreeSet::new(),
    };
    record(cluster, shares.iter().map(|(host, share)| (check_key(*host), verdict(*share))).collect());
}

fn shares(cluster: &Cluster) -> Vec<(u8, u8)> {
    let record = cluster.snapshot.endpoint_health(&key("web"));
    let endpoints = record.into_iter().flat_map(|record| &record.endpoints);
    let host = |key: &CheckKey| match key.address {
        std::net::IpAddr::V4(address) => address.octets()[3],
        std::net::IpAddr::V6(_) => panic!("all are IPv4"),
    };
    endpoints.map(|(key, verdict)| (host(key), verdict.share)).collect()
}

/// Returns the weight, readiness and serving state of each compiled endpoint.
fn made(cluster: &Cluster) -> Vec<(u16, bool, bool)> {
    let endpoints = compiled(cluster).ports.remove(0).endpoints;
    endpoints.into_iter().map(|one| (one.weight.0, one.ready, one.serving)).collect()
}

/// F148: an endpoint is removed from service if most of its checking nodes report it unhealthy, and returns if
/// most report it healthy.
#[test]
fn f148_the_majority_of_the_checking_nodes_decides() {
    let mut cluster = cluster(1, json!({}));
    let mut nodes = Nodes::new();
    assert_eq!(nodes.decide(&mut cluster, 0), [], "what nobody spoke of is in service");
    nodes.say("a", &[(1, Unhealthy)]);
    assert_eq!(nodes.decide(&mut cluster, 1), [], "the others have no word yet");
    nodes.say("b", &[(1, Pending)]);
    nodes.say("c", &[(1, Healthy)]);
    assert_eq!(nodes.decide(&mut cluster, 1), [], "one of three");
    nodes.say("b", &[(1, Unhealthy)]);
    let judgement = nodes.judge(&cluster, 2);
    assert_eq!(judgement.leaving, [check_key(1)].into());
    let verdict = &judgement.endpoints[&check_key(1)];
    assert_eq!((verdict.share, verdict.since), (0, at(2)));
    assert_eq!(verdict.checkers, ["a", "b"].map(name).into());
    assert!(verdict.message.ends_with("says Unhealthy"), "{verdict:?}");
    assert_eq!(nodes.decide(&mut cluster, 2), [(1, 0)]);
    assert_eq!(made(&cluster), [(1, false, false)]);
    assert!(nodes.judge(&cluster, 9).leaving.is_empty(), "it has left already");
    assert_eq!(nodes.judge(&cluster, 9).endpoints[&check_key(1)].since, at(2));
    nodes.say("a", &[(1, Pending)]);
    assert_eq!(nodes.decide(&mut cluster, 3), [(1, 0)], "one of each: what was decided holds");
    nodes.say("a", &[(1, Healthy)]);
    assert_eq!(nodes.decide(&mut cluster, 4), []);
    assert_eq!(made(&cluster), [(1, true, true)]);
}

/// F148: results of silent nodes are ignored. If all checking nodes are silent, the last decision remains in
/// force.
#[test]
fn f148_silent_nodes_change_no_verdict() {
    let mut cluster = cluster(2, json!({}));
    let mut nodes = Nodes::new();
    for node in ["a", "b", "c"] {
        nodes.say(node, &[(1, Healthy), (2, Unhealthy)]);
    }
    assert_eq!(nodes.decide(&mut cluster, 0), [(2, 0)]);
    assert_eq!(nodes.states(&cluster), [HealthState::Healthy, HealthState::Unhealthy]);
    for node in ["a", "b", "c"] {
        nodes.say(node, &[(1, Unhealthy), (2, Healthy)]);
    }
    nodes.silent = ["a", "b", "c"].map(name).into();
    assert_eq!(nodes.decide(&mut cluster, 1), [(2, 0)]);
    assert_eq!(nodes.states(&cluster), [HealthState::Unknown; 2]);
    nodes.book = HealthBook::default();
    nodes.silent.clear();
    assert_eq!(nodes.decide(&mut cluster, 2), [(2, 0)], "a server that starts has heard nothing");
    nodes.say("c", &[(1, Unhealthy), (2, Healthy)]);
    assert_eq!(nodes.decide(&mut cluster, 3), [(2, 0)], "the first of three does not decide alone");
    nodes.silent.insert(name("a"));
    assert_eq!(nodes.decide(&mut cluster, 4), [(2, 0)], "nor one of two");
    nodes.silent.insert(name("b"));
    assert_eq!(nodes.decide(&mut cluster, 5), [(1, 0)], "of those that report, all");
}

/// F148: if the Node of an endpoint has an agent, the result of this agent alone decides the endpoint's health.
#[test]
fn f148_the_node_of_an_endpoint_decides_alone() {
    let nodes: BTreeSet<Name> = ["a", "b", "c", "d"].map(name).into();
    let own = name("b");
    assert_eq!(checkers(&check_key(1), Some(&own), &nodes), [&own].into());
    let stranger = name("z");
    assert_eq!(checkers(&check_key(1), Some(&stranger), &nodes).len(), 3, "its Node has no agent");
    let mut cluster = cluster(1, json!({}));
    let set = json!({ "service": "web", "endpoints": [{ "address": "10.1.0.1", "node": "b" }] });
    cluster.apply(&of_kind("EndpointSet", "web-1", json!({}), set)).unwrap();
    let mut nodes = Nodes::new();
    nodes.say("a", &[(1, Unhealthy)]);
    nodes.say("c", &[(1, Unhealthy)]);
    assert_eq!(nodes.decide(&mut cluster, 0), []);
    nodes.say("b", &[(1, Unhealthy)]);
    assert_eq!(nodes.decide(&mut cluster, 0), [(1, 0)]);
}

/// F148: in slow start, the percentage of its weight with which a recovered endpoint is used grows in steps
/// of 10 %, and drops to 0 if the endpoint fails again.
#[test]
fn f148_slow_start_increases_the_share_of_an_endpoint_in_steps() {
    let mut cluster = cluster(2, json!({ "slowStartSeconds": 90 }));
    let mut nodes = Nodes::new();
    nodes.silent = ["b", "c"].map(name).into();
    nodes.say("a", &[(1, Unhealthy), (2, Healthy)]);
    assert_eq!(nodes.decide(&mut cluster, 0), [(1, 0)]);
    nodes.say("a", &[(1, Healthy), (2, Healthy)]);
    assert_eq!(nodes.judge(&cluster, 100).next, Some(at(110)));
    assert_eq!(nodes.decide(&mut cluster, 100), [(1, 10)]);
    assert_eq!(made(&cluster), [(1, true, true), (10, true, true)], "a tenth of the other's");
    assert_eq!(nodes.decide(&mut cluster, 109), [(1, 10)]);
    assert_eq!(nodes.decide(&mut cluster, 110), [(1, 20)]);
    assert_eq!(nodes.decide(&mut cluster, 185), [(1, 90)]);
    assert_eq!(made(&cluster), [(9, true, true), (10, true, true)]);
    nodes.silent = ["a", "b", "c"].map(name).into();
    assert_eq!(nodes.decide(&mut cluster, 186), [(1, 90)], "it came back; silence changes nothing about it");
    let mut failed = Nodes::new();
    failed.silent = ["a", "c"].map(name).into();
    failed.say("b", &[(1, Unhealthy)]);
    assert_eq!(failed.judge(&cluster, 187).endpoints[&check_key(1)].share, 0);
    assert_eq!(nodes.decide(&mut cluster, 190), []);
    assert_eq!(made(&cluster), [(1, true, true); 2]);
}

#[test]
fn weights_are_scaled_directly_if_a_factor_would_overflow_and_drains_stay_drains() {
    let mut cluster = cluster(1, json!({ "slowStartSeconds": 90 }));
    let endpoints = json!([
        { "address": "10.1.0.1", "weight": 3 }, { "address": "10.1.0.2", "weight": 65535 },
        { "address": "10.1.0.3", "weight": 0 }, { "address": "10.1.0.4", "drain": true },
    ]);
    let set = json!({ "service": "web", "endpoints": endpoints });
    cluster.apply(&of_kind("EndpointSet", "web-1", json!({}), set)).unwrap();
    record_shares(&mut cluster, &[(1, 10), (3, 10), (4, 50)]);
    let weights: Vec<u16> = made(&cluster).into_iter().map(|(weight, ..)| weight).collect();
    assert_eq!(weights, [1, 65535, 0, 0]);
}

/// F148: if the share of healthy endpoints is at least the panic threshold, only healthy endpoints are used;
/// if the share is lower, all endpoints are used.
#[test]
fn f148_the_panic_threshold_uses_all_endpoints_when_too_few_are_healthy() {
    let mut cluster = cluster(4, json!({ "panicThreshold": 50 }));
    let ready = |cluster: &Cluster| made(cluster).iter().filter(|(_, ready, _)| *ready).count();
    record_shares(&mut cluster, &[(1, 0), (2, 0)]);
    assert_eq!(ready(&cluster), 2, "half of them");
    record_shares(&mut cluster, &[(1, 0), (2, 0), (3, 0), (4, 50)]);
    assert_eq!(made(&cluster), [(1, true, true); 4], "a quarter: whole weights, too");
    let nodes = Nodes::new();
    let is_reporting = |_: &Name| true;
    let inputs = HealthInputs {
        book: &nodes.book,
        checkers: &nodes.checkers,
        is_reporting: &is_reporting,
        dead: &nodes.dead,
        now: at(0),
    };
    let health = service_health(&cluster.snapshot, &compiled(&cluster), &inputs, &Guard::new(33));
    assert_eq!(health.panic_ports, ["80/TCP"]);
    // Endpoints that are not ready for other reasons do not count for the share.
    let endpoint = |host: u8| {
        let ready = host > 2;
        json!({ "address": format!("10.1.0.{host}"), "conditions": { "ready": ready } })
    };
    let set = json!({ "service": "web", "endpoints": (1..=4).map(endpoint).collect::<Vec<_>>() });
    cluster.apply(&of_kind("EndpointSet", "web-1", json!({}), set)).unwrap();
    record_shares(&mut cluster, &[(3, 0)]);
    assert_eq!(ready(&cluster), 1, "half of the two that count");
    let health = service_health(&cluster.snapshot, &compiled(&cluster), &inputs, &Guard::new(33));
    assert_eq!(health.panic_ports, [""; 0]);
}

#[test]
fn a_record_is_deleted_with_its_service_check_or_last_endpoint_in_the_same_commit() {
    let mut cluster = cluster(2, json!({}));
    let has_record = |cluster: &Cluster| cluster.snapshot.get(&record_key(&key("web"))).is_some();
    let web = cluster.get("services/default/web").clone();
    let changes: [(&str, Option<Value>); 3] = [
        ("gone", None),
        ("unchecked", Some(json!({ "ports": [{ "port": 80 }] }))),
        (
            "disabled",
            Some(json!({ "ports": [{ "port": 80 }], "disabled": true, "healthCheck": { "type": "Tcp" } })),
        ),
    ];
    for (what, spec) in changes {
        record_shares(&mut cluster, &[(1, 0)]);
        assert!(has_record(&cluster), "{what}");
        let before = cluster.snapshot.clone();
        let operation = match spec {
            None => Operation::Delete { key: key("web").object_key(), if_revision: None },
            Some(spec) => Operation::Apply(support::object(&service("web", spec))),
        };
        let admitted = cluster.write(&Request { operations: vec![operation], ..Request::default() }).unwrap();
        let kinds: Vec<_> =
            admitted.changes.iter().map(|change| (change.object.spec.kind(), change.kind)).collect();
        assert!(kinds.contains(&(Kind::EndpointHealth, ChangeKind::Deleted)), "{what}: {kinds:?}");
        assert_eq!(admitted.outcomes.len(), 1, "{what}");
        assert!(!has_record(&cluster), "{what}");
        let of_record = admitted.changes.iter().find(|one| one.object.spec.kind() == Kind::EndpointHealth);
        assert_eq!(affected(&before, &cluster.snapshot, of_record.unwrap()), [key("web")].into());
        // Records without a Service are without effect.
        record_shares(&mut cluster, &[(1, 0)]);
        assert!(!has_record(&cluster), "{what}");
        let back = Operation::Apply({
            let mut web = web.clone();
            web.metadata.uid = None;
            web.metadata.resource_version = None;
            web
        });
        cluster.write(&Request { operations: vec![back], ..Request::default() }).unwrap();
    }
    record_shares(&mut cluster, &[(1, 0)]);
    let revision = cluster.snapshot.revision();
    record_shares(&mut cluster, &[(1, 0)]);
    assert_eq!(cluster.snapshot.revision(), revision, "the same again is no change");
    record_shares(&mut cluster, &[]);
    assert!(!has_record(&cluster));
    let mut nodes = Nodes::new();
    nodes.silent = ["b", "c"].map(name).into();
    nodes.say("a", &[(1, Unhealthy)]);
    assert_eq!(nodes.decide(&mut cluster, 0), [(1, 0)]);
    let set = json!({ "service": "web", "endpoints": [{ "address": "10.1.0.2" }] });
    cluster.apply(&of_kind("EndpointSet", "web-1", json!({}), set)).unwrap();
    assert_eq!(nodes.decide(&mut cluster, 1), [], "an endpoint that is no more is no longer on record");
}

#[test]
fn only_the_server_writes_records() {
    let value =
        json!({ "kind": "EndpointHealth", "metadata": { "name": "web" }, "spec": { "endpoints": {} } });
    let found =
        model::admission::decode::decode(&value, &model::admission::decode::Expect::default()).unwrap_err();
    assert_eq!(found[0].pointer, "/kind");
    let spec: EndpointHealthSpec = serde_json::from_value(json!({ "endpoints": {
        "[2001:db8::1]:80": { "share": 0, "since": "2026-11-21T09:00:00Z", "message": "refused" },
    } }))
    .unwrap();
    assert_eq!(spec.endpoints.keys().next().unwrap().to_string(), "[2001:db8::1]:80");
    for bad in ["", "10.1.0.1", "10.1.0.1:0", "host:80"] {
        assert!(CheckKey::try_from(bad.to_owned()).is_err(), "{bad}");
    }
}

#[test]
fn nodes_that_are_not_lost_run_checks() {
    let mut cluster = cluster(1, json!({}));
    for node in ["a", "b"] {
        cluster.apply(&of_kind("Node", node, json!({}), json!({}))).unwrap();
    }
    let lose = Operation::SetNodeLost { node: name("a"), since: Some(at(0)) };
    cluster.write(&Request { operations: vec![lose], ..Request::default() }).unwrap();
    assert_eq!(network(&cluster.snapshot).checkers, [name("b")].into());
}

#[test]
fn a_book_replaces_parts_forgets_nodes_and_returns_only_differences() {
    let mut nodes = Nodes::new();
    assert_eq!(nodes.say("a", &[(1, Healthy), (2, Healthy)]), 1);
    assert_eq!(nodes.say("a", &[(1, Healthy), (2, Healthy)]), 0, "the same");
    assert_eq!(nodes.say("b", &[(1, Unhealthy)]), 1);
    assert_eq!(nodes.book.results(), 3);
    assert_eq!(nodes.say("a", &[(1, Healthy)]), 1);
    assert!(nodes.book.result(&key("web"), &check_key(2), &name("a")).is_none());
    let complete = HealthUpdate { services: BTreeMap::new(), is_complete: true };
    assert_eq!(nodes.book.apply(&name("a"), complete.clone()), [key("web")].into());
    assert_eq!(nodes.book.apply(&name("a"), complete), [].into());
    assert_eq!(nodes.book.services_of(&name("b")).count(), 1);
    nodes.book.forget(|_| false, |_| true);
    assert_eq!((nodes.book.results(), nodes.book.services_of(&name("b")).count()), (0, 0));
}
