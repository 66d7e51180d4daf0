//! Endpoints on lost Nodes: the silence of an agent takes no endpoint out of service; other nodes check the
//! endpoints, and the last usable ones of a port stay.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    admission::admit::{Operation, Request},
    cluster::compiled::CompiledService,
    compile::compile,
    kinds::{condition_reason::ConditionReason, endpoint_health::CheckKey, resource::Kind},
    observed::{
        health::{Guard, HealthBook, HealthInputs, HealthUpdate, checks, dead_nodes, judge, unchecked},
        rollup::{NodeViews, ServiceObservations, service_health, service_status, workload_status},
        status::{Condition, ConditionType},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Port, Timestamp},
    },
    wire::report::{CheckReport, CheckState},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use CheckState::{Healthy, Unhealthy};

use crate::support::{Cluster, key, of_kind, service};

const NODES: [&str; 3] = ["a", "b", "c"];

fn at(secs: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_771_000_000 + secs)
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn check_key(host: u8, port: u16) -> CheckKey {
    CheckKey { address: [10, 1, 0, host].into(), port: Port::new(port).unwrap() }
}

/// Cluster of the Nodes `a`, `b` and `c` with the check results that their agents report.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    book: HealthBook,
}

impl Scene {
    /// Creates the Nodes, a Service `web` with the fields of `spec`, and Workloads `w1`, `w2` and so on, each at
    /// address `10.1.0.N` on the given Node.
    pub(crate) fn new(spec: Value, nodes: &[&str]) -> Self {
        let mut scene = Self { cluster: Cluster::new(), book: HealthBook::default() };
        for node in NODES {
            scene.cluster.apply(&of_kind("Node", node, json!({}), json!({}))).unwrap();
        }
        scene.service("web", spec);
        for (number, node) in (1..).zip(nodes) {
            let spec = json!({ "addresses": [format!("10.1.0.{number}")], "node": node });
            let workload = of_kind("Workload", &format!("w{number}"), json!({ "app": "web" }), spec);
            scene.cluster.apply(&workload).unwrap();
        }
        scene
    }

    pub(crate) fn service(&mut self, name: &str, mut spec: Value) {
        spec["selector"] = json!({ "app": "web" });
        self.cluster.apply(&service(name, spec)).unwrap();
    }

    fn lose(&mut self, node: &str, since: Option<i64>) {
        let operation = Operation::SetNodeLost { node: name(node), since: since.map(at) };
        self.cluster.write(&Request { operations: vec![operation], ..Request::default() }).unwrap();
    }

    /// Applies check results of a node for a Service, each with the message of the check.
    pub(crate) fn say(&mut self, node: &str, service: &str, results: &[(CheckKey, CheckState, &str)]) {
        let report = |(key, state, message): &(CheckKey, CheckState, &str)| CheckReport {
            address: key.address,
            port: key.port,
            state: *state,
            since: at(0),
            message: (*message).to_owned(),
        };
        let services = BTreeMap::from([(key(service), results.iter().map(report).collect())]);
        self.book.apply(&name(node), HealthUpdate { services, is_complete: false });
    }

    pub(crate) fn compiled(&self, service: &str) -> CompiledService {
        compile(&self.cluster.snapshot, &key(service)).unwrap()
    }

