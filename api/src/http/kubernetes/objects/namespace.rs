//! Namespace as a Kubernetes object. In Tidegate a namespace exists as long as an object is in it.

use model::primitives::{
    name::Namespace,
    quantity::{Epoch, Revision, Timestamp},
};
use serde_json::{Value, json};

use super::version;

/// Renders a namespace, as old as the oldest of its objects.
pub(in super::super) fn render(
    name: &Namespace,
    oldest: Option<Timestamp>,
    epoch: Epoch,
    revision: Revision,
) -> Value {
    let mut shown = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": name,
            "resourceVersion": version(epoch, revision),
            "selfLink": format!("/api/v1/namespaces/{name}"),
            "labels": { "kubernetes.io/metadata.name": name },
        },
        "spec": {},
        "status": { "phase": "Active" },
    });
    if let Some(oldest) = oldest {
        shown["metadata"]["creationTimestamp"] = json!(oldest);
    }
    shown
}
