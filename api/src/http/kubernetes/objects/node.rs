//! Conversion of a Node to a Kubernetes Node, including its reported status.

use model::{
    kinds::{
        node::NodeSpec,
        resource::{Object, Spec},
    },
    observed::status::{Condition, ConditionType, NodeStatus},
    primitives::quantity::{Epoch, Timestamp},
};
use serde_json::{Value, json};

use super::{Resource, annotate_rest, metadata, split};

/// Spec fields of a Node that have a counterpart in a Kubernetes Node.
const SHOWN: [&str; 3] = ["addresses", "workloadCIDRs", "unschedulable"];

/// Renders a Node. The condition `Ready` has Tidegate's meaning: the node's agent sends reports, has
/// programmed the current state into the kernel, and has verified it there.
pub(in super::super) fn render(
    object: &Object,
    spec: &NodeSpec,
    status: Option<&NodeStatus>,
    epoch: Epoch,
) -> Value {
    let default = Spec::Node(Box::default()).to_json();
    let (_, rest) = split(object.spec.to_json(), &default, &SHOWN);
    let mut metadata = metadata(&object.metadata, Resource::Nodes, epoch);
    annotate_rest(&mut metadata, &rest);
    let mut shown = json!({});
    if let Some(first) = spec.workload_cidrs.first() {
        shown["podCIDR"] = json!(first);
        shown["podCIDRs"] = json!(spec.workload_cidrs);
    }
    if !spec.takes_announcements() {
        shown["unschedulable"] = json!(true);
    }
    let name = &object.metadata.name;
    let addresses = spec.addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address }));
    let host = json!({ "type": "Hostname", "address": name });
    let reported = status.and_then(|status| status.last_report);
    let own = status.iter().flat_map(|status| &status.conditions);
    let conditions: Vec<Value> = own.map(|one| condition(one, reported)).collect();
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": shown,
        "status": {
            "addresses": addresses.chain([host]).collect::<Vec<_>>(),
            "conditions": conditions,
            "nodeInfo": info(status),
        },
    })
}

fn condition(own: &Condition, reported: Option<Timestamp>) -> Value {
    let Condition { condition_type, status, reason, message, hint } = own;
    let text = hint.as_ref().map_or_else(|| message.clone(), |hint| format!("{message}; {hint}"));
    let mut json = json!({ "type": condition_type, "status": status, "reason": reason, "message": text });
    if let Some(reported) = reported {
        json["lastHeartbeatTime"] = json!(reported);
    }
    json
}

/// Returns `status.nodeInfo`, with the version of the Tidegate agent as the kubelet version.
fn info(status: Option<&NodeStatus>) -> Value {
    let version = status.and_then(|status| status.agent_version.as_deref()).unwrap_or_default();
    let kernel = status.map(|status| status.facts.kernel.as_str()).unwrap_or_default();
    let mode = status.and_then(|status| status.mode).map(|mode| mode.as_str()).unwrap_or_default();
    json!({
        "kubeletVersion": version, "kubeProxyVersion": mode, "kernelVersion": kernel, "operatingSystem": "linux",
        "architecture": "", "osImage": "", "containerRuntimeVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
    })
}

/// Returns true if the rendered Node has the condition `Ready` with status `True`.
pub(in super::super) fn is_ready(shown: &Value) -> bool {
    let ready = json!(ConditionType::Ready);
    let conditions = shown.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == ready && condition["status"] == "True")
}
