//! Tests that cached and full computation of the Services' parts of the overview give the same result.

use model::{
    admission::{
        admit::{AdmittedWrite, Entropy, Operation, Request, admit},
        decode::{Expect, decode},
    },
    cluster::{change::Commit, config::ClusterConfig},
    kinds::resource::ObjectKey,
    primitives::quantity::{Epoch, Position, Revision, Timestamp},
    wire::feed::NetworkState,
};
use serde_json::{Value, json};
use store::{Store, StoredState};

use super::*;
use crate::{
    state::overview_announced::announced,
    state::{health_state::HealthState, node_reports::Nodes, observations::Observations, published::Step},
};

/// Start time of the tests in Unix seconds.
const START: i64 = 1_771_000_000;

/// Generator of deterministic pseudo-random numbers (Knuth's constants).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn is(&mut self, one_of: u64) -> bool {
        self.roll(one_of) == 0
    }
}

/// Simulated control server without HTTP.
struct Cluster {
    config: ClusterConfig,
    published: Arc<Published>,
    observations: Observations,
    store: Arc<dyn Store>,
    now: Timestamp,
    seed: u64,
}

impl Cluster {
    async fn new() -> Self {
        let config =
            ClusterConfig::new(vec!["10.96.0.0/16".parse().unwrap()], 30000..=32767, Vec::new()).unwrap();
        let now = Timestamp::from_unix_seconds(START);
        let position = Position { epoch: Epoch(1), revision: Revision(1) };
        let loaded = StoredState { position, objects: Vec::new(), recent: Vec::new() };
        let published = Published::of(loaded, &NetworkState::default(), &config);
        let overview = Arc::default();
        let observations =
            Observations::new(Nodes::default(), HealthState::new(10), Arc::default(), overview);
        Self {
            config,
            published: Arc::new(published),
            observations,
            store: store::open("memory:", now).await.unwrap(),
            now,
            seed: 0,
        }
    }

    /// Commits a write unless it is rejected or changes nothing.
    fn write(&mut self, operation: Operation) {
        self.seed += 1;
        let request = Request { operations: vec![operation], ..Request::default() };
        let entropy = Entropy { now: self.now, seed: self.seed };
        let before = self.published.snapshot.clone();
        let Ok(AdmittedWrite { snapshot, changes, .. }) = admit(&before, &self.config, &request, &entropy)
        else {
            return;
        };
        if !changes.is_empty() {
            let commit = Commit { revision: snapshot.revision(), at: self.now, changes };
            let step = Step { before, after: snapshot, commit };
            self.published = Arc::new(self.published.advance(vec![step]));
        }
    }

    async fn report(&self, node: &str, at: u64, more: Value) {
        let at = Position { epoch: Epoch(1), revision: Revision(at) };
        let mut report = json!({
            "bootId": "b", "agentVersion": "0", "mode": "nftables", "received": at, "applied": at, "verified": at,
        });
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let report = Arc::new(serde_json::from_value(report).unwrap());
        self.observations.nodes.report(&*self.store, &Name::parse(node).unwrap(), report, self.now).await;
    }

    fn look(&self, kept: &mut ServiceRowCache) -> (Vec<Seen>, usize) {
        let view = View::new(Arc::clone(&self.published), &self.observations, self.now);
        let renderer = view.renderer();
        let announced = announced(&view, &renderer);
        let (shares, worked_out) =
            kept.look(Look { view: &view, renderer: &renderer, announced: &announced });
        (shares.iter().map(seen).collect(), worked_out)
    }
}

/// Fields of a Service's part of the overview that the test compares.
type Seen = (ServiceRow, Vec<StatusFinding>, EndpointCounts, bool);

fn seen(share: &Share) -> Seen {
    let Share { basis: _, row, findings, endpoints, is_ready } = share;
    (ServiceRow::clone(row), findings.clone(), *endpoints, *is_ready)
}

fn object(kind: &str, name: String, spec: &Value) -> Operation {
    let value = json!({ "kind": kind, "metadata": { "name": name }, "spec": spec });
    Operation::Apply(decode(&value, &Expect::default()).unwrap())
}

fn endpoints(service: &str, hosts: &[u64]) -> Operation {
    let all: Vec<_> = hosts.iter().map(|host| json!({ "address": format!("10.1.0.{host}") })).collect();
    object("EndpointSet", service.to_owned(), &json!({ "service": service, "endpoints": all }))
}

fn service(dice: &mut Dice) -> Value {
    let mut spec = json!({ "ports": [{ "port": 80 + dice.roll(2) }], "disabled": dice.is(8) });
    match dice.roll(8) {
        0 => spec["type"] = json!("NodePort"),
        1 | 2 => spec["type"] = json!("LoadBalancer"),
        3 => spec["healthCheck"] = json!({ "type": "Tcp" }),
        4 => spec["clusterIP"] = json!("None"),
        5 => spec = json!({ "type": "ExternalName", "externalName": "db.example.org" }),
        _ => {}
    }
    spec
}

