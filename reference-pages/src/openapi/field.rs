//! Markdown tables of the fields of OpenAPI schemas.

use serde_json::Value;

use super::{Document, paragraphs, text};
use crate::{cell, table};

/// Maximum nesting of fields that a table lists.
const DEPTH_MAX: usize = 12;

/// Row of a table of fields: path, type, default and description of one field.
#[derive(Debug, Clone)]
pub(super) struct Row {
    path: String,
    kind: String,
    default: String,
    description: String,
}

/// Renders rows as a Markdown table of fields.
pub(super) fn table_of(rows: &[Row]) -> String {
    let cells = |Row { path, kind, default, description }: &Row| {
        [format!("`{path}`"), kind.clone(), default.clone(), description.clone()]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table(["field", "type", "default", "description"], &rows)
}

/// Returns the table rows of the field at `path` and of all fields nested in it.
pub(super) fn rows(document: Document<'_>, path: &str, schema: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    collect(document, path, schema, false, &mut Vec::new(), &mut rows);
    rows
}

/// Describes a schema in Markdown: a table of its fields, or its type if it has no fields.
pub(super) fn shape(document: Document<'_>, schema: &Value) -> String {
    let mut rows = Vec::new();
    let required = schema["required"].as_array();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|one| one == name.as_str()));
        let resolved = ResolvedSchema::of(document, field);
        rows.push(Row {
            path: name.clone(),
            kind: linked(document, field, &resolved),
            default: default(&resolved, is_required),
            description: resolved.description(),
        });
    }
    if rows.is_empty() {
        let resolved = ResolvedSchema { schema, own: schema, name: None };
        return format!("\nType: {}.{}\n", type_of(document, &resolved), details(schema));
    }
    format!("\n{}", table_of(&rows))
}

/// Schema that a `$ref` leads to, together with the field schema that contains the `$ref`.
struct ResolvedSchema<'a> {
    /// Referenced schema, which defines the type and the fields.
    schema: &'a Value,
    /// Schema object that contains the reference. Its description takes precedence over that of the
    /// referenced schema.
    own: &'a Value,
    /// Name of the referenced schema in `components`; `None` for an inline schema.
    name: Option<&'a str>,
}

impl<'a> ResolvedSchema<'a> {
    /// Resolves a schema: follows `$ref`, and replaces a union of `null` and one other schema by the other schema.
    fn of(document: Document<'a>, own: &'a Value) -> Self {
        let mut resolved = Self { schema: own, own, name: None };
        loop {
            if let Some(reference) = resolved.schema["$ref"].as_str() {
                // The description next to a reference belongs to the place of use.
                if text(resolved.own, "description").is_empty() {
                    resolved.own = resolved.schema;
                }
                let name = reference.rsplit('/').next().unwrap_or_default();
                resolved = Self { schema: document.schema(name), name: Some(name), ..resolved };
                continue;
            }
            let alternatives =
                ["oneOf", "anyOf", "allOf"].iter().find_map(|key| resolved.schema[*key].as_array());
            let mut present = alternatives.into_iter().flatten().filter(|one| one["type"] != "null");
            match (present.next(), present.next()) {
                (Some(only), None) => resolved.schema = only,
                (Some(_), Some(_)) | (None, _) => return resolved,
            }
        }
    }

    /// Returns the description of the field, followed by accepted values, range, length, pattern and example.
    fn description(&self) -> String {
        let own = text(self.own, "description");
        let own = if own.is_empty() { text(self.schema, "description") } else { own };
        let paragraphs: Vec<_> = own.split("\n\n").map(cell).collect();
        format!("{}{}", paragraphs.join("<br>"), details(self.schema))
    }
}

fn collect(
    document: Document<'_>,
    path: &str,
    field: &Value,
    is_required: bool,
    stack: &mut Vec<String>,
    rows: &mut Vec<Row>,
) {
    let resolved = ResolvedSchema::of(document, field);
    rows.push(Row {
        path: path.to_owned(),
        kind: type_of(document, &resolved),
        default: default(&resolved, is_required),
        description: resolved.description(),
    });
    // Fields of the entries of lists and of the values of maps.
    let (mut suffix, mut inner) = (String::new(), resolved);
    loop {
        let (mark, next) = match (&inner.schema["items"], &inner.schema["additionalProperties"]) {
            (items, _) if items.is_object() => ("[]", items),
            (_, values) if values.is_object() => (".*", values),
            _ => break,
        };
        suffix += mark;
        inner = ResolvedSchema::of(document, next);
    }
    // A recursive type is listed once.
    let name = inner.name.unwrap_or_default().to_owned();
    if stack.len() > DEPTH_MAX || (!name.is_empty() && stack.contains(&name)) {
        return;
    }
    stack.push(name);
    let required = inner.schema["required"].as_array();
    for (name, field) in inner.schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|one| one == name.as_str()));
        collect(document, &format!("{path}{suffix}.{name}"), field, is_required, stack, rows);
    }
    stack.pop();
}

