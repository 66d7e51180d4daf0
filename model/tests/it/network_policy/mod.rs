//! Network policy: the compiled form decides as the objects say, after every sequence of writes.

mod naive;
mod property;
mod table;

use std::{collections::BTreeSet, net::IpAddr};

use model::{
    admission::admit::{Operation, Request},
    cluster::{change::Commit, snapshot::Snapshot},
    kinds::{
        attachment::WorkloadKey,
        resource::{Kind, ObjectKey},
    },
    policy::{
        index::{PolicyChanges, PolicyIndex},
        node_policy::{Attempt, AttemptProtocol, NodePolicy, PolicyVerdict},
        set::PolicyKey,
    },
    primitives::{name::Name, quantity::Timestamp},
};
use serde_json::{Value, json};

use crate::support::{self, Cluster};

/// Namespaces of the workloads.
const NAMESPACES: [&str; 3] = ["x", "y", "z"];
/// Names of the workloads of each namespace; their label `pod` has the same value.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Cluster with the compiled policy that follows its commits.
struct Policies {
    cluster: Cluster,
    index: PolicyIndex,
}

impl Policies {
    /// Creates the workloads a, b and c in each of the namespaces x, y and z.
    fn new() -> Self {
        let mut policies = Self { cluster: Cluster::new(), index: PolicyIndex::default() };
        let all: Vec<_> = NAMESPACES
            .into_iter()
            .flat_map(|namespace| NAMES.map(|name| workload(namespace, name, &json!({ "pod": name }))))
            .collect();
        policies.apply(&all);
        policies
    }

    fn apply(&mut self, objects: &[Value]) -> PolicyChanges {
        self.write(objects.iter().map(|value| Operation::Apply(support::object(value))).collect())
    }

    fn delete(&mut self, store_key: &str) -> PolicyChanges {
        let key = ObjectKey::parse_store_key(store_key).unwrap();
        if self.cluster.snapshot.get(&key).is_none() {
            return PolicyChanges::default();
        }
        self.write(vec![Operation::Delete { key, if_revision: None }])
    }

    fn write(&mut self, operations: Vec<Operation>) -> PolicyChanges {
        let before = self.cluster.snapshot.clone();
        let admitted = self.cluster.write(&Request { operations, ..Request::default() }).unwrap();
        let at = Timestamp::from_unix_seconds(self.cluster.now);
        let commit = Commit { revision: admitted.snapshot.revision(), at, changes: admitted.changes };
        self.follow(&before, &commit)
    }

    /// Updates the compiled policy, which must equal one that is compiled anew.
    fn follow(&mut self, before: &Snapshot, commit: &Commit) -> PolicyChanges {
        let old = self.index.clone();
        let changes = self.index.apply(before, &self.cluster.snapshot, commit);
        assert_eq!(self.index, PolicyIndex::of(&self.cluster.snapshot));
        for key in old.workload_keys().chain(self.index.workload_keys()) {
            let differs = old.workload(key) != self.index.workload(key);
            assert_eq!(changes.workloads.contains(key), differs, "{key}");
        }
        for id in old.set_ids().chain(self.index.set_ids()) {
            assert!(changes.sets.contains(&id) || old.set(id) == self.index.set(id), "{id}");
        }
        changes
    }

    fn node_policy(&self) -> NodePolicy {
        self.index.node_policy(self.index.workload_keys())
    }

    /// Compares the decisions on all connections between the workloads, and with an address outside, with those of the naive
    /// evaluator.
    fn check(&self) {
        let policy = self.node_policy();
        for attempt in attempts() {
            let is_accepted = matches!(policy.judge(&attempt), PolicyVerdict::Accept(_));
            let expected = naive::accepts(&self.cluster.snapshot, &attempt);
            assert_eq!(is_accepted, expected, "{attempt:?}");
        }
        for node in ["n1", "n2", "n3"] {
            let node: Name = node.parse().unwrap();
            self.check_node(&node);
        }
    }

    /// Compares the policies of a node with those that select a workload there.
    fn check_node(&self, node: &Name) {
        let is_there = |key: &WorkloadKey| {
            self.index.workload(key).is_some_and(|workload| workload.node.as_ref() == Some(node))
        };
        let objects = self.cluster.snapshot.list(Kind::NetworkPolicy, None, None);
        let all: Vec<_> = objects.filter_map(|object| PolicyKey::of(object)).collect();
        let expected = all.iter().filter(|policy| self.index.selected_by(policy).any(is_there)).collect();
        assert_eq!(self.index.policies_on(&BTreeSet::from([node])), expected, "{node}");
    }
}

/// Returns the address of a workload, such as 10.0.1.3 of y/c.
fn address(namespace: &str, name: &str) -> IpAddr {
    let index = |all: [&str; 3], one: &str| all.iter().position(|other| *other == one).unwrap();
    format!("10.0.{}.{}", index(NAMESPACES, namespace), index(NAMES, name) + 1).parse().unwrap()
}

fn workload(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "kind": "Workload",
        "metadata": { "namespace": namespace, "name": name, "labels": labels },
        "spec": {
            "addresses": [address(namespace, name)],
            "node": "n1",
            "ports": {
                "serve-80-tcp": { "port": 80 }, "serve-81-tcp": { "port": 81 },
                "serve-80-udp": { "port": 80, "protocol": "UDP" }, "serve-81-udp": { "port": 81, "protocol": "UDP" },
                "serve-80-sctp": { "port": 80, "protocol": "SCTP" },
            },
        },
    })
}

fn network_policy(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({ "kind": "NetworkPolicy", "metadata": { "namespace": namespace, "name": name }, "spec": spec })
}

/// Returns connections between all pairs of workloads, and from and to an address outside.
fn attempts() -> Vec<Attempt> {
    let inside = NAMESPACES.into_iter().flat_map(|one| NAMES.map(|name| address(one, name)));
    let ends: Vec<IpAddr> = inside.chain(["192.0.2.7".parse().unwrap()]).collect();
    let (tcp, udp) = (AttemptProtocol::Tcp, AttemptProtocol::Udp);
    let ports =
        [(tcp, 80), (tcp, 81), (udp, 80), (udp, 81), (AttemptProtocol::Sctp, 80), (AttemptProtocol::Icmp, 0)];
    let pairs = ends.iter().flat_map(|source| ends.iter().map(move |destination| (*source, *destination)));
    pairs
        .flat_map(|(source, destination)| {
            ports.map(|(protocol, port)| Attempt { source, destination, protocol, port })
        })
        .collect()
}
