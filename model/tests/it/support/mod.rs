//! In-memory cluster for tests, with writes as JSON and responses as the API returns them.

#![allow(dead_code, clippy::unwrap_used, reason = "every test binary uses its own part; tests may panic")]

use model::{
    admission::{
        admit::{AdmittedWrite, ApplySet, Entropy, Operation, Refusal, Request, admit},
        decode::{Expect, decode},
    },
    cluster::{change::Action, config::ClusterConfig, snapshot::Snapshot},
    kinds::{
        resource::{Object, ObjectKey, ServiceKey},
        service::ServiceSpec,
    },
    primitives::{
        quantity::Timestamp,
        violation::{Violation, ViolationCode},
    },
};
use serde_json::{Value, json};

pub(crate) struct Cluster {
    pub(crate) snapshot: Snapshot,
    pub(crate) config: ClusterConfig,
    pub(crate) seed: u64,
    /// Current time in Unix seconds; tests advance it.
    pub(crate) now: i64,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(&["10.96.0.0/16", "fd00:96::/112"], 30000..=32767)
    }

    pub(crate) fn with(service_cidrs: &[&str], node_ports: std::ops::RangeInclusive<u16>) -> Self {
        let cidrs = service_cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect();
        let external = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8:e::/48".parse().unwrap()];
        let config = ClusterConfig::new(cidrs, node_ports, external).unwrap();
        Self { snapshot: Snapshot::default(), config, seed: 1, now: 1_771_000_000 }
    }

    pub(crate) fn write(&mut self, request: &Request) -> Result<AdmittedWrite, Refusal> {
        self.seed = self.seed.wrapping_add(1);
        let entropy = Entropy { now: Timestamp::from_unix_seconds(self.now), seed: self.seed };
        let admitted = admit(&self.snapshot, &self.config, request, &entropy)?;
        self.snapshot = admitted.snapshot.clone();
        Ok(admitted)
    }

    pub(crate) fn apply_many(
        &mut self,
        objects: &[Value],
        apply_set: Option<ApplySet>,
    ) -> Result<Vec<Action>, Refusal> {
        let operations = objects.iter().map(|value| Operation::Apply(object(value))).collect();
        let admitted = self.write(&Request { operations, apply_set, ..Request::default() })?;
        Ok(admitted.outcomes.iter().map(|outcome| outcome.action).collect())
    }

    pub(crate) fn apply(&mut self, value: &Value) -> Result<Action, Refusal> {
        self.apply_many(std::slice::from_ref(value), None).map(|actions| actions[0])
    }

    pub(crate) fn delete(&mut self, store_key: &str) -> Result<AdmittedWrite, Refusal> {
        let key = ObjectKey::parse_store_key(store_key).unwrap();
        self.write(&Request {
            operations: vec![Operation::Delete { key, if_revision: None }],
            ..Request::default()
        })
    }

    pub(crate) fn get(&self, store_key: &str) -> &Object {
        self.snapshot.get(&ObjectKey::parse_store_key(store_key).unwrap()).unwrap()
    }

    pub(crate) fn service(&self, name: &str) -> &ServiceSpec {
        self.get(&format!("services/default/{name}")).as_service().unwrap()
    }
}

pub(crate) fn object(value: &Value) -> Object {
    decode(value, &Expect::default()).unwrap()
}

pub(crate) fn service(name: &str, spec: Value) -> Value {
    json!({ "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

pub(crate) fn of_kind(kind: &str, name: &str, labels: Value, spec: Value) -> Value {
    json!({ "kind": kind, "metadata": { "name": name, "labels": labels }, "spec": spec })
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey::try_from(format!("default/{name}")).unwrap()
}

/// Returns the JSON pointers and codes of the violations in a refusal; panics for other results.
pub(crate) fn violations(result: Result<Action, Refusal>) -> Vec<(String, ViolationCode)> {
    match result {
        Err(Refusal::Invalid(found)) => {
            found.into_iter().map(|Violation { pointer, code, .. }| (pointer, code)).collect()
        }
        other => panic!("must be refused for its fields, was {other:?}"),
    }
}
