//! State from which requests are decided: received from a control server and kept on disk.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use model::{
    cluster::{change::ObjectChange, snapshot::Snapshot},
    http::{HttpObjectKey, HttpState},
    kinds::resource::{Kind, Object},
    primitives::quantity::Revision,
};
use replica::{Journal, StateSink};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::metrics::Metrics;

/// Name of the file in the state directory.
const FILE: &str = "routes.jsonl";
/// Kinds whose objects have an influence on requests.
pub(crate) const KINDS: [Kind; 9] = [
    Kind::Node,
    Kind::Workload,
    Kind::Service,
    Kind::EndpointSet,
    Kind::EndpointHealth,
    Kind::Certificate,
    Kind::Gateway,
    Kind::HttpRoute,
    Kind::TlsRoute,
];

/// State that is sent to the listeners and to requests; `None` until it is known.
pub(crate) type SharedState = Option<Arc<HttpState>>;

/// State of the received objects.
pub(crate) struct RouteSink {
    /// Gateways to serve, or all if empty.
    pub(crate) served: Arc<BTreeSet<HttpObjectKey>>,
    pub(crate) states: watch::Sender<SharedState>,
    pub(crate) metrics: Arc<Metrics>,
}

impl RouteSink {
    fn publish(&self, state: HttpState) {
        self.metrics.set_revision(state.snapshot().revision());
        self.states.send_replace(Some(Arc::new(state)));
    }
}

impl StateSink for RouteSink {
    fn replace(&self, revision: Revision, objects: Vec<Arc<Object>>) {
        let snapshot = Snapshot::from_objects(revision, objects);
        self.publish(HttpState::new(Arc::clone(&self.served), snapshot));
    }

    fn change(&self, revision: Revision, changes: Vec<ObjectChange>) {
        let state = self.states.borrow().clone();
        if let Some(state) = state {
            self.publish(state.update(revision, changes));
        }
    }

    fn set_connected(&self, is_connected: bool) {
        self.metrics.connected.set(is_connected.into());
    }
}

/// Values in the file besides the objects: none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NoValues {}

/// Returns the file with the state in a directory.
pub(crate) fn journal(directory: &Path) -> Journal {
    Journal { directory: directory.to_owned(), file: FILE, kinds: &KINDS }
}

/// Returns the parts of a state that are kept on disk.
pub(crate) fn parts(state: &HttpState) -> (&Snapshot, NoValues) {
    (state.snapshot(), NoValues {})
}