    pub(crate) fn with_inputs<T>(
        &self,
        dead: &BTreeSet<Name>,
        look: impl FnOnce(&HealthInputs<'_>) -> T,
    ) -> T {
        let lost = |node: &Name| self.cluster.snapshot.is_lost(node);
        let checkers = NODES.map(name).into_iter().filter(|node| !lost(node)).collect();
        let is_reporting = |node: &Name| !lost(node);
        look(&HealthInputs {
            book: &self.book,
            checkers: &checkers,
            is_reporting: &is_reporting,
            dead,
            now: at(100),
        })
    }

    fn dead(&self, services: &[&str]) -> BTreeSet<Name> {
        let forms: Vec<_> = services.iter().map(|service| self.compiled(service)).collect();
        self.with_inputs(&BTreeSet::new(), |inputs| dead_nodes(inputs, forms.iter()))
    }

    /// Decides the health of the endpoints of the Services and writes the health records. Returns the number of
    /// removals that the health guard would have to permit.
    pub(crate) fn decide(&mut self, services: &[&str]) -> usize {
        let dead = self.dead(services);
        let mut guarded = 0;
        for service in services {
            let record = self.cluster.snapshot.endpoint_health(&key(service)).cloned();
            let form = self.compiled(service);
            let decision = self.with_inputs(&dead, |inputs| judge(inputs, &form, record.as_ref()));
            guarded += decision.leaving.len();
            let endpoints = decision.endpoints;
            let operations = vec![Operation::SetEndpointHealth { service: key(service), endpoints }];
            self.cluster.write(&Request { operations, ..Request::default() }).unwrap();
        }
        guarded
    }

    /// Returns the last octets of the addresses that accept new connections at port `index` of a Service.
    pub(crate) fn ready(&self, service: &str, index: usize) -> Vec<u8> {
        let endpoints = self.compiled(service).ports.remove(index).endpoints;
        let ready = endpoints.into_iter().filter(|one| one.ready);
        ready.map(|one| one.address.to_string().rsplit_once('.').unwrap().1.parse().unwrap()).collect()
    }

    fn has_record(&self, service: &str) -> bool {
        self.cluster.snapshot.endpoint_health(&key(service)).is_some()
    }

    /// Returns the condition `EndpointsAvailable` of a Service.
    pub(crate) fn available(&self, service: &str) -> Condition {
        let form = self.compiled(service);
        let snapshot = &self.cluster.snapshot;
        let health = self
            .with_inputs(&BTreeSet::new(), |inputs| service_health(snapshot, &form, inputs, &Guard::new(33)));
        let spec = snapshot.service(&key(service)).unwrap().as_service().unwrap();
        let observed =
            ServiceObservations { announced_on_record: None, health: Some(health), resolvable: None };
        let nodes = NodeViews::new(Vec::new());
        let status = service_status(snapshot, &key(service), spec, Some(&form), Epoch(1), &nodes, observed);
        let mut found = status.conditions.into_iter();
        found.rfind(|one| one.condition_type == ConditionType::EndpointsAvailable).unwrap()
    }

    /// Returns the condition `Used` of a Workload.
    fn used(&self, workload: &str) -> Condition {
        let snapshot = &self.cluster.snapshot;
        let object = snapshot
            .list(Kind::Workload, None, None)
            .find(|object| object.metadata.name.as_str() == workload)
            .unwrap();
        let namespace = object.metadata.namespace.as_ref().unwrap();
        let status = workload_status(snapshot, namespace, &object.metadata, object.as_workload().unwrap());
        status.conditions.into_iter().find(|one| one.condition_type == ConditionType::Used).unwrap()
    }
}

fn tcp() -> Value {
    json!({ "ports": [{ "port": 80, "targetPort": 8080 }] })
}

fn own_keys(service: &CompiledService) -> Vec<CheckKey> {
    checks(service).into_keys().collect()
}

/// The endpoints of a lost Node stay in service, and other nodes check exactly these by TCP connections. Those that
/// answer stay. The others leave, without the health guard, and return when the Node is no longer lost.
#[test]
fn f168_endpoints_of_a_silent_node_leave_only_if_other_nodes_find_them_unhealthy() {
    let mut scene = Scene::new(tcp(), &["a", "b", "b"]);
    assert_eq!(own_keys(&scene.compiled("web")), [], "without a health check and a lost Node");
    scene.lose("b", Some(0));
    assert_eq!(scene.ready("web", 0), [1, 2, 3], "silence alone");
    let [second, third] = [2, 3].map(|host| check_key(host, 8080));
    assert_eq!(own_keys(&scene.compiled("web")), [second, third]);
    assert_eq!(scene.decide(&["web"]), 0);
    assert_eq!(scene.ready("web", 0), [1, 2, 3], "no results yet");
    assert!(scene.available("web").message.contains("10.1.0.2:8080 is not checked yet"));

    for node in ["a", "c"] {
        scene.say(node, "web", &[(second, Healthy, "ok"), (third, Unhealthy, "no answer")]);
    }
    assert_eq!(scene.decide(&["web"]), 0, "the lease limits the number of lost Nodes");
    assert_eq!(scene.ready("web", 0), [1, 2]);
    let used = scene.used("w2");
    assert_eq!(used.reason, ConditionReason::Selected);
    assert!(used.message.contains("its Node b is silent, and it stays in service"), "{used:?}");
    let used = scene.used("w3");
    assert_eq!(used.reason, ConditionReason::NodeLost);
    assert!(used.message.ends_with("no answer"), "{used:?}");
    let available = scene.available("web");
    assert_eq!(available.reason, ConditionReason::EndpointsReady);
    assert!(available.message.contains("1 of 2 checked endpoints are out of service"), "{available:?}");

    for node in ["a", "c"] {
        scene.say(node, "web", &[(second, Healthy, "ok"), (third, Healthy, "ok")]);
    }
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [1, 2, 3], "what answers again returns");
    let message = scene.available("web").message;
    assert!(message.contains("(b) stay in service: 10.1.0.2:8080 answers to a, c; 10.1.0.3"), "{message}");
}