fn default(resolved: &ResolvedSchema<'_>, is_required: bool) -> String {
    let found =
        [&resolved.own["default"], &resolved.schema["default"]].into_iter().find(|value| !value.is_null());
    match found {
        Some(Value::String(word)) => format!("`{word}`"),
        Some(value) => format!("`{value}`"),
        None if is_required => "required".to_owned(),
        None => String::new(),
    }
}

/// Returns the type of a field as text. If the type, or the item type of a list, has fields, the text
/// contains a link to its schema.
fn linked(document: Document<'_>, field: &Value, resolved: &ResolvedSchema<'_>) -> String {
    let has_fields = |resolved: &ResolvedSchema<'_>| resolved.schema["properties"].is_object();
    if has_fields(resolved) {
        return link(document, resolved.name).unwrap_or_else(|| "object".to_owned());
    }
    let items = &resolved.schema["items"];
    if items.is_object() {
        let inner = ResolvedSchema::of(document, items);
        if let Some(link) = link(document, inner.name).filter(|_| has_fields(&inner)) {
            return format!("list of {link}");
        }
    }
    let _place = field;
    type_of(document, resolved)
}

/// Returns a Markdown link to the section of a schema or, for a kind, to its page; `None` if `name` is
/// `None`.
pub(super) fn link(document: Document<'_>, name: Option<&str>) -> Option<String> {
    let name = name?;
    let lower = name.to_lowercase();
    Some(if document.kinds().contains(&name) {
        format!("[{name}](../kinds/{lower}.md)")
    } else {
        format!("[{name}](schemas.md#{lower})")
    })
}

/// Returns the type of a field as text, such as `list of string`.
fn type_of(document: Document<'_>, resolved: &ResolvedSchema<'_>) -> String {
    let schema = resolved.schema;
    if let Some(alternatives) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        let of = |one| type_of(document, &ResolvedSchema::of(document, one));
        let mut words: Vec<_> = alternatives.iter().filter(|one| one["type"] != "null").map(of).collect();
        words.dedup();
        return words.join(" or ");
    }
    if schema["items"].is_object() {
        return format!("list of {}", type_of(document, &ResolvedSchema::of(document, &schema["items"])));
    }
    let word = match &schema["type"] {
        Value::String(word) => word.as_str(),
        Value::Array(words) => {
            words.iter().filter_map(Value::as_str).find(|word| *word != "null").unwrap_or("any value")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            if schema["properties"].is_object() { "object" } else { "any value" }
        }
    };
    let values = &schema["additionalProperties"];
    if word == "object" && values.is_object() {
        return format!("map of {}", type_of(document, &ResolvedSchema::of(document, values)));
    }
    match schema["format"].as_str() {
        // Sizes of integers follow from their ranges.
        Some("int32" | "int64") | None => word.to_owned(),
        Some(format) => format!("{word} ({format})"),
    }
}

/// Returns the accepted values, range, length, pattern and example of a schema, as sentences.
fn details(schema: &Value) -> String {
    let mut text = String::new();
    let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<_> = words.map(|word| format!("`{word}`")).collect();
    if !words.is_empty() {
        text += &format!(" One of {}.", words.join(", "));
    }
    for (low, high, what) in [
        ("minimum", "maximum", "Range"),
        ("minLength", "maxLength", "Length"),
        ("minItems", "maxItems", "Entries"),
    ] {
        text += &match (&schema[low], &schema[high]) {
            (Value::Null, Value::Null) => String::new(),
            (low, Value::Null) => format!(" {what}: at least {low}."),
            (Value::Null, high) => format!(" {what}: at most {high}."),
            (low, high) => format!(" {what}: {low} to {high}."),
        };
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        text += &format!(" Pattern: `{}`.", pattern.replace('|', "\\|"));
    }
    let example = [&schema["example"], &schema["examples"][0]].into_iter().find(|value| !value.is_null());
    if let Some(example) = example {
        let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
        text += &format!(" Example: `{}`.", example.replace('|', "\\|"));
    }
    text
}

/// Returns the type of a request or response body: a link if the schema has a name, else its description or type.
pub(super) fn body(document: Document<'_>, schema: &Value) -> String {
    let resolved = ResolvedSchema::of(document, schema);
    link(document, resolved.name).unwrap_or_else(|| {
        let described = paragraphs(schema);
        if described.is_empty() { type_of(document, &resolved) } else { cell(&described) }
    })
}

/// Returns the type and the description of a request parameter.
pub(super) fn parameter(document: Document<'_>, parameter: &Value) -> [String; 2] {
    let resolved = ResolvedSchema::of(document, &parameter["schema"]);
    let own = text(parameter, "description");
    let description =
        if own.is_empty() { resolved.description() } else { cell(own) + &details(resolved.schema) };
    [type_of(document, &resolved), description]
}
