//! Translation of a Kubernetes Pod to a Workload.

use std::collections::BTreeMap;

use model::kinds::{
    metadata::{LABELS_MAX, Labels, check_labels},
    workload::{WORKLOAD_PORTS_MAX, WorkloadPort},
};
use serde_json::{Map, Value, json};

use super::{
    Settings, Severity, TranslationResult, document, label, labels_of, names::with_short_labels, own_labels,
};
use crate::json::{items, text};

/// Label of the Workloads of pods. Its value is the name of the cluster, or [`UNNAMED_CLUSTER`].
pub const POD_LABEL: &str = "tidegate.io/pod";
/// Value of [`POD_LABEL`] if the cluster has no name. No cluster can have this name, because of the underscore.
const UNNAMED_CLUSTER: &str = "unnamed_cluster";
/// Label of the Workloads of pods whose own labels cannot be translated. Its value is [`ISOLATED`].
pub const ISOLATED_LABEL: &str = "tidegate.io/isolated";
/// Value of [`ISOLATED_LABEL`].
pub(super) const ISOLATED: &str = "labels";
/// Number of labels that the adapter adds to an object after its translation: the one with the name of the source.
const LABELS_RESERVED: usize = 1;

impl Settings {
    /// Returns the value of [`POD_LABEL`] at the Workloads of this cluster's pods.
    #[must_use]
    pub(super) fn pod_label(&self) -> &str {
        self.cluster.as_ref().map_or(UNNAMED_CLUSTER, |cluster| cluster.as_str())
    }
}

/// Returns the fields of a Pod that [`pod`] reads, which are a small part of it. A cluster has many Pods, and most of their
/// changes concern other fields.
#[must_use]
pub fn reduced_pod(pod: &Value) -> Value {
    let mut metadata =
        picked(pod.get("metadata"), &["name", "namespace", "uid", "labels", "deletionTimestamp"]);
    let mut spec = picked(pod.get("spec"), &["nodeName", "hostNetwork"]);
    for (field, keys) in [("containers", &["ports"][..]), ("initContainers", &["restartPolicy", "ports"])] {
        let is_read = |container: &&Value| field == "containers" || is_sidecar(container);
        let reduce = |container: &Value| reduced_container(Some(container).filter(is_read), keys);
        let all: Vec<_> = items(pod, &format!("/spec/{field}")).iter().map(reduce).collect();
        if all.iter().any(|container| *container != json!({})) {
            spec.insert(field.to_owned(), Value::Array(all));
        }
    }
    let mut status = picked(pod.get("status"), &["phase", "podIP", "podIPs"]);
    if is_ready(pod) {
        status.insert("conditions".to_owned(), json!([{ "type": "Ready", "status": "True" }]));
    }
    for fields in [&mut metadata, &mut spec, &mut status] {
        fields.retain(|_, value| !value.is_null());
    }
    json!({ "metadata": metadata, "spec": spec, "status": status })
}

/// Returns a container with its named ports. Others become empty, so that findings name the position of a port.
fn reduced_container(container: Option<&Value>, keys: &[&str]) -> Value {
    let mut reduced = picked(container, keys);
    let Some(ports) = reduced.get_mut("ports").and_then(Value::as_array_mut) else { return json!({}) };
    for port in &mut *ports {
        let named = Some(&*port).filter(|port| !text(port, "/name").is_empty());
        *port = Value::Object(picked(named, &["name", "containerPort", "protocol"]));
    }
    if ports.iter().all(|port| *port == json!({})) { json!({}) } else { Value::Object(reduced) }
}

fn picked(value: Option<&Value>, keys: &[&str]) -> Map<String, Value> {
    let value = |key: &&str| Some(((*key).to_owned(), value?.get(*key)?.clone()));
    keys.iter().filter_map(value).collect()
}

/// Translates a Pod to a Workload of the same name. The result contains no object if the Pod has no address of its own: before
/// it has been started, after it has ended, and in the network of the host, where policies do not apply to it. The Workload of
/// a Pod with labels that a Workload cannot have is isolated; see [`ISOLATED_LABEL`].
#[must_use]
pub fn pod(settings: &Settings, pod: &Value) -> TranslationResult {
    let mut made = TranslationResult::default();
    let phase = text(pod, "/status/phase");
    let is_of_host = pod.pointer("/spec/hostNetwork").and_then(Value::as_bool).unwrap_or_default();
    if is_of_host || matches!(phase.as_str(), "Succeeded" | "Failed") {
        return made;
    }
    let mut addresses: Vec<String> =
        items(pod, "/status/podIPs").iter().map(|address| text(address, "/ip")).collect();
    if addresses.is_empty() {
        addresses.push(text(pod, "/status/podIP"));
    }
    addresses.retain(|address| !address.is_empty());
    if addresses.is_empty() {
        return made;
    }
    let is_ending = pod.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string);
    let phase = match phase.as_str() {
        _ if is_ending => "Terminating",
        "Pending" => "Pending",
        _ => "Running",
    };
    let mut spec = json!({
        "addresses": addresses,
        "phase": phase,
        "ready": is_ready(pod) && !is_ending,
        "ports": ports(pod, &mut made),
    });
    let node = text(pod, "/spec/nodeName");
    if !node.is_empty() {
        spec["node"] = json!(settings.name(&node));
    }
    let labels = labels(settings, pod, &mut made);
    let namespace = settings.name(&text(pod, "/metadata/namespace"));
    let name = with_short_labels(&text(pod, "/metadata/name"));
    made.finish(&document("Workload", Some(&namespace), &name, &labels, spec));
    made
}

