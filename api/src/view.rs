//! How an object is shown: intent from the store, status rolled up from what the agents report at this moment.
//!
//! What is known of the nodes is gathered when the first object needs it. Endpoints change most and their status does not
//! depend on nodes, so the answers to their writes never walk over the nodes.

use std::sync::{Arc, OnceLock};

use model::{
    quantity::Timestamp,
    resource::{Object, ServiceKey, Spec},
    rollup::{
        NodeViews, address_pool_status, endpoint_set_status, node_status, service_status, workload_status,
    },
    status::{NodeStatus, ServiceStatus},
};
use serde_json::Value;

use crate::{
    hub::Published,
    nodes::{Nodes, Table},
};

/// One state with what is known of the nodes, from which any number of objects can be shown.
pub(crate) struct View<'a> {
    published: Arc<Published>,
    nodes: &'a Nodes,
    now: Timestamp,
    table: OnceLock<Table>,
}

/// A view that is ready to show objects.
pub(crate) struct Shower<'a> {
    view: &'a View<'a>,
    nodes: OnceLock<NodeViews<'a>>,
}

impl<'a> View<'a> {
    /// Looks at a state.
    pub(crate) fn new(published: Arc<Published>, nodes: &'a Nodes, now: Timestamp) -> Self {
        Self { published, nodes, now, table: OnceLock::new() }
    }

    /// Prepares to show objects; the roll-up is prepared once for all of them.
    pub(crate) fn shower(&self) -> Shower<'_> {
        Shower { view: self, nodes: OnceLock::new() }
    }

    /// The state.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    /// What is known of the nodes.
    pub(crate) fn table(&self) -> &Table {
        self.table.get_or_init(|| self.nodes.table(&self.published.snapshot, self.now))
    }
}

impl Shower<'_> {
    /// An object in its published form, with status.
    pub(crate) fn object(&self, object: &Object) -> Value {
        let status = match &object.spec {
            Spec::Service(_) => self.service(object).map(serde_json::to_value),
            Spec::Node(_) => self.node(object).map(serde_json::to_value),
            Spec::AddressPool(spec) => {
                let snapshot = &self.view.published().snapshot;
                Some(serde_json::to_value(address_pool_status(snapshot, &object.metadata.name, spec)))
            }
            Spec::Advertisement(_) | Spec::Address(_) => None,
            Spec::Workload(spec) => object.metadata.namespace.as_ref().map(|namespace| {
                let snapshot = &self.view.published().snapshot;
                serde_json::to_value(workload_status(snapshot, namespace, &object.metadata, spec))
            }),
            Spec::EndpointSet(spec) => object.metadata.namespace.as_ref().map(|namespace| {
                let snapshot = &self.view.published().snapshot;
                serde_json::to_value(endpoint_set_status(snapshot, namespace, spec))
            }),
        };
        let mut json = object.to_json();
        if let Some(status) = status {
            json["status"] = status.expect("published statuses serialise to JSON");
        }
        json
    }

    /// The status of a Service.
    pub(crate) fn service(&self, object: &Object) -> Option<ServiceStatus> {
        let spec = object.as_service()?;
        let key =
            ServiceKey { namespace: object.metadata.namespace.clone()?, name: object.metadata.name.clone() };
        let published = self.view.published();
        let compiled = published.compiled.get(&key).map(|entry| &*entry.service);
        let nodes = self.nodes.get_or_init(|| NodeViews::new(self.view.table().views()));
        Some(service_status(&published.snapshot, &key, spec, compiled, published.epoch, nodes))
    }

    /// The status of a Node.
    pub(crate) fn node(&self, object: &Object) -> Option<NodeStatus> {
        let Spec::Node(spec) = &object.spec else { return None };
        let view = self.view.table().view(&object.metadata.name)?;
        Some(node_status(spec, &view, self.view.published.nodes_head()))
    }
}