/// The endpoints of a Node that reports again are in service at once, and the record of the suspicion is deleted.
#[test]
fn f168_a_node_that_reports_again_has_its_endpoints_back_at_once() {
    let mut scene = Scene::new(tcp(), &["a", "b"]);
    scene.lose("b", Some(0));
    for node in ["a", "c"] {
        scene.say(node, "web", &[(check_key(2, 8080), Unhealthy, "no answer")]);
    }
    scene.decide(&["web"]);
    assert_eq!((scene.ready("web", 0), scene.has_record("web")), (vec![1], true));
    scene.lose("b", None);
    assert_eq!(scene.ready("web", 0), [1, 2]);
    scene.decide(&["web"]);
    assert!(!scene.has_record("web"));
    scene.lose("b", Some(200));
    assert_eq!(scene.ready("web", 0), [1, 2], "an old result does not count");
}

/// The last usable endpoints of a port stay in service, although other nodes cannot reach them.
#[test]
fn f168_the_last_usable_endpoints_are_never_removed_on_suspicion() {
    let mut scene = Scene::new(tcp(), &["b", "b", "a"]);
    scene.lose("b", Some(0));
    let all_fail = [1, 2].map(|host| (check_key(host, 8080), Unhealthy, "no answer"));
    for node in ["a", "c"] {
        scene.say(node, "web", &all_fail);
    }
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [3]);
    let not_ready = json!({ "addresses": ["10.1.0.3"], "node": "a", "ready": false });
    let workload = of_kind("Workload", "w3", json!({ "app": "web" }), not_ready);
    scene.cluster.apply(&workload).unwrap();
    assert_eq!(scene.ready("web", 0), [1, 2], "no other endpoint is usable");
    let available = scene.available("web");
    assert_eq!(available.reason, ConditionReason::LastEndpointsKept, "{available:?}");
    assert!(available.message.starts_with("2 endpoints are used although"), "{available:?}");
}

/// With a health check, other nodes run it. A verdict of the own Node before its silence is no suspicion: such an
/// endpoint is out of service even as the last one.
#[test]
fn f168_a_verdict_of_the_own_node_holds_and_its_silence_is_checked_by_the_health_check() {
    let check = json!({ "type": "Http", "port": 9000, "http": { "path": "/live" } });
    let spec = json!({ "ports": [{ "port": 80, "targetPort": 8080 }], "healthCheck": check });
    let mut scene = Scene::new(spec, &["b", "b"]);
    let [first, second] = [1, 2].map(|host| check_key(host, 9000));
    scene.say("b", "web", &[(first, Unhealthy, "answered 500"), (second, Healthy, "ok")]);
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [2]);
    scene.lose("b", Some(0));
    assert_eq!(own_keys(&scene.compiled("web")), [first, second]);
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [2], "no results of others yet");
    for node in ["a", "c"] {
        let both = [first, second].map(|key| (key, Unhealthy, "no answer"));
        scene.say(node, "web", &both);
    }
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [2], "the last one, which only others find unhealthy");
    for node in ["a", "c"] {
        scene.say(node, "web", &[(first, Healthy, "ok"), (second, Unhealthy, "no answer")]);
    }
    scene.decide(&["web"]);
    assert_eq!(scene.ready("web", 0), [1]);
}

