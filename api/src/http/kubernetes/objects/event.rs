//! What an agent says happened on its node, as an event about that Node.

use model::{
    kinds::event::{Event, EventReason},
    primitives::{
        name::Name,
        quantity::{Epoch, Revision},
    },
};
use serde_json::{Value, json};

use super::version;

/// The namespace of events about what is in none, as Kubernetes has it.
pub(in super::super) const NAMESPACE: &str = "default";

/// Shows an event. It is named after its Node, its reason and its time, which are all it has.
pub(in super::super) fn show(node: &Name, event: &Event, epoch: Epoch, revision: Revision) -> Value {
    let Event { time, reason, message, count } = event;
    let word = json!(reason);
    let word = word.as_str().unwrap_or_default();
    let name = format!("{node}.{}.{:x}", word.to_ascii_lowercase(), time.unix_seconds());
    // Kubernetes names a Node by its name where an id is asked for.
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

/// Whether nobody has to look at it.
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
