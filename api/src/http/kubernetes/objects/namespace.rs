//! Rendering of a namespace as a Kubernetes object. A Tidegate namespace exists while it contains an object.

use model::primitives::{
    name::Namespace,
    quantity::{Epoch, Revision, Timestamp},
};
use serde_json::{Value, json};

use super::version;

/// Renders a namespace, with the creation time of its oldest object.
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
