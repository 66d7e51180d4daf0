//! Conversion of an HttpRoute to an HTTPRoute of the Gateway API. Fields have the same names and values.

use model::{
    cluster::snapshot::Snapshot,
    kinds::{http_route::HttpRouteSpec, resource::Object},
    observed::rollup::http_route_status,
    primitives::quantity::Epoch,
};
use serde_json::{Value, json};

use super::{
    Resource,
    gateway::{CONTROLLER, conditions},
    metadata,
};

/// Renders an HttpRoute. Each parent has the conditions of the route.
pub(in super::super) fn render(
    object: &Object,
    spec: &HttpRouteSpec,
    snapshot: &Snapshot,
    epoch: Epoch,
) -> Value {
    let mut shown = object.spec.to_json();
    for rule in shown["rules"].as_array_mut().into_iter().flatten() {
        for backend in rule.get_mut("backendRefs").and_then(Value::as_array_mut).into_iter().flatten() {
            backend["kind"] = json!("Service");
        }
    }
    let namespace = object.metadata.namespace.as_ref();
    let status = namespace.map(|namespace| http_route_status(snapshot, namespace, spec)).unwrap_or_default();
    let parents: Vec<_> = spec
        .parent_refs
        .iter()
        .map(|parent| {
            json!({
                "parentRef": parent, "controllerName": CONTROLLER,
                "conditions": conditions(&status.conditions, object),
            })
        })
        .collect();
    json!({
        "apiVersion": Resource::HttpRoutes.group().api_version("v1"), "kind": "HTTPRoute",
        "metadata": metadata(&object.metadata, Resource::HttpRoutes, epoch), "spec": shown,
        "status": { "parents": parents },
    })
}