/// Returns a random write that changes Services, their endpoints or other objects.
fn operation(dice: &mut Dice) -> Operation {
    let name = format!("s{}", dice.roll(6));
    match dice.roll(10) {
        0..=2 => object("Service", name, &service(dice)),
        3..=6 => {
            let all = (1..=dice.roll(4))
                .map(|_| json!({ "address": format!("10.1.0.{}", 1 + dice.roll(5)), "conditions": { "ready": !dice.is(3) } }));
            let mut all: Vec<_> = all.collect();
            all.sort_by_key(ToString::to_string);
            all.dedup_by_key(|one| one["address"].clone());
            object("EndpointSet", name.clone(), &json!({ "service": name, "endpoints": all }))
        }
        7 => {
            let range = if dice.is(2) { "198.51.100.0/31" } else { "198.51.100.0/28" };
            object("AddressPool", "lab".to_owned(), &json!({ "addresses": [range] }))
        }
        8 => object("Node", format!("n{}", dice.roll(4)), &json!({ "unschedulable": dice.is(2) })),
        _ => {
            let (kind, namespace, name) = match dice.roll(4) {
                0 => (Kind::Node, None, "n3".to_owned()),
                1 => (Kind::EndpointSet, Some(Namespace::parse("default").unwrap()), name),
                _ => (Kind::Service, Some(Namespace::parse("default").unwrap()), name),
            };
            Operation::Delete {
                key: ObjectKey { kind, namespace, name: Name::parse(&name).unwrap() },
                if_revision: None,
            }
        }
    }
}

/// Sends the report of a random node that has applied the current or an older state, with random failures.
async fn say(dice: &mut Dice, cluster: &Cluster) {
    let head = cluster.published.snapshot.revision().0;
    let at = if dice.is(3) { head.saturating_sub(dice.roll(40)).max(1) } else { head };
    let failed = if dice.is(3) { dice.roll(6) } else { 0 };
    let failure =
        json!({ "revision": at, "reason": "KernelRefused", "message": format!("EINVAL {}", dice.roll(2)) });
    let failures: serde_json::Map<_, _> =
        (0..failed).map(|number| (format!("default/s{number}"), failure.clone())).collect();
    let more = json!({ "failures": failures, "failuresTotal": failed });
    cluster.report(&format!("n{}", dice.roll(4)), at, more).await;
}

/// After random writes, reports and clock changes, the cached computation always equals the full one.
#[tokio::test]
async fn a_look_that_goes_by_what_was_kept_finds_what_a_look_from_nothing_finds() {
    let (mut cluster, mut dice, mut kept) = (Cluster::new().await, Dice(5), ServiceRowCache::default());
    let (mut passed, mut worked_out, mut found) = (0, 0, 0);
    for _ in 0..3000 {
        for _ in 0..dice.roll(3) {
            cluster.write(operation(&mut dice));
        }
        for _ in 0..dice.roll(3) {
            say(&mut dice, &cluster).await;
        }
        if dice.is(4) {
            let later = cluster.now.unix_seconds() + i64::try_from(dice.roll(90)).unwrap();
            cluster.now = Timestamp::from_unix_seconds(later);
        }
        if dice.is(200) {
            // As after a restart, or after the load of another store.
            let objects =
                Kind::ALL.iter().flat_map(|kind| cluster.published.snapshot.list(*kind, None, None));
            let objects = objects.map(Arc::clone).collect();
            let loaded = StoredState { position: cluster.published.position(), objects, recent: Vec::new() };
            cluster.published = Arc::new(Published::of(loaded, &NetworkState::default(), &cluster.config));
        }
        let (seen, anew) = cluster.look(&mut kept);
        let (whole, all) = cluster.look(&mut ServiceRowCache::default());
        assert_eq!(seen, whole, "at {}", cluster.published.position());
        assert!(anew <= all && all == whole.len());
        (passed, worked_out) = (passed + all, worked_out + anew);
        found += seen.iter().map(|(_, findings, _, _)| findings.len()).sum::<usize>();
    }
    assert!(found > 1000, "something was wrong now and then: {found}");
    assert!(worked_out * 3 < passed * 2, "much was kept: {worked_out} of {passed} were worked out");
}

/// With fifty Services on two nodes, only the part of one Service is recomputed after a change of its
/// endpoints, and again after the report of each node that has received this change.
#[tokio::test]
async fn a_look_works_out_the_services_that_changed_and_those_that_nodes_came_to_have() {
    let (mut cluster, mut kept) = (Cluster::new().await, ServiceRowCache::default());
    for node in ["n0", "n1"] {
        cluster.write(object("Node", node.to_owned(), &json!({})));
    }
    for number in 0..50 {
        let name = format!("s{number}");
        cluster.write(object("Service", name.clone(), &json!({ "ports": [{ "port": 80 }] })));
        cluster.write(endpoints(&name, &[1, 2]));
    }
    let head = |cluster: &Cluster| cluster.published.snapshot.revision().0;
    for node in ["n0", "n1"] {
        cluster.report(node, head(&cluster), json!({})).await;
    }
    assert_eq!(cluster.look(&mut kept).1, 50, "nothing was known");
    assert_eq!(cluster.look(&mut kept).1, 0, "nothing has changed");
    cluster.write(endpoints("s7", &[1, 2, 3]));
    assert_eq!(cluster.look(&mut kept).1, 1, "its form is another, and nodes lack it");
    for node in ["n0", "n1"] {
        cluster.report(node, head(&cluster), json!({})).await;
        assert_eq!(cluster.look(&mut kept).1, 1, "a node has it");
    }
    let rows = cluster.look(&mut kept).0;
    assert!(rows.iter().all(|(row, findings, _, _)| row.nodes_verified == 2 && findings.is_empty()));
}
