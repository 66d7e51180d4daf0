//! Support for the test scenarios: locations of stores, and test objects.

use std::sync::Arc;

use model::{
    cluster::change::{Change, ChangeKind, Commit},
    kinds::{
        endpoint_set::{Endpoint, EndpointConditions, EndpointSetSpec},
        metadata::Metadata,
        node::NodeSpec,
        resource::{Object, ObjectKey, Spec},
        service::ServiceSpec,
        workload::WorkloadSpec,
    },
    primitives::{
        name::{Label, Name},
        quantity::{Position, Revision, Timestamp, Weight},
    },
};
use store::{Options, Store};

pub(crate) mod audit;
pub(crate) mod contents;
pub(crate) mod etcd;
pub(crate) mod history;
pub(crate) mod lossy_proxy;
pub(crate) mod scenarios;
pub(crate) mod shared;
pub(crate) mod toy;
pub(crate) mod vault;

/// Creation time of the test stores: 2026-11-21.
pub(crate) const BIRTH: i64 = 1_795_219_200;

/// Location of a test store. Files are removed on drop.
pub(crate) enum Place {
    Memory,
    Sqlite(tempfile::TempDir),
    Etcd(Box<EtcdPlace>),
    Toy(Arc<toy::ToyCluster>),
}

/// Location of a store in an etcd cluster: the URL, and the options, which include the key prefix.
pub(crate) struct EtcdPlace {
    url: String,
    options: Options,
    /// Directory of the local store (agent reports and audit log), if it must survive closing the etcd store.
    _local: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory
    }

    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::Builder::new().prefix("tidegate-store-").tempdir().unwrap())
    }

    pub(crate) fn toy() -> Self {
        Self::Toy(Arc::default())
    }

    pub(crate) fn etcd() -> Self {
        Self::in_etcd(etcd::Cluster::shared(), Options::default(), None)
    }

    /// Returns a location in etcd with a local store in a file, which survives closing the store. The change
    /// log is merged into the objects (folded) as often as possible, so that the scenarios cover many states
    /// of the log.
    pub(crate) fn etcd_with_file() -> Self {
        let local = tempfile::Builder::new().prefix("tidegate-store-").tempdir().unwrap();
        let mut options = Options {
            local: Some(format!("sqlite:{}/local.db", local.path().display())),
            ..Options::default()
        };
        options.etcd.fold_after = 1;
        Self::in_etcd(etcd::Cluster::shared(), options, Some(local))
    }

    /// Returns a location in `cluster` with a new key prefix, so that the store is empty.
    pub(crate) fn in_etcd(
        cluster: &etcd::Cluster,
        mut options: Options,
        local: Option<tempfile::TempDir>,
    ) -> Self {
        options.etcd.prefix = etcd::fresh_prefix();
        Self::Etcd(Box::new(EtcdPlace { url: cluster.url(), options, _local: local }))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::Sqlite(directory) => format!("sqlite:{}/state.db", directory.path().display()),
            Self::Etcd(place) => place.url.clone(),
            Self::Toy(_) => "toy:".to_owned(),
        }
    }

    /// Returns true if the data is lost when the store is closed.
    pub(crate) fn is_forgetful(&self) -> bool {
        matches!(self, Self::Memory)
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        let now = Timestamp::from_unix_seconds(BIRTH);
        match self {
            Self::Memory | Self::Sqlite(_) | Self::Etcd(_) => {
                store::open_with(&self.url(), &self.options(), now).await.unwrap()
            }
            // The scheme of a store of this program would be in `store::open`.
            Self::Toy(cluster) => Arc::new(toy::ToyStore::open(cluster, now).await),
        }
    }

    /// Returns the options with which the store at the location is opened.
    pub(crate) fn options(&self) -> Options {
        match self {
            Self::Memory | Self::Sqlite(_) | Self::Toy(_) => Options::default(),
            Self::Etcd(place) => place.options.clone(),
        }
    }
}

/// Returns a spec for object `number`, which determines the kind. The spec contains `version`, so that specs
/// of two versions differ.
pub(crate) fn spec(number: u32, version: u64) -> Spec {
    let zone = Some(Label::parse(&format!("v{version}")).unwrap());
    match number % 4 {
        0 => Spec::Node(Box::new(NodeSpec { zone, ..NodeSpec::default() })),
        1 => Spec::Workload(WorkloadSpec { zone, ..WorkloadSpec::default() }),
        2 => {
            let selector = [("version".to_owned(), version.to_string())].into();
            Spec::Service(Box::new(ServiceSpec { selector, ..ServiceSpec::default() }))
        }
        _ => Spec::EndpointSet(endpoint_set(&format!("v{version}"), 3)),
    }
}

/// Returns an EndpointSet with the given number of endpoints for a Service.
pub(crate) fn endpoint_set(service: &str, endpoints: u8) -> EndpointSetSpec {
    let endpoint = |host: u8| Endpoint {
        address: [10, 1, 0, host].into(),
        node: Some(Name::parse("node-1").unwrap()),
        zone: None,
        hostname: None,
        weight: Weight(u16::from(host)),
        conditions: EndpointConditions::default(),
        drain: false,
        maintenance: None,
    };
    let endpoints = (1..=endpoints).map(endpoint).collect();
    EndpointSetSpec { service: Name::parse(service).unwrap(), ports: Vec::new(), endpoints }
}

/// Returns object `number` as it is after the commit with this revision changed it.
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

/// Returns a commit with the given revision and changes.
pub(crate) fn commit(revision: u64, changes: impl IntoIterator<Item = (ChangeKind, u32)>) -> Commit {
    let change = |(kind, number)| Change { kind, object: object(number, revision) };
    let at = Timestamp::from_unix_seconds(BIRTH + revision.cast_signed());
    Commit { revision: Revision(revision), at, changes: changes.into_iter().map(change).collect() }
}

/// Returns a commit that adds the object with this number.
pub(crate) fn added(revision: u64, number: u32) -> Commit {
    commit(revision, [(ChangeKind::Added, number)])
}

/// Returns a position in the first epoch of a store.
pub(crate) fn at(revision: u64) -> Position {
    Position { epoch: model::primitives::quantity::Epoch(BIRTH.unsigned_abs()), revision: Revision(revision) }
}

/// Returns the store key of an object.
pub(crate) fn key(object: &Object) -> String {
    ObjectKey::to_store_key(&object.key())
}
