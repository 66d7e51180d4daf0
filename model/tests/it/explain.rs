//! Explanations of packets, addresses and Services: each test creates a fault at one step of the path, and
//! the explanation must name this step as the first broken one.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    admission::admit::{Operation, Request},
    bgp::book::BgpBook,
    cluster::{compiled::CompiledService, default_checks::DefaultChecks, quota::Quotas},
    compile::compile,
    kinds::{
        endpoint_health::{CheckKey, EndpointVerdict},
        resource::ServiceKey,
        service::Protocol,
    },
    observed::{
        announcements::{AnnouncementBook, AnnouncementUpdate},
        assign::ClusterView,
        rollup::{AnnouncementInputs, NodeView},
    },
    primitives::{
        name::Name,
        quantity::{Epoch, Port, Timestamp},
    },
    program::NodeLocation,
    views::explain::{self, About, Explanation, GraphForm, Path, StepState, graph},
    wire::{
        report::{PROBING, Report},
        trace::{End, Packet, PacketTrace, TraceStep, VisibleSource, words},
    },
};
use serde_json::{Value, json};

use crate::support::{Cluster, key, of_kind, service};

const CLIENT: &str = "198.51.100.7";

/// Nodes `a` and `b` with workloads, and Service `web` at 10.96.0.10 with one endpoint on each.
struct World {
    cluster: Cluster,
    reports: Vec<(Name, Report)>,
}