/// Endpoints that no node can check leave only if the data path of their Node is dead: other nodes check endpoints
/// of the Node, and all are unreachable. A refused connection is an answer.
#[test]
fn f168_endpoints_that_nobody_can_check_leave_with_a_dead_node_only() {
    let ports = json!({ "ports": [{ "port": 53, "protocol": "UDP" }] });
    let mut scene = Scene::new(ports, &["a", "b"]);
    let range = json!({ "ports": [{ "port": 7000, "endPort": 7010 }] });
    scene.service("range", range);
    scene.service("tcp", tcp());
    let all = ["web", "range", "tcp"];
    scene.lose("b", Some(0));
    assert_eq!(own_keys(&scene.compiled("web")), [], "UDP");
    assert_eq!(unchecked(&scene.compiled("web")), [(check_key(2, 53), name("b"))].into());
    assert_eq!(own_keys(&scene.compiled("range")), [], "a range need not listen everywhere");
    let say = |scene: &mut Scene, state, message| {
        for node in ["a", "c"] {
            scene.say(node, "tcp", &[(check_key(2, 8080), state, message)]);
        }
        scene.decide(&all);
        (scene.ready("web", 0), scene.ready("range", 0), scene.ready("tcp", 0))
    };
    scene.decide(&all);
    assert_eq!(scene.ready("web", 0), [1, 2], "nothing is known");
    assert!(scene.available("web").message.contains("10.1.0.2:53 cannot be checked"));
    let [both, first] = [vec![1, 2], vec![1]];
    assert_eq!(say(&mut scene, Healthy, "ok"), (both.clone(), both.clone(), both.clone()));
    assert_eq!(
        say(&mut scene, Unhealthy, "connection refused"),
        (both.clone(), both.clone(), first.clone()),
        "the node refuses, so it lives"
    );
    assert_eq!(say(&mut scene, Unhealthy, "no answer"), (first.clone(), first.clone(), first));
    assert!(scene.available("web").message.contains("out of service"), "{:?}", scene.available("web"));
    assert_eq!(say(&mut scene, Healthy, "ok"), (both.clone(), both.clone(), both));
}

/// Endpoints of an EndpointSet have conditions of their own, and the silence of an agent has no effect on them.
#[test]
fn endpoints_of_a_set_are_not_suspected() {
    let mut scene = Scene::new(tcp(), &[]);
    let endpoints = json!([{ "address": "10.1.0.1", "node": "b" }]);
    let set = json!({ "service": "web", "endpoints": endpoints });
    scene.cluster.apply(&of_kind("EndpointSet", "web-1", json!({}), set)).unwrap();
    scene.lose("b", Some(0));
    let form = scene.compiled("web");
    assert_eq!((own_keys(&form), unchecked(&form).len()), (vec![], 0));
    assert_eq!(scene.ready("web", 0), [1]);
}

#[derive(Debug, Clone)]
enum Event {
    Lose(usize),
    Return(usize),
    Say(usize, u8, CheckState),
}

fn an_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0..NODES.len()).prop_map(Event::Lose),
        1 => (0..NODES.len()).prop_map(Event::Return),
        5 => (0..NODES.len(), 1..=4_u8, prop::sample::select(vec![Healthy, Unhealthy, CheckState::Pending]))
            .prop_map(|(node, host, state)| Event::Say(node, host, state)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// In any sequence of silences and check results, a Service without a health check keeps a usable endpoint;
    /// endpoints on Nodes that report are in service; and an endpoint out of service is one that a majority of the
    /// other nodes once found unhealthy.
    #[test]
    fn f168_silence_never_empties_a_service(
        homes in prop::collection::vec(0..NODES.len(), 1..=4),
        events in prop::collection::vec(an_event(), 1..24),
    ) {
        let nodes: Vec<_> = homes.iter().map(|home| NODES[*home]).collect();
        let mut scene = Scene::new(tcp(), &nodes);
        let mut results: BTreeMap<(usize, u8), CheckState> = BTreeMap::new();
        let mut blamed: BTreeSet<u8> = BTreeSet::new();
        for event in events {
            match event {
                Event::Lose(at) => scene.lose(NODES[at], Some(0)),
                Event::Return(at) => scene.lose(NODES[at], None),
                Event::Say(at, host, state) => {
                    results.insert((at, host), state);
                    if state == Unhealthy {
                        blamed.insert(host);
                    }
                    let own = results.iter().filter(|((node, _), _)| *node == at);
                    let own: Vec<_> =
                        own.map(|((_, host), state)| (check_key(*host, 8080), *state, "no answer")).collect();
                    scene.say(NODES[at], "web", &own);
                }
            }
            scene.decide(&["web"]);
            let ready = scene.ready("web", 0);
            prop_assert!(!ready.is_empty());
            for (host, node) in (1_u8..).zip(&nodes) {
                if !ready.contains(&host) {
                    prop_assert!(scene.cluster.snapshot.is_lost(&name(node)), "{host} on {node}");
                    prop_assert!(blamed.contains(&host), "{host} was never unhealthy");
                }
            }
        }
    }
}