/// Returns the labels of the Workload of a pod. If a Workload cannot have all labels of the pod, it gets none of them, because a
/// part of the labels may match a selector that all of them together do not match.
fn labels(settings: &Settings, pod: &Value, made: &mut TranslationResult) -> Value {
    let mut labels = labels_of(settings, pod);
    labels[POD_LABEL] = json!(settings.pod_label());
    // A pod cannot exclude itself from policies by this label.
    if let Some(labels) = labels.as_object_mut() {
        labels.remove(ISOLATED_LABEL);
    }
    let mut own = own_labels(settings);
    own[POD_LABEL] = labels[POD_LABEL].clone();
    let own_count = own.as_object().map_or(0, Map::len);
    let Err(message) = check(&labels, own_count) else { return labels };
    let message = format!(
        "{message}; the labels are left out: selectors by labels do not match the pod, and with --network-policies it is \
         isolated"
    );
    made.find(Severity::Invalid, "metadata.labels", message);
    own[ISOLATED_LABEL] = json!(ISOLATED);
    own
}

/// Checks the labels of a Workload, of which `own_count` are those of the adapter.
fn check(labels: &Value, own_count: usize) -> Result<(), String> {
    let labels: Labels = serde_json::from_value(labels.clone()).map_err(|error| error.to_string())?;
    let max = LABELS_MAX - LABELS_RESERVED;
    if labels.len() > max {
        return Err(format!(
            "must have at most {} entries, has {}",
            max - own_count,
            labels.len() - own_count
        ));
    }
    let mut violations = Vec::new();
    check_labels("/metadata/labels", &labels, &mut violations);
    let messages: Vec<_> = violations.into_iter().map(|violation| violation.message).collect();
    if messages.is_empty() { Ok(()) } else { Err(messages.join("; ")) }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = items(pod, "/status/conditions");
    let ready = conditions.iter().find(|condition| text(condition, "/type") == "Ready");
    ready.is_some_and(|condition| text(condition, "/status") == "True")
}

/// Returns true if an init container runs as long as the containers of the pod.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

/// Returns the named ports of the containers and sidecars. Of several ports with one name, the first one counts, as in
/// Kubernetes.
fn ports(pod: &Value, made: &mut TranslationResult) -> BTreeMap<String, Value> {
    let mut ports = BTreeMap::new();
    let containers = items(pod, "/spec/containers").iter().enumerate();
    let containers = containers.map(|(number, one)| (format!("spec.containers[{number}]"), one));
    let sidecars = items(pod, "/spec/initContainers").iter().enumerate().filter(|(_, one)| is_sidecar(one));
    let sidecars = sidecars.map(|(number, one)| (format!("spec.initContainers[{number}]"), one));
    for (at, container) in containers.chain(sidecars) {
        for (number, theirs) in items(container, "/ports").iter().enumerate() {
            let name = text(theirs, "/name");
            if name.is_empty() {
                continue;
            }
            let (listens, protocol) = (theirs.get("containerPort"), text(theirs, "/protocol"));
            let mut port = json!({ "port": listens });
            if !protocol.is_empty() {
                port["protocol"] = json!(protocol);
            }
            if label(&name).is_none() || serde_json::from_value::<WorkloadPort>(port.clone()).is_err() {
                let message = format!("`{name}` is not the name of a valid port");
                made.find(Severity::Invalid, format!("{at}.ports[{number}]"), message);
                continue;
            }
            let at = format!("{at}.ports[{number}].name");
            match ports.get(&name) {
                Some(known) if *known == port => {}
                Some(_) => made.find(
                    Severity::NotSupported,
                    at,
                    format!("`{name}` is also the name of another port of the pod, which takes precedence"),
                ),
                None if ports.len() == WORKLOAD_PORTS_MAX => {
                    let message = format!("a pod has at most {WORKLOAD_PORTS_MAX} named ports");
                    made.find(Severity::NotSupported, at, message);
                }
                None => drop(ports.insert(name, port)),
            }
        }
    }
    ports
}