impl World {
    fn new(spec: &Value) -> Self {
        let mut cluster = Cluster::new();
        for (at, node) in ["a", "b"].into_iter().enumerate() {
            let workloads = format!("10.{}.0.0/16", at + 1);
            let spec =
                json!({ "addresses": [format!("192.0.2.{}", 200 + at)], "workloadCIDRs": [workloads] });
            cluster.apply(&of_kind("Node", node, json!({}), spec)).unwrap();
        }
        let mut all = json!({ "clusterIP": "10.96.0.10", "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        cluster.apply(&service("web", all)).unwrap();
        let mut world = Self { cluster, reports: Vec::new() };
        world.endpoints(&json!([
            { "address": "10.1.0.2", "node": "a" },
            { "address": "10.2.0.2", "node": "b" },
        ]));
        world.reports = ["a", "b"].map(|node| (name(node), report(json!({})))).into();
        world
    }

    fn endpoints(&mut self, endpoints: &Value) {
        let spec =
            json!({ "service": "web", "ports": [{ "name": "http", "port": 8080 }], "endpoints": endpoints });
        self.cluster.apply(&of_kind("EndpointSet", "web", json!({}), spec)).unwrap();
    }

    fn ask<T>(&self, look: impl FnOnce(&AnnouncementInputs<'_>) -> T) -> T {
        let views: Vec<_> = self
            .reports
            .iter()
            .map(|(name, report)| NodeView {
                name,
                is_connected: true,
                has_left: false,
                is_contested: false,
                is_lost: false,
                last_report: Some(Timestamp::from_unix_seconds(0)),
                report: Some(report),
            })
            .collect();
        let compiled = |key: &ServiceKey| compile(&self.cluster.snapshot, key).map(Arc::new);
        let scene = ClusterView {
            snapshot: &self.cluster.snapshot,
            epoch: Epoch(1),
            nodes: &views,
            compiled: &compiled,
        };
        look(&AnnouncementInputs { scene, book: &AnnouncementBook::default(), bgp: &BgpBook::default() })
    }

    fn packet(&self, source: &str, destination: &str, port: u16) -> Explanation {
        let packet = Packet {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: Protocol::Tcp,
            port: Port::new(port).unwrap(),
        };
        self.ask(|of| explain::packet(of, &packet, Some(&name("a"))))
    }

    fn address(&self, address: &str) -> Explanation {
        self.ask(|of| explain::address(of, address.parse().unwrap(), None))
    }

    fn compiled(&self) -> CompiledService {
        compile(&self.cluster.snapshot, &key("web")).unwrap()
    }
}

/// F166: an address that its node probes before it announces it is no fault. Any other reason is one.
#[test]
fn f166_an_address_that_is_being_probed_is_pending() {
    let mut world = World::new(&json!({}));
    let pool = of_kind("AddressPool", "lan", json!({}), json!({ "addresses": ["192.0.2.0/28"] }));
    world.cluster.apply(&pool).unwrap();
    world.cluster.apply(&of_kind("Advertisement", "all", json!({}), json!({}))).unwrap();
    let spec = json!({ "type": "LoadBalancer", "clusterIP": "10.96.0.10",
        "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] });
    world.cluster.apply(&service("web", spec)).unwrap();
    let address = *world.cluster.snapshot.addresses_of(&key("web")).collect::<Vec<_>>().first().unwrap();
    let candidate = json!({ "node": "a", "address": "192.0.2.200", "interfaces": ["eth0"] });
    let announcement = serde_json::from_value(json!({ "epoch": 1, "candidates": [candidate] })).unwrap();
    let operation = Operation::SetAnnouncer { address, if_epoch: 0, announcement };
    world.cluster.write(&Request { operations: vec![operation], ..Request::default() }).unwrap();
    for (reason, state) in [(PROBING, StepState::Pending), ("no link on eth0", StepState::Broken)] {
        let said = json!({ "role": "Held", "epoch": 1, "since": "2026-11-21T09:00:00Z", "reason": reason });
        let parts = [(address, serde_json::from_value(said).unwrap())].into();
        let mut book = AnnouncementBook::default();
        let update = AnnouncementUpdate { parts, ..AnnouncementUpdate::default() };
        book.apply(&name("a"), update, Timestamp::from_unix_seconds(0));
        let explanations = world.ask(|of| {
            let of = AnnouncementInputs { book: &book, ..*of };
            [explain::address(&of, address, None), explain::service(&of, &key("web"), None).unwrap()]
        });
        for explained in explanations {
            let step = explained.steps.iter().find(|step| step.about == About::Announced).unwrap();
            assert_eq!(step.state, state, "{step:?}");
            assert!(
                step.outcome.contains(reason) && step.hint.is_some() == (state == StepState::Broken),
                "{step:?}"
            );
        }
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn report(failures: Value) -> Report {
    serde_json::from_value(json!({
        "bootId": "a", "agentVersion": "0", "mode": "nftables", "failures": failures,
        "received": "1-99", "applied": "1-99", "verified": "1-99",
    }))
    .unwrap()
}

/// Returns the part of the path that the first broken step examines and the outcome of the step, or `None` if
/// no step is broken.
fn broken(explanation: &Explanation) -> Option<(About, &str)> {
    assert!(!explanation.summary.is_empty());
    explanation.broken.as_ref().map(|broken| (broken.step.about, broken.step.outcome.as_str()))
}

fn only(explanation: &Explanation) -> &Path {
    assert_eq!(explanation.paths.len(), 1, "{explanation:#?}");
    &explanation.paths[0]
}

#[test]
fn f166_a_packet_is_followed_from_its_destination_to_its_endpoints_and_back() {
    let world = World::new(&json!({}));
    let explanation = world.packet("10.1.0.9", "10.96.0.10", 80);
    assert_eq!(broken(&explanation), None, "{explanation:#?}");
    let path = only(&explanation);
    assert_eq!(path.fate, "goes to 10.1.0.2:8080 or 10.2.0.2:8080, seen as the client");
    let steps: Vec<_> = path.steps.iter().map(|step| step.about).collect();
    use About::{Affinity, Candidates, Frontend, Policy, Programmed, ReturnPath, Translation};
    assert_eq!(
        steps,
        [About::Node, Programmed, Frontend, Policy, Affinity, Candidates, Translation, ReturnPath]
    );
    assert!(path.candidates.iter().all(|one| one.used) && path.candidates.len() == 2);
    // A client from outside the workload networks is masqueraded.
    let path = world.packet(CLIENT, "10.96.0.10", 80);
    assert!(only(&path).fate.ends_with("seen as the node"), "{path:#?}");
}

#[test]
fn f166_the_obstacle_of_a_packet_is_named() {
    let lost = json!({ "default/web": { "revision": 99, "reason": "KernelRefused", "message": "no room" } });
    let ready = |value| json!([{ "address": "10.1.0.2", "node": "a", "conditions": { "ready": value } }]);
    let world = World::new(&json!({}));
    let explanation = world.packet(CLIENT, "10.96.0.10", 81);
    assert_eq!(broken(&explanation).unwrap().0, About::Frontend, "{explanation:#?}");
    assert!(explanation.summary.contains("no port 81/TCP") && explanation.summary.contains("80/TCP"));
    let mut world = World::new(&json!({}));
    world.endpoints(&ready(false));
    let explanation = world.packet(CLIENT, "10.96.0.10", 80);
    assert_eq!(broken(&explanation).unwrap().0, About::Candidates, "{explanation:#?}");
    assert_eq!(only(&explanation).candidates[0].why, "it is not ready");
    let mut world = World::new(&json!({ "internalTrafficPolicy": "Local" }));
    world.endpoints(&json!([{ "address": "10.2.0.2", "node": "b" }]));
    let explanation = world.packet(CLIENT, "10.96.0.10", 80);
    assert_eq!(broken(&explanation).unwrap().0, About::Candidates, "{explanation:#?}");
    assert_eq!(only(&explanation).fate, "is dropped without an answer");
    assert!(only(&explanation).candidates[0].why.contains("on b"), "{explanation:#?}");
    let mut world = World::new(&json!({}));
    world.reports[0].1 = report(lost);
    let explanation = world.packet(CLIENT, "10.96.0.10", 80);
    assert_eq!(broken(&explanation).unwrap().0, About::Programmed, "{explanation:#?}");
    assert!(explanation.summary.contains("no room"), "{}", explanation.summary);
    let nobody = world.ask(|of| {
        let packet = only(&explanation).packet;
        explain::packet(of, &packet, Some(&name("nobody")))
    });
    assert_eq!(broken(&nobody), Some((About::Node, "there is no Node nobody")));
}

#[test]
fn f166_source_ranges_allow_and_refuse() {
    let spec = json!({ "type": "NodePort", "loadBalancerSourceRanges": ["198.51.100.0/28"] });
    let mut all = spec;
    all["ports"] = json!([{ "name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080 }]);
    let world = World::new(&all);
    assert_eq!(broken(&world.packet(CLIENT, "192.0.2.200", 30080)), None);
    let denied = world.packet("198.51.100.77", "192.0.2.200", 30080);
    let (about, outcome) = broken(&denied).unwrap();
    assert_eq!((about, outcome), (About::SourceRanges, "198.51.100.77 may not connect: it is dropped"));
    assert!(only(&denied).candidates.is_empty(), "nothing is chosen for who may not connect");
}

/// Endpoints that are used although none of them answers its health check are the broken step; one of two is not.
#[test]
fn endpoints_of_which_none_answers_are_the_broken_step() {
    let mut world = World::new(&json!({}));
    let checks = DefaultChecks::new(true, Quotas::default());
    world.cluster.snapshot = world.cluster.snapshot.clone().with_default_checks(checks);
    let verdict = |address: &str| {
        let key = CheckKey::try_from(address.to_owned()).unwrap();
        let since = Timestamp::from_unix_seconds(0);
        let message = "connection refused".to_owned();
        (key, EndpointVerdict { share: 0, since, message, checkers: BTreeSet::new() })
    };
    let mut record = |addresses: &[&str]| {
        let endpoints = addresses.iter().map(|address| verdict(address)).collect();
        let operations = vec![Operation::SetEndpointHealth { service: key("web"), endpoints }];
        world.cluster.write(&Request { operations, ..Request::default() }).unwrap();
        world.packet(CLIENT, "10.96.0.10", 80)
    };
    assert_eq!(broken(&record(&["10.1.0.2:8080"])), None);
    let explanation = record(&["10.1.0.2:8080", "10.2.0.2:8080"]);
    let (about, outcome) = broken(&explanation).unwrap();
    assert_eq!(about, About::Candidates);
    assert_eq!(
        outcome,
        "no endpoint answers its health check: 10.1.0.2:8080 (connection refused), 10.2.0.2:8080 (connection refused)"
    );
}

/// A connection from outside that survives the loss of the announcing node is forwarded to the node of its endpoint,
/// which translates it. Without a network in common, it is masqueraded, and the reason is a part of the explanation.
#[test]
fn a_connection_that_survives_the_announcing_node_is_explained_in_two_stages() {
    let mut world = World::new(&json!({ "type": "LoadBalancer", "connections": { "survive": "Always" } }));
    let pool = json!({ "addresses": ["192.0.2.100-192.0.2.110"] });
    world.cluster.apply(&of_kind("AddressPool", "lan", json!({}), pool)).unwrap();
    let address = world.compiled().load_balancer_ips[0].to_string();
    let steps = |world: &World| {
        let explanation = world.packet(CLIENT, &address, 80);
        let path = only(&explanation);
        let step = |about| path.steps.iter().find(|step| step.about == about).unwrap().clone();
        (path.fate.clone(), step(About::Programmed), step(About::Translation), step(About::ReturnPath))
    };

    let mut facts = report(json!({}));
    facts.facts.subnets = [("eth0".to_owned(), vec!["192.0.2.0/24".parse().unwrap()])].into();
    world.reports[0].1 = facts;
    let (fate, _, translation, back) = steps(&world);
    assert_eq!(fate, "goes to 10.1.0.2:8080 or 10.2.0.2:8080, seen as the client");
    assert!(translation.why.contains("unchanged to 192.0.2.201"), "{}", translation.why);
    assert!(back.outcome.contains("to the client directly"), "{}", back.outcome);

    let message = "established connections end with the node that announces the address";
    let failure = json!({ "revision": 99, "reason": "SurvivalUnavailable", "message": message });
    world.reports[0].1 = report(json!({ "default/web": failure }));
    let (fate, programmed, translation, _) = steps(&world);
    assert_eq!(fate, "goes to 10.1.0.2:8080 or 10.2.0.2:8080, seen as the node");
    assert!(programmed.state == StepState::Fine && programmed.why.contains(message), "{programmed:?}");
    assert!(translation.outcome.contains("its source are translated"), "{}", translation.outcome);
}

/// With scope LoadBalancerOnly, source ranges do not restrict node ports, and the explanation states the reason.
#[test]
fn f166_source_ranges_of_scope_load_balancer_only_leave_node_ports_open() {
    let world = World::new(&json!({
        "type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/28"],
        "sourceRangesScope": "LoadBalancerOnly",
        "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    }));
    let packet = world.packet("198.51.100.77", "192.0.2.200", 30080);
    assert_eq!(broken(&packet), None);
    let step = only(&packet).steps.iter().find(|step| step.about == About::SourceRanges).unwrap();
    assert_eq!(step.outcome, "every source may connect");
    assert!(step.why.contains("LoadBalancerOnly"), "{}", step.why);
}

/// A workload of another node that uses this node's node port is external: an endpoint on a third node would reply
/// to it directly.
#[test]
fn f048_f166_policy_local_gives_workloads_of_other_nodes_the_endpoints_of_the_node_only() {
    let world = World::new(&json!({
        "type": "NodePort",
        "externalTrafficPolicy": "Local",
        "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    }));
    let other = world.packet("10.2.0.9", "192.0.2.200", 30080);
    assert_eq!(only(&other).fate, "goes to 10.1.0.2:8080, seen as the client");
    let unused: Vec<_> = only(&other).candidates.iter().filter(|one| !one.used).collect();
    assert_eq!(unused.len(), 1, "{unused:?}");
    assert_eq!(unused[0].why, "it is on b, and the traffic policy is Local");
    let own = world.packet("10.1.0.9", "192.0.2.200", 30080);
    assert_eq!(only(&own).fate, "goes to 10.1.0.2:8080 or 10.2.0.2:8080, seen as the client");
}

/// A packet to an address of the node does not pass the postrouting hook, so an endpoint in the network of the
/// node sees the client although the verdict is to masquerade.
#[test]
fn f166_an_endpoint_in_the_network_of_the_node_sees_the_client() {
    let mut world = World::new(&json!({
        "type": "NodePort",
        "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080 }],
    }));
    world.endpoints(&json!([
        { "address": "192.0.2.200", "node": "a" },
        { "address": "10.2.0.2", "node": "b" },
    ]));
    let outside = world.packet(CLIENT, "192.0.2.200", 30080);
    let fate = "goes to 192.0.2.200:8080, seen as the client; or goes to 10.2.0.2:8080, seen as the node";
    assert_eq!(only(&outside).fate, fate);
    let translation = |explanation: &Explanation| {
        let mut steps = only(explanation).steps.iter().filter(|step| step.about == About::Translation);
        steps.next().map(|step| step.outcome.clone()).unwrap()
    };
    assert!(translation(&outside).ends_with("the endpoint sees the node, except at an address of a"));

    world.endpoints(&json!([{ "address": "192.0.2.200", "node": "a" }]));
    let outside = world.packet(CLIENT, "192.0.2.200", 30080);
    assert_eq!(only(&outside).fate, "goes to 192.0.2.200:8080, seen as the client");
    assert!(translation(&outside).ends_with("the endpoint sees the client"));
}

#[test]
fn f166_the_reason_for_an_unreachable_address_is_never_empty() {
    let mut world = World::new(&json!({}));
    for (address, about) in [("203.0.113.99", About::Destination), ("::1", About::Destination)] {
        assert_eq!(broken(&world.address(address)).unwrap().0, about, "{address}");
    }
    for address in ["10.96.0.10", "192.0.2.200", "10.1.0.77"] {
        assert_eq!(broken(&world.address(address)), None, "{address}");
    }
    let pool = of_kind("AddressPool", "lan", json!({}), json!({ "addresses": ["192.0.2.0/28"] }));
    world.cluster.apply(&pool).unwrap();
    let explanation = world.address("192.0.2.3");
    assert!(explanation.summary.contains("no Service has 192.0.2.3"), "{}", explanation.summary);
    let mut balancer = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    balancer["loadBalancer"] = json!({ "addresses": ["192.0.2.3"] });
    world.cluster.apply(&service("lb", balancer)).unwrap();
    let explanation = world.address("192.0.2.3");
    assert_eq!(broken(&explanation).unwrap().0, About::Announced, "nothing announces it: {explanation:#?}");
    assert!(explanation.steps.iter().all(|step| step.state == StepState::Fine || !step.outcome.is_empty()));
}

#[test]
fn f166_a_service_is_followed_on_every_node_and_the_kernels_difference_is_found() {
    let world = World::new(&json!({}));
    let mut explanation = world.ask(|of| explain::service(of, &key("web"), None)).unwrap();
    assert_eq!(broken(&explanation), None, "{explanation:#?}");
    let nodes: Vec<_> = explanation.paths.iter().map(|path| path.node.as_str()).collect();
    assert_eq!(nodes, ["a", "b"]);
    let ends = explanation.paths[0].ends.clone();
    let traced = |ends: &std::collections::BTreeSet<End>, steps: Vec<TraceStep>| PacketTrace {
        steps,
        fate: words(ends),
        ends: ends.clone(),
    };
    explanation.paths[0].compare(Ok(traced(&ends, Vec::new())));
    assert_eq!(explanation.paths[0].kernel.as_ref().unwrap().difference, None);
    let step = |place: &str, odd| TraceStep {
        place: place.to_owned(),
        rule: "x".to_owned(),
        result: "y".to_owned(),
        odd,
    };
    let less: std::collections::BTreeSet<_> = ends.iter().take(1).cloned().chain([End::Dropped]).collect();
    let steps = vec![step("map services", false), step("map endpoints", true), step("chain z", false)];
    explanation.paths[1].compare(Ok(traced(&less, steps)));
    let explanation = explanation.concluded();
    let difference = explanation.paths[1].kernel.as_ref().unwrap().difference.clone().unwrap();
    assert_eq!(difference.place, "map endpoints", "the first that is odd");
    assert_eq!(difference.kernel, "is dropped without an answer");
    assert!(matches!(ends.last().unwrap(), End::Reaches { sees: VisibleSource::Client, .. }));
    assert_eq!(difference.desired, words(&std::collections::BTreeSet::from([ends.last().unwrap().clone()])));
    assert_eq!(broken(&explanation).unwrap().0, About::Kernel);
    assert_eq!(explanation.broken.unwrap().node, Some(name("b")));
    assert_eq!(world.ask(|of| explain::service(of, &key("nothing"), None)), None);
}

#[test]
fn f167_the_graph_of_a_service_has_every_frontend_verdict_and_endpoint() {
    let world = World::new(&json!({ "internalTrafficPolicy": "Local" }));
    let place = NodeLocation { node: name("a"), zone: None };
    let dot = graph(&world.compiled(), &place, GraphForm::Dot).unwrap();
    let expected = "\
digraph \"default/web\" {
  rankdir=LR
  node [shape=box]
  n0 [label=\"cluster IP 10.96.0.10 80/tcp\"]
  n1 [label=\"one of 1 (source masqueraded if it is no workload): 10.1.0.2:8080\"]
  n2 [label=\"endpoint 10.1.0.2:8080\"]
  n3 [label=\"10.96.0.10: any other port\"]
  n4 [label=\"refused\"]
  n1 -> n2 [label=\"1 of 1\"]
  n0 -> n1
  n3 -> n4
}
";
    assert_eq!(dot, expected);
    let mermaid = graph(&world.compiled(), &place, GraphForm::Mermaid).unwrap();
    assert!(mermaid.starts_with("flowchart LR\n  n0[\"cluster IP 10.96.0.10 80/tcp\"]\n"), "{mermaid}");
    assert!(mermaid.contains("  n1 -->|\"1 of 1\"| n2\n") && mermaid.contains("  n3 --> n4\n"), "{mermaid}");
}
