//! Conversion of Tidegate objects to Kubernetes objects. No I/O: the result depends only on the state and, for
//! Nodes, on their reported status.

pub(super) mod endpoints;
pub(super) mod event;
pub(super) mod gateway;
pub(super) mod http_route;
pub(super) mod ingress;
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

/// Annotation with the spec fields that the Kubernetes type lacks, as JSON.
const REST: &str = "tidegate/spec";

/// Returns the Kubernetes resource version of a state: epoch and revision, opaque for clients.
pub(super) fn version(epoch: Epoch, revision: Revision) -> String {
    Position { epoch, revision }.to_string()
}

/// Returns the Kubernetes metadata of a Tidegate object.
fn metadata(own: &Metadata, resource: Resource, epoch: Epoch) -> Map<String, Value> {
    let Metadata {
        name,
        namespace,
        uid,
        resource_version: _,
        generation,
        creation_timestamp,
        // Path in the Tidegate API; the Kubernetes API has its own paths.
        self_link: _,
        apply_set,
        apply_set_limited: _,
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

/// Adds the annotation [`REST`] with the spec fields that the Kubernetes type lacks.
fn annotate_rest(shown: &mut Map<String, Value>, rest: &Map<String, Value>) {
    if rest.is_empty() {
        return;
    }
    let annotations = shown.entry("annotations").or_insert_with(|| json!({}));
    annotations[REST] = json!(Value::Object(rest.clone()).to_string());
}

/// Splits a spec into the fields in `known`, which the Kubernetes type has, and the other fields whose values
/// differ from those in `default`.
fn split(spec: Value, default: &Value, known: &[&str]) -> (Map<String, Value>, Map<String, Value>) {
    let Value::Object(fields) = spec else { return (Map::new(), Map::new()) };
    let (shown, rest): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(field, _)| known.contains(&field.as_str()));
    let rest = rest.into_iter().filter(|(field, value)| default.get(field) != Some(value));
    (shown.into_iter().collect(), rest.collect())
}
