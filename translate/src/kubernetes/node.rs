//! Translation of a Kubernetes Node.

use crate::json::{items, text};
use serde_json::{Value, json};

use super::{Settings, Severity, TranslationResult, document, fields, label, labels_of};

/// Label with the zone of a node.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Label of nodes excluded from load balancers.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Translates a Kubernetes Node to a Tidegate Node with the labels, addresses, zone and pod networks of the
/// node, and with `unschedulable` if the node must not announce addresses.
#[must_use]
pub fn node(settings: &Settings, node: &Value) -> TranslationResult {
    let mut made = TranslationResult::begin(fields::Kind::Node, node);
    let labels = labels_of(settings, node);
    let of_type = |wanted: &'static str| {
        let all = items(node, "/status/addresses").iter();
        all.filter(move |address| text(address, "/type") == wanted).map(|address| text(address, "/address"))
    };
    let addresses: Vec<String> = of_type("InternalIP").chain(of_type("ExternalIP")).collect();
    let mut networks: Vec<Value> = items(node, "/spec/podCIDRs").to_vec();
    if networks.is_empty() {
        networks.extend(node.pointer("/spec/podCIDR").filter(|network| **network != json!("")).cloned());
    }
    let mut spec = json!({ "addresses": addresses, "workloadCIDRs": networks });
    let zone = text(node, &format!("/metadata/labels/{}", ZONE_LABEL.replace('/', "~1")));
    match label(&zone) {
        Some(zone) => spec["zone"] = json!(zone),
        None if zone.is_empty() => {}
        None => made.find(
            Severity::NotSupported,
            format!("metadata.labels[\"{ZONE_LABEL}\"]"),
            format!("`{zone}` is not a DNS label; the node has no zone"),
        ),
    }
    let is_without_network = items(node, "/status/conditions").iter().any(|condition| {
        text(condition, "/type") == "NetworkUnavailable" && text(condition, "/status") == "True"
    });
    if labels.get(EXCLUDE_LABEL).is_some() || is_without_network {
        spec["unschedulable"] = json!(true);
    }
    let name = settings.name(&text(node, "/metadata/name"));
    made.finish(&document("Node", None, &name, &labels, spec));
    made
}
