//! Objects of ours in the form of Kubernetes. Pure: what is shown follows from the state, and of Nodes from the roll-up.

pub(super) mod endpoints;
pub(super) mod event;
pub(super) mod namespace;
pub(super) mod node;
pub(super) mod pod;
pub(super) mod service;
pub(super) mod slice;

use model::{
    kinds::metadata::{Labels, Metadata},
    primitives::quantity::{Epoch, Position, Revision},
};
use serde_json::{Map, Value, json};

use super::catalogue::Resource;

/// The annotation that holds, as JSON, what of our spec Kubernetes has no field for.
const REST: &str = "tidegate/spec";

/// The version of an object: where in which history it was made. Clients do not look into it.
pub(super) fn version(epoch: Epoch, revision: Revision) -> String {
    Position { epoch, revision }.to_string()
}

/// Who an object of ours is, in the form of Kubernetes.
fn metadata(own: &Metadata, resource: Resource, epoch: Epoch) -> Map<String, Value> {
    let Metadata {
        name,
        namespace,
        uid,
        resource_version: _,
        generation,
        creation_timestamp,
        // The path of this API, where the view has paths of its own.
        self_link: _,
        apply_set,
        labels,
        annotations,
    } = own;
    let group = resource.group();
    let place = namespace.as_ref().map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    let root = group.path(group.versions()[0]);
    let mut shown = Map::new();
    let mut put = |field: &str, value: Value| shown.insert(field.to_owned(), value);
    put("name", json!(name));
    if let Some(namespace) = namespace {
        put("namespace", json!(namespace));
    }
    put("resourceVersion", json!(version(epoch, own.revision())));
    put("selfLink", json!(format!("{root}{place}/{}/{name}", resource.words().plural)));
    if let Some(uid) = uid {
        put("uid", json!(uid));
    }
    if let Some(generation) = generation {
        put("generation", json!(generation));
    }
    if let Some(created) = creation_timestamp {
        put("creationTimestamp", json!(created));
    }
    put_labels(&mut shown, labels);
    let mut annotations = annotations.clone();
    if let Some(set) = apply_set {
        annotations.insert("tidegate/apply-set".to_owned(), set.to_string());
    }
    if !annotations.is_empty() {
        shown.insert("annotations".to_owned(), json!(annotations));
    }
    shown
}

fn put_labels(shown: &mut Map<String, Value>, labels: &Labels) {
    if !labels.is_empty() {
        shown.insert("labels".to_owned(), json!(labels));
    }
}

/// Adds the annotation with what Kubernetes has no field for.
fn annotate_rest(shown: &mut Map<String, Value>, rest: &Map<String, Value>) {
    if rest.is_empty() {
        return;
    }
    let annotations = shown.entry("annotations").or_insert_with(|| json!({}));
    annotations[REST] = json!(Value::Object(rest.clone()).to_string());
}

/// Splits a published spec: the fields that Kubernetes has, and of the others those that say something.
fn split(spec: Value, default: &Value, known: &[&str]) -> (Map<String, Value>, Map<String, Value>) {
    let Value::Object(fields) = spec else { return (Map::new(), Map::new()) };
    let (shown, rest): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(field, _)| known.contains(&field.as_str()));
    let rest = rest.into_iter().filter(|(field, value)| default.get(field) != Some(value));
    (shown.into_iter().collect(), rest.collect())
}
