//! Translation of Endpoints, the predecessor of EndpointSlices. The adapter does not watch them, because the
//! cluster creates slices from them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Settings, Severity, TranslationResult, document, fields, labels_of,
    slice::{finish, name_host},
};
use crate::json::{items, text};

/// Translates an Endpoints object: one EndpointSet for each of its subsets, because each subset has its own
/// ports.
#[must_use]
pub fn endpoints(settings: &Settings, theirs: &Value) -> TranslationResult {
    let mut made = TranslationResult::begin(fields::Kind::Endpoints, theirs);
    let namespace = settings.name(&text(theirs, "/metadata/namespace"));
    let service = text(theirs, "/metadata/name");
    let labels = labels_of(settings, theirs);
    for (number, subset) in items(theirs, "/subsets").iter().enumerate() {
        let mut endpoints = Vec::new();
        let mut seen = BTreeSet::new();
        for (key, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
            for (at, each) in items(subset, &format!("/{key}")).iter().enumerate() {
                let address = text(each, "/ip");
                if !seen.insert(address.clone()) {
                    let field = format!("subsets[{number}].{key}[{at}].ip");
                    made.find(Severity::NotSupported, field, "duplicate address in the subset");
                    continue;
                }
                let conditions = json!({ "ready": is_ready, "serving": is_ready });
                let mut endpoint = json!({ "address": address, "conditions": conditions });
                let node = text(each, "/nodeName");
                if !node.is_empty() {
                    endpoint["node"] = json!(settings.name(&node));
                }
                let field = format!("subsets[{number}].{key}[{at}]");
                name_host(&mut endpoint, &text(each, "/hostname"), &field, &mut made);
                endpoints.push(endpoint);
            }
        }
        let ports = ports(subset);
        if ports.is_empty() {
            // A subset without ports has no endpoints; an EndpointSet without ports would use all ports of
            // the Service.
            endpoints.clear();
        }
        let name = if number == 0 { service.clone() } else { format!("{service}-{}", number + 1) };
        finish(&mut made, endpoints, |endpoints| {
            let spec = json!({ "service": service, "ports": ports, "endpoints": endpoints });
            document("EndpointSet", Some(&namespace), &name, &labels, spec)
        });
    }
    made
}

fn ports(subset: &Value) -> Vec<Value> {
    let ports = items(subset, "/ports").iter().map(|theirs| {
        let mut port = json!({ "port": theirs.get("port").cloned().unwrap_or_default() });
        for key in ["name", "protocol"] {
            let word = text(theirs, &format!("/{key}"));
            if !word.is_empty() {
                port[key] = json!(word);
            }
        }
        port
    });
    ports.collect()
}
