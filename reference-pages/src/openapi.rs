//! Generator of the reference pages of kinds, operations and schemas, from the OpenAPI document of the control
//! server.

mod field;
mod operation;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{cell, table};

/// Folder of the pages of kinds, below `docs/reference/`.
pub const KINDS: &str = "kinds";
/// Folder of the pages of operations, below `docs/reference/`.
pub const API: &str = "api";

/// Parsed OpenAPI document.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a>(&'a Value);

impl<'a> Document<'a> {
    /// Wraps an OpenAPI document that is parsed as JSON.
    #[must_use]
    pub const fn new(document: &'a Value) -> Self {
        Self(document)
    }

    /// Returns the schema with the given name, or null if there is none.
    fn schema(self, name: &str) -> &'a Value {
        self.get(&["components", "schemas", name])
    }

    /// Returns the value at a path of keys in the document, or null if there is none.
    fn get(self, path: &[&str]) -> &'a Value {
        path.iter().fold(self.0, |value, key| &value[*key])
    }

    /// Returns the names of the kinds (object types): the schemas that have a `spec` and a fixed `kind`.
    fn kinds(self) -> Vec<&'a str> {
        let schemas = self.get(&["components", "schemas"]).as_object();
        let is_kind = |(name, schema): &(&'a String, &'a Value)| {
            let fields = &schema["properties"];
            fields["spec"].is_object() && fields["kind"]["pattern"] == format!("^{name}$").as_str()
        };
        schemas.into_iter().flatten().filter(is_kind).map(|(name, _)| name.as_str()).collect()
    }

    /// Returns all operations as path, HTTP method and definition, in order of path.
    fn operations(self) -> impl Iterator<Item = (&'a str, &'a str, &'a Value)> {
        let paths = self.get(&["paths"]).as_object().into_iter().flatten();
        paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flatten();
            methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
    }
}

/// Returns the reference pages of all kinds and their index page, each as file name and Markdown text.
#[must_use]
pub fn kinds(document: Document<'_>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut pages = Vec::new();
    for kind in document.kinds() {
        let schema = document.schema(kind);
        let file = format!("{}.md", kind.to_lowercase());
        rows.push([format!("[{kind}]({file})"), cell(text(schema, "description"))]);
        pages.push((file, kind_page(document, kind)));
    }
    let index = format!(
        "# Kinds\n\nThe objects of the API, with every field. The pages are generated from the OpenAPI document of the \
         control server, which the server itself serves at `/docs`.\n\n{}\n## Common fields\n\nEvery object has these fields besides `spec` and \
         `status`.\n\n{}",
        table(["kind", "description"], &rows),
        common_fields(document),
    );
    pages.push(("README.md".to_owned(), index));
    pages
}

fn kind_page(document: Document<'_>, kind: &str) -> String {
    let fields = &document.schema(kind)["properties"];
    let mut page = format!("# {kind}\n\n{}\n\n", paragraphs(document.schema(kind)));
    page += "[Common fields](README.md#common-fields): `apiVersion`, `kind`, `metadata`.\n";
    for (part, introduction) in [
        (
            "spec",
            "Desired state, written by users and adapters. Fields are optional unless they are marked as required.",
        ),
        ("status", "Observed state, read-only."),
    ] {
        if fields[part].is_null() {
            continue;
        }
        // The first row is the part itself.
        let rows = field::rows(document, part, &fields[part]).split_off(1);
        page += &format!("\n## {part}\n\n{introduction}\n\n{}", field::table_of(&rows));
    }
    page
}

fn common_fields(document: Document<'_>) -> String {
    let Some(kind) = document.kinds().into_iter().next() else { return String::new() };
    let fields = &document.schema(kind)["properties"];
    let mut rows = Vec::new();
    for name in ["apiVersion", "kind", "metadata"] {
        rows.extend(field::rows(document, name, &fields[name]));
    }
    // The pattern of the kind is different for each.
    field::table_of(&rows).replace(&format!(" Pattern: `^{kind}$`."), "")
}

/// Returns the reference pages of all operations, one for each tag, with the index page and the page of schemas,
/// each as file name and Markdown text.
#[must_use]
pub fn api(document: Document<'_>) -> Vec<(String, String)> {
    let mut by_tag: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for (path, method, operation) in document.operations() {
        let tag = operation["tags"][0].as_str().unwrap_or("Other");
        by_tag.entry(tag).or_default().push((path, method, operation));
    }
    let common = operation::common_responses(document);
    let mut pages = Vec::new();
    let mut rows = Vec::new();
    for (tag, operations) in by_tag {
        let file = format!("{}.md", tag.to_lowercase());
        let about = tag_description(document, tag);
        for (path, method, operation) in &operations {
            let summary = text(operation, "summary");
            let link = format!("[{}]({file}#{})", cell(summary), operation::anchor(summary));
            rows.push([link, format!("`{} {path}`", method.to_uppercase())]);
        }
        let mut page = format!("# {tag} operations\n\n{about}\n");
        for (path, method, operation) in operations {
            page += &operation::section(document, path, method, operation, &common);
        }
        pages.push((file, page));
    }
    pages.push(("README.md".to_owned(), operation::index(&rows, &common)));
    pages.push(("schemas.md".to_owned(), schemas(document)));
    pages
}

fn tag_description<'a>(document: Document<'a>, tag: &str) -> &'a str {
    let tags = document.get(&["tags"]).as_array().into_iter().flatten();
    tags.filter(|one| one["name"] == tag).map(|one| text(one, "description")).next().unwrap_or_default()
}

/// Returns the reference page of all schemas that are not kinds.
fn schemas(document: Document<'_>) -> String {
    let mut page =
        "# Schemas\n\nTypes of bodies and fields, in order of name. Kinds have pages of their own: \
                    [Kinds](../kinds/README.md).\n"
            .to_owned();
    let kinds = document.kinds();
    let schemas = document.get(&["components", "schemas"]).as_object().into_iter().flatten();
    for (name, schema) in schemas.filter(|(name, _)| !kinds.contains(&name.as_str())) {
        page += &format!("\n## {name}\n\n{}\n", paragraphs(schema));
        page += &field::shape(document, schema);
    }
    page
}

/// Returns the reference page of the error codes. `meanings` contains the description of each code.
///
/// # Errors
/// Returns an error if `meanings` lacks a code of the document.
pub fn error_codes(document: Document<'_>, meanings: &[crate::variants::Variant]) -> Result<String, String> {
    let mut page = "# Error codes\n\nEvery error response is a problem document (RFC 9457) with one of these codes in \
                    `code`. `detail` describes the occurrence, `errors` lists invalid fields, and `hint` suggests a remedy.\n\n"
        .to_owned();
    let stated = operation::codes(document);
    let codes = document.schema("Code")["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut rows = Vec::new();
    for code in codes {
        let meaning = meanings.iter().find(|variant| variant.name == code);
        let meaning = meaning.ok_or_else(|| format!("the code {code} has no description"))?;
        // The code for a wrong method is the only one that no operation can return.
        let status = stated.get(code).copied().unwrap_or("405");
        rows.push([format!("`{code}`"), status.to_owned(), cell(&meaning.meaning)]);
    }
    page += &table(["code", "HTTP status", "meaning"], &rows);
    Ok(page)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the description of a schema or operation as Markdown paragraphs.
fn paragraphs(value: &Value) -> String {
    let paragraphs: Vec<_> = text(value, "description").split("\n\n").map(cell).collect();
    paragraphs.join("\n\n")
}
