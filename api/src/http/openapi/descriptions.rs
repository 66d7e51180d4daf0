//! Additions to the OpenAPI document where the derive macros of utoipa write no description.

use serde_json::{Value, json};

/// Adds the missing descriptions of a document.
///
/// The derive macro writes the description of an optional field of another schema next to the reference
/// inside `oneOf`; readers and generators expect it at the property. The tag of an enum has none.
pub(super) fn complete(document: &mut Value) {
    match document {
        Value::Object(fields) => {
            fields.values_mut().for_each(complete);
            if let Some(Value::Object(properties)) = fields.get_mut("properties") {
                properties.values_mut().for_each(describe);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(complete),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
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

/// Removes and returns the description of the reference in `oneOf` with `null`.
fn move_from_reference(property: &mut Value) -> Option<Value> {
    let alternatives = property.get_mut("oneOf")?.as_array_mut()?;
    let reference = alternatives.iter_mut().find(|one| one.get("$ref").is_some())?;
    reference.as_object_mut()?.remove("description")
}

/// Returns the description of the tag of an enum: a string with a single value.
fn tag(property: &Value) -> Option<Value> {
    let [Value::String(value)] = property.get("enum")?.as_array()?.as_slice() else { return None };
    Some(json!(format!("Tag of this variant, always `{value}`.")))
}
