//! Patches that take objects out of service and put them back, and progress messages. Pure functions.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::{Value, json};

use crate::{
    terminal::clean,
    views::typed::{ObjectHeader, documents::RemainingConnections, items},
};

/// Maximum number of nodes in a progress line.
const NODES_NAMED_MAX: usize = 5;

/// Returns the merge patch that sets the `maintenance` field of an object, or removes the field if
/// `maintenance` is null. Every subfield is set, so that none of an earlier drain remains.
#[must_use]
pub fn patch(maintenance: &Value) -> Value {
    let Some(given) = maintenance.as_object() else { return json!({ "spec": { "maintenance": null } }) };
    let field = |name: &str| given.get(name).cloned().unwrap_or(Value::Null);
    let whole = json!({
        "mode": field("mode"), "reason": field("reason"), "by": field("by"), "deadline": field("deadline"),
    });
    json!({ "spec": { "maintenance": whole } })
}

/// Returns the merge patch that sets or removes `maintenance` of the endpoints with `address` in a set, or
/// `None` if the set has no such endpoint.
#[must_use]
pub fn patch_set(set: &Value, address: IpAddr, maintenance: &Value) -> Option<Value> {
    // A merge patch replaces a list as a whole.
    let mut endpoints = items(set, "/spec/endpoints").to_vec();
    let mut is_changed = false;
    for endpoint in endpoints.iter_mut().filter(|endpoint| has_address(endpoint, address)) {
        let Some(fields) = endpoint.as_object_mut() else { continue };
        is_changed = true;
        fields.insert("drain".to_owned(), Value::Bool(false));
        fields.remove("maintenance");
        if !maintenance.is_null() {
            fields.insert("maintenance".to_owned(), maintenance.clone());
        }
    }
    is_changed.then(|| json!({ "spec": { "endpoints": endpoints } }))
}

fn has_address(endpoint: &Value, address: IpAddr) -> bool {
    endpoint.get("address").and_then(Value::as_str).is_some_and(|found| found.parse() == Ok(address))
}

/// Returns the entity tag of an object. Sent in `If-Match`, it makes a patch fail if the object has changed
/// meanwhile.
#[must_use]
pub fn entity_tag(object: &Value) -> String {
    let metadata = ObjectHeader::of(object).metadata;
    format!("\"{}.{}\"", metadata.uid, metadata.resource_version)
}

/// Merges several responses of `/v1/drains` into one.
pub(crate) fn merged(lists: Vec<RemainingConnections>) -> RemainingConnections {
    RemainingConnections {
        connections: lists.iter().map(|list| list.connections).sum(),
        is_over: lists.iter().all(|list| list.is_over),
        connections_through_node: None,
        items: lists.into_iter().flat_map(|list| list.items).collect(),
    }
}

/// Returns a progress line such as `3 connections left: node1 2, node2 1; unknown: node3 (its agent is
/// silent)`.
pub(crate) fn progress(list: &RemainingConnections) -> String {
    let mut by_node: BTreeMap<String, u64> = BTreeMap::new();
    let mut unknown: BTreeMap<String, String> = BTreeMap::new();
    for item in &list.items {
        for (node, count) in &item.nodes {
            *by_node.entry(clean(node)).or_default() += count;
        }
        for (node, why) in &item.unknown {
            unknown.insert(clean(node), clean(why));
        }
    }
    let mut line = match list.connections {
        1 => "1 connection left".to_owned(),
        count => format!("{count} connections left"),
    };
    let nodes = by_node.iter().map(|(node, count)| format!("{node} {count}"));
    line += &named(": ", nodes.collect());
    let nodes = unknown.iter().map(|(node, why)| format!("{node} ({why})"));
    line + &named("; unknown: ", nodes.collect())
}

fn named(before: &str, mut words: Vec<String>) -> String {
    if words.is_empty() {
        return String::new();
    }
    let more = words.len().saturating_sub(NODES_NAMED_MAX);
    words.truncate(NODES_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{before}{}{more}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::typed::decode;

    #[test]
    fn only_the_endpoint_with_the_address_changes_and_its_short_form_goes() {
        let set = json!({ "spec": { "endpoints": [
            { "address": "10.1.1.2", "drain": true },
            { "address": "fd00:0::2", "maintenance": { "mode": "Maintenance" } },
        ] } });
        let drain = json!({ "mode": "Drain", "by": "ops" });
        let patch = patch_set(&set, "fd00::2".parse().unwrap(), &drain).unwrap();
        assert_eq!(patch["spec"]["endpoints"][0], set["spec"]["endpoints"][0]);
        assert_eq!(patch["spec"]["endpoints"][1]["maintenance"], drain);
        let back = patch_set(&set, "10.1.1.2".parse().unwrap(), &Value::Null).unwrap();
        assert_eq!(back["spec"]["endpoints"][0], json!({ "address": "10.1.1.2", "drain": false }));
        assert_eq!(patch_set(&set, "10.1.1.3".parse().unwrap(), &drain), None);
    }

    #[test]
    fn progress_names_nodes_with_connections_and_nodes_that_are_silent() {
        let item = |nodes: Value, unknown: Value| json!({ "nodes": nodes, "unknown": unknown });
        let list = json!({ "connections": 4, "items": [
            item(json!({ "n1": 2, "n2": 1 }), json!({})),
            item(json!({ "n1": 1 }), json!({ "n3": "silent" })),
        ] });
        let progress = |list: &Value| progress(&decode(list).unwrap());
        assert_eq!(progress(&list), "4 connections left: n1 3, n2 1; unknown: n3 (silent)");
        assert_eq!(progress(&json!({ "connections": 1 })), "1 connection left");
    }
}
