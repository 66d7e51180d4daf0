//! Descriptions that the derive macros of utoipa leave out of the OpenAPI document.

use serde_json::{Map, Value, json};

/// Adds missing descriptions to the OpenAPI document.
///
/// If the type of an optional field is another schema, the derive macro writes the field's description next to the
/// reference inside `oneOf`. Readers and generators expect it at the property. The macro writes no description for
/// the tag of an enum.
pub(super) fn complete(document: &mut Value) {
    match document {
        Value::Object(fields) => {
            fields.values_mut().for_each(complete);
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.values_mut().for_each(describe);
            }
            if let Some(default) = default_of_reference(fields) {
                fields.extend(default);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(complete),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces `allOf: [schema, {default, type: object}]`, the form in which the derive macro writes a default value of
/// another schema, by that schema, and returns the default value. The macro's form contradicts itself if the schema
/// is no object.
fn default_of_reference(fields: &mut Map<String, Value>) -> Option<Map<String, Value>> {
    let [schema, Value::Object(second)] = fields.get("allOf")?.as_array()?.as_slice() else { return None };
    let default = second.get("default").filter(|_| !second.contains_key("properties"))?.clone();
    let mut replaced = schema.as_object()?.clone();
    replaced.insert("default".to_owned(), default);
    fields.remove("allOf");
    Some(replaced)
}

fn describe(property: &mut Value) {
    if property.get("description").is_some() {
        return;
    }
    let description = move_from_reference(property).or_else(|| tag(property));
    if let (Some(fields), Some(description)) = (property.as_object_mut(), description) {
        fields.insert("description".to_owned(), description);
    }
}

/// Removes and returns the description that the macro has written next to the `$ref` in the property's
/// `oneOf` (a reference or `null`). Returns `None` if there is none.
fn move_from_reference(property: &mut Value) -> Option<Value> {
    let alternatives = property.get_mut("oneOf")?.as_array_mut()?;
    let reference = alternatives.iter_mut().find(|one| one.get("$ref").is_some())?;
    reference.as_object_mut()?.remove("description")
}

/// Returns a description of the property if it is the tag of an enum variant, that is, a string with one
/// possible value; otherwise `None`.
fn tag(property: &Value) -> Option<Value> {
    let [Value::String(value)] = property.get("enum")?.as_array()?.as_slice() else { return None };
    Some(json!(format!("Tag of this variant, always `{value}`.")))
}
