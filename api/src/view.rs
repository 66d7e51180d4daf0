//! How an object is shown: intent from the store, status rolled up from what the agents report at this moment.

use std::sync::Arc;

use model::{
    quantity::Timestamp,
    resource::{Object, ServiceKey, Spec},
    rollup::{NodeViews, node_status, service_status},
    status::{NodeStatus, ServiceStatus},
};
use serde_json::Value;

use crate::{
    hub::Published,
    nodes::{Nodes, Table},
};

/// One state with what is known of the nodes, from which any number of objects can be shown.
pub(crate) struct View {
    published: Arc<Published>,
    table: Table,
}

/// A view that is ready to show objects.
pub(crate) struct Shower<'a> {
    view: &'a View,
    nodes: NodeViews<'a>,
}

impl View {
    /// Takes what is known at this moment.
    pub(crate) fn new(published: Arc<Published>, nodes: &Nodes, now: Timestamp) -> Self {
        let table = nodes.table(&published.snapshot, now);
        Self { published, table }
    }

    /// Prepares the roll-up, once for all objects of an answer.
    pub(crate) fn shower(&self) -> Shower<'_> {
        Shower { view: self, nodes: NodeViews::new(self.table.views()) }
    }

    /// The state.
    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    /// What is known of the nodes.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}

impl Shower<'_> {
    /// An object in its published form, with status.
    pub(crate) fn object(&self, object: &Object) -> Value {
        let status = match &object.spec {
            Spec::Service(_) => self.service(object).map(serde_json::to_value),
            Spec::Node(_) => self.node(object).map(serde_json::to_value),
            // What is observed of these shows in the status of the Services that they serve.
            Spec::Workload(_) | Spec::EndpointSet(_) => None,
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
        Some(service_status(&key, spec, compiled, published.epoch, &self.nodes))
    }

    /// The status of a Node.
    pub(crate) fn node(&self, object: &Object) -> Option<NodeStatus> {
        let view = self.view.table.view(&object.metadata.name)?;
        Some(node_status(&view, self.view.published.nodes_head()))
    }
}
