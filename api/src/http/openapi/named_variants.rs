//! Names for the types of enum variants with fields.
//!
//! The derive macro writes the fields of such a variant in place. Some generators of clients cannot name that type
//! and leave out every operation that uses it.

use serde_json::{Map, Value, json};

/// Moves the inline objects in the variants of each schema to schemas of their own, named after the schema and
/// the variant.
pub(super) fn name(document: &mut Value) {
    let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) else {
        return;
    };
    let mut named = Map::new();
    for (name, schema) in schemas.iter_mut() {
        let variants = schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten();
        let fields = variants
            .filter_map(|variant| variant.get_mut("properties")?.as_object_mut())
            .flat_map(Map::iter_mut);
        for (variant, field) in fields.filter(|(_, field)| field["properties"].is_object()) {
            let of_variant = format!("{name}{}", capitalized(variant));
            let reference = json!({
                "$ref": format!("#/components/schemas/{of_variant}"), "description": field["description"],
            });
            named.insert(of_variant, std::mem::replace(field, reference));
        }
    }
    for (name, schema) in named {
        schemas.entry(name).or_insert(schema);
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_variant_become_a_schema_with_a_name() {
        let fields = json!({ "type": "object", "properties": { "port": {} }, "description": "Port." });
        let variants = json!([{ "properties": { "goesTo": fields } }, { "enum": ["refused"] }]);
        let mut document = json!({ "components": { "schemas": { "End": { "oneOf": variants } } } });
        name(&mut document);
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["EndGoesTo"], fields);
        let reference = json!({ "$ref": "#/components/schemas/EndGoesTo", "description": "Port." });
        assert_eq!(schemas["End"]["oneOf"][0]["properties"]["goesTo"], reference);
    }
}
