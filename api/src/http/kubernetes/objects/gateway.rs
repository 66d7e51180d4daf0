//! Conversion of a Gateway to a Gateway of the Gateway API. Fields have the same names and values.

use std::net::IpAddr;

use model::{
    cluster::snapshot::{Snapshot, publishing_service},
    kinds::{
        gateway::{GatewaySpec, ListenerProtocol},
        resource::Object,
    },
    observed::{rollup::gateway_status, status::Condition},
    primitives::quantity::Epoch,
};
use serde_json::{Value, json};

use super::{Resource, metadata};

/// Name of the class and of the controller in the rendered objects.
pub(super) const CONTROLLER: &str = "tidegate.io/gateway";
/// Name of the class of all Gateways.
pub(super) const CLASS: &str = "tidegate";

/// Renders a Gateway with its conditions, and with the addresses of the Service that publishes it.
pub(in super::super) fn render(
    object: &Object,
    spec: &GatewaySpec,
    snapshot: &Snapshot,
    epoch: Epoch,
) -> Value {
    let mut shown = object.spec.to_json();
    shown["gatewayClassName"] = json!(CLASS);
    // The Gateway API has no such field.
    if let Some(fields) = shown.as_object_mut() {
        fields.remove("publishedBy");
    }
    let status = gateway_status(snapshot, &object.metadata, spec);
    let listeners = spec.listeners.iter().map(|listener| {
        let own = status.listeners.get(&listener.name).map(|own| own.conditions.as_slice());
        let kind = match listener.protocol {
            ListenerProtocol::Http | ListenerProtocol::Https => "HTTPRoute",
            ListenerProtocol::Tls => "TLSRoute",
        };
        json!({
            "name": listener.name,
            "supportedKinds": [{ "group": Resource::HttpRoutes.group().name(), "kind": kind }],
            "attachedRoutes": status.attached_routes.get(&listener.name).copied().unwrap_or_default(),
            "conditions": conditions(own.unwrap_or_default(), object),
        })
    });
    let listeners: Vec<_> = listeners.collect();
    let addresses: Vec<_> = addresses_of(snapshot, object)
        .map(|address| json!({ "type": "IPAddress", "value": address }))
        .collect();
    json!({
        "apiVersion": Resource::Gateways.group().api_version("v1"), "kind": "Gateway",
        "metadata": metadata(&object.metadata, Resource::Gateways, epoch), "spec": shown,
        "status": {
            "addresses": addresses, "conditions": conditions(&status.conditions, object), "listeners": listeners,
        },
    })
}

/// Returns the load balancer addresses of the Service that publishes a Gateway.
pub(super) fn addresses_of<'a>(
    snapshot: &'a Snapshot,
    gateway: &Object,
) -> impl Iterator<Item = IpAddr> + use<'a> {
    let service = publishing_service(gateway);
    let addresses: Vec<_> = service.iter().flat_map(|service| snapshot.addresses_of(service)).collect();
    addresses.into_iter()
}

/// Returns conditions with the fields that the Kubernetes type requires. The time of a transition is not recorded, so that it
/// is the creation of the object.
pub(super) fn conditions(own: &[Condition], object: &Object) -> Vec<Value> {
    let created = json!(object.metadata.creation_timestamp);
    let generation = json!(object.metadata.generation);
    let rendered = own.iter().map(|condition| {
        json!({
            "type": condition.condition_type, "status": condition.status, "reason": condition.reason,
            "message": condition.message, "lastTransitionTime": created, "observedGeneration": generation,
        })
    });
    rendered.collect()
}
