//! Division of the operations into two OpenAPI documents: one for users and their generated clients, one for agents.

use std::collections::BTreeSet;

use serde_json::Value;

/// Tag of the operations that only agents use.
pub(super) const AGENT_TAG: &str = "Agent";
/// Beginning of a reference to a schema of the document.
const SCHEMAS: &str = "#/components/schemas/";

/// Reader of an OpenAPI document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// People and programs that use the API with a token or a session.
    Users,
    /// Agents of nodes, which use it with their certificates.
    Agents,
}

impl Audience {
    fn is_of(self, tags: &Value) -> bool {
        let is_for_agents =
            tags.as_array().into_iter().flatten().any(|tag| tag.as_str().unwrap_or_default() == AGENT_TAG);
        is_for_agents == (self == Self::Agents)
    }

    /// Removes the operations for others, and the tags, schemas and security schemes that no remaining
    /// operation uses.
    pub(super) fn select(self, document: &mut Value) {
        if let Some(paths) = document["paths"].as_object_mut() {
            for item in paths.values_mut().filter_map(Value::as_object_mut) {
                item.retain(|_, operation| self.is_of(&operation["tags"]));
            }
            paths.retain(|_, item| item.as_object().is_some_and(|operations| !operations.is_empty()));
        }
        if let Some(tags) = document["tags"].as_array_mut() {
            tags.retain(|tag| (tag["name"] == AGENT_TAG) == (self == Self::Agents));
        }
        let mut used = BTreeSet::new();
        collect(document, &document["paths"], &mut used);
        let schemes = security_schemes(&document["paths"]);
        for (part, used) in [("schemas", used), ("securitySchemes", schemes)] {
            if let Some(components) = document["components"][part].as_object_mut() {
                components.retain(|name, _| used.contains(name));
            }
        }
    }
}

/// Returns the names of the security schemes of all operations.
fn security_schemes(paths: &Value) -> BTreeSet<String> {
    let items = paths.as_object().into_iter().flat_map(|paths| paths.values());
    let operations = items.filter_map(Value::as_object).flat_map(|item| item.values());
    let requirements = operations.filter_map(|operation| operation["security"].as_array()).flatten();
    requirements.filter_map(Value::as_object).flat_map(|schemes| schemes.keys().cloned()).collect()
}

/// Adds the names of all schemas that `part` refers to, directly or through other schemas.
fn collect(document: &Value, part: &Value, used: &mut BTreeSet<String>) {
    match part {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix(SCHEMAS));
            if let Some(name) = name.filter(|name| used.insert((*name).to_owned())) {
                collect(document, &document["components"]["schemas"][name], used);
            }
            fields.values().for_each(|field| collect(document, field, used));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(document, value, used)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
