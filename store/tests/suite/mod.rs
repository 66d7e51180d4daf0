//! What the scenarios share: places to keep a store, and objects to keep in it.

use std::sync::Arc;

use model::{
    change::{Change, ChangeKind, Commit},
    endpoint_set::{Endpoint, EndpointConditions, EndpointSetSpec},
    metadata::Metadata,
    name::{Label, Name},
    node::NodeSpec,
    quantity::{Position, Revision, Timestamp, Weight},
    resource::{Object, ObjectKey, Spec},
    service::ServiceSpec,
    workload::WorkloadSpec,
};
use store::Store;

pub(crate) mod audit;
pub(crate) mod contents;
pub(crate) mod history;
pub(crate) mod scenarios;
pub(crate) mod vault;

/// When the stores of the tests begin: 2026-11-21.
pub(crate) const BIRTH: i64 = 1_795_219_200;

/// A place for a store, removed with this value.
pub(crate) enum Place {
    Memory,
    Sqlite(tempfile::TempDir),
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory
    }

    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::Builder::new().prefix("tidegate-store-").tempdir().unwrap())
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::Sqlite(directory) => format!("sqlite:{}/state.db", directory.path().display()),
        }
    }

    /// Whether what is kept there is gone with the store.
    pub(crate) fn is_forgetful(&self) -> bool {
        matches!(self, Self::Memory)
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        store::open(&self.url(), Timestamp::from_unix_seconds(BIRTH)).await.unwrap()
    }
}

/// The spec of the object `number`; kinds take turns, and `version` shows in every one of them.
pub(crate) fn spec(number: u32, version: u64) -> Spec {
    let zone = Some(Label::parse(&format!("v{version}")).unwrap());
    match number % 4 {
        0 => Spec::Node(NodeSpec { zone, ..NodeSpec::default() }),
        1 => Spec::Workload(WorkloadSpec { zone, ..WorkloadSpec::default() }),
        2 => {
            let selector = [("version".to_owned(), version.to_string())].into();
            Spec::Service(Box::new(ServiceSpec { selector, ..ServiceSpec::default() }))
        }
        _ => Spec::EndpointSet(endpoint_set(&format!("v{version}"), 3)),
    }
}

/// A set of endpoints for a Service.
pub(crate) fn endpoint_set(service: &str, endpoints: u8) -> EndpointSetSpec {
    let endpoint = |host: u8| Endpoint {
        address: [10, 1, 0, host].into(),
        node: Some(Name::parse("node-1").unwrap()),
        zone: None,
        weight: Weight(u16::from(host)),
        conditions: EndpointConditions::default(),
        drain: false,
        maintenance: None,
    };
    let endpoints = (1..=endpoints).map(endpoint).collect();
    EndpointSetSpec { service: Name::parse(service).unwrap(), ports: Vec::new(), endpoints }
}

/// The object `number` as the commit `revision` leaves it.
pub(crate) fn object(number: u32, revision: u64) -> Arc<Object> {
    let spec = spec(number, revision);
    let namespace = spec.kind().is_namespaced().then(|| Label::parse("default").unwrap());
    let mut metadata = Metadata::named(Name::parse(&format!("o{number}")).unwrap(), namespace);
    metadata.resource_version = Some(revision.to_string());
    metadata.creation_timestamp = Some(Timestamp::from_unix_seconds(BIRTH));
    metadata.labels.insert("number".to_owned(), number.to_string());
    metadata.annotations.insert("note".to_owned(), "\"quoted\", ünïcode and\nlines".to_owned());
    Arc::new(Object { metadata, spec })
}

/// A commit that does these things to these objects.
pub(crate) fn commit(revision: u64, changes: impl IntoIterator<Item = (ChangeKind, u32)>) -> Commit {
    let change = |(kind, number)| Change { kind, object: object(number, revision) };
    let at = Timestamp::from_unix_seconds(BIRTH + revision.cast_signed());
    Commit { revision: Revision(revision), at, changes: changes.into_iter().map(change).collect() }
}

/// A commit that adds one object.
pub(crate) fn added(revision: u64, number: u32) -> Commit {
    commit(revision, [(ChangeKind::Added, number)])
}

/// A position in the first life of a store.
pub(crate) fn at(revision: u64) -> Position {
    Position { epoch: model::quantity::Epoch(BIRTH.unsigned_abs()), revision: Revision(revision) }
}

/// The store key of an object.
pub(crate) fn key(object: &Object) -> String {
    ObjectKey::to_store_key(&object.key())
}
