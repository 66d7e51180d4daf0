//! Conversion of a node event to a Kubernetes `Event` about the Node.

use model::{
    kinds::event::{Event, EventReason},
    primitives::{
        name::Name,
        quantity::{Epoch, Revision},
    },
};
use serde_json::{Value, json};

use super::version;

/// Namespace of events about cluster-scoped objects, as in Kubernetes.
pub(in super::super) const NAMESPACE: &str = "default";

/// Renders an event as a Kubernetes `Event`, named after the Node, the reason and the time.
pub(in super::super) fn render(node: &Name, event: &Event, epoch: Epoch, revision: Revision) -> Value {
    let Event { time, reason, message, count } = event;
    let word = json!(reason);
    let word = word.as_str().unwrap_or_default();
    let name = format!("{node}.{}.{:x}", word.to_ascii_lowercase(), time.unix_seconds());
    // Kubernetes uses the name of a Node as its uid in events.
    let object = json!({ "kind": "Node", "name": node, "uid": node, "apiVersion": "v1" });
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "resourceVersion": version(epoch, revision), "creationTimestamp": time,
        },
        "involvedObject": object,
        "type": if is_good(*reason) { "Normal" } else { "Warning" },
        "reason": word, "message": message, "count": count,
        "firstTimestamp": time, "lastTimestamp": time,
        "source": { "component": "tidegate-agent", "host": node },
    })
}

/// Returns true for a reason that needs no attention; the Kubernetes event then has the type `Normal`.
const fn is_good(reason: EventReason) -> bool {
    match reason {
        EventReason::DriftRepaired
        | EventReason::ModeChanged
        | EventReason::LeftoversRemoved
        | EventReason::StateReleased
        | EventReason::BgpSessionUp => true,
        EventReason::PassFailed
        | EventReason::ModeChangeFailed
        | EventReason::PortUnavailable
        | EventReason::ConntrackFailed
        | EventReason::StateHeld
        | EventReason::BgpSessionDown => false,
    }
}
