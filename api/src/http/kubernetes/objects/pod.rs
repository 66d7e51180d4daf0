//! Conversion of a Workload to a Pod with a single container.

use std::net::IpAddr;

use model::{
    cluster::snapshot::Snapshot,
    kinds::{
        maintenance::Maintenance,
        resource::{Kind, Object, ObjectKey, Spec},
        workload::{WorkloadPhase, WorkloadSpec},
    },
    observed::rollup::verdict_of_others,
    primitives::quantity::Epoch,
};
use serde_json::{Value, json};

use super::{Resource, annotate_rest, metadata, split};

/// Spec fields of a Workload that have a counterpart in a Pod.
const SHOWN: [&str; 5] = ["addresses", "node", "ports", "phase", "ready"];

/// Renders a Workload as a Pod. The Pod is not ready if its Node counts as lost, because the Node's agent is silent,
/// and other nodes find the Workload unhealthy.
pub(in super::super) fn render(
    object: &Object,
    spec: &WorkloadSpec,
    snapshot: &Snapshot,
    epoch: Epoch,
) -> Value {
    let default = Spec::Workload(WorkloadSpec::default()).to_json();
    let (_, rest) = split(object.spec.to_json(), &default, &SHOWN);
    let mut metadata = metadata(&object.metadata, Resource::Pods, epoch);
    annotate_rest(&mut metadata, &rest);
    let ports = spec
        .ports
        .iter()
        .map(|(name, port)| json!({ "name": name, "containerPort": port.port, "protocol": port.protocol }));
    let name = &object.metadata.name;
    let container = json!({ "name": name, "image": "", "ports": ports.collect::<Vec<_>>(), "resources": {} });
    let mut shown = json!({ "containers": [container] });
    if let Some(node) = &spec.node {
        shown["nodeName"] = json!(node);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": shown,
        "status": status(object, spec, snapshot),
    })
}

fn status(object: &Object, spec: &WorkloadSpec, snapshot: &Snapshot) -> Value {
    let reason = not_ready_because(object, spec, snapshot);
    let (phase, word) = match spec.phase {
        WorkloadPhase::Pending => ("Pending", None),
        WorkloadPhase::Running => ("Running", reason.filter(|word| *word == NODE_LOST)),
        WorkloadPhase::Terminating => ("Running", Some("Terminating")),
        WorkloadPhase::Succeeded => ("Succeeded", None),
        WorkloadPhase::Failed => ("Failed", None),
    };
    let is_ready = reason.is_none();
    let mut condition = json!({ "type": "Ready", "status": if is_ready { "True" } else { "False" } });
    if let Some(reason) = reason {
        condition["reason"] = json!(reason);
    }
    let started = object.metadata.creation_timestamp;
    let mut status = json!({
        "phase": phase,
        "conditions": [condition],
        "containerStatuses": [{
            "name": object.metadata.name, "ready": is_ready, "restartCount": 0, "image": "", "imageID": "",
            "state": state(spec.phase, started.map(|at| at.to_string())), "lastState": {},
        }],
    });
    if let Some(word) = word {
        status["reason"] = json!(word);
    }
    if let Some(started) = started {
        status["startTime"] = json!(started);
    }
    if let Some(first) = spec.addresses.first() {
        status["podIP"] = json!(first);
        status["podIPs"] = spec.addresses.iter().map(|address| json!({ "ip": address })).collect();
    }
    if let Some(address) = address_of_node(spec, snapshot) {
        status["hostIP"] = json!(address);
    }
    status
}

/// Reason why a Workload is not ready: the agent of its Node is silent, and other nodes find it unhealthy.
const NODE_LOST: &str = "NodeLost";

/// Returns the reason why the Workload accepts no new connections, or `None` if it does.
fn not_ready_because(object: &Object, spec: &WorkloadSpec, snapshot: &Snapshot) -> Option<&'static str> {
    let namespace = object.metadata.namespace.as_ref();
    let is_lost = namespace
        .is_some_and(|namespace| verdict_of_others(snapshot, namespace, &object.metadata, spec).is_some());
    let node_is_out = || spec.node.as_ref().and_then(|node| snapshot.maintenance_of(node));
    match spec.phase {
        WorkloadPhase::Pending => Some("Pending"),
        WorkloadPhase::Succeeded | WorkloadPhase::Failed => Some("Ended"),
        WorkloadPhase::Running | WorkloadPhase::Terminating if is_lost => Some(NODE_LOST),
        WorkloadPhase::Terminating => Some("Terminating"),
        WorkloadPhase::Running if !spec.ready => Some("NotReady"),
        WorkloadPhase::Running => spec.maintenance.as_deref().or_else(node_is_out).map(mode),
    }
}

fn mode(maintenance: &Maintenance) -> &'static str {
    maintenance.mode.as_str()
}

fn state(phase: WorkloadPhase, started: Option<String>) -> Value {
    match phase {
        WorkloadPhase::Pending => json!({ "waiting": { "reason": "Pending" } }),
        WorkloadPhase::Running | WorkloadPhase::Terminating => json!({ "running": { "startedAt": started } }),
        WorkloadPhase::Succeeded => json!({ "terminated": { "exitCode": 0, "reason": "Completed" } }),
        WorkloadPhase::Failed => json!({ "terminated": { "exitCode": 1, "reason": "Error" } }),
    }
}

fn address_of_node(spec: &WorkloadSpec, snapshot: &Snapshot) -> Option<IpAddr> {
    let key = ObjectKey { kind: Kind::Node, namespace: None, name: spec.node.clone()? };
    let object = snapshot.get(&key)?;
    if let Spec::Node(node) = &object.spec { node.addresses.first().copied() } else { None }
}
